"""What a deal deals: records, whole groups, or the records within each group; and which groups can be named by it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from jaxaudit.audits.ks.by_group import MOST_PERMUTATIONS
from jaxaudit.audits.ks.group_finding import MOST_TESTS, holdout_groups_needed, records_a_set_needed
from jaxaudit.cli.deal.command import Deal
from jaxaudit.data.group_values import number_groups
from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import deal, deal_members, deal_within, merge_groups
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.group_tests import counted_deals
from jaxaudit.randomness import generator_of, stream

NUMBERS = 2**53
"""Groups get random numbers below this: groups of two deals get different ones, and a float has each exactly."""
ONE_EACH = (
    "WARNING: every group has one record. Is that the key of what records have in common, such as their author, and",
    "not a number of each record? Deal again by that key; if records have nothing in common, leave the groups out.",
)
ASK = "`ks --scores --by group`"


class DealtUnits(NamedTuple):
    """The groups of the records, and how they are dealt.

    Attributes:
        of_record: the group of each record, from 0 in the order in which they first occur.
        copied: the number of records that are copies of others.
        written: whether the sides say which records belong together.
        within: whether the records of each group are dealt over all sides.
    """

    of_record: Int[np.ndarray, " records"]
    copied: int
    written: bool
    within: bool

    @property
    def whole(self) -> bool:
        """Whether groups are dealt whole."""
        return self.written and not self.within

    @property
    def count(self) -> int:
        """The number of groups."""
        return int(self.of_record.max()) + 1

    def on(self, rows: Int[np.ndarray, " some"]) -> int:
        """The number of groups that these records are of."""
        return len(np.unique(self.of_record[rows]))

    def random_numbers(self, key: Key[Array, ""]) -> Int[np.ndarray, " records"]:
        """A random number for the group of each record, which tells neither the group's value nor its place."""
        return generator_of(stream(key, "numbers")).choice(NUMBERS, self.count, replace=False)[self.of_record]


def dealt_units(
    values: Shaped[np.ndarray, " records"] | None, hashes: Shaped[np.ndarray, " records"], *, within: bool
) -> DealtUnits:
    """The units of a deal, by the group of each record, if it has one, and a hash that equal records share.

    Raises:
        InputError: records are to be dealt within groups, and some are copies of others.
    """
    copied = len(hashes) - len(np.unique(hashes))
    if within and copied:
        raise InputError(
            f"{copied:,} records are copies of others, and --by could put one text on two sides: a copy hides use. "
            "Leave out all but one of each, or deal whole groups (--groups)."
        )
    # Records that belong to nobody need no groups, and the test of records finds more.
    written = values is not None or copied > 0
    groups = np.arange(len(hashes)) if values is None else values
    return DealtUnits(number_groups(groups if within else merge_groups(groups, hashes)), copied, written, within)


def draw_deal(key: Key[Array, ""], how: Deal, units: DealtUnits) -> dict[str, Bool[np.ndarray, " records"]]:
    """Deals records at random: True for the records of each side (`query`, `members`, `holdout`), by its name."""
    count, groups = len(units.of_record), units.of_record if units.whole else None
    if units.within:
        drawn, members = deal_within(stream(key, "deal"), units.of_record, how.held, how.members_share or 0.0)
        stay = {} if how.members_share is None else {"members": members}
        return {"query": ~(drawn | members), **stay, "holdout": drawn}
    drawn = deal(stream(key, "deal"), count, how.held if how.withdraw is None else how.withdraw, groups)
    if how.withdraw is not None:
        return {"query": drawn, "members": ~drawn}
    if how.members_share is None:
        return {"query": ~drawn, "holdout": drawn}
    members = deal_members(stream(key, "deal"), drawn, how.members_share, groups)
    return {"query": ~(drawn | members), "members": members, "holdout": drawn}


class NamedGroups(NamedTuple):
    """Which groups of the query set can be called remembered at 5%, adjusted for all of them, of one target.

    Attributes:
        groups: how many groups the query set has.
        can_be_named: how many of them some scores would name, each on its own.
        holdout_groups: how many groups the holdout has.
        holdout_groups_needed: how many it needs, where groups were dealt whole; None where records were.
        records_needed: how many records a group needs in query set and in holdout, where records were dealt; else None.
        single: whether every group has one record.
    """

    groups: int
    can_be_named: int
    holdout_groups: int
    holdout_groups_needed: int | None
    records_needed: int | None
    single: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """What to say of them."""
        if not self.single:
            return self._of_groups()
        # A deal of records within groups would name none of them either.
        return (*ONE_EACH, *self._of_groups()) if self.can_be_named else ONE_EACH

    def _of_groups(self) -> tuple[str, ...]:
        count = f"{self.groups:,} group{'' if self.groups == 1 else 's'}"
        adjusted = f"(5%, adjusted for {count} of one model)"
        if self.records_needed is not None:
            able = "each" if self.can_be_named == self.groups else f"{self.can_be_named:,}"
            rest = (
                f"{self.records_needed:,} records of a group in query set and in holdout are enough."
                if able == "each"
                else f"Enough are {self.records_needed:,} records of a group in query set and in holdout each."
            )
            if self.groups > MOST_TESTS:
                rest = f"P-values can be adjusted for at most {MOST_TESTS:,} groups: deal fewer of them."
            return (f"Single groups: {ASK} can name {able} of {count} {adjusted}.", rest)
        return (
            f"Single groups: to name one of {count} {adjusted}, {ASK}",
            f"needs {self.holdout_groups_needed:,} groups in the holdout, and there are {self.holdout_groups:,}: "
            + ("enough." if self.can_be_named else "none can be named."),
            *(
                ()
                if self.can_be_named
                else ("Is it single ones you ask about? --by in place of --groups deals for that.",)
            ),
        )


def named_groups(units: DealtUnits, rows: Mapping[str, Sequence[int] | np.ndarray]) -> NamedGroups | None:
    """Which groups a deal can name; None where there are none, or no holdout.

    `rows` has the records of each side.
    """
    if not units.written or "holdout" not in rows:
        return None
    query, holdout = (
        np.bincount(units.of_record[np.asarray(rows[side])], minlength=units.count) for side in ("query", "holdout")
    )
    groups, held = int((query > 0).sum()), int((holdout > 0).sum())
    if not units.within:
        single = units.count == len(units.of_record)
        needed = holdout_groups_needed(groups)
        return NamedGroups(groups, groups if held >= needed else 0, held, needed, None, single)
    sizes = zip(query.tolist(), holdout.tolist(), strict=True)
    able = [counted_deals(q, h, MOST_PERMUTATIONS) * ALPHA >= groups for q, h in sizes]
    return NamedGroups(groups, sum(able), held, None, records_a_set_needed(groups))
