"""The tests of use in the `ks` audit, on clouds that a network learns by heart, and of files of logits."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY, probabilities, trained_outputs, with_log_odds
from support.ks_audits import audit_ks
from support.outputs_files import write_outputs
from support.references import ks_by_scipy
from support.simulated_shadows import shadow_models

from jaxaudit import (
    FileTarget,
    HoldoutTest,
    Part,
    RhoTest,
    Rows,
    Sets,
    ShadowTest,
    SimulatedTarget,
    TargetOutputs,
    TargetResult,
    load_outputs,
)
from jaxaudit.audits import make_pool, of_file, samples_of_rho
from jaxaudit.data import Examples, Outputs
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.metrics import log_odds
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, HOLDOUT_MODELS, SHADOW_MODELS
from jaxaudit.shadow_models import OF_RHO, Pool, ShadowModels

KEY = jax.random.key(5)


BOTH = SimulatedTarget("both", (Part(CALIBRATION, 0.67), Part(QUERY, 1.0)))
NEVER = SimulatedTarget("never", (Part(CALIBRATION, 0.67),))
HELD_TEST = HoldoutTest(mixed=19)


@pytest.fixture(scope="module")
def audit():
    """All tests of two simulated targets and a file."""
    asked = [QUERY, HOLDOUT]
    on_query, on_holdout = trained_outputs(LEARNER, 9, [CALIBRATION, QUERY], asked, "file.csv")
    file = FileTarget(Sets(query=on_query, holdout=on_holdout))
    shadow = ShadowTest(never=19, half=2, fully=19)
    return audit_ks(
        *(KEY, QUERY, CALIBRATION, LEARNER, [file, BOTH, NEVER]),
        holdout=HOLDOUT,
        tests=[HELD_TEST, shadow, RhoTest(replicates=2)],
        own_recipe=True,
        execution=Execution(16),
    )


def test_the_holdout_test_decides_and_use_is_found_where_it_was(audit):
    for target in audit.targets:
        assert [usage.method for usage in target.usage] == ["holdout", "shadow"]
        assert (target.method, target.verdict) == ("holdout", target.usage[0].verdict)
        passed = {check.name for check in target.checks if check.passed}
        assert passed >= {HOLDOUT_LIKE_QUERY, HOLDOUT_MODELS, SHADOW_MODELS}
    file, both, never = audit.targets
    assert file.verdict == both.verdict == "not forgotten"
    assert file.usage[0].fraction > 0.25
    assert both.usage[0].fraction > 0.25
    assert never.verdict != "not forgotten"
    assert never.usage[0].fraction_low == 0
    assert Counter(audit.shadows.kinds) == {"never": 19, "half": 2, "fully": 19, "mixed": 19}
    assert not np.isnan(audit.shadows.log_odds).any()


WHOLE = QUERY.take(slice(0, 80), "whole")
"""Too few to teach their difficulty, which takes a second: neighbours tell it."""
LEVEL = WHOLE.inputs @ np.random.default_rng(4).normal(size=12) + WHOLE.labels
"""Log-odds of a model that remembers none of these records: some are more difficult than others."""


def judged_alone(key: Any, odds: np.ndarray, held: np.ndarray) -> TargetResult:
    """What the outputs of a model tell without any other, with these records held out."""
    query, holdout = (WHOLE.take(rows) for rows in (~held, held))
    file = FileTarget(
        Sets(query=with_log_odds(odds[~held], query, "o"), holdout=with_log_odds(odds[held], holdout, "h")),
        allow_unrelated=True,
    )
    (target,) = audit_ks(key, query, None, None, [file], holdout=holdout, tests=[HoldoutTest(mixed=0)]).targets
    return target


def test_a_holdout_alone_tells_use_and_never_that_there_was_none():
    held = np.random.default_rng(6).permutation(len(WHOLE)) < 40
    used, unused, swapped = (judged_alone(KEY, LEVEL + gap * ~held, held) for gap in (4, 0, -4))
    assert [target.verdict for target in (used, unused, swapped)] == ["not forgotten", "inconclusive", "inconclusive"]
    assert used.usage[0].p_never < 0.05 < unused.usage[0].p_never < swapped.usage[0].p_never
    assert not any(target.usage[0].has_fraction for target in (used, unused, swapped))


@pytest.mark.outer
def test_an_unused_target_is_called_used_at_most_at_the_stated_rate_without_any_model():
    """Of 200 random deals of its records at most 5%, and three standard errors; the key is fixed."""
    deals, rate, random = 200, 0.05, np.random.default_rng(7)
    targets = [
        judged_alone(jax.random.fold_in(KEY, place), LEVEL, random.permutation(len(WHOLE)) < 40)
        for place in range(deals)
    ]
    rejected = np.mean([target.usage[0].p_never <= rate for target in targets])
    assert rejected <= rate + 3 * np.sqrt(rate * (1 - rate) / deals)
    assert np.mean([target.verdict == "not forgotten" for target in targets]) <= rejected
    assert {target.verdict for target in targets} <= {"not forgotten", "inconclusive"}


def test_shadow_models_are_compared_at_the_files_resolution():
    """A probability of 1 with two decimals counts as 0.995, of every model."""
    odds = np.array([[0.0, 12.0, -12.0], [3.0, 5.0, -0.5]], np.float32)
    three = Examples(np.zeros((3, 1)), np.zeros(3, int), ("a", "b"), "three")
    pool = Pool(three, slice(0, 2), slice(2, 3), slice(3, 3))
    rows: Rows = {kind: np.zeros((1, 3), bool) for kind in OF_RHO}
    models = shadow_models(pool, rows, np.repeat(odds[:1], 3, axis=0))
    printed = Outputs(np.array([[0.5, 0.5], [0.0, 1.0]], np.float32), "probabilities", 2, "float64", "q")
    held = Outputs(np.array([[0.125, 0.875]], np.float32), "probabilities", 3, "float64", "h")
    target, brought, _ = of_file((printed, held), (np.array([0, 1]), np.array([0])), models)
    highest = np.log(0.995 / 0.005)
    # 0.125 of the holdout's file is 0.12 to two decimals, the coarser of the two.
    np.testing.assert_allclose(target, [0.0, highest, np.log(0.12 / 0.88)], rtol=1e-5)
    coarse = brought(odds)
    np.testing.assert_allclose(coarse[0], [0.0, highest, -highest], rtol=1e-5)
    np.testing.assert_allclose(coarse[1], [np.log(0.95 / 0.05), np.log(0.99 / 0.01), np.log(0.38 / 0.62)], rtol=1e-5)


FILE, SHORT = (probabilities(np.full((count, 3), 1 / 3), f"{name}.csv") for count, name in ((300, "o"), (200, "short")))
PAIR = FileTarget(Sets(query=FILE, holdout=FILE), before=Sets(query=FILE, holdout=FILE))
HELD: dict[str, Any] = {"holdout": HOLDOUT, "tests": [HELD_TEST]}


@pytest.mark.parametrize(
    ("targets", "options", "words"),
    [
        ([FileTarget(Sets(query=FILE, holdout=FILE))], {}, "o.csv: .*holdout but no records"),
        ([FileTarget(Sets(query=FILE))], HELD, "o.csv: .*holdout but no outputs"),
        ([FileTarget(Sets(query=FILE, holdout=SHORT))], HELD, r"\(200, 3\), but the holdout has 300 records"),
        (
            [FileTarget(Sets(query=FILE, holdout=FILE), before=Sets(query=FILE))],
            HELD,
            "o.csv: outputs before the deletion",
        ),
        (
            [PAIR._replace(before=Sets(query=SHORT, holdout=FILE))],
            HELD,
            r"\(200, 3\), but the query set has 300 records",
        ),
        ([PAIR], {"holdout": HOLDOUT, "tests": [ShadowTest()]}, "no test compares the outputs before"),
        ([BOTH], {**HELD, "tests": [HoldoutTest(stated=1.0)]}, "above 0 and below 1; got 1"),
        ([BOTH], {"tests": [ShadowTest(fully=18)]}, "at least 19 shadow models .* got 39 and 18"),
        ([BOTH], {"tests": [HELD_TEST]}, "the holdout test needs a holdout"),
        ([BOTH], {**HELD, "tests": [HoldoutTest(mixed=3)]}, "at least 19 shadow models .* got 3"),
        ([BOTH], {**HELD, "tests": [HELD_TEST, HELD_TEST]}, r"\(holdout, holdout\)"),
        ([BOTH], {"tests": []}, "at least one test"),
        (
            [BOTH],
            {**HELD, "holdout": replace(QUERY, name="twin")},
            r"300 of the 300 records of twin also occur in query .*, as holdout and query set",
        ),
        ([BOTH], {**HELD, "holdout": CALIBRATION}, "records of calibration also occur in calibration"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(targets, options, words, monkeypatch):
    monkeypatch.setattr("jaxaudit.audits.ks.train.train_rows", None)
    with pytest.raises(InputError, match=words):
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, targets, **options)


def test_no_target_is_trained_on_the_holdout():
    target = SimulatedTarget("t", (Part(HOLDOUT.take(slice(0, 7)), 1.0),))
    with pytest.raises(
        InputError, match=r"7 of the 300 records of holdout also occur in .* as holdout and target's data"
    ):
        make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT), (target,))


N, CLASSES = 3000, 4
LABELS = np.arange(N) % CLASSES


def logits_of(seed: int, centre: float) -> np.ndarray:
    """Of a saturated model: most log-odds above 14 nats, where 6 decimals say 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (N, CLASSES))
    logits[np.arange(N), LABELS] += generator.normal(centre, 5, N)
    return logits


