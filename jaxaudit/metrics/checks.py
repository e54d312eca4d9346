"""Checks of the assumptions of the `ks` audit. A failed assumption could make its verdict wrong.

That shadow models are well trained, that the calibration set comes from the query set's domain, and that the two
reference distributions differ by more than noise are assumptions of Liu & Tsaftaris (2020, sections 3.2 to 4).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.ks import Rho, deciding
from jaxaudit.metrics.output_order import RANK_LEVEL, Ranked

MIN_ACCURACY = 0.9
MIN_REACH = 0.1
MAX_NOISE_SHARE = 0.5
MAX_TIED_SHARE = 0.5
MIN_CLASS_RECORDS = 10
ONE_CLASS_MET = 0.5
SHADOW_ACCURACY = "shadow accuracy"
CALIBRATION_LIKE_QUERY = "calibration like query"
CLASS_COVERAGE = "class coverage"
POSITIVE_CONTROL = "positive control"
TARGET_OUTPUTS = "target outputs"
DISTANCES_APART = "noise floor"
QUERY_SIZE = "query size"
TIED_CONFIDENCES = "tied confidences"
HOLDOUT_LIKE_QUERY = "holdout like query"
HOLDOUT_APART = "holdout apart from query"
MEMBERS_LIKE_QUERY = "members like query"
MODELS_LIKE_TARGET = "models like target"
MEMBERS_OUTPUTS = "outputs on members"
HOLDOUT_OUTPUTS = "outputs on holdout"
BEFORE_OUTPUTS = "outputs before"
BEFORE_ON_HOLDOUT = "outputs before on holdout"
HOLDOUT_MODELS = "holdout test's models"
REFERENCE_MODELS = "reference test's models"
SHADOW_MODELS = "shadow test's models"
REFERENCE_LIKE_TARGET = "reference like target's data"
MIN_REFERENCE_ACCURACY = 2 / 3
RECIPE = "train longer, change the learning rate, or use another model"

ONE_CLASS = "all its records are of one class, so accuracy shows nothing:"


class Check(StrictStruct, frozen=True):
    """The result of checking one assumption.

    Attributes:
        name: what was checked.
        passed: whether the assumption holds.
        value: the measured number; None if nothing was measured or the number is infinite.
        threshold: the number that `value` is compared with; None without one.
        decisive: whether a failure makes the verdict `inconclusive`; otherwise a failure is a warning.
        message: what was measured and, if it failed, what to do.
    """

    name: str
    passed: bool
    value: Number
    threshold: Number
    decisive: bool
    message: str


def threshold_check(
    name: str, value: float, threshold: float, message: str, advice: str, *, decisive: bool = True, up_to: bool = False
) -> Check:
    """A check that a number reaches a threshold, or lies `up_to` it; if it fails, advice follows the message."""
    passed = bool(value <= threshold if up_to else value >= threshold)
    return Check(name, passed, number(value), threshold, decisive, message + ("" if passed else advice))


def shadow_accuracy(accuracies: Float[np.ndarray, " shadows"], minimum: float = MIN_ACCURACY) -> Check:
    """Every query and calibration model fits its own training data (the paper: "adequate training accuracy")."""
    return models_of_test(SHADOW_ACCURACY, accuracies, minimum, models_name="shadow model", decisive=True)


def models_of_test(
    name: str,
    accuracies: Float[np.ndarray, " models"],
    minimum: float = MIN_ACCURACY,
    recipe: str = RECIPE,
    *,
    models_name: str = "",
    decisive: bool = False,
) -> Check:
    """The shadow models of a test of use fit their own training data; `name` names the check, `recipe` is advice.

    A failure is a warning: the holdout test's `p_never` is exact for any shadow models, and the minimum detectable
    fraction, measured on models that fit badly, is too large for `forgotten` anyway. A failure changes the advice:
    first a better training recipe, then more records.
    """
    worst = float(np.min(accuracies))
    message = f"lowest training accuracy of any {models_name or f'of the {name}'}: {worst:.1%}"
    return threshold_check(name, worst, minimum, message, f", under {minimum:.0%}; {recipe}", decisive=decisive)


def better_recipe(fit: Check, recipe: str) -> str:
    """Advice to train better models, a phrase that ends in `recipe`; empty if `fit`, from `models_of_test`, passed."""
    if fit.passed:
        return ""
    lowest = "unknown" if fit.value is None else f"{fit.value:.1%}"
    return f"its models fit badly (lowest training accuracy: {lowest}): {recipe}"


def _reach(accuracy: float, labels: np.ndarray) -> tuple[float, float]:
    """The share of the commonest class, and how much of the way from it to 1 an accuracy covers."""
    guess = float(np.bincount(labels).max() / len(labels))
    return guess, (accuracy - guess) / (1 - guess) if guess < 1 else 0.0


def calibration_reach(
    accuracies: Float[np.ndarray, " models"],
    labels: Int[np.ndarray, " n"],
    models_name: str = "calibration models",
) -> Check:
    """Query set and calibration set share a domain: models of the calibration set classify query records above chance.

    The number is (accuracy - guess) / (1 - guess), where `accuracy` is the models' mean accuracy on the query set and
    `guess` the share of its commonest class. `models_name` names the models: any that were trained on calibration
    records and no query record.
    """
    accuracy = float(np.mean(accuracies))
    guess, reach = _reach(accuracy, labels)
    message = f"accuracy of {models_name} on the query set: {accuracy:.1%} (guessing: {guess:.1%})"
    advice = (
        "; the calibration set seems to come from another domain: use one of the query set's domain, and check that "
        "classes and preprocessing agree"
    )
    if guess == 1:
        advice = f"; {ONE_CLASS} a query set of several classes is needed, or the holdout test"
    return threshold_check(CALIBRATION_LIKE_QUERY, reach, MIN_REACH, message, advice)


def not_measured(name: str) -> Check:
    """A warning in place of a check that several tests rely on, for an audit without models to measure it on."""
    message = "not measured, since this audit has no models to measure it on; add RhoTest() to the tests"
    return Check(name, False, None, None, False, message)


def distances_apart(
    calibration_distances: Float[np.ndarray, " replicates"],
    floor: Float[np.ndarray, " pairs"],
) -> Check:
    """rho's denominator is well above the noise: the distance between query models that differ only in their seed."""
    if not len(floor):
        message = "one replicate cannot measure the noise between seeds; train 5 replicates"
        return Check(DISTANCES_APART, False, None, MAX_NOISE_SHARE, True, message)
    least, noise = float(np.min(calibration_distances)), float(np.max(floor))
    share = noise / least if least > 0 else float("inf")
    message = f"distances: up to {noise:.3f} between query models, {least:.3f} or more from query to calibration models"
    advice = (
        "; the calibration set is too similar to the query set, or the noise between seeds is too large, to interpret "
        "rho: train to convergence or use another calibration set"
    )
    return threshold_check(DISTANCES_APART, share, MAX_NOISE_SHARE, message, advice, up_to=True)


