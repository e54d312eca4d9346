"""The reference test with a reference that is a set of its own, of another kind than the calibration set."""

from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest
from scipy import stats
from support.cli_runs import records
from support.clouds import NAMES

from jaxaudit.audits.ks.audit import audit_ks, default_tests
from jaxaudit.audits.ks.plan import sizes_of
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget
from jaxaudit.audits.ks.tests import HoldoutTest, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import Part, make_pool, target_row
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.metrics.checks import REFERENCE_LIKE_TARGET, REFERENCE_MODELS, SHADOW_MODELS
from jaxaudit.models import MLP

SURE = 1e-4
"""A correct test fails one claim of this file for one in ten thousand keys; the keys are fixed."""
RECORDS = 200
KEY = jax.random.key(5)
LEARNER = network(partial(MLP, hidden=(16,)), (12,), 3, optimizer=optax.adam(0.02), epochs=25, batch_size=50)
FEW = RhoTest(replicates=1, controls=0)
COUNTS = {"without_query": 19, "half_query": 2, "with_query": 19}
TEST, SHADOW, HELD = ReferenceTest(**COUNTS), ShadowTest(**COUNTS), HoldoutTest(query_and_holdout=19)
APART = {"reference_never": 19, "reference_half": 2, "reference_fully": 19}
FIT = jax.jit(LEARNER.fit)


def examples(seed: int, shift: float, name: str, count: int = RECORDS) -> Examples:
    return Examples(*records(seed, shift, count), NAMES, name)


QUERY, CALIBRATION, HOLDOUT = examples(2, 0.0, "query"), examples(3, 0.5, "calibration"), examples(4, 0.0, "holdout")
REFERENCE = examples(5, -0.5, "kept", 150)
"""Of another kind than the calibration set, and smaller."""
FRESH = examples(6, -0.5, "fresh")
"""The target's own data: of the reference's kind, none of its records."""


def outputs(params: Any, asked: Examples, name: str) -> Outputs:
    probabilities = np.exp(np.asarray(LEARNER.log_probs(params, jax.numpy.asarray(asked.inputs))))
    return Outputs(probabilities.astype(np.float32), "probabilities", None, "float32", name)


def target(seed: int, name: str, trained_on: list[Examples], *asked: Examples) -> FileTarget:
    """Its outputs on the query set, on the reference and on the holdout, as far as they are asked for."""
    inputs = np.concatenate([each.inputs for each in trained_on])
    labels = np.concatenate([each.labels for each in trained_on])
    params = FIT(jax.random.key(seed), inputs, labels, np.ones(len(labels), np.float32))
    query, reference, *holdout = (outputs(params, each, name) for each in asked)
    return FileTarget(query, on_reference=reference, on_holdout=holdout[0] if holdout else None)


UNUSED = target(9, "unused.csv", [FRESH], QUERY, REFERENCE)
HALF = SimulatedTarget("half", (Part(QUERY, 0.5),))
MOST = SimulatedTarget("most", (Part(REFERENCE, 0.68), Part(QUERY, 0.5)))
"""48 records of the reference are left."""


def test_false_alarms_are_as_rare_as_stated_and_full_use_is_found() -> None:
    """Every trial has other records, shadow models and targets.

    With models that were not trained on the reference, full use is found in less than half of the trials.
    """
    trials, alarms, found = 30, 0, 0
    for trial in range(trials):
        query, calibration, reference, fresh = (
            examples(10_000 + 4 * trial + place, shift, str(place))
            for place, shift in enumerate((0.0, 0.5, -0.5, -0.5))
        )
        unused, used = (
            target(2 * trial + place, str(place), trained_on, query, reference)
            for place, trained_on in enumerate(([fresh], [fresh, query]))
        )
        answer = audit_ks(
            jax.random.key(trial),
            *(query, calibration, LEARNER, [unused, used]),
            tests=[TEST, FEW],
            reference=reference,
            execution=Execution(21),
        )
        alarms += answer.targets[0].usage[0].p_never <= 0.05
        found += answer.targets[1].usage[0].p_never <= 0.05
    assert alarms <= stats.binom.ppf(1 - SURE, trials, 0.05)
    assert found >= stats.binom.ppf(SURE, trials, 0.8)


def test_its_models_are_trained_on_a_share_of_both_sets() -> None:
    pool = make_pool(QUERY, CALIBRATION, (), HOLDOUT, reference=REFERENCE)
    assert (pool.holdout, pool.reference) == (slice(400, 600), slice(600, 750))
    np.testing.assert_array_equal(pool.examples.inputs[pool.reference], REFERENCE.inputs)
    assert pool.asked.tolist() == [*range(200), *range(400, 750)]
    drawn = TEST.draw(KEY, pool)
    assert {role: len(rows) for role, rows in drawn.items()} == APART
    for role, used in zip(APART, (0, 100, 200), strict=True):
        rows = np.concatenate(drawn[role])
        parts = (pool.query, pool.calibration, pool.holdout, pool.reference)
        assert {tuple(int(row[part].sum()) for part in parts) for row in rows} == {(used, 133, 0, 100)}
        assert len({row[pool.reference].tobytes() for row in rows}) == len(rows)


def test_no_other_test_draws_from_it() -> None:
    alone, beside = (make_pool(QUERY, CALIBRATION, (), HOLDOUT, reference=each) for each in (None, REFERENCE))
    tests: tuple[KSTest, ...] = (SHADOW, HELD, RhoTest())
    for test in tests:
        here, there = (test.draw(KEY, pool) for pool in (alone, beside))
        assert here.keys() == there.keys()
        for role, rows in here.items():
            both, more = np.concatenate(rows), np.concatenate(there[role])
            assert np.array_equal(both, more[:, : both.shape[1]])
            assert not more[:, beside.reference].any()


