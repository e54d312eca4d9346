"""The pdtp audit: what it measures is the difference one record makes, and nothing else."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.interrupts import stop_after
from support.tiny_learners import learner, records, small_mlp

from jaxaudit.audits.pdtp.audit import PDTPAudit, measure_pdtp, reduce_pdtp
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import naive_bayes, nearest_neighbours
from jaxaudit.randomness import stream

KEY = jax.random.key(11)
INPUTS, LABELS = records(23, 4)
EXAMPLES = Examples(INPUTS, LABELS, ("a", "b", "c"), "small")
NETWORK = learner(small_mlp)


class Share(NamedTuple):
    shares: Any


@dataclass(frozen=True)
class Shares:
    """Says how common each class is, whatever the record: no key, and its PDTP is known by hand."""

    classes: int

    def fit(self, key, inputs, labels, weights):
        counts = jnp.zeros(self.classes).at[labels].add(weights) + 1
        return Share(counts / counts.sum())

    def log_probs(self, params, inputs):
        return jnp.broadcast_to(jnp.log(params.shares), (len(inputs), self.classes))


def by_hand(examples: Examples, record: int) -> float:
    """PDTP of a record under `Shares`, class by class."""
    with_record = np.bincount(examples.labels, minlength=3) + 1
    without = with_record - (np.arange(3) == examples.labels[record])
    return float(np.abs(np.log(with_record / with_record.sum()) - np.log(without / without.sum())).max())


def test_it_is_the_definition():
    answer = measure_pdtp(KEY, EXAMPLES, Shares(3), bins=0)
    np.testing.assert_allclose(answer.values, [by_hand(EXAMPLES, r) for r in range(23)], rtol=1e-4)
    # A model that knows of a record of a class gives that class more.
    assert (answer.classes == LABELS).all()
    assert (answer.directions == 1).all()
    assert answer.result.max_pdtp == answer.values.max()
    binned = measure_pdtp(KEY, EXAMPLES, Shares(3), bins=10)
    np.testing.assert_array_equal(binned.exact, answer.values)
    assert (binned.values != answer.values).any()
    assert not answer.seeded
    assert (answer.floor.mean == 0).all()
    assert answer.result.seed_floor.above == 23


def test_a_network_is_compared_with_the_one_that_lacks_the_record_alone():
    """Measurements are averaged, and differ by the key."""
    chosen = np.array([4, 0, 17])
    how: dict[str, Any] = {"bins": 0, "seeds": 2, "measurements": 2, "execution": Execution(3)}
    answer = measure_pdtp(KEY, EXAMPLES, NETWORK, records=chosen, **how)
    one = jax.random.split(stream(KEY, "measure"), 2)[0]
    inputs, labels = jnp.asarray(INPUTS), jnp.asarray(LABELS)
    said = jax.jit(lambda weights: NETWORK.log_probs(NETWORK.fit(one, inputs, labels, weights), inputs))
    full = said(np.ones(23, np.float32))
    for place, record in enumerate(chosen):
        less = said(np.float32(np.arange(23) != record))
        np.testing.assert_allclose(answer.measurements[0, place], np.abs(full - less)[record].max(), atol=1e-4)
    assert answer.seeded
    assert answer.records.tolist() == [4, 0, 17]
    assert answer.measurements.shape == (2, 3)
    assert (answer.measurements[0] != answer.measurements[1]).all()
    np.testing.assert_allclose(answer.values, answer.measurements.mean(axis=0))
    np.testing.assert_allclose(answer.exact, answer.values)


def test_duplicates_and_last_members_are_marked():
    inputs = np.concatenate([INPUTS, INPUTS[:2]])
    labels = np.concatenate([LABELS, LABELS[:2]]).astype(np.int32)
    rare = int(np.bincount(LABELS).argmin())
    keep = np.concatenate([np.flatnonzero(labels != rare), np.flatnonzero(labels == rare)[-1:]])
    examples = Examples(inputs[keep], labels[keep], ("a", "b", "c"), "rare")
    answer = measure_pdtp(KEY, examples, Shares(3))
    assert answer.only_member.sum() == 1
    assert answer.only_member[-1]
    assert np.isfinite(answer.values).all()
    assert (answer.duplicates == 2).sum() == 2 * sum(label != rare for label in LABELS[:2])


def test_the_riskiest_is_removed_and_the_rest_measured_again():
    answer = reduce_pdtp(KEY, EXAMPLES, Shares(3), 4, bins=0)
    remaining = list(range(23))
    for step in range(5):
        rest = EXAMPLES.take(np.array(remaining))
        values = [by_hand(rest, place) for place in range(len(rest))]
        np.testing.assert_allclose(answer.max_pdtp[step], max(values), rtol=1e-4)
        if step < 4:
            removed = int(answer.removed[step])
            np.testing.assert_allclose(values[remaining.index(removed)], max(values), rtol=1e-4)
            remaining.remove(removed)
    for steps in (0, 22):
        with pytest.raises(InputError, match=f"`steps` must be at least 1 and at most 21; got {steps}"):
            reduce_pdtp(KEY, EXAMPLES, Shares(3), steps)


def test_a_stopped_audit_goes_on_and_progress_rises_to_its_total(tmp_path):
    seen: list[float] = []

    def run(progress: Any = None, checkpoints: Any = None) -> PDTPAudit:
        execution = Execution(3, progress, checkpoints)
        return measure_pdtp(KEY, EXAMPLES, NETWORK, measurements=2, seeds=2, execution=execution)

    expected = run(lambda done, total: seen.append(done / total))
    assert seen == sorted(seen)
    assert seen[-1] == 1
    # Each model counts the same, whether it leaves a record out or is another seed: 2 x (24 + 3) + 2 in chunks of 3.
    assert np.diff(seen).max() < 0.15
    with pytest.raises(KeyboardInterrupt):
        run(stop_after(0.6), tmp_path)
    assert list(tmp_path.glob("*/*.npz"))
    again = run(checkpoints=tmp_path)
    for name in ("records", "values", "exact", "classes", "directions"):
        np.testing.assert_array_equal(getattr(expected, name), getattr(again, name))


ONE_CLASS = Examples(INPUTS, np.zeros(23, np.int32), ("a", "b"), "single")


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (ONE_CLASS, {}, r"single: all records are of one class \(a\)"),
        (EXAMPLES, {"records": np.array([], int)}, "`records` .* got none"),
        (EXAMPLES, {"records": np.array([1, 1])}, "twice"),
        (EXAMPLES, {"records": np.array([23])}, "`records` .* below 23; got 23"),
        (EXAMPLES, {"records": np.array([-1])}, "`records` .* got -1"),
        (EXAMPLES, {"measurements": 0}, "`measurements` must be at least 1; got 0"),
        (EXAMPLES, {"seeds": 1}, "`seeds` must be at least 2; got 1"),
        (EXAMPLES, {"bins": -1}, "`bins` .* got -1"),
        (EXAMPLES, {"bins": 1}, "`bins` must be at least 2 .* got 1"),
    ],
)
def test_bad_input_is_one_clear_line(examples, options, message):
    with pytest.raises(InputError, match=message):
        measure_pdtp(KEY, examples, Shares(3), **options)


def test_what_no_record_can_exceed_is_asked_of_the_learner():
    units = Examples(np.clip(INPUTS, 0, 1), LABELS, ("a", "b", "c"), "units")
    neighbours = measure_pdtp(KEY, units, nearest_neighbours(3, neighbours=3, smoothing=2.0), bins=0)
    assert neighbours.largest_possible == np.log1p(0.5)
    assert neighbours.result.max_pdtp <= np.log1p(0.5)
    assert neighbours.result.dtp_bound == neighbours.result.bound
    for learned in (measure_pdtp(KEY, EXAMPLES, Shares(3)), measure_pdtp(KEY, EXAMPLES, naive_bayes((0,) * 4, 3))):
        assert learned.largest_possible is None
        assert learned.dtp_bound is None
