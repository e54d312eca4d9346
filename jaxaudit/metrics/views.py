"""The score of the members test where the target answered on several views of each image.

A network that was trained with random shifts has seen an image in many places, and remembers each of them a little. The
mean of its log-odds over views (the image, and copies shifted by one pixel) may then tell more of its use than the
log-odds of the image alone; for other networks it tells less. (`experiments/views_gain.py`: use of all of 300 records
by convolutional networks with shifts was found in 65% of deals in place of 62%; by an MLP as often.) So three scores
are made, and the one is taken that tells the known members best from all other records:

    of the record             s0 / sd(s0)
    of the record and views   s0 / sd(s0) + s1 / sd(s1)
    of the views              s1 / sd(s1)

s0 is the score of the image (`residual_scores`), s1 the same score of the mean log-odds over its views. The choice
looks at query set and holdout together, so it is the same however these two are dealt, and a p-value that permutes them
stays exact. What compares the members, by which the choice was made, with another set is approximate: the p-values of
full use and of memory, the fraction, and its limits.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.metrics.holdout import mean_variance
from jaxaudit.metrics.usage import ScoreOf


def score_by_views(
    by_record: Float[np.ndarray, " n"],
    by_views: Float[np.ndarray, " n"],
    members: Bool[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"] | None = None,
) -> tuple[Float[np.ndarray, " n"], ScoreOf]:
    """The one of three scores that tells known members best from other records, and what it is of; see the module.

    Guarantees: no difference between records that are no members enters the choice.

    Args:
        by_record: a score of each record's own outputs.
        by_views: the same score of the mean outputs over its views.
        members: marks the known members.
        groups: the group of each record, if whole groups were dealt.

    >>> members = np.array([False, False, True, True])
    >>> score_by_views(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 2.0, 3.0]), members)[1]
    'views'
    """
    record, views = (scores / max(float(scores.std()), 1e-9) for scores in (by_record, by_views))
    scores_of: dict[ScoreOf, np.ndarray] = {"record": record, "record and views": record + views, "views": views}
    score_of = max(scores_of, key=lambda name: members_apart(scores_of[name], members, groups))
    return scores_of[score_of], score_of


def members_apart(
    scores: Float[np.ndarray, " n"], members: Bool[np.ndarray, " n"], groups: Int[np.ndarray, " n"] | None = None
) -> float:
    """Welch's t statistic of the members' mean score against that of all other records; with groups, over groups."""
    error = sum(mean_variance(scores, groups, side) / int(side.sum()) for side in (members, ~members)) ** 0.5
    return float((scores[members].mean() - scores[~members].mean()) / max(error, 1e-300))
