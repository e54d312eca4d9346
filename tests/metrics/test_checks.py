"""Every check passes on one side of its threshold; the order of columns and rows of a target's outputs is found."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.references import softmax

from jaxaudit.metrics import (
    Alike,
    Check,
    Rho,
    calibration_reach,
    class_coverage,
    counted,
    distances_apart,
    holdout_apart,
    holdout_like_query,
    models_of_test,
    moved_columns,
    positive_control,
    query_size,
    ranked,
    shadow_accuracy,
    target_accuracy,
    tied_confidences,
)

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
        models_of_test("holdout test's models", np.array([1.0, 0.9])),
        models_of_test("holdout test's models", np.array([1.0, 0.899])),
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


@pytest.mark.parametrize("name", ["outputs on holdout", "outputs on members"])
def test_a_set_of_one_class_beside_the_query_set_is_in_order_if_its_class_is_met(name):
    """Rare classes are in few of the holdouts of 20 records. Where the other column is given, few records are met."""
    met, missed = (target_accuracy(accuracy, LABELS * 0, "mine", check=name) for accuracy in (0.9, 0.1))
    assert met.passed
    assert not missed.passed


@pytest.mark.parametrize("check", [calibration_reach(np.ones(2), LABELS * 0), target_accuracy(1.0, LABELS * 0, "mine")])
def test_one_class_alone_shows_nothing(check):
    """And that is the reason, not the order of rows or another domain."""
    assert not check.passed
    assert check.value == 0
    assert "all its records are of one class, so accuracy shows nothing" in check.message
    assert not any(word in check.message for word in ("order of the", "domain"))


@pytest.mark.parametrize(
    ("check", "passed", "value", "words"),
    [
        (positive_control([]), False, None, "no control model was trained"),
        (positive_control([control(0.5), control(np.nan)]), False, None, ""),
        (positive_control([control(np.nan), control(0.5)]), False, None, ""),
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


def model(seed, labels, classes, signal, offset: float | np.ndarray = 0.0):
    """Probabilities of a model of this skill; `offset` is added to the logits."""
    logits = 1.5 * np.random.default_rng(seed).normal(size=(len(labels), classes)) + offset
    logits[np.arange(len(labels)), labels] += signal
    return softmax(logits)


def found(values, labels):
    moved = moved_columns([counted(values, labels)])
    return None if moved is None else moved[1]


BALANCED = np.arange(400) % 10
RARE = (np.arange(1500) % 33 == 0).astype(int)


def test_exchanged_columns_are_named():
    """Also those of a rare class, which is never the largest, and of one of several tables."""
    values = model(0, BALANCED, 10, 3.5)
    assert found(values, BALANCED) is None
    order = np.array([0, 1, 2, 3, 4, 5, 8, 6, 7, 9])
    assert found(values[:, order], BALANCED) == {6: 7, 7: 8, 8: 6}
    swapped = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 8])
    assert found(values[:, swapped], BALANCED) == {8: 9, 9: 8}
    values = model(2, RARE, 2, 3.0, np.array([0.0, -9.0]))
    assert (values.argmax(axis=1) == 0).all()
    assert found(values, RARE) is None
    assert found(values[:, ::-1], RARE) == {0: 1, 1: 0}
    values = model(3, BALANCED, 10, 4.0)
    right, wrong = counted(values, BALANCED), counted(np.roll(values, 1, axis=1), BALANCED)
    moved: Any = moved_columns([right, wrong])
    assert moved[0] == 1


@pytest.mark.parametrize("count", [1, 2])
def test_classes_of_hardly_a_record_stay(count):
    """Two records that a model takes for the other class are no evidence."""
    labels = np.repeat([0, 1, 2, 3], [200, 200, count, count])
    values = np.eye(4)[labels]
    values[labels >= 2] = values[labels >= 2][:, [0, 1, 3, 2]]
    assert found(values, labels) is None
    absent = np.repeat([0, 1], 200)
    assert found(np.eye(4)[absent], absent) is None
    assert found(np.eye(4)[np.zeros(5, int)], np.ones(5, int)) is None


def unskilled(kind, seed):
    """Outputs of models that are bad, in order, and the labels: what chance or common classes make of them."""
    generator = np.random.default_rng([41, seed])
    classes = int(generator.integers(2, 9))
    sizes = generator.dirichlet(np.ones(classes))
    labels = generator.choice(classes, 300, p=sizes)
    if kind == "noise":
        return softmax(3 * generator.normal(size=(300, classes))), labels
    if kind == "constant":
        return np.tile(generator.dirichlet(np.ones(classes)), (300, 1)) + 1e-3 * generator.random(
            (300, classes)
        ), labels
    if kind == "coarse":  # it knows which half of the classes, and within it guesses
        own = np.where(np.arange(classes) % 2 == labels[:, None] % 2, 3.0, 0.0)
        return softmax(own + generator.normal(size=(300, classes))), labels
    return model([43, seed], labels, classes, 0.5, 4 * generator.normal(size=classes)), labels


@pytest.mark.outer
@pytest.mark.parametrize("kind", ["noise", "constant", "coarse", "weak"])
def test_bad_models_in_order_are_not_doubted(kind):
    """At most `ORDER_LEVEL` of them may be: of 1,000, one with probability 0.1, and two with 0.005."""
    doubted = sum(found(*unskilled(kind, seed)) is not None for seed in range(1000))
    assert doubted <= 1 + 1000 * 1e-4


def test_a_ranking_is_told_from_rows_in_a_random_order():
    """Rows are shuffled 2,000 times: p is uniform, so about `RANK_LEVEL` of them pass, and at most twice as many."""
    generator, values = np.random.default_rng(6), model(7, RARE, 2, 3.0, np.array([0.0, -9.0]))
    whole: Any = ranked(values, RARE)
    assert whole[0] > 0.95
    assert whole[1] < 1e-9
    shuffled = (ranked(values[generator.permutation(1500)], RARE) for _ in range(2000))
    ps = np.array([each[1] for each in shuffled if each is not None])
    assert (ps <= 1e-2).mean() <= 2 * 1e-2
    assert abs((ps <= 0.05).mean() - 0.05) < 0.015


def test_the_area_is_that_of_the_mann_whitney_statistic():
    labels, values = np.array([0, 1, 2, 0, 1, 2, 2]), model(8, np.array([0, 1, 2, 0, 1, 2, 2]), 3, 1.0).round(1)
    areas = [
        np.mean([(a > b) + 0.5 * (a == b) for a in values[labels == k, k] for b in values[labels != k, k]])
        for k in range(3)
    ]
    result: Any = ranked(values, labels)
    assert result[0] == pytest.approx(np.mean(areas))
    assert ranked(values, np.zeros(7, int)) is None


def test_a_good_ranking_is_enough_where_accuracy_is_that_of_guessing():
    values = model(9, RARE, 2, 3.0, np.array([0.0, -9.0]))
    accuracy = float((values.argmax(axis=1) == RARE).mean())
    assert not target_accuracy(accuracy, RARE, "rare.npy").passed
    assert target_accuracy(accuracy, RARE, "rare.npy", ranking=ranked(values, RARE)).passed
    shuffled = values[np.random.default_rng(10).permutation(1500)]
    assert not target_accuracy(accuracy, RARE, "rare.npy", ranking=ranked(shuffled, RARE)).passed
    assert not target_accuracy(accuracy, RARE, "rare.npy", ranking=ranked(values[:, ::-1], RARE)).passed


def test_a_model_of_little_skill_is_refused_less_often_than_a_lower_level_would() -> None:
    """Ten classes, accuracy 15%, 100 records: of 1,000 models 36% fail the check, and 65% at a tenth of the level.

    Of 200 at most 46%: more by chance once in 500 times.
    """
    random, failed = np.random.default_rng(1), 0
    for _ in range(200):
        labels, logits = random.integers(0, 10, 100), random.normal(size=(100, 10))
        logits[np.arange(100), labels] += 0.3
        outputs = softmax(logits)
        accuracy = float((outputs.argmax(axis=1) == labels).mean())
        failed += not target_accuracy(accuracy, labels, "o.csv", ranking=ranked(outputs, labels)).passed
    assert failed <= 92
