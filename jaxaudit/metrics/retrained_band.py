"""How unlearned models compare with retrained ones: a band with a stated error rate, and an exact test over seeds."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.kernels.ranking import mid_ranks


class Place(NamedTuple):
    """The position of the models of one method among the retrained models, on one score. Two-sided.

    Attributes:
        low: the smallest score of a retrained model.
        high: the largest.
        below: the share of seeds for which the method's model scores less than all retrained models of other seeds.
        above: the share of seeds for which it scores more than all of them. A model that is exchangeable with the
            retrained ones falls outside, below or above, with probability at most 2 / seeds.
        p_value: of "the method's model and the retrained one of a seed are exchangeable", two-sided, exact.
        direction: +1 if the method's scores rank higher than those of the retrained models, -1 if lower, 0 if equal.
    """

    low: float
    high: float
    below: float
    above: float
    p_value: float
    direction: int


def place(method: Float[np.ndarray, " seeds"], retrained: Float[np.ndarray, " seeds"]) -> Place:
    """Compares a method's scores with those of retrained models, seed by seed.

    *The band* of a seed is the range of the retrained models of the other seeds, because a seed's own retrained model
    shares its initial weights. Of n exchangeable numbers each is the smallest or the largest with probability 2 / n,
    so a model that is as good as a retrained one falls outside with at most that probability (a tie is inside).

    *The test* ranks all 2 n scores and adds up the differences of ranks within seeds. If method and retraining are
    exchangeable, each difference has either sign with equal probability: the p-value is the share of the 2^n sums that
    are at least as far from 0, counted exactly. It is never below 2 / 2^n: five seeds can never reach 0.05. Infinite
    scores are ranked like others.

    Args:
        method: the score of the method's model of every seed; may be infinite.
        retrained: the same score of the retrained model of every seed, in the same order.

    >>> place(np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 3.0]))
    Place(low=1.0, high=3.0, below=0.0, above=1.0, p_value=0.25, direction=1)
    """
    seeds = len(method)
    others = [np.delete(retrained, seed) for seed in range(seeds)]
    below = np.mean([one < other.min() for one, other in zip(method, others, strict=True)])
    above = np.mean([one > other.max() for one, other in zip(method, others, strict=True)])
    # Ranks are doubled to be integers: tied ranks can be halves.
    ranks = np.rint(2 * mid_ranks(np.concatenate([method, retrained]))).astype(int)
    differences = ranks[:seeds] - ranks[seeds:]
    total = int(differences.sum())
    return Place(
        float(retrained.min()),
        float(retrained.max()),
        float(below),
        float(above),
        _share_as_far(differences, abs(total)),
        int(np.sign(total)),
    )


def _share_as_far(differences: np.ndarray, distance: int) -> float:
    """The share of sign patterns whose sum is at least `distance` from 0, by adding one seed at a time."""
    reach = int(np.abs(differences).sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for step in np.abs(differences):
        shares = (np.roll(shares, step) + np.roll(shares, -step)) / 2
    sums = np.arange(-reach, reach + 1)
    return min(1.0, float(shares[np.abs(sums) >= distance].sum()))
