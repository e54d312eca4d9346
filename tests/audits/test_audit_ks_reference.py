"""The reference test in the `ks` audit: by the calibration set or a set of its own; and designs of shadow models."""

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import optax
import pytest
from scipy import stats
from support.cli_runs import records
from support.clouds import NAMES, probabilities, trained_outputs
from support.ks_audits import audit_ks

from jaxaudit.audits.ks.available import possible_tests
from jaxaudit.audits.ks.models import Design
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget, Target
from jaxaudit.audits.ks.tests_of_use import HoldoutTest, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.ks.train import default_tests
from jaxaudit.audits.pool import Part, make_pool, target_row
from jaxaudit.data import Examples
from jaxaudit.data.roles import Sets
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.metrics.checks import REFERENCE_LIKE_TARGET, REFERENCE_MODELS, SHADOW_MODELS
from jaxaudit.models import MLP
from jaxaudit.shadow_models import ShadowModels

SURE = 1e-4
"""A correct test fails one claim of this file for one in ten thousand keys; the keys are fixed."""
RECORDS = 200
KEY = jax.random.key(5)
LEARNER = network(partial(MLP, hidden=(16,)), (12,), 3, optimizer=optax.adam(0.02), epochs=25, batch_size=50)
WIDER = Design("wider", replace(LEARNER, epochs=20))
COUNTS = {"never": 19, "half": 2, "fully": 19}
TEST, SHADOW, HELD = ReferenceTest(**COUNTS), ShadowTest(**COUNTS), HoldoutTest(mixed=19)
FEW = RhoTest(replicates=1, controls=0)
TOGETHER = {"never": 19, "half": 2, "fully": 19}
APART = {"reference_never": 19, "reference_half": 2, "reference_fully": 19}


def examples(seed: int, shift: float, name: str, count: int = RECORDS) -> Examples:
    return Examples(*records(seed, shift, count), NAMES, name)


QUERY, CALIBRATION, HOLDOUT = examples(2, 0.0, "query"), examples(3, 0.5, "calibration"), examples(4, 0.0, "holdout")
LIKE_CALIBRATION = examples(11, 0.5, "fresh")
"""A target's own data: of the calibration set's kind, none of its records."""
REFERENCE, LIKE_REFERENCE = examples(5, -0.5, "kept", 150), examples(6, -0.5, "fresh")
"""Of another kind than the calibration set, and smaller; and a target's own data of this kind."""
SOME = SimulatedTarget("some", (Part(CALIBRATION, 0.67), Part(QUERY, 0.25)))
MOST = SimulatedTarget("most", (Part(REFERENCE, 0.68), Part(QUERY, 0.5)))
"""48 records of the reference are left."""
FILE = FileTarget(probabilities(np.full((RECORDS, 3), 1 / 3), "file.csv"))
FILE = FILE._replace(on_reference=FILE.outputs.take(np.arange(150)))


def target(seed: int, name: str, trained_on: list[Examples], *asked: Examples) -> FileTarget:
    """Its outputs on the query set and on the reference."""
    query, reference = trained_outputs(LEARNER, seed, trained_on, [*asked], name)
    return FileTarget(query, on_reference=reference)


def run(targets: list[Target], *tests: KSTest, **options: Any) -> KSAudit:
    how: dict[str, Any] = {"tests": [*tests, FEW], "execution": Execution(21), **options}
    return audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, **how)


@cache
def used() -> FileTarget:
    return target(9, "used.csv", [LIKE_CALIBRATION, QUERY], QUERY, CALIBRATION)


@pytest.fixture(scope="module")
def by_calibration() -> KSAudit:
    return run([used()], TEST)


@pytest.fixture(scope="module")
def of_designs() -> KSAudit:
    """Both tests, of two designs, on two files and a simulated target."""
    unused = target(9, "unused.csv", [LIKE_CALIBRATION], QUERY, CALIBRATION)
    return run([used(), unused, SOME], TEST, SHADOW, designs=[WIDER], own_recipe=True)


