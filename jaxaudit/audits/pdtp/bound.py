"""How far a record can move any output, on any input, where that is proven for the learner."""

from math import log1p

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.learners import Learner, LeftOut, NaiveBayes, NearestNeighbours, RandomTrees, geometric_mean
from jaxaudit.metrics.stability import log_odds_dtp_bound, smoothed_naive_bayes_delta


def dtp_bounds(
    learner: Learner,
    all_labels: Int[np.ndarray, " examples"],
    labels: Int[np.ndarray, " records"],
    left: LeftOut,
) -> Float[np.ndarray, " records"] | None:
    """An upper bound of DTP of each record left out, in nats and without bins; None where none is proven.

    | learner | bound |
    |---|---|
    | naive Bayes, all columns categorical | `log_odds_dtp_bound` with `smoothed_naive_bayes_delta` |
    | random trees by the geometric mean, smoothed | `log_odds_dtp_bound` with delta 1 |
    | nearest neighbours, smoothed | log(1 + 1 / smoothing), whatever the records |
    | any other | none |

    Args:
        learner: what was trained.
        all_labels: of the whole training set.
        labels: of the records left out.
        left: what was said of them, with and without each.
    """
    if isinstance(learner, NearestNeighbours) and learner.smoothing > 0:
        return np.full(len(labels), log1p(1 / learner.smoothing))
    if isinstance(learner, RandomTrees) and learner.smoothing > 0 and learner.aggregate is geometric_mean:
        return log_odds_dtp_bound(*left, labels)
    if isinstance(learner, NaiveBayes) and 0 not in learner.category_counts:
        members = np.bincount(all_labels)
        smallest = int(members[members > 0].min())
        delta = smoothed_naive_bayes_delta(smallest, learner.category_counts, learner.smoothing)
        return log_odds_dtp_bound(*left, labels, delta)
    return None
