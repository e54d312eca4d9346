"""Checks of the assumptions of the `ks` audit. A failed assumption could make its verdict wrong.

Liu & Tsaftaris (2020, sections 3.2 to 4) assume that shadow models are well trained, that the calibration set comes
from the query set's domain, and that the two reference distributions differ by more than noise. Further checks ask
whether rows and columns of a target's outputs are in the order of its records and of the classes.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.errors import few
from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import Integers, Numbers, PerModel, Scores
from jaxaudit.metrics.ks import Rho, deciding

ORDER_LEVEL = 1e-4
"""How often columns that are in order may be taken for others: at most, for one target."""
MARGIN = 0.1
"""How much higher the mean recall of the moved classes must be in another order."""
KNOWN, HALF_KNOWN = 0.5, 0.1
"""How far from guessing to no mistake a model must come in the other order, or in the given one, for columns to be
moved: one that knows less of the classes may take each for some other."""
RANK_LEVEL = 1e-2
"""How often rows in a random order may be taken for rows in order. A lower one refuses more models of little skill."""
MOST_SHOWN = 10
_BLOCK = 1 << 19


def moved_columns(
    counts: Sequence[Int[np.ndarray, "classes classes"]],
) -> tuple[int, dict[int, int]] | None:
    """The first table of `counted` that another order of columns fits far better, and which column fits which class.

    The mean recall of the moved classes must grow by more than `MARGIN` beyond chance, by Hoeffding's inequality (1963,
    theorem 2), with Bonferroni for all cycles and tables.
    """
    # Imported here because it takes a tenth of a second.
    from scipy.optimize import linear_sum_assignment

    for index, table in enumerate(counts):
        sizes = table.sum(axis=1)
        classes_there = np.flatnonzero(sizes)
        shares = table[np.ix_(classes_there, classes_there)] / sizes[classes_there, None]
        # Where two orders are as good, the given one stands.
        columns = linear_sum_assignment(shares + 1e-9 * np.eye(len(classes_there)), maximize=True)[1]
        in_order = shares[np.arange(len(columns)), columns]
        if _reach(np.diag(shares)) < HALF_KNOWN and _reach(in_order) < KNOWN:
            continue
        moved: dict[int, int] = {}
        for cycle in _cycles(columns):
            gain = float((in_order[cycle] - shares[cycle, cycle]).sum()) - MARGIN * len(cycle)
            bound = -(gain**2) / (2 * float((1 / sizes[classes_there[cycle]]).sum())) if gain > 0 else 0.0
            if bound + _log_cycles(len(classes_there), len(cycle)) <= np.log(ORDER_LEVEL / len(counts)):
                pairs = classes_there[[cycle, columns[cycle]]].tolist()
                moved |= dict(zip(*pairs, strict=True))
        if moved:
            return index, moved
    return None


def described(moved: Mapping[int, int], names: Sequence[str]) -> str:
    """The columns that fit moved classes better, in words.

    >>> described({0: 1, 1: 0}, ("no", "yes"))
    "column 2 ('yes') as 'no', column 1 ('no') as 'yes'"
    """
    pairs = (f"column {column + 1} ({names[column][:40]!r}) as {names[of][:40]!r}" for of, column in moved.items())
    return few(pairs, MOST_SHOWN)


def counted(probabilities: Float[np.ndarray, "n classes"], labels: Integers) -> Int[np.ndarray, "classes classes"]:
    """How many records of each class (row) a model calls each class (column), by probability relative to its mean.

    By the highest probability alone, most records would be called the commonest class where sizes differ much.
    """
    classes, n = probabilities.shape[1], len(probabilities)
    usual = np.maximum(probabilities.mean(axis=0, dtype=np.float64), 1 / n)
    rows = max(1, _BLOCK // classes)
    called = [(probabilities[at : at + rows] / usual).argmax(axis=1) for at in range(0, n, rows)]
    return np.bincount(labels * classes + np.concatenate(called), minlength=classes**2).reshape(classes, classes)


def ranked(probabilities: Float[np.ndarray, "n classes"], labels: Integers) -> tuple[float, float] | None:
    """How well a model ranks the records of each class before all others, whatever the sizes of the classes; None of a
    single class. The area under the ROC curve of a class's column, averaged over the classes that occur; and how often
    records in a random order reach it, by the normal approximation of all permutations.
    """
    classes, class_places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    n = len(labels)
    if len(classes) < 2:
        return None
    ranks = np.stack([mid_ranks(probabilities[:, index]) - (n + 1) / 2 for index in classes], axis=1)
    # What a record adds to the mean area for each class that it could have, as in Hoeffding's statistic (1951).
    parts = ranks / (sizes * (n - sizes) * len(classes))
    total = float(parts[np.arange(n), class_places].sum())
    apart = parts - (parts @ sizes / n)[:, None]
    variance = float((apart**2).sum(axis=0) @ sizes) / (n - 1)
    p = float(special.ndtr(-total / variance**0.5)) if variance > 0 else 1.0
    return 0.5 + total, p


def _reach(recalls: Float[np.ndarray, " classes"]) -> float:
    """How much of the way from guessing to 1 the mean recall covers."""
    guess = 1 / len(recalls)
    return (float(recalls.mean()) - guess) / (1 - guess) if guess < 1 else 0.0


def _cycles(columns: Int[np.ndarray, " classes"]) -> Iterator[list[int]]:
    """The cycles of a permutation that move something."""
    seen: set[int] = set()
    for start in range(len(columns)):
        cycle, at = [], start
        while at not in seen:
            seen.add(at)
            cycle.append(at)
            at = int(columns[at])
        if len(cycle) > 1:
            yield cycle


def _log_cycles(classes: int, length: int) -> float:
    """The logarithm of the number of cycles of this length, times the number of lengths."""
    orders = special.gammaln(classes + 1) - special.gammaln(classes - length + 1)
    return float(orders - np.log(length) + np.log(classes - 1))


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
UNDAMAGED = "undamaged on holdout"
MEMBERS_OUTPUTS = "outputs on members"
HOLDOUT_OUTPUTS = "outputs on holdout"
OUTPUTS_ON_ONE_SCALE = "outputs on one scale"
BEFORE_OUTPUTS = "outputs before"
BEFORE_ON_HOLDOUT = "outputs before on holdout"
HOLDOUT_MODELS = "holdout test's models"
SHADOW_MODELS = "shadow test's models"
CALIBRATION_LIKE_TARGET = "calibration like target's data"
MIN_CALIBRATION_ACCURACY = 2 / 3
RECIPE = "train longer, scale the inputs, change the learning rate, or use another model"

ONE_CLASS = "all its records are of one class, so accuracy shows nothing:"


class Check(StrictStruct, frozen=True):
    """The result of checking one assumption.

    Attributes:
        value: the measured number; None if it was not measured or is infinite.
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


