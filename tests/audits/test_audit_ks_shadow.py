"""The shadow test in the `ks` audit, with the targets' outputs on the calibration set and without them."""

from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.cli_runs import records
from support.clouds import NAMES, probabilities, replaced, trained_outputs
from support.ks_audits import audit_ks

from jaxaudit import FileTarget, HoldoutTest, Part, RhoTest, Role, Sets, ShadowTest, SimulatedTarget
from jaxaudit.audits import default_tests, make_pool, possible_tests
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.metrics.checks import CALIBRATION_LIKE_TARGET, SHADOW_MODELS
from jaxaudit.models import MLP

RECORDS = 200
KEY = jax.random.key(5)
LEARNER = network(partial(MLP, hidden=(16,)), (12,), 3, optimizer=optax.adam(0.02), epochs=25, batch_size=50)
COUNTS = {"never": 19, "half": 2, "fully": 19}
TEST = ShadowTest(**COUNTS)
FEW = RhoTest(replicates=1, controls=0)


def examples(seed: int, shift: float, name: str, count: int = RECORDS) -> Examples:
    return Examples(*records(seed, shift, count), NAMES, name)


QUERY, CALIBRATION, HOLDOUT = examples(2, 0.0, "query"), examples(3, 0.5, "calibration"), examples(4, 0.0, "holdout")
LIKE_CALIBRATION = examples(11, 0.5, "fresh")
"""A target's own data: of the calibration set's kind, none of its records."""
SOME = SimulatedTarget("some", (Part(CALIBRATION, 0.67), Part(QUERY, 0.25)))
MOST = SimulatedTarget("most", (Part(CALIBRATION, 0.76), Part(QUERY, 0.5)))
"""48 calibration records are left."""
ALONE = FileTarget(Sets(query=probabilities(np.full((RECORDS, 3), 1 / 3), "file.csv")))
FILE = replaced(ALONE, calibration=probabilities(np.full((RECORDS, 3), 1 / 3), "file_c.csv"))


def test_outputs_in_another_order_are_found() -> None:
    query, calibration = trained_outputs(LEARNER, 9, [LIKE_CALIBRATION], [QUERY, CALIBRATION], "unused.csv")
    unused: Any = FileTarget(Sets(query=query, calibration=calibration))
    order = np.random.default_rng(0).permutation(len(CALIBRATION))
    shuffled = probabilities(unused.on[Role.CALIBRATION].probabilities[order], "shuffled")
    half = SimulatedTarget("half of each", (Part(CALIBRATION, 0.5), Part(QUERY, 0.5)))
    targets = [unused, half, replaced(unused, calibration=shuffled)]
    answer: Any = audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, tests=[TEST, FEW], execution=Execution(21))
    for each in answer.targets:
        names = [check.name for check in each.checks]
        assert [names.count(name) for name in (SHADOW_MODELS, CALIBRATION_LIKE_TARGET)] == [1, 1]
    (by_default,) = possible_tests(answer.shadows, [unused])
    assert by_default == TEST
    failed = [
        CALIBRATION_LIKE_TARGET in {check.name for check in each.finding.checks if check.state == "failed"}
        for each in answer.targets
    ]
    assert failed == [False, False, True]
    assert answer.targets[2].verdict == "inconclusive"


def test_its_models_are_trained_on_a_share_of_both_sets() -> None:
    pool = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT))
    assert (pool.holdout, pool.calibration) == (slice(200, 400), slice(400, 600))
    assert pool.compared.tolist() == [*range(400)]
    assert pool._replace(compares_calibration=True).compared.tolist() == [*range(600)]
    assert np.arange(600)[pool.training_order].tolist() == [*range(200), *range(400, 600), *range(200, 400)]
    drawn = TEST.draw(KEY, pool)
    assert {role: len(rows) for role, rows in drawn.items()} == COUNTS
    for role, used in zip(COUNTS, (0, 100, 200), strict=True):
        rows = drawn[role]
        parts = (pool.query, pool.calibration, pool.holdout)
        assert {tuple(int(row[part].sum()) for part in parts) for row in rows} == {(used, 133, 0)}
        assert len({row[pool.calibration].tobytes() for row in rows}) == len(rows)


def test_the_default_is_the_firmest_test_that_the_data_allow() -> None:
    assert default_tests(Sets(), [FILE, SOME])[0] == ShadowTest(targets=2)
    assert default_tests(Sets(), [SOME]) == default_tests(Sets(), [ALONE]) == (ShadowTest(),)
    assert default_tests(Sets(holdout=HOLDOUT), [FILE]) == (HoldoutTest(), ShadowTest())
    assert default_tests(Sets(holdout=HOLDOUT), [ALONE]) == (HoldoutTest(),)


@pytest.mark.parametrize(
    ("targets", "calibration", "words"),
    [
        ([FILE, ALONE], CALIBRATION, "set, and some have none"),
        ([FILE], examples(3, 0.5, "larger", 201), r"shape \(200, 3\), but the calibration set has 201 records"),
        (
            [replaced(FILE, calibration=ALONE.on[Role.QUERY].take(np.arange(49)))],
            CALIBRATION.take(np.arange(49)),
            "got 49",
        ),
        ([FILE, MOST], CALIBRATION, "got 48"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(targets, calibration, words, monkeypatch) -> None:
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    with pytest.raises(InputError, match=words):
        audit_ks(KEY, QUERY, calibration, LEARNER, targets, tests=[TEST, FEW])