def trained(query: np.ndarray, calibration: np.ndarray, control: np.ndarray) -> ShadowModels:
    """Models of rho with these log-odds on the query set, and the same on the holdout."""
    records = Examples(np.zeros((2 * N, 1)), np.zeros(2 * N, int), ("a", "b"), "records")
    pool = Pool(records, slice(0, N), slice(N, 2 * N), slice(2 * N, 2 * N))
    counts = zip(OF_RHO, (query, calibration, control), strict=True)
    rows: Rows = {kind: np.zeros((len(odds), 2 * N), bool) for kind, odds in counts}
    odds = np.concatenate([query, calibration, control])
    return shadow_models(pool, rows, np.concatenate([odds, odds], axis=1).astype(np.float32))


MODELS = trained(
    *(
        log_odds(np.stack([logits_of(seed, centre) for seed in seeds]), LABELS)
        for seeds, centre in (((1, 2), 18), ((3, 4), 16), ((5,), 17))
    )
)


def file_of(tmp_path, values: np.ndarray) -> Outputs:
    return load_outputs(write_outputs(tmp_path, values), CLASSES, N)


def compared(file: Outputs, labels: np.ndarray, models: ShadowModels) -> tuple[np.ndarray, ...]:
    """The target's confidences, and what rho compares."""
    odds, brought, confidences = of_file((file,), (labels,), models)
    outputs = TargetOutputs("t", None, odds, brought, printed=False, confidences=confidences, file=file)
    return confidences, *samples_of_rho(outputs, labels, models)