@pytest.mark.outer
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
        targets = [
            target(2 * trial + place, str(place), trained_on, query, reference)
            for place, trained_on in enumerate(([fresh], [fresh, query]))
        ]
        answer = audit_ks(
            jax.random.key(trial),
            *(query, calibration, LEARNER, targets),
            tests=[TEST, FEW],
            reference=reference,
            execution=Execution(21),
        )
        alarms += answer.targets[0].usage[0].p_never <= 0.05
        found += answer.targets[1].usage[0].p_never <= 0.05
    assert alarms <= stats.binom.ppf(1 - SURE, trials, 0.05)
    assert found >= stats.binom.ppf(SURE, trials, 0.8)


def test_it_finds_use_and_calls_none_that_is_not(by_calibration: KSAudit, of_designs: KSAudit) -> None:
    used, unused, some = (each.usage[0] for each in of_designs.targets)
    assert [each.method for each in (used, unused, some)] == ["reference"] * 3
    assert used.p_never <= 0.05 < unused.p_never
    assert used.fraction_low is not None
    assert some.has_fraction
    assert used.fraction_low > 0
    assert used.fraction_high == 1
    assert unused.fraction_low == 0
    assert 0 < some.fraction < 1
    # 19 models are too few for a p-value of 0.05 that is adjusted for three targets.
    assert "not forgotten" not in [each.verdict for each in of_designs.targets]
    assert by_calibration.targets[0].verdict == "not forgotten"


def shadows(audit: KSAudit) -> ShadowModels:
    assert audit.shadows is not None
    return audit.shadows


def test_designs_take_turns_and_the_first_keeps_its_numbers(by_calibration: KSAudit, of_designs: KSAudit) -> None:
    assert Counter(shadows(of_designs).kinds) == TOGETHER
    for kind in ("never", "fully"):
        one, several = (each.log_odds[each.of(kind)] for each in map(shadows, (by_calibration, of_designs)))
        assert ((one == several).all(axis=1) == (np.arange(19) % 2 == 0)).all()


def test_the_calibration_set_is_the_reference_unless_another_is_given(by_calibration: KSAudit) -> None:
    """Then the models are those of the shadow test."""
    named = run([used()], TEST, reference=CALIBRATION)
    assert repr(by_calibration.targets[0].usage) == repr(named.targets[0].usage)
    assert repr(by_calibration.targets[0].checks) == repr(named.targets[0].checks)
    assert list(dict.fromkeys(shadows(by_calibration).kinds)) == [*TOGETHER]
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION, reference=CALIBRATION))
    assert pool.reference == pool.calibration
    assert len(pool.examples) == 400
    referred, shadow = TEST.draw(KEY, pool), SHADOW.draw(KEY, pool)
    assert referred.keys() == shadow.keys()
    assert all(np.array_equal(referred[role], shadow[role]) for role in shadow)


def test_each_test_has_the_check_of_its_own_models_and_outputs_in_another_order_are_found() -> None:
    unused = target(9, "unused.csv", [LIKE_REFERENCE], QUERY, REFERENCE)
    assert unused.on_reference is not None
    order = np.random.default_rng(0).permutation(len(REFERENCE))
    shuffled = probabilities(unused.on_reference.probabilities[order], "shuffled")
    half = SimulatedTarget("half of each", (Part(CALIBRATION, 0.5), Part(REFERENCE, 0.5), Part(QUERY, 0.5)))
    answer = run([unused, half, unused._replace(on_reference=shuffled)], TEST, SHADOW, reference=REFERENCE)
    for each in answer.targets:
        names = [check.name for check in each.checks]
        assert [names.count(name) for name in (REFERENCE_MODELS, SHADOW_MODELS, REFERENCE_LIKE_TARGET)] == [1, 1, 1]
    assert Counter(shadows(answer).kinds) == {**APART, **TOGETHER}
    (by_default,) = possible_tests(shadows(answer), [unused])
    assert by_default == TEST
    failed = [
        REFERENCE_LIKE_TARGET in {check.name for check in each.finding.checks if check.state == "failed"}
        for each in answer.targets
    ]
    assert failed == [False, False, True]
    assert answer.targets[2].verdict == "inconclusive"


