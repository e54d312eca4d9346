"""Membership masks: boolean arrays that say which model was trained on which records of a pool, one row per model.

Query, calibration, shadow, leave-one-out and retrained models differ only in their membership mask.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

Membership = Bool[np.ndarray, "models examples"]


def everyone(examples: int) -> Membership:
    """The mask of one model trained on the whole pool.

    >>> everyone(3)
    array([[ True,  True,  True]])
    """
    return np.ones((1, examples), bool)


def only(indices: Int[np.ndarray, " members"], examples: int) -> Membership:
    """The mask of one model trained on just these records.

    >>> only(np.array([0, 2]), 4)
    array([[ True, False,  True, False]])
    """
    row = np.zeros((1, examples), bool)
    row[0, indices] = True
    return row


def leave_one_out_masks(indices: Int[np.ndarray, " targets"], examples: int) -> Membership:
    """The masks of one model per target record, trained on all other records.

    >>> leave_one_out_masks(np.array([0, 2]), 3)
    array([[False,  True,  True],
           [ True,  True, False]])
    """
    rows = np.ones((len(indices), examples), bool)
    rows[np.arange(len(indices)), indices] = False
    return rows


def leave_group_out(groups: Int[np.ndarray, " examples"], left_out: Int[np.ndarray, " models"]) -> Membership:
    """The masks of one model per group in `left_out`, trained on the records of all other groups.

    >>> leave_group_out(np.array([0, 1, 0]), np.array([1, 0]))
    array([[ True, False,  True],
           [False,  True, False]])
    """
    return groups != left_out[:, None]


@dataclass(frozen=True, eq=False)
class AllBut:
    """The masks of `leave_one_out_masks`, computed on access: as a matrix, 100,000 models and records take 10 GB.

    >>> rows = AllBut(np.array([0, 2]), 3)
    >>> len(rows), rows[np.array([1])]
    (2, array([[ True,  True, False]]))
    """

    left_out: Int[np.ndarray, " models"]
    examples: int

    def __len__(self) -> int:
        return len(self.left_out)

    def __getitem__(self, rows: "Int[np.ndarray, ' some'] | slice") -> Membership:
        return leave_one_out_masks(self.left_out[rows], self.examples)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.examples

    @property
    def nbytes(self) -> int:
        return self.left_out.nbytes

    def take(self, rows: Int[np.ndarray, " some"], axis: int = 0) -> "AllBut":
        return AllBut(self.left_out[rows], self.examples)


Masks = Membership | AllBut
"""Membership masks, in memory or not."""


def member_counts(membership: Masks) -> Int[np.ndarray, " models"]:
    """The number of training records of each model."""
    if isinstance(membership, AllBut):
        return np.full(len(membership), membership.examples - 1)
    return membership.sum(axis=1)


def random_subset(
    generator: np.random.Generator, indices: Int[np.ndarray, " pool"], fraction: float, examples: int
) -> Membership:
    """The mask of one model trained on `round(fraction * len(indices))` of `indices`, at least one, drawn at random."""
    count = max(1, round(fraction * len(indices)))
    return only(generator.choice(indices, count, replace=False), examples)


def halves(generator: np.random.Generator, examples: int) -> Membership:
    """The masks of two models, trained on complementary halves; for an odd number the second has one more record.

    >>> halves(np.random.default_rng(3), 4).sum(axis=0)
    array([1, 1, 1, 1])
    """
    first = only(generator.choice(examples, examples // 2, replace=False), examples)
    return np.concatenate([first, ~first])


def subsets(generator: np.random.Generator, models: int, size: int, examples: int) -> Membership:
    """Every model is trained on a random set of `size` records, drawn uniformly and independently of the others."""
    rows = [only(generator.choice(examples, size, replace=False), examples) for _ in range(models)]
    return np.concatenate([np.zeros((0, examples), bool), *rows])


class WithAndWithout(NamedTuple):
    """Training sets in pairs that differ by one target record, by the numbers of their masks (`with_and_without`).

    `pool` has, in ascending order, the records in use, and others that make it as long as the call's numbers say.
    """

    membership: Membership
    with_target: Int[np.ndarray, " targets"]
    without_target: Int[np.ndarray, " targets"]
    pool: Int[np.ndarray, " pool"]


def with_and_without(
    generator: np.random.Generator, targets: Int[np.ndarray, " targets"], size: int, examples: int
) -> WithAndWithout:
    """For every target t, a set T of `size` records with t, and T without t: the first `size` - 1 records other than t
    of one permutation. So two masks serve all targets, each needs one more, and minibatches are the same for one key.

    >>> pairs = with_and_without(np.random.default_rng(3), np.array([0, 2]), 3, 6)
    >>> pairs.membership[pairs.with_target].sum(axis=1), pairs.membership[pairs.without_target].sum(axis=1)
    (array([3, 3]), array([2, 2]))
    """
    order = generator.permutation(examples)
    first, whole = only(order[: size - 1], examples), only(order[:size], examples)
    held = first[0, targets]
    with_one_changed = np.where(held[:, None], whole, first)
    with_one_changed[np.arange(len(targets)), targets] = ~held
    alone = 2 + np.arange(len(targets))
    pool = order[: min(size + len(targets), examples)]
    beyond = np.setdiff1d(targets, pool)
    # Of the records that only fill the pool, those that are not targets are replaced.
    idle = np.setdiff1d(pool[size:], targets)
    pool = np.sort(np.concatenate([np.setdiff1d(pool, idle[: len(beyond)]), beyond]))
    return WithAndWithout(
        np.concatenate([first, whole, with_one_changed]), np.where(held, 1, alone), np.where(held, alone, 0), pool
    )