def tied(sample: np.ndarray) -> float:
    return float(np.unique(sample, return_counts=True)[1].max() / sample.size)


def test_float32_logits_are_compared_as_finely_as_they_were_stored(tmp_path):
    exact = logits_of(9, 17)
    shifted = (exact + np.random.default_rng(0).normal(0, 3, (N, 1))).astype(np.float32)
    confidences, query, _, controls, target = compared(file_of(tmp_path, shifted), LABELS, MODELS)
    assert tied(target) < 0.01
    of_target = log_odds(exact, LABELS)
    for sample, model in zip(query, MODELS.log_odds[:2], strict=True):
        distance = ks_by_scipy(model[:N].astype(np.float64), of_target)
        assert ks_by_scipy(sample, target[0]) == pytest.approx(distance, abs=2 / N)
    assert controls.shape == (1, N)
    # What is shown are probabilities all the same, and of these most are 1.
    assert tied(np.round(confidences.astype(np.float64), 6)) > 0.5
    assert confidences.max() <= 1


STORES = {
    "float16": (1, lambda logits: logits.astype(np.float16)),
    "1 decimal": (1, lambda logits: np.round(logits, 1)),
    "2 digits": (8, lambda logits: np.array([[float(f"{value:.2g}") for value in row] for row in logits])),
    "integers": (40, lambda logits: np.rint(logits).astype(np.int16)),
}


@pytest.mark.parametrize("stored", STORES)
def test_coarse_logits_do_not_part_a_model_from_itself(tmp_path, stored):
    """Two classes, logits in a narrow range far from 0, where a coarse grid leaves few values."""
    width, store = STORES[stored]
    margins = width * np.random.default_rng(3).normal(3, 0.4, N)
    values = np.stack([np.full(N, 30.0), 30.0 + margins], axis=1)
    file = load_outputs(write_outputs(tmp_path, store(values)), 2, N)
    labels, odds = np.ones(N, int), margins.astype(np.float32)[None]
    _, query, *_, target = compared(file, labels, trained(odds, odds, odds))
    assert file.kind == "logits"
    assert ks_by_scipy(query[0], target[0]) < 0.01
    assert ks_by_scipy(odds[0], log_odds(file.logits.astype(np.float64), labels)) > 0.01


def test_logits_of_both_sets_go_into_the_tests_of_use_as_they_are(tmp_path):
    logits = logits_of(7, 17).astype(np.float32)
    (tmp_path / "held").mkdir()
    files = [file_of(tmp_path, logits), file_of(tmp_path / "held", logits[::-1])]
    shadows, labels = MODELS.log_odds[:2], (LABELS, LABELS[::-1])
    target, brought, _ = of_file((files[0], files[1]), labels, MODELS)
    odds = log_odds(logits.astype(np.float64), LABELS)
    np.testing.assert_allclose(target, np.concatenate([odds, odds[::-1]]), atol=5e-6)
    np.testing.assert_allclose(brought(shadows), shadows, atol=5e-6)
    # One file of probabilities is enough to bring all to what probabilities tell.
    probabilities = Outputs(files[1].probabilities, "probabilities", None, "float32", "held.npy")
    target, brought, _ = of_file((files[0], probabilities), labels, MODELS)
    assert np.abs(brought(shadows)).max() < 15
    assert np.abs(target).max() < 15
    assert tied(target) > 0.5
