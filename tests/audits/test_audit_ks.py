"""The `ks` audit end to end, on blobs and tiny networks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import msgspec
import numpy as np
import optax
import pytest
from support.clouds import trained_outputs
from support.ks_audits import audit_ks
from support.references import ks_by_scipy

from jaxaudit import Check, FileTarget, KSAudit, Part, RhoTest, Sets, SimulatedTarget, TargetResult
from jaxaudit.audits import Target, make_pool, target_row
from jaxaudit.data import Examples, Outputs
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.metrics.checks import POSITIVE_CONTROL
from jaxaudit.models import MLP

KEY = jax.random.key(3)
NAMES = ("left", "right", "middle")


def blobs(seed: int, records: int, shift: float, name: str) -> Examples:
    """Three overlapping clouds; `shift` moves them together, as another source of the same domain would."""
    rng = np.random.default_rng(seed)
    labels = np.arange(records) % 3
    centres = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.5]])
    inputs = rng.normal(centres[labels] + [shift, -shift / 2], 0.8)
    return Examples(inputs.astype(np.float32), labels, NAMES, name)


QUERY, CALIBRATION = blobs(1, 240, 0.0, "query"), blobs(2, 240, 2.5, "calibration")
LEARNER = network(partial(MLP, hidden=(16,)), (2,), 3, optimizer=optax.adam(0.02), epochs=12, batch_size=32)
KNOWN = [
    SimulatedTarget("used", (Part(QUERY, 1.0),)),
    SimulatedTarget("mixed", (Part(CALIBRATION, 1.0), Part(QUERY.take(slice(0, 60)), 1.0))),
    SimulatedTarget("never", (Part(CALIBRATION, 0.5),)),
]


def run(targets: Sequence[Target] = KNOWN, **options: Any) -> KSAudit:
    """Without any test but rho."""
    how: dict[str, Any] = {"tests": [RhoTest(replicates=3)], "execution": Execution(2), **options}
    return audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, **how)


@pytest.fixture(scope="module")
def audit() -> KSAudit:
    return run()


def test_a_target_trained_on_the_query_set_has_not_forgotten(audit):
    """Alone. Beside others each is judged at a smaller level, for which three replicates may be too few."""
    first = audit.targets[0]
    assert first.ratio.rho.high < 1
    assert first.verdict in ("not forgotten", "inconclusive")
    (alone,) = run(KNOWN[:1]).targets
    assert (alone.ratio, alone.verdict) == (first.ratio, "not forgotten")
    truths = [target.truth for target in audit.targets]
    assert [truth.used_fraction for truth in truths] == [1.0, 0.25, 0.0]
    assert [truth.training_records for truth in truths] == [240, 300, 120]
    assert [truth.expected for truth in truths] == ["not forgotten", "not forgotten", "forgotten"]


def as_outputs(probabilities: np.ndarray, decimals: int | None = None) -> Outputs:
    return Outputs(probabilities.astype(np.float32), "probabilities", decimals, "float64", "out.csv")


@cache
def exact() -> np.ndarray:
    """What a model says that was trained on the query set."""
    return trained_outputs(LEARNER, 9, [QUERY], [QUERY], "exact")[0].probabilities


@pytest.fixture(scope="module")
def of_files() -> KSAudit:
    """One query-trained model in full, with two decimals, and with two decimals that the file does not admit to."""
    printed = np.round(exact(), 2)
    files = [as_outputs(exact()), as_outputs(printed, decimals=2), as_outputs(printed)]
    targets = [FileTarget(Sets(query=outputs)) for outputs in files]
    # Apart, since files of one model are not several targets.
    audits = [run([target], tests=[RhoTest(replicates=3, controls=0)]) for target in targets]
    result = msgspec.structs.replace(audits[0].result, targets=tuple(audit.targets[0] for audit in audits))
    confidences = np.concatenate([audit.target_confidences for audit in audits])
    return replace(audits[0], result=result, target_confidences=confidences)


def test_a_printed_file_is_compared_at_its_resolution(of_files):
    shadows = of_files.query_confidences, of_files.calibration_confidences
    query, calibration = (np.round(rows.astype(np.float64), 2) for rows in shadows)
    whole, printed, denied = of_files.targets
    target = np.round(of_files.target_confidences[1].astype(np.float64), 2)
    expected = [ks_by_scipy(row, target) for row in query]
    np.testing.assert_allclose(printed.ratio.rho.distances, expected, rtol=2.0**-22)
    expected = [ks_by_scipy(row, other) for row, other in zip(query, calibration, strict=True)]
    np.testing.assert_allclose(printed.ratio.rho.calibration_distances, expected, rtol=2.0**-22)
    assert denied.ratio.rho.distances != printed.ratio.rho.distances
    # Rounding keeps the order, so that distributions cannot be further apart than before.
    assert np.less_equal(printed.ratio.rho.distances, whole.ratio.rho.distances).all()
    assert max(whole.ratio.rho.high, printed.ratio.rho.high) < 1
    assert whole.truth is printed.truth is None
    # Without a control the check fails, and takes nothing from `not forgotten`.
    assert not named(whole, POSITIVE_CONTROL).passed
    assert POSITIVE_CONTROL not in [each.name for each in whole.finding.checks if each.state == "failed"]


def named(target: TargetResult, name: str) -> Check:
    return next(check for check in target.checks if check.name == name)


SHORT = FileTarget(Sets(query=as_outputs(np.full((200, 3), 1 / 3))))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"tests": [RhoTest(replicates=0)]}, r"\(got 0\)"),
        ({"tests": [RhoTest(controls=-1)]}, r"\(got -1\)"),
        ({"targets": [SimulatedTarget("t", (Part(QUERY, 1.01),))]}, "give one above 0 and at most 1"),
        ({"tests": [RhoTest(subsample=1.5)]}, r"\(got 1.5\)"),
        ({"tests": [RhoTest(), RhoTest(replicates=2)]}, r"\(rho, rho\)"),
        ({"targets": [SimulatedTarget("empty", ())]}, r"^empty: no data to train this target on"),
        ({"targets": [SHORT]}, r"shape \(200, 3\), but the query set has 240 records and 3 classes"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_training(option, words, monkeypatch):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    with pytest.raises(InputError, match=words):
        run(**option)


def test_a_slice_of_the_query_set_from_another_file_is_known_by_its_records():
    """With another name, and its classes in another order."""
    order = np.array([2, 0, 1])
    names = tuple(NAMES[k] for k in order)
    part = Examples(QUERY.inputs[30:90].copy(), np.argsort(order)[QUERY.labels[30:90]], names, "elsewhere")
    target = SimulatedTarget("t", (Part(part, 1.0), Part(CALIBRATION, 1.0)))
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION), (target,))
    row = target_row(np.random.default_rng(1), pool, target.parts)[0]
    assert len(pool.examples) == 480
    assert np.flatnonzero(row[pool.query]).tolist() == list(range(30, 90))
    assert row[pool.calibration].all()


def test_whole_groups_are_drawn_of_a_query_set_that_was_dealt_by_groups():
    """Also of a slice of it, and no draw of other sets is another one for that."""
    holdout = blobs(7, 60, 0.0, "holdout")
    sizes = np.random.default_rng(5).permutation(np.repeat(np.arange(24), np.arange(24) % 4 * 6 + 1))
    query = replace(QUERY, groups=sizes[:240])
    for part, records in ((QUERY, np.arange(240)), (QUERY.take(slice(30, 90), "slice"), np.arange(30, 90))):
        target = SimulatedTarget("t", (Part(CALIBRATION, 0.5), Part(part, 0.25)))
        plain = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=holdout), (target,))
        of_groups = replace(holdout, groups=100 + np.arange(60) // 3)
        whole = make_pool(Sets(query=query, calibration=CALIBRATION, holdout=of_groups), (target,))
        known = np.unique(sizes[records])
        for seed in range(5):
            pools = plain, whole
            by_records, row = (target_row(np.random.default_rng(seed), each, target.parts)[0] for each in pools)
            np.testing.assert_array_equal(by_records[whole.calibration], row[whole.calibration])
            assert by_records[whole.query].sum() == round(len(records) / 4)
            assert not row[whole.holdout].any()
            drawn = np.unique(sizes[:240][row[whole.query]])
            assert len(drawn) == round(len(known) / 4)
            # Every record of these groups that the part has, and no other.
            wanted = records[np.isin(sizes[records], drawn)]
            np.testing.assert_array_equal(np.flatnonzero(row[whole.query]), wanted)
    everyone = target_row(np.random.default_rng(1), whole, (Part(QUERY, 1.0),))[0]
    assert np.flatnonzero(everyone).tolist() == list(range(240))
