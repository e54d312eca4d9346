"""Which groups of the query set, such as authors, a target still remembers: tests, adjusted over all of them.

A group is tested by what is exact for it (`metrics/group_tests.py`), if the numbers of records or groups let it reach
5% alone, after the adjustment; else by at least three models without the query set, if there are any: by how far these
drift from each other (`metrics/group_drift.py`), and by Student's t over the groups of the holdout, of which the larger
p-value counts. Counts decide this, and no score does. A group that could never reach 5%, or that has no rank for its
size, is told so, and is not counted in the adjustment.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int, Key

from jaxaudit.audits.ks.group_result import Basis
from jaxaudit.audits.ks.known_models import PlacedScores, placed_scores
from jaxaudit.audits.ks.score_evidence import SAY, target_residuals
from jaxaudit.data.scores.table import ScoredModel, ScoreTable
from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, UNKNOWN, Limits
from jaxaudit.metrics.group_drift import FEWEST_HOLDOUT, FEWEST_MODELS, FEWEST_QUERY, drift_test
from jaxaudit.metrics.group_tests import (
    GroupTest,
    among_groups,
    beyond_groups,
    one_sided_groups,
    unlike_in_size,
    within_group,
)
from jaxaudit.metrics.permutation import least_permutations
from jaxaudit.metrics.score_permutation import share_left
from jaxaudit.randomness import stream

MOST_PERMUTATIONS = 199_999
"""Of one group's records."""
FINER = 4
"""So many times the permutations that a single p-value of 5% needs after its adjustment."""


class DealtGroups(NamedTuple):
    """How the groups of a table were dealt.

    Attributes:
        names: the numbers of those of the query set, ascending.
        holdout: how many the holdout has.
        within: whether records of a group are in both sets, so that records were dealt, and not groups.
    """

    names: Int[np.ndarray, " groups"]
    holdout: int
    within: bool


def dealt_groups_of(table: ScoreTable) -> DealtGroups:
    """How the groups of a table were dealt: whole, or record by record.

    Raises:
        InputError: there are no groups; or some have records of both sets, and more than a random deal of records
            allows (by three standard deviations) have records of one set alone.
    """
    counts = np.stack([group_counts(table, role) for role in ("query", "holdout")])
    in_sets = counts > 0
    names, whole = np.flatnonzero(in_sets[0]), int(in_sets[1].sum())
    if not in_sets.all(axis=0).any():
        return DealtGroups(names, whole, within=False)
    one_sided, most = one_sided_groups(counts)
    if one_sided > most:
        raise InputError(
            f"{table.name}: {int(in_sets.all(axis=0).sum())} groups have records of both query set and holdout, and "
            f"{one_sided} have several of one set alone: neither whole groups nor single records were dealt at random. "
            "Give all records of a group to one of the two sets, or deal the records of every group."
        )
    return DealtGroups(names, whole, within=True)


def refuse_groups_of_members(table: ScoreTable) -> None:
    """Refuses groups with records among the known members and in another set, where groups were dealt whole.

    Raises:
        InputError: there are such groups.
    """
    if table.groups is None:
        return
    dealt_units = table.groups[table.rows("query", "holdout")]
    common = len(np.intersect1d(table.groups[table.rows("members")], dealt_units))
    if common:
        raise InputError(
            f"{table.name}: {common} groups have records among the known members, and in the query set or the holdout: "
            "a member's group tells of others. Give all records of a group to one set, or leave out the column `group` "
            "if records were dealt one by one."
        )


def group_counts(table: ScoreTable, role: str) -> Int[np.ndarray, " groups"]:
    """How many records of a set each group has, by its number."""
    groups = numbered_groups(table)
    return np.bincount(groups[table.rows(role)], minlength=int(groups.max()) + 1)


def reaches(p_value: float) -> bool:
    """Whether a p-value is at most 5%, up to rounding: 20 / 400 is."""
    return p_value <= ALPHA + 1e-12


class GroupEvidence(NamedTuple):
    """What a target's scores show of one group.

    Attributes:
        test: None if nothing tells.
        basis: what the group is compared with.
        share: the share of the effect of use that is left.
        unlike: whether the group has fewer or more records than any that it would be ranked among: no rank is exact.
    """

    test: GroupTest | None
    basis: Basis
    share: Limits = UNKNOWN
    unlike: bool = False

    def can_reach(self, tests: int = 1) -> bool:
        """Whether some scores would lead to a p-value of at most 5% after it is multiplied by the number of tests."""
        return self.test is not None and not self.unlike and reaches(self.test.least * tests)


