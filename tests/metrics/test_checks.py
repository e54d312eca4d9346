"""Every check passes on one side of its threshold and fails on the other, and says what to do."""

import numpy as np
import pytest
from scipy import stats

from jaxaudit.metrics.checks import (
    HOLDOUT_MODELS,
    HOLDOUT_OUTPUTS,
    MEMBERS_OUTPUTS,
    Check,
    calibration_reach,
    class_coverage,
    distances_apart,
    models_of_test,
    positive_control,
    query_size,
    shadow_accuracy,
    target_accuracy,
    tied_confidences,
)
from jaxaudit.metrics.exchangeability import Alike, holdout_apart, holdout_like_query
from jaxaudit.metrics.ks import Rho

LABELS = np.repeat([0, 1, 2, 3], [40, 20, 20, 20])  # guessing the commonest class: 40%
NONE = np.zeros(0)


def control(high: float, median: float = 0.4) -> Rho:
    """One whose 95% interval ends there."""
    values = (median,) * 3
    return Rho(values, median, 0.1, high, values, values, float((high - median) / stats.t.ppf(0.975, 2)))


def share_tied(share: float) -> np.ndarray:
    """Two models, in the second of which this share of 1,000 confidences is exactly 1."""
    spread = np.linspace(0.1, 0.9, 1000, dtype=np.float32)
    tied = spread.copy()
    tied[: round(1000 * share)] = 1
    return np.stack([spread, tied])


CRITICAL_200 = float(stats.kstwobign.ppf(0.95)) * np.sqrt(2 / 200)

