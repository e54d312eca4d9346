"""The pdtp audit: what one record or one group changes; leave-one-out without refits."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.sequences import TEXTS
from support.tiny_learners import Diverged, learner, records, small_mlp

from jaxaudit import sequences
from jaxaudit.audits import measure_pdtp
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import naive_bayes
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


@cache
def saying(learner: Any) -> Any:
    """Of a key and weights of the records: what the model says of all of them."""
    inputs, labels = jnp.asarray(INPUTS), jnp.asarray(LABELS)
    return jax.jit(lambda key, weights: learner.log_probs(learner.fit(key, inputs, labels, weights), inputs))


def test_a_network_is_compared_with_the_one_that_lacks_the_record_alone():
    """Measurements are averaged, and differ by the key."""
    chosen = np.array([4, 0, 17])
    how: dict[str, Any] = {"bins": 0, "seeds": 2, "measurements": 2, "execution": Execution(3)}
    answer = measure_pdtp(KEY, EXAMPLES, NETWORK, records=chosen, **how)
    one = jax.random.split(stream(KEY, "measure"), 2)[0]
    full = saying(NETWORK)(one, np.ones(23, np.float32))
    for place, record in enumerate(chosen):
        less = saying(NETWORK)(one, np.float32(np.arange(23) != record))
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


ONE_CLASS = Examples(INPUTS, np.zeros(23, np.int32), ("a", "b"), "single")


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (ONE_CLASS, {}, r"single: all records are of one class \(a\)"),
        (EXAMPLES, {"records": np.array([], int)}, "`records` .* got none"),
        (EXAMPLES, {"records": np.array([1, 1])}, "twice"),
        (EXAMPLES, {"records": np.array([23])}, "`records` .* below 23; got 23"),
        (EXAMPLES, {"measurements": 0}, "`measurements` must be at least 1; got 0"),
        (EXAMPLES, {"seeds": 1}, "`seeds` must be at least 2; got 1"),
        (EXAMPLES, {"bins": 1}, "`bins` must be at least 2 .* got 1"),
    ],
)
def test_bad_input_is_one_clear_line(examples, options, message):
    with pytest.raises(InputError, match=message):
        measure_pdtp(KEY, examples, Shares(3), **options)


def test_models_that_diverge_end_the_audit():
    with pytest.raises(InputError, match="did training diverge"):
        measure_pdtp(KEY, EXAMPLES, Diverged(), execution=Execution(4))


OF_GROUPS = jax.random.key(3)
GROUPS = np.array(["ann", "bo", "cy", "di", "ed"])[np.random.default_rng(1).permutation(23) % 5]
(WRITTEN,) = sequences([TEXTS])


def one_by_one(learner: Any, key: Any, groups: np.ndarray) -> list[np.ndarray]:
    """Log-probabilities of each record with its group and without it, by a model trained for each group alone."""
    whole = np.asarray(saying(learner)(key, np.ones(len(groups), np.float32)))
    less = np.zeros_like(whole)
    for group in set(groups.tolist()):
        own = groups == group
        less[own] = np.asarray(saying(learner)(key, np.float32(~own)))[own]
    return [whole, less]


BY_GROUP = {"network": NETWORK, "closed form": naive_bayes((0,) * 4, 3)}


@pytest.mark.parametrize("name", BY_GROUP)
def test_a_group_is_left_out_as_a_whole(name: str):
    """A learner with a closed form for one record is refitted, too. Groups differ in size; records are in any order."""
    chosen = np.random.default_rng(2).permutation(23)[:15]
    how: dict[str, Any] = {"bins": 0, "seeds": 2, "execution": Execution(3)}
    found = measure_pdtp(OF_GROUPS, replace(EXAMPLES, groups=GROUPS), BY_GROUP[name], records=chosen, **how)
    key = jax.random.split(stream(OF_GROUPS, "measure"), 1)[0]
    whole, less = one_by_one(BY_GROUP[name], key, GROUPS)
    expected = np.abs(whole - less).max(axis=1)[chosen]
    np.testing.assert_allclose(found.values, expected, atol=2e-4)
    risks: Any = found.result.groups
    assert sum(each.records for each in risks) == 15
    for risk in risks:
        own = GROUPS[chosen] == GROUPS[risk.first]
        np.testing.assert_allclose(risk.pdtp, expected[own].max(), atol=2e-4)
        assert risk.records == own.sum()
    assert found.result.largest_group == max(np.unique(GROUPS, return_counts=True)[1])
    assert found.dtp_bound is None
    assert "group" in found.columns
    alone = measure_pdtp(OF_GROUPS, EXAMPLES, BY_GROUP[name], records=chosen, **how)
    assert alone.result.groups is None
    assert (alone.values != found.values).any()


@pytest.mark.parametrize(
    ("examples", "how", "said"),
    [
        (WRITTEN, {}, "texts have no classes"),
        (replace(EXAMPLES, groups=np.zeros(23, int)), {}, "`different_groups` must be at least 2; got 1"),
        (replace(EXAMPLES, groups=np.zeros(23)), {}, "give one integer"),
    ],
)
def test_texts_and_bad_groups_are_refused(examples: Examples, how: Any, said: str):
    with pytest.raises(InputError, match=said):
        measure_pdtp(OF_GROUPS, examples, BY_GROUP["network"], **how)