def group_evidence(
    key: Key[Array, ""], table: ScoreTable, target: ScoredModel, dealt_groups: DealtGroups, level: float
) -> tuple[GroupEvidence, ...]:
    """What a target's scores show of each group of the query set, in the order of `dealt_groups.names`.

    Raises:
        InputError: of no score is it known which way it points for records that were used.
    """
    ways = {name: table.directions[name] for name in target.scores if table.directions[name]}
    if not ways:
        raise InputError(f"{table.name}: a verdict by group needs to know which way a score points. {SAY}")
    tests = len(dealt_groups.names) * len(table.of("target"))
    exact = _exact(key, table, target, dealt_groups, least_permutations(FINER * tests))
    placed = placed_scores(table, target, list(ways), list(ways.values()))
    modelled = exact if placed is None else _by_models(table, placed, dealt_groups, level)
    return tuple(
        by_models
        if by_models.test is not None and not by_deal.can_reach(tests)
        else by_deal._replace(share=by_models.share)
        for by_deal, by_models in zip(exact, modelled, strict=True)
    )


def _exact(
    key: Key[Array, ""], table: ScoreTable, target: ScoredModel, dealt_groups: DealtGroups, permutations: int
) -> list[GroupEvidence]:
    """The exact test of each group; none where there is no holdout to compare with."""
    rows, size = table.rows("query", "holdout"), len(table.rows("query"))
    left, directions = target_residuals(table, target, rows)
    basis: Basis = "own records" if dealt_groups.within else "holdout groups"
    if size == len(rows) or not directions.any():
        return [GroupEvidence(None, basis)] * len(dealt_groups.names)
    groups, scores = numbered_groups(table)[rows], (left * directions)[:, directions != 0].mean(axis=1)
    if not dealt_groups.within:
        sized = zip(among_groups(scores, groups, size), unlike_in_size(groups, size).tolist(), strict=True)
        return [GroupEvidence(test, basis, unlike=is_unlike) for test, is_unlike in sized]
    permutations = min(permutations, MOST_PERMUTATIONS)
    return [
        GroupEvidence(
            within_group(
                stream(key, "group", name), scores[groups == name], int((groups[:size] == name).sum()), permutations
            ),
            basis,
        )
        for name in dealt_groups.names.tolist()
    ]


def _by_models(table: ScoreTable, placed: PlacedScores, dealt_groups: DealtGroups, level: float) -> list[GroupEvidence]:
    """Each group's place between models of known truth; its test is None with too few of them, or of groups."""
    size, groups = len(table.rows("query")), numbered_groups(table)[placed.rows]
    tests, evidence = _drifts(placed, groups, size, dealt_groups), []
    for name, test in zip(dealt_groups.names.tolist(), tests, strict=True):
        # The records of the group are all there are of it, and those of the holdout stand for others.
        chosen = np.r_[np.flatnonzero(groups[:size] == name), size : len(groups)]
        records = int((chosen < size).sum())
        units = np.r_[
            np.arange(records), records + (np.arange(len(chosen) - records) if dealt_groups.within else groups[size:])
        ]
        share = share_left(
            placed.target[chosen], placed.unused[:, chosen], placed.used[:, chosen], records, groups=units, level=level
        )
        evidence.append(GroupEvidence(test, "models", share.limits))
    return evidence


def _drifts(
    placed: PlacedScores, groups: Int[np.ndarray, " records"], size: int, dealt_groups: DealtGroups
) -> list[GroupTest | None]:
    """The test of each group of the query set by how models without the query set drift from each other."""
    count = len(dealt_groups.names)
    has_holdout = len(groups) > size and not dealt_groups.within and dealt_groups.holdout >= FEWEST_HOLDOUT
    if len(placed.unused) < FEWEST_MODELS or not (has_holdout or count >= FEWEST_QUERY):
        return [None] * count
    rows = len(groups) if has_holdout else size
    names, unit_of_record = np.unique(groups[:rows], return_inverse=True)
    target, *unused = (
        np.bincount(unit_of_record, scores[:rows]) / np.bincount(unit_of_record)
        for scores in (placed.target, *placed.unused)
    )
    in_query = np.isin(names, dealt_groups.names)
    effects, p_values = (numbers[in_query] for numbers in drift_test(target, np.stack(unused), ~in_query))
    if not has_holdout:
        return [
            GroupTest(float(p_value), 0.0, float(effect), np.nan, np.nan)
            for p_value, effect in zip(p_values, effects, strict=True)
        ]
    apart = placed.target - placed.unused.mean(axis=0)
    spread, among = beyond_groups(apart, groups, size), among_groups(apart, groups, size)
    return [
        test._replace(p_never=float(p_value), least=0.0)
        for test, p_value in zip(among, np.maximum(p_values, spread), strict=True)
    ]


def numbered_groups(table: ScoreTable) -> Int[np.ndarray, " records"]:
    """The groups of a table that has some."""
    if table.groups is None:
        raise InputError(
            f"{table.name}: has no column `group`, so there is no verdict by group; add the group of each record, such "
            "as its author."
        )
    return table.groups