def shadow_accuracy(accuracies: Float[np.ndarray, " shadows"]) -> Check:
    """Every query and calibration model fits its own training data (the paper: "adequate training accuracy")."""
    return models_of_test(SHADOW_ACCURACY, accuracies, models_name="shadow model", decisive=True)


def models_of_test(
    name: str,
    accuracies: PerModel,
    *,
    models_name: str = "",
    decisive: bool = False,
) -> Check:
    """The shadow models of a test of use fit their own training data; `name` names the check. A failure is
    a warning: `p_never` is exact for any shadow models."""
    lowest = float(np.min(accuracies))
    message = f"lowest training accuracy of any {models_name or f'of the {name}'}: {lowest:.1%}"
    advice = f", under {MIN_ACCURACY:.0%}; {RECIPE}"
    return threshold_check(name, lowest, MIN_ACCURACY, message, advice, decisive=decisive)


def better_recipe(fit: Check) -> str:
    """Advice to train better models, as a phrase; empty if `fit`, from `models_of_test`, passed."""
    if fit.passed:
        return ""
    lowest = "unknown" if fit.value is None else f"{fit.value:.1%}"
    return f"its models fit badly (lowest training accuracy: {lowest}): {RECIPE}"


def _accuracy_reach(accuracy: float, labels: np.ndarray) -> tuple[float, float]:
    """The share of the commonest class, and how much of the way from it to 1 an accuracy covers."""
    guess = float(np.bincount(labels).max() / len(labels))
    return guess, (accuracy - guess) / (1 - guess) if guess < 1 else 0.0


