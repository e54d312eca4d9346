"""Deals records at random into a query set, a holdout and known members, which is what makes tests of them exact.

Deal before anything is shared. The size of the holdout decides what can be detected: at a fixed query set, a holdout
twice as large raises the test's signal-to-noise ratio by 15%, three times by 22% (sqrt(2 / (1 + 1 / r)) at ratio r).
Every record held out is one that is not shared, though: for a fixed number of records, half is best.
"""

from math import comb

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped
from scipy import sparse

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.randomness import generator_of, stream

SHARE = 0.5
NEAR, DEVIATIONS = 0.05, 3.0
"""How far the size of a training set may be from the query set's: this share of it, or this many standard deviations of
the number that independent draws of each record would give."""


def deal(
    key: Key[Array, ""], records: int, share: float = SHARE, groups: Shaped[np.ndarray, " records"] | None = None
) -> Bool[np.ndarray, " records"]:
    """Which records to hold out: a random choice, all choices of as many equally likely.

    `round(share * records)` records, or with groups that share of the groups, at least one and not all.

    Args:
        key: random key.
        records: how many there are.
        share: of them to hold out, between 0 and 1; of the groups, if there are any.
        groups: one value per record; records of equal value are dealt together.

    Returns:
        True for the holdout, False for the query set.

    Raises:
        InputError: the share is out of range, there is not one group per record, or there are so few records or groups
            that no deal of them could give a p-value of 0.05.

    >>> import jax
    >>> deal(jax.random.key(1), 7, groups=np.array([0, 0, 1, 2, 3, 4, 5]))
    array([False, False, False,  True, False,  True,  True])
    """
    if not 0 < share < 1:
        raise InputError(f"the share of the holdout must be above 0 and below 1, got {share:g}; half is 0.5.")
    own, count = _numbered(records, groups)
    held = min(max(round(share * count), 1), count - 1)
    _refuse_few(count, groups is not None, count - held, held)
    return np.isin(own, generator_of(key).choice(count, held, replace=False))


def deal_members(
    key: Key[Array, ""],
    held: Bool[np.ndarray, " records"],
    share: float,
    groups: Shaped[np.ndarray, " records"] | None = None,
) -> Bool[np.ndarray, " records"]:
    """Which records to share that stay in training: a random choice of those not held out, all equally likely.

    `round(share * records)` records, or with groups that share of the groups, at least one. What is neither held out
    nor a member is the query set, at least one record or group.

    Args:
        key: random key; that of `deal` may be given again, since the two draws are independent.
        held: True for the holdout, as `deal` returns it for the same groups.
        share: of all records to name members, the holdout's included; of the groups, if there are any.
        groups: one value per record; records of equal value are dealt together.

    Returns:
        True for the members.

    Raises:
        InputError: the share is out of range or more than the holdout leaves, there is not one group per record, or
            there are so few records or groups that the query set could not differ from the holdout, or from the
            members, with a p-value of 0.05.

    >>> import jax
    >>> held = deal(jax.random.key(1), 9, 1 / 3)
    >>> members = deal_members(jax.random.key(1), held, 1 / 3)
    >>> int(members.sum()), bool((members & held).any())
    (3, False)
    """
    own, count = _numbered(len(held), groups)
    left = np.setdiff1d(own, own[held])
    chosen = max(round(share * count), 1) if 0 < share < 1 else count
    if chosen > len(left):
        raise InputError(
            f"the share of the members must be above 0 and, with that of the holdout, below 1, got {share:g}; lower it."
        )
    # Two shares of a few may each be rounded up.
    chosen = min(chosen, len(left) - 1)
    for side in (count - len(left), chosen):
        _refuse_few(count, groups is not None, len(left) - chosen, side)
    return np.isin(own, generator_of(stream(key, "members")).choice(left, chosen, replace=False))


def _numbered(records: int, groups: np.ndarray | None) -> tuple[Int[np.ndarray, " records"], int]:
    """The number of each record's group, of which each is its own without groups; and how many groups there are."""
    if groups is not None and np.shape(groups) != (records,):
        raise InputError(f"there are groups of shape {np.shape(groups)} for {records} records: give one per record.")
    own = np.arange(records) if groups is None else np.unique(groups, return_inverse=True)[1]
    return own, int(own.max()) + 1 if len(own) else 0


def _refuse_few(count: int, grouped: bool, query: int, side: int) -> None:
    """Refuses a query set and another side of which no test could tell that they were treated differently."""
    if side < 1 or ways(query + side, side) * ALPHA < 1:
        raise InputError(
            f"{count} {'groups' if grouped else 'records'} are too few to deal so: no test of {query} against {side} "
            f"could reach a p-value of {ALPHA:g}. Give six or more, or nine for three sides, and shares that leave "
            "more than one of a few on each side."
        )


def ways(count: int, chosen: int) -> int:
    """In how many ways some of a few can be chosen; of a thousand or more, a lower bound.

    >>> ways(6, 3), ways(10**9, 5)
    (20, 1000000000)
    """
    return comb(count, chosen) if count < 1000 else count * (0 < chosen < count)


def groups_in_sample(records: int, groups: Shaped[np.ndarray, " n"]) -> int:
    """How many groups to draw of each side of a deal for a sample of `records` records on average; at least one.

    It does not depend on which groups are on which side, so the sampled sides stay exchangeable.

    Args:
        records: of one side.
        groups: one value per record of both sides.

    >>> groups_in_sample(4, np.array([0, 0, 0, 1, 2, 2]))
    2
    """
    return max(1, records * len(np.unique(groups)) // len(groups))


def joined(groups: Shaped[np.ndarray, " n"], copies: Shaped[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Groups of which those that share a copy are one, numbered from 0.

    Args:
        groups: one value per record.
        copies: equal for equal records, such as a hash of each.

    >>> joined(np.array(["a", "a", "b", "c", "d"]), np.array([1, 2, 2, 3, 4]))
    array([0, 0, 0, 1, 2], dtype=int32)
    """
    own, record = (np.unique(each, return_inverse=True)[1] for each in (groups, copies))
    nodes = 2 * len(own)
    links = sparse.coo_array((np.ones(len(own), bool), (own, record + len(own))), shape=(nodes, nodes))
    found = sparse.csgraph.connected_components(links, directed=False)[1][own]
    return np.unique(found, return_inverse=True)[1].astype(np.int32)


def dealt_alike(
    members: int | Int[np.ndarray, " models"], wanted: int, whole: int
) -> bool | Bool[np.ndarray, " models"]:
    """Whether training sets are about as large as one dealt like the query set: the holdout test takes such models.

    p (not used) needs no number at all: it permutes the target's scores, and is exact as long as the training sets are
    independent of which records became the query set. p (all used) ranks a target that was trained on `wanted` records
    among the models: a model of fewer remembers each of them better, and of a target among such models full use is
    rejected too often. So their numbers may vary as chance has them and no further: by 3 standard deviations of
    independent draws, sqrt(whole f (1 - f)) with f = wanted / whole, or by 5% where that is more. Both designs of
    Carlini et al. (2022) give such numbers: every record drawn for itself, or each in half of all models.

    Args:
        members: number of query and holdout records that each model was trained on, or of groups that were dealt whole.
        wanted: their number in the query set.
        whole: their number in query set and holdout together.

    >>> dealt_alike(np.array([50, 64, 66]), 50, 100)
    array([ True,  True, False])
    """
    chance = DEVIATIONS * (wanted * (1 - wanted / whole)) ** 0.5
    return abs(members - wanted) <= max(NEAR * wanted, chance)
