"""Pre-flight checks of the `ks` audit: what could make its verdict wrong, measured.

The method assumes that the shadow models are well trained, that the calibration set comes from the query set's
domain, and that the two reference distributions differ by more than noise (Liu & Tsaftaris 2020, sections 3.2 to 4).
Each assumption here is a number, a threshold, and what to do where it fails.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.ks import Rho

MIN_ACCURACY = 0.9
MIN_REACH = 0.1
MAX_NOISE_SHARE = 0.5
MAX_TIED_SHARE = 0.5
MIN_CLASS_RECORDS = 10
DEALT_LEVEL = 0.01
SHADOW_ACCURACY = "shadow accuracy"
CALIBRATION_LIKE_QUERY = "calibration like query"
CLASS_COVERAGE = "class coverage"
POSITIVE_CONTROL = "positive control"
TARGET_OUTPUTS = "target outputs"
DISTANCES_APART = "noise floor"
QUERY_SIZE = "query size"
TIED_CONFIDENCES = "tied confidences"
HOLDOUT_LIKE_QUERY = "holdout like query"
HOLDOUT_MODELS = "holdout test's models"
SHADOW_MODELS = "shadow test's models"
RECIPE = "train longer (--epochs), at another rate (--learning-rate), or choose a design that fits the data (--model)"


class Check(NamedTuple):
    """One assumption, tested.

    Attributes:
        name: what was checked.
        passed: whether it holds.
        value: the number measured.
        threshold: what the number was held against.
        decisive: whether failing it leaves no verdict but `inconclusive`; else it is a warning.
        message: in words: what was measured, and what to do where it failed.
    """

    name: str
    passed: bool
    value: float
    threshold: float
    decisive: bool
    message: str


def shadow_accuracy(accuracies: Float[np.ndarray, " shadows"], minimum: float = MIN_ACCURACY) -> Check:
    """Every query and calibration model fits its own training data (the paper: "adequate training accuracy")."""
    return _fit(SHADOW_ACCURACY, "shadow model", accuracies, minimum, decisive=True)


def models_of_test(name: str, accuracies: Float[np.ndarray, " models"], minimum: float = MIN_ACCURACY) -> Check:
    """The models that a test of use learns from fit their own training data; `name` says which test's.

    A warning, which takes no verdict away. The holdout test's `p_never` is exact whatever its models are, so its
    `not forgotten` stands. How little would have shown is measured on these very models: where they fit so badly that
    they give nothing away, that is too much for `forgotten`, and the verdict is `inconclusive` by itself. What the
    failed check changes is the advice: a better recipe first, more records after.
    """
    return _fit(name, f"of the {name}", accuracies, minimum, decisive=False)


def better_recipe(fit: Check) -> str:
    """What to do where a test notices too little: empty unless its models fit badly."""
    if fit.passed:
        return ""
    return f"its models fit badly (the least accurate gets {fit.value:.1%} of its own training records right): {RECIPE}"


def _fit(name: str, whose: str, accuracies: np.ndarray, minimum: float, *, decisive: bool) -> Check:
    worst = float(np.min(accuracies))
    passed = worst >= minimum
    message = f"the least accurate {whose} gets {worst:.1%} of its own training records right"
    return Check(
        name, passed, worst, minimum, decisive, message + ("" if passed else f", under {minimum:.0%}; {RECIPE}")
    )


def calibration_reach(
    accuracies: Float[np.ndarray, " replicates"], labels: Int[np.ndarray, " n"], minimum: float = MIN_REACH
) -> Check:
    """Calibration models know something of the query set: the two sets share a domain.

    Their mean accuracy on the query set, as a share of the way from guessing the commonest class to perfection.
    """
    guess = float(np.bincount(labels).max() / len(labels))
    accuracy = float(np.mean(accuracies))
    reach = (accuracy - guess) / (1 - guess) if guess < 1 else 0.0
    passed = reach >= minimum
    message = f"calibration models get {accuracy:.1%} of the query set right (guessing: {guess:.1%})"
    advice = (
        "; the calibration set does not look like the query set's domain: use one that does, and check that classes "
        "and preprocessing agree"
    )
    return Check(CALIBRATION_LIKE_QUERY, passed, reach, minimum, True, message + ("" if passed else advice))


def distances_apart(
    calibration_distances: Float[np.ndarray, " replicates"],
    floor: Float[np.ndarray, " pairs"],
    maximum: float = MAX_NOISE_SHARE,
) -> Check:
    """rho's denominator is well above the distance between two query models that differ by their seed alone."""
    if not len(floor):
        return Check(
            DISTANCES_APART,
            False,
            float("nan"),
            maximum,
            True,
            "one replicate shows nothing of the noise between seeds; use --replicates 5",
        )
    least, noise = float(np.min(calibration_distances)), float(np.max(floor))
    share = noise / least if least > 0 else float("inf")
    passed = share <= maximum
    message = (
        f"query models differ by up to {noise:.3f} from one another, from calibration models by {least:.3f} or more"
    )
    advice = (
        "; the calibration set is too much like the query set, or seeds matter too much, for a ratio to mean anything: "
        "train to convergence or use another calibration set"
    )
    return Check(DISTANCES_APART, passed, share, maximum, True, message + ("" if passed else advice))


