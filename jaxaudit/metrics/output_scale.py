"""Whether a target's files of outputs on several sets are on one scale."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from jaxaudit.metrics.checks import Check

OUTPUTS_ON_ONE_SCALE = "outputs on one scale"
LEAST = 100
"""Records of a set from which on its outputs are compared."""
MOST_VOTES = 999
"""Trees of a forest, or neighbours, up to which shares of votes are known as such."""


def one_scale(sureness: Mapping[str, Float[np.ndarray, " n"]]) -> tuple[Check, ...]:
    """A warning if a model is never as sure on one set as it is on half of another; none if its files look alike.

    A model that was trained on a set is surer there, but of some other records it is as sure. Where of none, another
    softmax, temperature or preprocessing made one of the files, and that difference looks like memory. Shares of votes
    are left alone: the trees of a forest know their own records, and have no softmax. So are other numbers that are as
    coarse, such as those of two decimals.

    Args:
        sureness: by the name of the set, the largest probability of each record. The first is of the records in
            question: a model that was made to forget them may rightly be sure of none.

    >>> sure, unsure = np.linspace(0.5, 1, 200), np.linspace(0.3, 0.6, 200)
    >>> one_scale({"query set": unsure, "holdout": sure}), one_scale({"query set": sure, "holdout": sure})
    ((), ())
    >>> one_scale({"query set": sure, "holdout": unsure})[0].passed
    False
    """
    long_enough = {name: numbers for name, numbers in sureness.items() if len(numbers) >= LEAST}
    for name in list(long_enough)[next(iter(sureness)) in long_enough :]:
        surest = float(long_enough[name].max())
        for other, numbers in long_enough.items():
            usual = float(np.median(numbers))
            if surest < usual and not _are_shares_of_votes(np.concatenate([long_enough[name], numbers])):
                message = (
                    f"no probability on the {name} is above {surest:.3g}, and half of the largest on the {other} are "
                    f"above {usual:.3g}: one model is hardly so unsure on one set alone, unless it looks "
                    "its records up, as nearest neighbours and narrow kernels do. Was one of the files made with "
                    "another softmax, temperature or preprocessing? That looks like memory: make both in one way"
                )
                return (Check(OUTPUTS_ON_ONE_SCALE, False, surest, usual, False, message),)
    return ()


def _are_shares_of_votes(numbers: Float[np.ndarray, " n"]) -> bool:
    """Whether all numbers are whole shares of one number of votes, up to the rounding of six decimals.

    >>> _are_shares_of_votes(np.array([0.333333, 0.5])), _are_shares_of_votes(np.array([0.3141, 0.5]))
    (True, False)
    """
    distinct = np.unique(numbers).astype(np.float64)
    if len(distinct) > MOST_VOTES + 1:
        return False
    votes = np.arange(1, MOST_VOTES + 1)
    counts = distinct[:, None] * votes
    return bool((np.abs(counts - np.rint(counts)) <= 1e-6 * votes).all(axis=0).any())
