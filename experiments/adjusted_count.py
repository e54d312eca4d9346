"""The used share of a set, from an attack's calls on its records and the attack's error rates on shadow models.

DUCI, dataset usage cardinality inference (Tong et al. 2025, ICLR), is the adjusted count of Rogan & Gladen (1978). With
`called` 1 where a record is called a member,

    share = mean of (called - FPR) / (TPR - FPR).

Any attack's scores will do, but the score of a record must not depend on how many of the *other* records were used.
RMIA ranks a record among records z: take these from records that no model was trained on (`share_exceeded`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxaudit.errors import InputError
from jaxaudit.kernels.ranking import rank, running_counts


class AdjustedCount(NamedTuple):
    """A used share, and the numbers from which it was computed.

    Attributes:
        share: the used share of the records. It may lie outside [0, 1]; see `adjusted_count`.
        called: share of the records that are called members, by a score of at least `threshold`.
        true_positive, false_positive: share of the shadow models' members, and of their non-members, that are called.
    """

    share: float
    called: float
    threshold: float
    true_positive: float
    false_positive: float


def adjusted_count(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
) -> AdjustedCount:
    """The used share of some records by DUCI's estimator: the share of calls, corrected for both kinds of error.

    The threshold maximises TPR - FPR over the scores of all shadow models together; if several do, it is the highest.
    The share is unbiased if the attack has the same TPR and FPR on the target as on the shadow models. That holds if
    the target was trained by their recipe, and which records were used does not depend on how well they are
    remembered. The share has no interval.

    - The share is not cut to [0, 1]. Near 0 and 1, chance alone takes it outside, and cutting would bias its mean over
      targets. A value far outside shows that the attack's rates on the target differ from those on the shadow models.
    - A score equal to the threshold is a call, here as in TPR and FPR. (Privacy Meter's code counts it in both rates
      but does not call it, which lowers the share if scores are tied, as those of RMIA are.)
    - Records whose score is NaN (not scored by the attack) are left out.

    Scores are larger for a member; those of a shadow model are computed with the other shadow models.

    Raises:
        InputError: shapes disagree; no score of the target, of a shadow model's member or of a non-member is known; or
            no threshold has TPR above FPR.

    >>> membership = np.array([[True, True, False, False]])
    >>> adjusted_count(np.array([0.9, 0.3, 0.2, 0.1]), np.array([[0.9, 0.3, 0.4, 0.1]]), membership)
    AdjustedCount(share=0.5, called=0.25, threshold=0.9, true_positive=0.5, false_positive=0.0)
    """
    target, shadows, membership = np.asarray(target), np.asarray(shadows), np.asarray(membership)
    if shadows.shape != membership.shape or target.shape != shadows.shape[1:]:
        raise InputError(
            f"the target has scores of shape {target.shape}, the shadow models {shadows.shape} and their membership "
            f"{membership.shape}: give one row per model and one column per record, the same records in each."
        )
    target_scores, is_finite = target[~np.isnan(target)], ~np.isnan(shadows)
    members, non_members = int((is_finite & membership).sum()), int((is_finite & ~membership).sum())
    if not (len(target_scores) and members and non_members):
        raise InputError(
            f"scores are known of {len(target_scores)} records of the target, {members} members and {non_members} "
            "non-members of "
            "the shadow models, but some of each are needed: too few shadow models for this attack? Train more."
        )
    ranking = rank(shadows[is_finite], membership[is_finite])
    hits, alarms = (counts[0] for counts in running_counts(ranking, np.ones((1, members + non_members), np.int64)))
    # TPR - FPR times the numbers of both: integers, in which equal thresholds are equal.
    gain = hits * non_members - alarms * members
    best = int(gain.argmax())
    if gain[best] <= 0:
        raise InputError(
            f"TPR = FPR: no threshold calls more of the shadow models' {members} members than of their {non_members} "
            "non-members, so a count of calls says nothing of the used share. Does `membership` belong to these "
            "models? If so, take another attack; these models may not remember their records."
        )
    threshold = float(shadows[is_finite][ranking.order[ranking.ends[best]]])
    rate, alarm = float(hits[best]) / members, float(alarms[best]) / non_members
    called = float(np.mean(target_scores >= threshold))
    return AdjustedCount((called - alarm) / (rate - alarm), called, threshold, rate, alarm)