def query_size(records: int, calibration_distances: Float[np.ndarray, " replicates"]) -> Check:
    """There are enough query records to resolve the distances that were measured.

    The number is the 95% critical value of the two-sample KS statistic at this size, 1.358 * sqrt(2 / n), as a share
    of rho's denominator.
    """
    critical = float(special.kolmogi(1 - 0.95) * np.sqrt(2 / records))
    least = float(np.min(calibration_distances))
    share = critical / least if least > 0 else float("inf")
    message = f"with {records} query records, distances below {critical:.3f} can be chance"
    advice = f", and the smallest measured is {least:.3f}; more query records are needed"
    return threshold_check(QUERY_SIZE, share, MAX_NOISE_SHARE, message, advice, up_to=True)


def tied_confidences(confidences: Float[np.ndarray, "models n"], *, printed: bool = False) -> Check:
    """Confidences are spread out: no model gives most records the same value, such as exactly 1.

    `printed` says whether the confidences were rounded like the probabilities in a target's file.
    """
    worst = float(np.max([np.unique(row, return_counts=True)[1].max() / len(row) for row in confidences]))
    message = f"largest share of query confidences of one model with the same value: {worst:.1%}"
    finer = "give logits or more decimals, or " if printed else ""
    advice = f"; the distance depends only on the others: {finer}train for fewer epochs"
    return threshold_check(TIED_CONFIDENCES, worst, MAX_TIED_SHARE, message, advice, decisive=False, up_to=True)


def class_coverage(
    query: Int[np.ndarray, " n"],
    calibration: Int[np.ndarray, " m"],
    class_names: tuple[str, ...],
    minimum: int = MIN_CLASS_RECORDS,
) -> Check:
    """Checks that every class that occurs has at least `minimum` records in query set and calibration set (labels)."""
    counts = np.stack([np.bincount(labels, minlength=len(class_names)) for labels in (query, calibration)])
    occurring = np.where(counts.any(axis=0), counts, counts.max() + 1)
    side, scarcest = np.unravel_index(np.argmin(occurring), counts.shape)
    fewest = int(counts[side, scarcest])
    where = ("query", "calibration")[side]
    message = f"the rarest class is {class_names[scarcest]!r}, with {fewest} records in the {where} set"
    advice = f"; models cannot learn a class from fewer than {minimum}: add records or drop the class from both sets"
    return threshold_check(CLASS_COVERAGE, float(fewest), float(minimum), message, advice, decisive=False)