CASES = [
    # (the check on the right side, on the wrong side, value there, decisive, what it found, what to do)
    (
        shadow_accuracy(np.array([1.0, 0.9])),
        shadow_accuracy(np.array([1.0, 0.899])),
        (0.9, 0.899), True, "89.9%, under 90%", "train longer",
    ),
    (
        calibration_reach(np.array([0.4, 0.521]), LABELS),
        calibration_reach(np.array([0.4, 0.519]), LABELS),
        (0.1008333, 0.0991667), True, "46.0% (guessing: 40.0%)", "domain",
    ),
    (
        distances_apart(np.array([0.5, 0.4]), np.array([0.1, 0.2])),
        distances_apart(np.array([0.5, 0.4]), np.array([0.1, 0.201])),
        (0.5, 0.5025), True, "0.201 between query models, 0.400", "to convergence",
    ),
    (
        query_size(200, np.array([0.9, CRITICAL_200 / 0.499])),
        query_size(200, np.array([0.9, CRITICAL_200 / 0.501])),
        (0.499, 0.501), True, "0.136", "more query records are needed",
    ),
    (
        class_coverage(np.repeat([0, 1], [10, 30]), np.repeat([0, 1], [30, 10]), ("cat", "dog")),
        class_coverage(np.repeat([0, 1], [10, 30]), np.repeat([0, 1], [30, 9]), ("cat", "dog")),
        (10, 9), False, "rarest class is 'dog', with 9 records in the calibration set", "add records or drop the class",
    ),
    (
        tied_confidences(share_tied(0.5)),
        tied_confidences(share_tied(0.501), printed=True),
        (0.5, 0.501), False, "50.1%", "give logits or more decimals",
    ),
    (
        models_of_test(HOLDOUT_MODELS, np.array([1.0, 0.9])),
        models_of_test(HOLDOUT_MODELS, np.array([1.0, 0.899])),
        (0.9, 0.899), False, "holdout test's models: 89.9%",
        "the learning rate",
    ),
    (
        positive_control([control(0.5), control(0.999)]),
        positive_control([control(0.5), control(1.0, median=0.87)]),
        (0.999, 1.0), True, "0.40 (up to 0.50), 0.87 (up to 1.00)", "`forgotten`",
    ),
    (
        target_accuracy(0.461, LABELS, "mine.npz"),
        target_accuracy(0.459, LABELS, "mine.npz"),
        (0.1016667, 0.0983333), True, "45.9% (guessing: 40.0%)",
        "rows may not be in the order of the query set",
    ),
    (
        holdout_like_query(Alike(0.0021, 0.5, 0.5, 1.0, 0.5, 0.001)),
        holdout_like_query(Alike(0.5, 0.002, 0.001, 1.0, 0.5, 0.5)),
        (0.0105, 0.005), True, "(p = 0.005): inputs differ in mean or spread",
        "at random",
    ),
    (
        holdout_apart(Alike(0.001, 0.5, 0.5, 1.0, 0.5, 0.011)),
        holdout_apart(Alike(0.5, 0.5, 0.5, 1.0, 1.0, 0.009)),
        (0.011, 0.009), False, "(p = 0.009)", "as one group",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong", "values", "decisive", "found", "advice"), CASES, ids=lambda c: getattr(c, "name", "")
)
def test_both_sides_of_the_threshold(right, wrong, values, decisive, found, advice):
    assert right.passed is True
    assert wrong.passed is False
    np.testing.assert_allclose([right.value, wrong.value], values, rtol=1e-4)
    low, high = sorted(values)
    assert low <= right.threshold <= high
    assert right.threshold == wrong.threshold
    assert right.name == wrong.name
    assert right.decisive is wrong.decisive is decisive
    assert found in wrong.message
    assert advice in wrong.message
    assert advice not in right.message
    assert "\n" not in wrong.message


@pytest.mark.parametrize("name", [HOLDOUT_OUTPUTS, MEMBERS_OUTPUTS])
def test_a_set_of_one_class_beside_the_query_set_is_in_order_if_its_class_is_met(name):
    """Rare classes are in few of the holdouts of 20 records. Where the other column is given, few records are met."""
    met, missed = (target_accuracy(accuracy, LABELS * 0, "mine", check=name) for accuracy in (0.9, 0.1))
    assert met.passed
    assert not missed.passed


def test_no_holdout_is_over_forgotten():
    holdout, members = (
        target_accuracy(0.1, LABELS, "mine", check=name).message for name in (HOLDOUT_OUTPUTS, MEMBERS_OUTPUTS)
    )
    assert "over-forgotten" not in holdout
    assert "over-forgotten" in members


@pytest.mark.parametrize("check", [calibration_reach(np.ones(2), LABELS * 0), target_accuracy(1.0, LABELS * 0, "mine")])
def test_one_class_alone_shows_nothing(check):
    """And that is the reason, not the order of rows or another domain."""
    assert not check.passed
    assert check.value == 0
    assert "all its records are of one class, so accuracy shows nothing" in check.message
    assert not any(word in check.message for word in ("order of the", "domain"))


@pytest.mark.parametrize(
    "controls", [[], [control(np.nan)], [control(0.5), control(np.nan)], [control(np.nan), control(0.5)]]
)
def test_a_control_that_is_missing_or_without_interval_fails(controls):
    check = positive_control(controls)
    assert check.passed is False
    assert check.value is None
    assert ("no control model was trained" in check.message) is (not controls)


@pytest.mark.parametrize(
    ("check", "passed", "value", "words"),
    [
        (distances_apart(np.array([0.9]), NONE), False, None, "train 5 replicates"),
        (distances_apart(np.array([0.5, 0.0]), np.array([0.1])), False, None, ""),
        (query_size(100, np.array([0.0])), False, None, ""),
        # A class that occurs in neither set is not missing; one that one of them lacks is.
        (class_coverage(np.repeat([0, 2], 20), np.repeat([0, 2], 15), ("cat", "unicorn", "dog")), True, 15, ""),
        (
            class_coverage(np.repeat([0, 1], 20), np.repeat(0, 40), ("cat", "dog")),
            *(False, 0, "'dog', with 0 records in the calibration set"),
        ),
    ],
)
def test_at_the_edges(check: Check, passed: bool, value: float | None, words: str):
    assert check.passed is passed
    assert check.value == value
    assert words in check.message


def test_fewer_right_answers_than_guesses_may_be_over_forgetting():
    below, above = (target_accuracy(accuracy, LABELS, "mine.npz") for accuracy in (0.0, 0.459))
    assert ["over-forgotten" in check.message for check in (below, above)] == [True, False]
