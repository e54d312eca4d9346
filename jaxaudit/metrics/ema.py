"""Ensembled membership auditing: does every query record look like a training record?

Huang, Li & Li (2021), "EMA: Auditing data removal from trained models".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.json_types import StrictStruct
from jaxaudit.metrics.ks import Verdict


class Signals(NamedTuple):
    """The membership signals of EMA, computed from a model's outputs; each is larger for a member.

    They are whether the record's class is predicted, the probability of that class, and the negative entropy of the
    output, sum_y p_y log p_y, in nats.
    """

    correct: Bool[np.ndarray, "*models n"]
    confidence: Float[np.ndarray, "*models n"]
    negative_entropy: Float[np.ndarray, "*models n"]


class EMA(StrictStruct, frozen=True, tag_field="kind", tag="ema"):
    """The result of ensembled membership auditing for one target, with one or more calibration models.

    Attributes:
        p_value: two-sample t-test of the flags against all ones; near 1 if every record looks like a member.
        member_share: the share of query records that were flagged: that any of the three signals calls a member.
        p_values, member_shares: by each calibration model; the two numbers above are their medians.
        rule: the verdict of the paper's rule, from the p-value.
    """

    p_value: float
    member_share: float
    p_values: tuple[float, ...]
    member_shares: tuple[float, ...]
    rule: Verdict


def ema(
    probabilities: Float[Array | np.ndarray, "n classes"],
    labels: Int[Array | np.ndarray, " n"],
    calibration: Float[Array | np.ndarray, "m classes"],
    calibration_labels: Int[Array | np.ndarray, " m"],
    members: Bool[Array | np.ndarray, " m"],
) -> EMA:
    """The paper's p-value: near 1 if the target seems to be trained on all of the query set, near 0 if not on all.

    A query record is flagged if any of three signals calls it a member (section 2.2): its class is predicted; the
    probability of its class reaches that class's threshold; the negative entropy of the output reaches that class's
    threshold. The thresholds best separate a calibration model's members from non-members (`member_thresholds`). The
    flags are compared with all ones (`all_members_p_value`).

    The paper and the authors' code leave three choices open: thresholds come from a *calibration* model's outputs
    (their code uses the target's); a query record's class is its label (their code uses the predicted class);
    correctness has no threshold.

    The p-value is not an error rate: it tests *all* against *not all*, so a target that never saw the query set but
    classifies every record of it correctly gets 1.

    Args:
        probabilities, labels: the target's outputs on the query set, and the records' labels.
        calibration: outputs of a calibration model, on its training records and on other records of the same kind.
        calibration_labels, members: the labels of these records, and which of them the calibration model was trained
            on.

    Raises:
        InputError: shapes disagree, a number is not finite, a label is not a class, or there are no members or no
            non-members.

    >>> outputs = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.55, 0.45]])
    >>> answer = ema(outputs, np.array([0, 1, 1, 1]), outputs, np.array([0, 0, 1, 1]), np.array([1, 0, 1, 0], bool))
    >>> answer.member_share, answer.rule
    (0.5, 'not forgotten')
    """
    probabilities, calibration = np.asarray(probabilities), np.asarray(calibration)
    labels, calibration_labels, members = np.asarray(labels), np.asarray(calibration_labels), np.asarray(members)
    _check(probabilities, labels, calibration, calibration_labels, members)
    calibration_signals = signals(calibration, calibration_labels)
    classes = probabilities.shape[1]
    return ema_of_flags(
        [
            member_flags(
                signals(probabilities, labels), labels, calibration_signals, calibration_labels, members, classes
            )
        ]
    )


def ema_of_flags(flags: Sequence[Bool[np.ndarray, " n"]]) -> EMA:
    """`ema`, from the query records that each calibration model's thresholds flag (`member_flags`), at least one."""
    p_values, shares = tuple(map(all_members_p_value, flags)), tuple(float(row.mean()) for row in flags)
    p_value = float(np.median(p_values))
    return EMA(p_value, float(np.median(shares)), p_values, shares, ema_rule(p_value))


def member_flags(
    target: Signals,
    labels: Int[np.ndarray, " n"],
    calibration: Signals,
    calibration_labels: Int[np.ndarray, " m"],
    members: Bool[np.ndarray, " m"],
    classes: int,
) -> Bool[np.ndarray, " n"]:
    """The query records that any of the three signals calls a member, by the thresholds of one calibration model.

    Args:
        target: the target's signals on the query records.
        labels: the classes of the query records.
        calibration: the calibration model's signals on the calibration records.
        calibration_labels: the classes of the calibration records.
        members: marks the calibration records that the calibration model was trained on.
        classes: the number of classes.

    Raises:
        InputError: there are no members, or no non-members, among the calibration records.
    """
    if members.all() or not members.any():
        raise InputError(
            f"{int(members.sum())} of {len(members)} calibration records are members; EMA learns its thresholds from "
            "members and non-members: train calibration models on only a part of the set (`subsample` below 1)."
        )
    confidence, negative_entropy = (
        member_thresholds(signal, calibration_labels, members, classes)
        for signal in (calibration.confidence, calibration.negative_entropy)
    )
    return (
        target.correct
        | (target.confidence >= confidence[labels])
        | (target.negative_entropy >= negative_entropy[labels])
    )


