"""Splits records at random into a query set, a holdout and known members. This random split makes the tests exact.

What was dealt is what is permuted: whole groups, such as patients or near-copies. For a fixed query set, a holdout
twice as large raises the test's signal-to-noise ratio by 15%, three times by 22%. For a fixed number of records, half
is best. `row_fits` finds outputs saved for the wrong shadow model: given those of another row, all choices of a row's
members are equally likely, so the sum of outputs over members has a known mean and variance (Hoeffding 1963).
"""

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from jaxaudit.data.bank.bank import row_blocks
from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.metrics.arrays import (
    Groups,
    Indices,
    Integers,
    Mask,
    Members,
    ModelMask,
    ModelNumbers,
    Numbers,
    OneKey,
    PerModel,
    units_of_records,
)
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.usage import ALPHA
from jaxaudit.randomness import generator_of, stream

SHARE = 0.5
MOST_SIZE = 10_000
"""Records of a group; shares so small that a larger one would be too few are refused for all groups."""
SLACK = 1e-9
"""Shares of whole numbers of records may be below them by rounding."""
NEAR, DEVIATIONS = 0.05, 3.0
"""Tolerance for the size of a training set, around that of the query set: this share of it, or this many standard
deviations of the size that independent draws of each record would give, whichever is more."""


def deal_holdout(key: OneKey, records: int, share: float = SHARE, groups: Groups | None = None) -> Mask:
    """Chooses the records to hold out, uniformly at random among all choices of the same size: True for the holdout.

    Deal before any record is shared. The holdout has `round(share * records)` records, or that share of the groups; at
    least one and not all. Records with equal values in `groups` stay together. So few records or groups that no p-value
    of a test could be as small as 0.05 are an `InputError`.

    >>> import jax
    >>> deal_holdout(jax.random.key(1), 7, groups=np.array([0, 0, 1, 2, 3, 4, 5]))
    array([False, False, False,  True, False,  True,  True])
    """
    check_ranges("(0, 1)", share=share)
    group_numbers, count = _numbered(records, groups)
    held = min(max(round(share * count), 1), count - 1)
    _refuse_few(count, groups is not None, count - held, held)
    return np.isin(group_numbers, generator_of(key).choice(count, held, replace=False))


def deal_members(
    key: OneKey,
    held: Mask,
    share: float,
    groups: Groups | None = None,
) -> Mask:
    """Chooses known members, which are shared and stay in training, uniformly at random among records not `held`.

    `share` is one of all records, the holdout included. The key may be that given to `deal_holdout`.
    """
    group_numbers, count = _numbered(len(held), groups)
    left = np.setdiff1d(group_numbers, group_numbers[held])
    check_ranges("(0, 1)", share=share)
    chosen = max(round(share * count), 1)
    if chosen > len(left):
        raise InputError(
            f"the share of the members must be above 0 and, with that of the holdout, below 1, got {share:g}; lower it."
        )
    # Both shares may have been rounded up; one record or group must be left for the query set.
    chosen = min(chosen, len(left) - 1)
    for side in (count - len(left), chosen):
        _refuse_few(count, groups is not None, len(left) - chosen, side)
    return np.isin(group_numbers, generator_of(stream(key, "members")).choice(left, chosen, replace=False))