def calibration_reach(
    accuracies: PerModel,
    labels: Integers,
    models_name: str = "calibration models",
) -> Check:
    """Query set and calibration set share a domain: models of the calibration set classify query records above chance.

    The number is (accuracy - guess) / (1 - guess): mean accuracy, and the query set's commonest class's share.
    """
    accuracy = float(np.mean(accuracies))
    guess, reach = _accuracy_reach(accuracy, labels)
    message = f"accuracy of {models_name} on the query set: {accuracy:.1%} (guessing: {guess:.1%})"
    advice = (
        "; the calibration set seems to come from another domain: use one of the query set's domain, and check that "
        "classes and preprocessing agree"
    )
    if guess == 1:
        advice = f"; {ONE_CLASS} a query set of several classes is needed, or the holdout test"
    return threshold_check(CALIBRATION_LIKE_QUERY, reach, MIN_REACH, message, advice)


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

    The number is the 95% critical value of the KS statistic, 1.358 * sqrt(2 / n), as a share of rho's denominator.
    """
    critical = float(special.kolmogi(1 - 0.95) * np.sqrt(2 / records))
    least = float(np.min(calibration_distances))
    share = critical / least if least > 0 else float("inf")
    message = f"with {records} query records, distances below {critical:.3f} can be chance"
    advice = f", and the smallest measured is {least:.3f}; more query records are needed"
    return threshold_check(QUERY_SIZE, share, MAX_NOISE_SHARE, message, advice, up_to=True)


def tied_confidences(confidences: Scores, *, printed: bool = False) -> Check:
    """Confidences are spread out: no model gives most records the same value, such as exactly 1. `printed`: they were
    rounded like the probabilities in a target's file.
    """
    worst = float(np.max([np.unique(row, return_counts=True)[1].max() / len(row) for row in confidences]))
    message = f"largest share of query confidences of one model with the same value: {worst:.1%}"
    finer = "give logits or more decimals, or " if printed else ""
    advice = f"; the distance depends only on the others: {finer}train for fewer epochs"
    return threshold_check(TIED_CONFIDENCES, worst, MAX_TIED_SHARE, message, advice, decisive=False, up_to=True)


def class_coverage(
    query: Integers,
    calibration: Int[np.ndarray, " m"],
    class_names: tuple[str, ...],
) -> Check:
    """Checks that every class that occurs has at least 10 records in query set and calibration set (labels)."""
    counts = np.stack([np.bincount(labels, minlength=len(class_names)) for labels in (query, calibration)])
    occurring = np.where(counts.any(axis=0), counts, counts.max() + 1)
    side, scarcest = np.unravel_index(np.argmin(occurring), counts.shape)
    fewest = int(counts[side, scarcest])
    where = ("query", "calibration")[side]
    message = f"the rarest class is {class_names[scarcest]!r}, with {fewest} records in the {where} set"
    least = MIN_CLASS_RECORDS
    advice = f"; models cannot learn a class from fewer than {least}: add records or drop the class from both sets"
    return threshold_check(CLASS_COVERAGE, float(fewest), float(least), message, advice, decisive=False)


def positive_control(controls: Sequence[Rho]) -> Check:
    """Use is detected in control models, which are known to be trained on the calibration set *and* the query set.

    The paper's rule presupposes it. On real data it can fail: a model trained on both sets can lie further from the
    query models than the calibration models do. Then `forgotten` means nothing; other verdicts stand.
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
    labels: Integers,
    name: str,
    *,
    of: str = "query set",
    check: str = TARGET_OUTPUTS,
    ranking: tuple[float, float] | None = None,
) -> Check:
    """The target's outputs match the labels of a set better than chance: their rows and columns are in order.

    Where one class is far more common than others, the accuracy of a good model may be that of guessing. Then a
    `ranking` is enough that rows in a random order rarely reach (`RANK_LEVEL`). Labels cannot order records of one
    class: such a set beside the query set passes if most of it gets its class.
    """
    guess, reach = _accuracy_reach(accuracy, labels)
    message = f"accuracy of {name} on the {of}: {accuracy:.1%} (guessing: {guess:.1%})"
    if guess == 1 and check not in (TARGET_OUTPUTS, BEFORE_OUTPUTS) and accuracy > ONE_CLASS_MET:
        return Check(check, True, accuracy, ONE_CLASS_MET, True, message)
    if ranking is not None:
        area, p = ranking
        message += f"; area under the ROC curve, averaged over classes: {area:.2f}"
        reach = max(reach, 2 * area - 1) if p <= RANK_LEVEL else reach
    advice = (
        f"; its rows may not be in the order of the {of}, or its columns not in the order of the classes. If the "
        "target really cannot classify this set, allow an unrelated target"
    )
    if accuracy < guess and check not in (HOLDOUT_OUTPUTS, BEFORE_ON_HOLDOUT):
        advice = f", or the model was over-forgotten on this set{advice}"
    if guess == 1:
        advice = f"; {ONE_CLASS} if you know that rows and columns are in order, allow an unrelated target"
    return threshold_check(check, reach, MIN_REACH, message, advice)


def target_order(scores: Numbers, usual: Numbers, size: int, name: str) -> Check:
    """The target finds the records hard that shadow models find hard: the rows of its outputs are in order. Spearman's
    correlation with the shadow models' mean output must exceed three standard errors.
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


def calibration_like_target(accuracy: float, accuracies: Float[np.ndarray, " shadows"]) -> Check:
    """The target's other training data are like the calibration set: its accuracy there, divided by the lowest accuracy
    of a shadow model, is the number.
    """
    lowest = float(np.min(accuracies))
    message = (
        f"accuracy of the target on the calibration set: {accuracy:.1%} (shadow models, unseen records: {lowest:.1%})"
    )
    advice = (
        "; the target's other data seem to be unlike the calibration set, or the rows of its outputs are in another "
        "order: use a calibration set like its other data"
    )
    return threshold_check(
        CALIBRATION_LIKE_TARGET, accuracy / lowest if lowest > 0 else 1.0, MIN_CALIBRATION_ACCURACY, message, advice
    )