def query_size(
    records: int, calibration_distances: Float[np.ndarray, " replicates"], maximum: float = MAX_NOISE_SHARE
) -> Check:
    """Enough query records to see the distances measured.

    The 95% critical value of the two-sample KS statistic at this size, 1.358 * sqrt(2 / n), as a share of rho's
    denominator.
    """
    critical = float(stats.kstwobign.ppf(0.95) * np.sqrt(2 / records))
    least = float(np.min(calibration_distances))
    share = critical / least if least > 0 else float("inf")
    passed = share <= maximum
    message = f"with {records} query records distances under {critical:.3f} can be chance"
    advice = f", and the one measured is {least:.3f}; more query records are needed"
    return Check(QUERY_SIZE, passed, share, maximum, True, message + ("" if passed else advice))


def tied_confidences(
    confidences: Float[np.ndarray, "models n"], maximum: float = MAX_TIED_SHARE, *, printed: bool = False
) -> Check:
    """Confidences are spread out: no single value, such as exactly 1, holds most of them in any one model.

    Args:
        printed: whether they were rounded as the probabilities in a target's file are.
    """
    shares = [np.unique(row, return_counts=True)[1].max() / len(row) for row in confidences]
    worst = float(np.max(shares))
    passed = worst <= maximum
    message = f"in one model {worst:.1%} of the query confidences are one and the same value"
    finer = "give logits or more decimals, or " if printed else ""
    advice = f"; the distance sees only the rest: {finer}train for fewer epochs"
    return Check(TIED_CONFIDENCES, passed, worst, maximum, False, message + ("" if passed else advice))


def class_coverage(
    query: Int[np.ndarray, " n"],
    calibration: Int[np.ndarray, " m"],
    class_names: tuple[str, ...],
    minimum: int = MIN_CLASS_RECORDS,
) -> Check:
    """Every class that occurs has some records in both sets."""
    counts = np.stack([np.bincount(labels, minlength=len(class_names)) for labels in (query, calibration)])
    occurring = np.where(counts.any(axis=0), counts, counts.max() + 1)
    side, scarcest = np.unravel_index(np.argmin(occurring), counts.shape)
    fewest = int(counts[side, scarcest])
    passed = fewest >= minimum
    where = ("query", "calibration")[side]
    message = f"the rarest class is {class_names[scarcest]!r}, with {fewest} records in the {where} set"
    advice = f"; with under {minimum} the models cannot learn it: add records or drop the class from both sets"
    return Check(CLASS_COVERAGE, passed, fewest, minimum, False, message + ("" if passed else advice))


def positive_control(controls: Sequence[Rho]) -> Check:
    """A target known to be trained on the calibration set *and* the query set is recognised.

    Not in the paper, whose rule takes it for granted; on real data it can fail (a mixed target can lie further from
    the query models than the calibration models do), and then "forgotten" means nothing. It decides only that
    verdict.
    """
    worst = float(np.max([control.high for control in controls])) if controls else float("nan")
    passed = bool(worst < 1)
    if not controls:
        message = "no control model was trained, so nothing shows that a remembered query set would be noticed"
    else:
        found = ", ".join(f"{control.median:.2f} (up to {control.high:.2f})" for control in controls)
        message = f"a control trained on the calibration and the whole query set has rho {found}"
    advice = "; rho does not clearly tell remembered from forgotten here, so 'forgotten' is not said"
    return Check(POSITIVE_CONTROL, passed, worst, 1.0, True, message + ("" if passed else advice))


def target_accuracy(accuracy: float, labels: Int[np.ndarray, " n"], name: str, minimum: float = MIN_REACH) -> Check:
    """The target's outputs have to do with the query set's labels at all: rows and columns are in the right order."""
    guess = float(np.bincount(labels).max() / len(labels))
    reach = (accuracy - guess) / (1 - guess) if guess < 1 else 0.0
    passed = reach >= minimum
    message = f"{name} gets {accuracy:.1%} of the query set right (guessing: {guess:.1%})"
    advice = (
        "; its rows may not be in the order of the query set, or its columns not in the order of the classes; if the "
        "target truly cannot classify this set, pass --allow-unrelated-target"
    )
    return Check(TARGET_OUTPUTS, passed, reach, minimum, True, message + ("" if passed else advice))


def holdout_like_query(found: Alike, level: float = DEALT_LEVEL) -> Check:
    """Nothing shows that query set and holdout were not dealt from one pile.

    The smallest of four p-values, times four: where chance alone dealt them, this fails at most `level` of the time.
    """
    said = {
        "labels": "their classes are not equally frequent",
        "inputs": "their inputs differ in mean or spread",
        "difficulty": "one of them is easier for models that never saw it",
        "copies": "records that occur more than once have all their copies in one of them",
    }
    smallest = min(1.0, len(said) * min(found))
    passed = smallest > level
    if passed:
        message = (
            f"query set and holdout look dealt from one pile (classes, inputs, difficulty, copies: p {smallest:.2g})"
        )
    else:
        wrong = [words for name, words in said.items() if len(said) * getattr(found, name) <= level]
        message = (
            f"query set and holdout were not dealt at random from one pile (p {smallest:.2g}): {', and '.join(wrong)}; "
            "what tells them apart need not be use. Deal the provider's records at random, one copy of each"
        )
    return Check(HOLDOUT_LIKE_QUERY, passed, smallest, level, True, message)