def deal_within(key: OneKey, groups: Groups, held: float, stay: float = 0.0) -> tuple[Mask, Mask]:
    """Deals the records of every group over holdout (share `held`), known members (`stay`) and query set: two masks.

    Every record is as likely to be on a side as any other one: shares are rounded down or up at random.
    """
    check_ranges("(0, 1)", held=held, held_and_stay=held + stay)
    check_ranges("[0, 1)", stay=stay)
    group_numbers, count = _numbered(len(groups), groups)
    sizes = np.bincount(group_numbers, minlength=count)
    least = next((size for size in range(2, MOST_SIZE) if _can_differ(size, held, stay)), MOST_SIZE)
    few = int((sizes < least).sum())
    if few:
        raise InputError(
            f"{few:,} of {count:,} groups have fewer than {least:,} records: with these shares, no test of a group's "
            f"records in the query set against those in the holdout could reach a p-value of {ALPHA:g}. Are `groups` "
            "the key of what records have in common, such as their author, and not a number of each record? Leave "
            "these groups out, raise the smaller one of both shares, or deal whole groups."
        )
    generator = generator_of(stream(key, "within"))
    # What rounding down leaves is given to sides with the probabilities of their fractions, at most one to each. These
    # places are spread evenly over groups in a random order, so that the sets have about their shares, too.
    exact = sizes[:, None] * np.array([held, stay, 1 - held - stay])
    counts = np.floor(exact + SLACK)
    reached = np.cumsum(np.maximum(exact - counts, 0), axis=1)
    reached[:, -1] = np.rint(reached[:, -1])
    places = ((generator.permutation(count) + generator.random()) / count)[:, None]
    counts += np.diff(np.ceil(reached - places), axis=1, prepend=0)
    order = generator.permutation(len(groups))
    order = order[np.argsort(group_numbers[order], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    up_to_held, up_to_members = np.repeat(np.cumsum(counts, axis=1)[:, :2], sizes, axis=0).T
    on_holdout, on_members = np.zeros((2, len(groups)), bool)
    on_holdout[order] = rank < up_to_held
    on_members[order] = (rank >= up_to_held) & (rank < up_to_members)
    return on_holdout, on_members


def _can_differ(size: int, held: float, stay: float) -> bool:
    """Whether a test of a group of this size could reach a p-value of 0.05, however its shares are rounded."""
    query, holdout = (int(share * size + SLACK) for share in (1 - held - stay, held))
    return ways(query + holdout, holdout) * ALPHA >= 1


def _numbered(records: int, groups: np.ndarray | None) -> tuple[Integers, int]:
    """The number of each record's group, and how many groups there are; without groups, each record is a group."""
    check_shapes((records,), groups=groups)
    group_numbers = np.unique(units_of_records(groups, records), return_inverse=True)[1]
    return group_numbers, int(group_numbers.max()) + 1 if len(group_numbers) else 0


def _refuse_few(count: int, grouped: bool, query: int, side: int) -> None:
    """Refuses two sides so small that no permutation test between them could reach a p-value of 0.05."""
    if side < 1 or ways(query + side, side) * ALPHA < 1:
        raise InputError(
            f"{count} {'groups' if grouped else 'records'} are too few to deal so: no test of {query} against {side} "
            f"could reach a p-value of {ALPHA:g}. Give six or more, or nine for three sides, and shares that leave "
            "more than one of a few on each side."
        )


def ways(count: int, chosen: int) -> int:
    """The binomial coefficient `count` over `chosen`; from a count of 1,000 on, only a lower bound.

    >>> ways(6, 3), ways(10**9, 5)
    (20, 1000000000)
    """
    return comb(count, chosen) if count < 1000 else count * (0 < chosen < count)


def groups_in_sample(records: int, groups: Groups) -> int:
    """How many groups to draw from each side of a random split, for about `records` records of a side; at least 1.

    Which groups are on which side has no effect, so the sampled sides stay exchangeable.

    >>> groups_in_sample(4, np.array([0, 0, 0, 1, 2, 2]))
    2
    """
    return max(1, records * len(np.unique(groups)) // len(groups))


def merge_groups(groups: Groups, copies: Groups) -> Integers:
    """Merges groups that contain copies of a record (equal in `copies`, such as a hash), and numbers them from 0."""
    group_numbers, record = (np.unique(column, return_inverse=True)[1] for column in (groups, copies))
    nodes = 2 * len(group_numbers)
    links = sparse.coo_array(
        (np.ones(len(group_numbers), bool), (group_numbers, record + len(group_numbers))), shape=(nodes, nodes)
    )
    components = sparse.csgraph.connected_components(links, directed=False)[1][group_numbers]
    return np.unique(components, return_inverse=True)[1].astype(np.int32)


def dealt_alike(members: int | ModelNumbers, size_planned: int, whole: int) -> bool | ModelMask:
    """Whether training sets of `members` of `whole` records (or groups) are about as large as the query set.

    A model of fewer records remembers each better. Both schemes of Carlini et al. (2022) pass.

    >>> dealt_alike(np.array([50, 64, 66]), 50, 100)
    array([ True,  True, False])
    """
    chance = DEVIATIONS * (size_planned * (1 - size_planned / whole)) ** 0.5
    return abs(members - size_planned) <= max(NEAR * size_planned, chance)


RATE = 1e-2
"""The largest probability of a false alarm for the right model's outputs; if sums are normal, it is a tenth of that."""


class Dealt(NamedTuple):
    """A set of records from which the members of every row were drawn at random, all choices equally likely.

    `places` are their indices, and `units` the units of randomisation, numbered from 0: groups, or single records.
    """

    places: Indices
    units: Indices


def dealt_records(places: Indices) -> Dealt:
    """A set of records that were drawn one by one, not in groups."""
    return Dealt(places, np.arange(len(places)))


def row_fits(
    outputs: Numbers,
    membership: Members,
    sets: Sequence[Dealt],
    other_outputs: Float[np.ndarray, "known n"] | None = None,
    other_rows: Sequence[int] = (),
) -> PerModel:
    """How well a model's outputs fit each membership mask, in standard deviations; 0 on average for unrelated masks.

    Outputs are log-odds of each record's own class, less what the mean of `other_outputs`, of the models of
    `other_rows`, explains: records differ far more than models do. A row's fit leaves its own model's outputs out.
    """
    outputs = cut(outputs)
    other_outputs = np.zeros((0, len(outputs))) if other_outputs is None else cut(other_outputs)
    left = {row: _sums(outputs, np.delete(other_outputs, index, axis=0), sets) for index, row in enumerate(other_rows)}
    usual = _sums(outputs, other_outputs, sets)
    firsts = [drawn_set.places[np.unique(drawn_set.units, return_index=True)[1]] for drawn_set in sets]
    fits = np.concatenate([_fits(usual, membership[part], firsts) for part in row_blocks(membership)])
    for row, sums in left.items():
        fits[row] = _fits(sums, membership[row : row + 1], firsts)[0]
    return fits


def other_row(fits: PerModel, own_row: int, rate: float = RATE) -> int | None:
    """The row that the outputs fit best, if the fit is significant and the row is not the model's `own_row`; else None.

    The model's own outputs give a row with probability at most `rate`, by Hoeffding's (1963) tail exp(-z^2 / 2).
    """
    best = int(np.argmax(fits))
    return best if best != own_row and fits[best] > max(limit(len(fits), rate), fits[own_row]) else None


def limit(rows: int, rate: float = RATE) -> float:
    """The threshold that the largest fit of `rows` unrelated rows exceeds with probability at most `rate`."""
    return float(np.sqrt(2 * np.log(rows / rate)))


def _sums(outputs: np.ndarray, other_outputs: np.ndarray, sets: Sequence[Dealt]) -> list[np.ndarray]:
    """For each set, the total of each unit's outputs, centred and without the part that other models explain."""

    def centred(numbers: np.ndarray) -> list[np.ndarray]:
        return [numbers[drawn_set.places] - numbers[drawn_set.places].mean() for drawn_set in sets]

    left = centred(outputs)
    if len(other_outputs):
        typical = centred(other_outputs.mean(axis=0))
        size = sum(float(part @ part) for part in typical)
        slope = sum(float(x @ y) for x, y in zip(left, typical, strict=True)) / size if size > 0 else 0.0
        left = [x - slope * y for x, y in zip(left, typical, strict=True)]
    return [np.bincount(drawn_set.units, values) for drawn_set, values in zip(sets, left, strict=True)]


def _fits(
    sums: Sequence[np.ndarray], rows: Bool[np.ndarray, "some n"], firsts: Sequence[np.ndarray]
) -> Float[np.ndarray, " some"]:
    """The standard scores of these rows; `firsts` holds the index of one record of each unit, for each set."""
    total, variance = np.zeros(len(rows)), np.zeros(len(rows))
    for values, places in zip(sums, firsts, strict=True):
        members = rows[:, places]
        units, count = len(values), np.count_nonzero(members, axis=1)
        if units < 2:
            continue
        share = count / units
        total += members @ values - count * values.mean()
        variance += units * share * (1 - share) / (units - 1) * float(((values - values.mean()) ** 2).sum())
    return np.where(variance > 0, total, 0.0) / np.sqrt(np.where(variance > 0, variance, 1.0))
