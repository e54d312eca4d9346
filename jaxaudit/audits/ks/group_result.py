"""The part of a `ks` result about groups of the query set, such as authors: a verdict for each."""

from typing import Literal

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Number, StrictStruct

Basis = Literal["own records", "holdout groups", "models"]
GroupVerdict = Literal["remembered", "suspected", "not found", "cannot be found", "inconclusive"]


class GroupResult(StrictStruct, frozen=True, kw_only=True):
    """What is found of one group of the query set.

    Attributes:
        name: its number, and no id of the table's: groups are numbered from 1, in the order in which they first occur
            among the records of query set, holdout and members.
        first: where its first query record is: the line of the file, or the record of the table counted from 1
            (`Grouping.first_is`).
        records, holdout_records: how many of its records are in the query set, and in the holdout.
        verdict: `remembered`, by `p_adjusted`. `suspected`, by `p_adjusted_bh` alone, or by models. `not found`, which
            rules nothing out. `cannot be found`: no scores, of this group and all others, could have led to
            `remembered`. `inconclusive`: something is wrong, or the holdout has no groups of its size.
        basis: what the group is compared with: its own records of the holdout, all groups of the holdout, or models of
            known truth.
        p_never: p-value of "none of the group was used"; None if nothing tells.
        p_adjusted: adjusted by Holm's method, `p_adjusted_bh` by that of Benjamini and Hochberg; None of a group that
            is not counted.
        effect: how much higher its scores are than those of what it is compared with, in standard deviations of a
            record, after what is known of the records. `low`, `high`: the middle 95% of it without use.
        share: the share of the effect of use that is left, between models of known truth, with its interval, which is
            that of this group alone.
    """

    name: Count
    first: Count
    records: Count
    holdout_records: Count
    verdict: GroupVerdict
    basis: Basis
    p_never: Number
    p_adjusted: Number = None
    p_adjusted_bh: Number = None
    effect: Number = None
    low: Number = None
    high: Number = None
    share: Number = None
    share_low: Number = None
    share_high: Number = None


class Grouping(StrictStruct, frozen=True, kw_only=True):
    """What is found of all groups of the query set.

    Attributes:
        finding: the answer in words.
        adjustment: how `p_adjusted` and `p_adjusted_bh` are adjusted, and what that guarantees.
        tests: for how many tests, of a group and a target each, they are adjusted.
        first_is: what `GroupResult.first` counts: lines of the file from 1, the header among them, or records from 1.
    """

    finding: Finding
    adjustment: str
    tests: Count
    first_is: Literal["line", "record"]