def test_its_models_are_trained_on_a_share_of_both_sets() -> None:
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT, reference=REFERENCE))
    assert (pool.holdout, pool.calibration, pool.reference) == (slice(200, 400), slice(400, 600), slice(600, 750))
    np.testing.assert_array_equal(pool.examples.inputs[pool.reference], REFERENCE.inputs)
    assert pool.compared.tolist() == [*range(400), *range(600, 750)]
    assert np.arange(750)[pool.training_order].tolist() == [
        *range(200),
        *range(400, 600),
        *range(200, 400),
        *range(600, 750),
    ]
    drawn = TEST.draw(KEY, pool)
    assert {role: len(rows) for role, rows in drawn.items()} == APART
    for role, used in zip(APART, (0, 100, 200), strict=True):
        rows = drawn[role]
        parts = (pool.query, pool.calibration, pool.holdout, pool.reference)
        assert {tuple(int(row[part].sum()) for part in parts) for row in rows} == {(used, 133, 0, 100)}
        assert len({row[pool.reference].tobytes() for row in rows}) == len(rows)


def test_a_target_that_is_trained_on_part_of_it_keeps_the_rest_as_its_reference() -> None:
    part = Part(REFERENCE.take(np.arange(20, 80)), 1.0)
    simulated = SimulatedTarget("some", (part, Part(CALIBRATION, 0.5)))
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION, reference=REFERENCE), (simulated,))
    assert len(pool.examples) == len(QUERY) + len(CALIBRATION) + len(REFERENCE)
    row = target_row(np.random.default_rng(1), pool, simulated.parts)[0]
    assert np.flatnonzero(row[pool.reference]).tolist() == list(range(20, 80))


def test_the_default_is_the_firmest_test_that_the_data_allow() -> None:
    assert default_tests(Sets(), [FILE, SOME])[0] == ReferenceTest(targets=2)
    assert type(default_tests(Sets(), [SOME])[0]) is ShadowTest
    assert type(default_tests(Sets(), [FILE, FILE._replace(on_reference=None)])[0]) is ShadowTest
    assert default_tests(Sets(reference=REFERENCE), [SOME]) == (ReferenceTest(), RhoTest())
    assert default_tests(Sets(holdout=HOLDOUT, reference=REFERENCE), [FILE]) == (
        HoldoutTest(),
        ReferenceTest(),
        RhoTest(),
    )


@pytest.mark.parametrize(
    ("targets", "reference", "words"),
    [
        ([FILE._replace(on_reference=None)], REFERENCE, "file.csv: .*`on_reference`.*`reference`"),
        ([FILE._replace(on_reference=None)], None, "`on_reference`"),
        ([FILE], None, r"has outputs of shape \(150, 3\)"),
        ([FILE], examples(5, -0.5, "kept", 151), r"shape \(150, 3\), but the reference has 151 records"),
        ([FILE], QUERY.take(np.arange(150)), "150 of the 150 records of the reference query .* the query set query"),
        (
            [FILE],
            CALIBRATION.take(np.arange(150)),
            "150 of the 150 records of the reference calibration .* the calibration set .*`on_reference`",
        ),
        ([SOME], HOLDOUT, "200 of the 200 records of the reference holdout .* the holdout holdout"),
        ([SOME], examples(5, -0.5, "kept", 49), "the reference has 49 records"),
        ([SOME, MOST], REFERENCE, "the reference has 48 records"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(targets, reference, words, monkeypatch) -> None:
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    holdout = HOLDOUT if reference is HOLDOUT else None
    tests = [HELD, TEST] if holdout else [TEST]
    with pytest.raises(InputError, match=words):
        run(targets, *tests, holdout=holdout, reference=reference)