def signals(probabilities: Float[Array | np.ndarray, "n classes"], labels: Int[Array | np.ndarray, " n"]) -> Signals:
    """The three signals of every record.

    >>> answer = signals(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([1, 1]))
    >>> answer.correct, answer.confidence, answer.negative_entropy.round(3)
    (array([False,  True]), array([0.5, 0.9]), array([-0.693, -0.325]))
    """
    probabilities, labels = np.asarray(probabilities, np.float64), np.asarray(labels)
    confidence = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]
    return Signals(probabilities.argmax(axis=1) == labels, confidence, -special.entr(probabilities).sum(axis=1))


def member_thresholds(
    signal: Float[Array | np.ndarray, " m"],
    labels: Int[Array | np.ndarray, " m"],
    members: Bool[Array | np.ndarray, " m"],
    classes: int,
) -> Float[np.ndarray, " classes"]:
    """For each class, the threshold v at which "signal >= v" has the best balanced accuracy for membership.

    Balanced accuracy is the mean of the share of members at or above v and the share of non-members below it. v is one
    of the class's own values, the smallest if tied. NaN, which flags nothing, for a class without members or without
    non-members.

    >>> member_thresholds(np.array([0.9, 0.7, 0.8, 0.1]), np.zeros(4, int), np.array([1, 1, 0, 0], bool), 2)
    array([0.7, nan])
    """
    signal, labels, members = np.asarray(signal), np.asarray(labels), np.asarray(members)
    thresholds = np.full(classes, np.nan)
    for label in range(classes):
        class_signal, truth = signal[labels == label], members[labels == label]
        inside, outside = int(truth.sum()), int((~truth).sum())
        if not inside or not outside:
            continue
        order = np.argsort(class_signal, kind="stable")
        values, starts = np.unique(class_signal[order], return_index=True)
        below = np.concatenate([[0], np.cumsum(truth[order])])[starts]
        # Computed in integers, so that equally good thresholds tie exactly.
        gain = (starts - below) * inside - below * outside
        thresholds[label] = values[np.argmax(gain)]
    return thresholds


def all_members_p_value(flags: Bool[Array | np.ndarray, " n"]) -> float:
    """The two-sided p-value of Student's two-sample t-test (equal variances) of the flags against n ones.

    With k of n records flagged, t = -sqrt((n - k)(n - 1) / k) at 2n - 2 degrees of freedom. The p-value is defined as 1
    if all are flagged and as 0 if none is, since the variance is then 0. For large n only the number of records that
    are *not* flagged matters: one gives 0.32, four give less than 0.05.

    >>> [round(all_members_p_value(np.arange(1000) >= missing), 3) for missing in (0, 1, 4, 1000)]
    [1.0, 0.317, 0.045, 0.0]
    """
    flags = np.asarray(flags)
    records, flagged = len(flags), int(flags.sum())
    if flagged == records:
        return 1.0
    if flagged == 0:
        return 0.0
    t = np.sqrt((records - flagged) * (records - 1) / flagged)
    return float(2 * special.stdtr(2 * records - 2, -t))


def ema_rule(p_value: float, level: float = 0.05) -> Verdict:
    """The paper's rule: `not forgotten` if the p-value is above `level`, else `forgotten`; never `inconclusive`."""
    return "not forgotten" if p_value > level else "forgotten"


def _check(
    probabilities: np.ndarray,
    labels: np.ndarray,
    calibration: np.ndarray,
    calibration_labels: np.ndarray,
    members: np.ndarray,
) -> None:
    classes = probabilities.shape[1]
    if labels.shape != probabilities.shape[:1] or not len(labels):
        raise InputError(
            f"EMA needs one label per query record; got {len(labels)} labels for {len(probabilities)} outputs."
        )
    if not (calibration.shape[1] == classes and len(calibration) == len(calibration_labels) == len(members)):
        raise InputError(
            f"EMA needs outputs of {classes} classes, a label and a membership for each calibration record; got "
            f"outputs of shape {calibration.shape}, {len(calibration_labels)} labels and {len(members)} memberships."
        )
    for name, array in (("target", probabilities), ("calibration", calibration)):
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        if bad:
            raise InputError(f"{bad} outputs of the {name} model are NaN or infinite; did its training diverge?")
    for array in (labels, calibration_labels):
        if len(array) and not 0 <= array.min() <= array.max() < classes:
            raise InputError(
                f"EMA got label {array.min() if array.min() < 0 else array.max()}, but there are {classes} classes."
            )