def positive_control(controls: Sequence[Rho]) -> Check:
    """Use is detected in control models, which are known to be trained on the calibration set *and* the query set.

    The paper does not check this; its rule presupposes it. On real data it can fail: a model trained on both sets can
    lie further from the query models than the calibration models do. `forgotten` then means nothing. The check affects
    only that verdict.
    """
    highest = [deciding(control)[1] for control in controls]
    worst = float(np.max(highest)) if controls else float("nan")
    passed = bool(worst < 1)
    if not controls:
        message = "no control model was trained, so nothing shows that use of the query set would be detected"
    else:
        ratios_text = ", ".join(
            f"{control.median:.2f} (up to {high:.2f})" for control, high in zip(controls, highest, strict=True)
        )
        message = f"rho of a control trained on the calibration set and the whole query set: {ratios_text}"
    advice = "; rho does not clearly detect use here, and so never says `forgotten`"
    return Check(POSITIVE_CONTROL, passed, number(worst), 1.0, True, message + ("" if passed else advice))


def target_accuracy(
    accuracy: float,
    labels: Int[np.ndarray, " n"],
    name: str,
    *,
    of: str = "query set",
    check: str = TARGET_OUTPUTS,
    ranking: Ranked | None = None,
) -> Check:
    """The target's outputs match the labels of a set better than chance: their rows and columns are in order.

    Where one class is far more common than others, a good model may call no record anything else, so that its accuracy
    is that of guessing. A `ranking` of the records that is as good as rows in order make it, and as rows in a random
    order do not (`RANK_LEVEL`), is then enough.

    Records of one class may be told apart by no label, so that other rows would be as good as the right ones. Beside
    the query set, where rows and columns are checked, such a set passes if most of its records are given their class.
    """
    guess, reach = _reach(accuracy, labels)
    message = f"accuracy of {name} on the {of}: {accuracy:.1%} (guessing: {guess:.1%})"
    if guess == 1 and check not in (TARGET_OUTPUTS, BEFORE_OUTPUTS) and accuracy > ONE_CLASS_MET:
        return Check(check, True, accuracy, ONE_CLASS_MET, True, message)
    if ranking is not None:
        message += f"; area under the ROC curve, averaged over classes: {ranking.area:.2f}"
        reach = max(reach, 2 * ranking.area - 1) if ranking.p <= RANK_LEVEL else reach
    advice = (
        f"; its rows may not be in the order of the {of}, or its columns not in the order of the classes. If the "
        "target really cannot classify this set, allow an unrelated target"
    )
    if accuracy < guess and check not in (HOLDOUT_OUTPUTS, BEFORE_ON_HOLDOUT):
        advice = f", or the model was over-forgotten on this set{advice}"
    if guess == 1:
        advice = f"; {ONE_CLASS} if you know that rows and columns are in order, allow an unrelated target"
    return threshold_check(check, reach, MIN_REACH, message, advice)


def target_order(scores: Float[np.ndarray, " n"], usual: Float[np.ndarray, " n"], size: int, name: str) -> Check:
    """The target finds the records hard that shadow models find hard: the rows of its outputs are in order.

    The number is Spearman's correlation of the target's outputs with the mean of the shadow models', the lower one of
    the query set, which are the first `size` records, and the other records. In another order it is as high as chance
    allows, so at least three standard errors of that are asked for.
    """
    parts = [part for part in (slice(0, size), slice(size, None)) if len(scores[part]) > 1]
    related = min(
        float(np.corrcoef(mid_ranks(scores[part]), mid_ranks(usual[part]))[0, 1]) if np.ptp(scores[part]) else 0.0
        for part in parts
    )
    minimum = min(max(MIN_REACH, 3 / min(len(scores[part]) for part in parts) ** 0.5), 0.9)
    message = f"lowest rank correlation of {name} with the mean of the shadow models on a set: {related:.2f}"
    advice = (
        f", under {minimum:.2f}; its rows may not be in the order of the records, or the direction of the bank is not "
        "that of its scores. If the target really finds other records hard, allow an unrelated target"
    )
    return threshold_check(TARGET_OUTPUTS, related, minimum, message, advice)


def reference_like_target(accuracy: float, accuracies: Float[np.ndarray, " shadows"]) -> Check:
    """The target's other training data are like the reference: it classifies the reference like shadow models do.

    The number is the target's accuracy on the reference, divided by the lowest accuracy of any shadow model on the
    reference records that it was not trained on. If the target was trained on other kinds of data, the correction that
    is measured on the reference is wrong.
    """
    lowest = float(np.min(accuracies))
    message = f"accuracy of the target on the reference: {accuracy:.1%} (shadow models, unseen records: {lowest:.1%})"
    advice = (
        "; the target's other data seem to be unlike the reference, or the rows of its outputs are in another order: "
        "use a reference like its other data"
    )
    return threshold_check(
        REFERENCE_LIKE_TARGET, accuracy / lowest if lowest > 0 else 1.0, MIN_REFERENCE_ACCURACY, message, advice
    )