def test_by_default_the_models_are_those_of_the_shadow_test() -> None:
    pool = make_pool(QUERY, CALIBRATION, (), reference=CALIBRATION)
    assert pool.reference == pool.calibration
    assert len(pool.examples) == 400
    referred, shadow = TEST.draw(KEY, pool), SHADOW.draw(KEY, pool)
    assert referred.keys() == shadow.keys()
    assert all(np.array_equal(referred[role], shadow[role]) for role in shadow)


def test_models_that_two_tests_share_are_counted_once() -> None:
    def counted(reference: int) -> list[tuple[tuple[int, int], ...]]:
        return [sizes for _, sizes in sizes_of([SHADOW, TEST, HELD], 200, 300, reference)]

    shadow = ((19, 200), (2, 300), (19, 400))
    assert counted(0) == [shadow, (), ((19, 400),)]
    assert counted(150) == [shadow, ((19, 300), (2, 400), (19, 500)), ((19, 400),)]


def test_the_calibration_set_is_the_reference_unless_another_is_given() -> None:
    given = target(9, "unused.csv", [FRESH], QUERY, CALIBRATION)
    options = {"tests": [TEST, FEW], "execution": Execution(21)}
    implied, named = (
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, [given], reference=each, **options) for each in (None, CALIBRATION)
    )
    assert repr(implied.targets[0].usage) == repr(named.targets[0].usage)
    assert repr(implied.targets[0].checks) == repr(named.targets[0].checks)
    assert list(implied.shadow_log_odds) == ["never", "half", "fully"]


def test_each_test_has_the_check_of_its_own_models() -> None:
    half = SimulatedTarget("half of each", (Part(CALIBRATION, 0.5), Part(REFERENCE, 0.5), Part(QUERY, 0.5)))
    answer = audit_ks(
        *(KEY, QUERY, CALIBRATION, LEARNER, [UNUSED, half]),
        tests=[TEST, SHADOW, FEW],
        reference=REFERENCE,
        execution=Execution(21),
    )
    for each in answer.targets:
        names = [check.name for check in each.checks]
        assert [names.count(name) for name in (REFERENCE_MODELS, SHADOW_MODELS, REFERENCE_LIKE_TARGET)] == [1, 1, 1]
    assert {role: len(odds) for role, odds in answer.shadow_log_odds.items()} == {
        **APART,
        "never": 19,
        "half": 2,
        "fully": 19,
    }


def test_outputs_in_another_order_are_found() -> None:
    assert UNUSED.on_reference is not None
    turned = Outputs(np.roll(UNUSED.on_reference.probabilities, 1, axis=1), "probabilities", None, "float32", "turned")
    (found,) = audit_ks(
        *(KEY, QUERY, CALIBRATION, LEARNER, [UNUSED._replace(on_reference=turned)]),
        tests=[TEST, FEW],
        reference=REFERENCE,
        execution=Execution(21),
    ).targets
    assert REFERENCE_LIKE_TARGET in {check.name for check in found.finding.checks if check.state == "failed"}
    assert found.verdict == "inconclusive"


def test_a_target_that_is_trained_on_part_of_it_keeps_the_rest_as_its_reference() -> None:
    part = Part(REFERENCE.take(np.arange(20, 80)), 1.0)
    simulated = SimulatedTarget("some", (part, Part(CALIBRATION, 0.5)))
    pool = make_pool(QUERY, CALIBRATION, (simulated,), reference=REFERENCE)
    assert len(pool.examples) == len(QUERY) + len(CALIBRATION) + len(REFERENCE)
    row = target_row(np.random.default_rng(1), pool, simulated.parts)[0]
    assert np.flatnonzero(row[pool.reference]).tolist() == list(range(20, 80))


def test_it_is_a_default_test_where_there_is_a_reference() -> None:
    assert default_tests(None, [HALF], REFERENCE) == (ReferenceTest(), RhoTest())
    assert default_tests(HOLDOUT, [UNUSED], REFERENCE) == (HoldoutTest(), ReferenceTest(), RhoTest())


@pytest.mark.parametrize(
    ("targets", "reference", "words"),
    [
        ([UNUSED._replace(on_reference=None)], REFERENCE, "unused.csv: .*--calibration-target.*--reference-target"),
        ([UNUSED], examples(5, -0.5, "kept", 151), r"shape \(150, 3\), but the reference has 151 records"),
        ([UNUSED], QUERY.take(np.arange(150)), "150 of the 150 records of the reference query .* the query set query"),
        (
            [UNUSED],
            CALIBRATION.take(np.arange(150)),
            "150 of the 150 records of the reference calibration .* the calibration set .*--calibration-target",
        ),
        ([HALF], HOLDOUT, "200 of the 200 records of the reference holdout .* the holdout holdout"),
        ([HALF], examples(5, -0.5, "kept", 49), "the reference has 49 records"),
        ([HALF, MOST], REFERENCE, "the reference has 48 records"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(targets, reference, words, monkeypatch) -> None:
    def not_reached(*given: Any, **options: Any) -> None:
        raise AssertionError("models were trained")

    monkeypatch.setattr("jaxaudit.audits.ks.audit.train_roles", not_reached)
    holdout = HOLDOUT if reference is HOLDOUT else None
    tests = [*([HELD] if holdout else []), TEST, FEW]
    with pytest.raises(InputError, match=words):
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, tests=tests, holdout=holdout, reference=reference)
