"""The part of a `ks` result about groups of the query set, such as authors: a verdict for each."""

from typing import Literal

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Number, StrictStruct

Basis = Literal["own records", "holdout groups", "models"]
GroupVerdict = Literal["remembered", "suspected", "not found", "cannot be found", "inconclusive"]


class GroupResult(StrictStruct, frozen=True, kw_only=True):
    """What is found of one group of the query set.

    Attributes:
        name: its number: groups are numbered from 0, in the order in which they first occur in the table.
        first: the index, from 0, of its first query record in the table.
        records, holdout_records: how many of its records are in the query set, and in the holdout.
        verdict: `remembered`, by `p_adjusted`. `suspected`, by `p_adjusted_bh` alone. `not found`, which rules nothing
            out. `cannot be found`: no scores could have led to `remembered`. `inconclusive`: something is wrong.
        basis: what the group is compared with: its own records of the holdout, all groups of the holdout, or models of
            known truth.
        p_never: p-value of "none of the group was used"; None if nothing tells.
        p_adjusted: adjusted by Holm's method, `p_adjusted_bh` by that of Benjamini and Hochberg; None of a group that
            could never reach 5%.
        effect: how much higher its scores are than those of what it is compared with, in standard deviations of a
            record, after what is known of the records. `low`, `high`: the middle 95% of it without use.
        share: the share of the effect of use that is left, between models of known truth, with its interval.
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
    """

    finding: Finding
    adjustment: str
    tests: Count
