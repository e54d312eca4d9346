"""The result of the `pdtp` audit, which is its JSON: PDTP, and the seed floor, what another seed alone moves."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float
from msgspec import Meta, field

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Nats, StrictStruct, demand
from jaxaudit.metrics.pdtp import publishable

EDGES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, math.inf)
"""Edges in nats for counting records: exactly 0, then above one edge and not above the next."""
MOST_RECORDS = 10_000_000
"""The most records that a page draws one by one."""
VERDICTS = {True: "publish", False: "do not publish", None: "inconclusive"}


class Bar(StrictStruct, frozen=True):
    """One bar of a histogram: the number of records whose PDTP lies above `above` and not above `up_to`.

    PDTP is the largest change of any class's log-probability on a record when the record is left out of training, in
    nats. The seed floor is that change when only the training seed differs. The first bar counts exact zeros.

    Attributes:
        name: the two edges in words, such as `0.3-1`.
        above, up_to: the edges, nats; both 0 in the first bar.
        breaks_dtp_1: whether PDTP in this bar exceeds 1 nat, above which the rule DTP-1 says not to publish the model.
        records: the number of records with PDTP in this bar.
        by_seed_floor: the number of records with a mean seed floor in this bar.
    """

    name: str
    above: Nats
    up_to: Nats
    breaks_dtp_1: bool
    records: Count
    by_seed_floor: Count


class Floor(StrictStruct, frozen=True):
    """How much another seed alone changes outputs, over the measured records.

    Attributes:
        seeded: whether the learner's result depends on its seed at all.
        mean: mean over records and seeds.
        max: the largest change of any record by another seed.
        above: number of records whose PDTP is above the largest value of their own seed floor.
    """

    seeded: bool
    mean: Nats
    max: Nats
    above: Count


class Risk(StrictStruct, frozen=True):
    """One measured record.

    Attributes:
        index: its index in the given table, from 0.
        pdtp: nats; `exact_pdtp` without bins.
        dtp_bound: an upper bound of its DTP, without bins; None if none is proven for the learner.
        seed_floor: the mean change by another seed alone.
        seed_floor_max: the largest change by another seed alone.
        class_: the class whose probability changes most; `class` in JSON.
        direction: 1 if the model with the record gives that class a higher probability, -1 if lower, 0 if nothing
            changes.
        duplicates: number of records with the same input and label, the record itself included.
        only_member_of_its_class: whether the model without it was trained on no record of its class.
    """

    index: Count
    pdtp: Nats
    exact_pdtp: Nats
    dtp_bound: Nats | None
    seed_floor: Nats
    seed_floor_max: Nats
    class_: str = field(name="class")
    direction: Literal[-1, 0, 1]
    duplicates: Annotated[int, Meta(ge=1)]
    only_member_of_its_class: bool


class Reduction(StrictStruct, frozen=True):
    """The largest PDTP as the riskiest record is removed repeatedly.

    Attributes:
        removed: the record removed at each step, by its index at the start.
        max_pdtp: the largest PDTP of the remaining records, in nats: before the first step and after each.
    """

    removed: tuple[Count, ...]
    max_pdtp: tuple[Nats, ...]


class GroupRisk(StrictStruct, frozen=True):
    """One group of records, such as an author, that was left out as a whole.

    Attributes:
        first: the index of its first measured record in the given table.
        records: number of its measured records.
        pdtp: the largest of its records, nats.
        seed_floor_max: the largest change of any of its records by another seed alone.
    """

    first: Count
    records: Annotated[int, Meta(ge=1)]
    pdtp: Nats
    seed_floor_max: Nats


class TextRisk(StrictStruct, frozen=True):
    """The measured records as texts.

    Attributes:
        tokens: how many of their tokens count.
        with_record: the mean over records of the mean log-likelihood of a token (nats), under A(T).
        without_record: the same under the models that lack the record.
    """

    tokens: Count
    with_record: float
    without_record: float


class PDTPResult(StrictStruct, frozen=True, kw_only=True):
    """The result of the `pdtp` audit.

    Attributes:
        finding: the conclusion: `publish`, `do not publish` or `inconclusive`.
        max_pdtp, median_pdtp: of any measured record, in nats.
        publish: the DTP-1 rule: False if a value is above 1 nat, True if all records were measured and none is. None if
            not all records were measured, or if values are above 1 only because of bins.
        bound: an upper bound in nats of the change by any record, without bins and for any data; None if there is none.
        dtp_bound: an upper bound in nats of the change by any measured record, on any input and without bins; None if
            none is proven for the learner.
        quantiles: of PDTP over the measured records.
        distribution: the number of records by PDTP.
        above_1: number of records with a PDTP above 1 nat; `above_1_without_bins` without bins.
        above_1_within_floor: number of these not above the largest value of their own seed floor.
        copies: number of measured records with the same input and label as another record.
        lone_members: number of measured records that are the only ones of their class.
        train_accuracy: the share of measured records that A(T) classifies as labelled; None for texts.
        records: in the order of the table; if more than 100,000 were measured, only the riskiest.
        reduction: the largest PDTP as records are removed; None if none were.
        groups: if whole groups were left out, the groups of the measured records, in the order of the table;
            `largest_group` is the number of records of the largest one.
        texts: None for records with classes.
    """

    finding: Finding
    max_pdtp: Nats
    median_pdtp: Nats
    publish: bool | None
    bound: Nats | None
    dtp_bound: Nats | None
    seed_floor: Floor
    quantiles: dict[Literal["0.5", "0.9", "0.99"], Nats]
    distribution: Annotated[tuple[Bar, ...], Meta(min_length=1)]
    above_1: Count
    above_1_without_bins: Count
    above_1_within_floor: Count
    copies: Count
    lone_members: Count
    training_records: Annotated[int, Meta(ge=1)]
    records_measured: Annotated[int, Meta(ge=1)]
    train_accuracy: Annotated[float, Meta(ge=0, le=1)] | None
    records: Annotated[tuple[Risk, ...], Meta(min_length=1)]
    reduction: Reduction | None
    groups: tuple[GroupRisk, ...] | None = None
    largest_group: Count = 1
    texts: TextRisk | None = None

    def by_risk(self) -> list[Risk]:
        """The listed records, the largest PDTP first; ties keep their order."""
        return sorted(self.records, key=lambda record: -record.pdtp)


def distribution(values: Float[np.ndarray, " records"], floors: Float[np.ndarray, " records"]) -> tuple[Bar, ...]:
    """Counts of records by PDTP and by seed floor, nats, between `EDGES`.

    >>> bars = distribution(np.array([0.0, 0.003, 1.0, 1.01, np.inf]), np.zeros(5))
    >>> [(bar.name, bar.records) for bar in bars if bar.records]
    [('0', 1), ('0-0.003', 1), ('0.3-1', 1), ('1-3', 1), ('above 3', 1)]
    """
    between = [(0.0, 0.0), *pairwise(EDGES)]
    names = ("0", *(f"{low:g}-{high:g}" for low, high in between[1:-1]), f"above {EDGES[-2]:g}")
    counts = zip(_counts(values), _counts(floors), strict=True)
    return tuple(
        Bar(name, low, high, not publishable(high), *of_bar)
        for name, (low, high), of_bar in zip(names, between, counts, strict=True)
    )


def _counts(values: Float[np.ndarray, " records"]) -> list[int]:
    return np.bincount(np.searchsorted(EDGES, values, side="left"), minlength=len(EDGES)).tolist()


def check_pdtp_result(result: PDTPResult, arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that the parts of a result read from a file agree with one another and with its arrays.

    Raises:
        ValueError: parts do not agree.
    """
    measured = result.records_measured
    demand(len(result.records) <= measured <= result.training_records, "it measured more records than there are")
    demand(measured <= MOST_RECORDS, f"it measured more than {MOST_RECORDS:,} records")
    bars, none = [(bar.name, bar.above, bar.up_to, bar.breaks_dtp_1) for bar in result.distribution], np.zeros(0)
    edges = [(bar.name, bar.above, bar.up_to, bar.breaks_dtp_1) for bar in distribution(none, none)]
    demand(bars == edges, "its distribution has other edges")
    demand(sum(bar.records for bar in result.distribution) == measured, "its distribution is not of its records")
    demand(result.finding.verdict == VERDICTS[result.publish], "its verdict does not follow from the DTP-1 rule")
    for name, values in arrays.items():
        fits = values.dtype == np.float64 and len(values) == measured
        demand(fits and bool((values >= 0).all()), f"the {name} of its records are misshapen")
    if result.groups is not None:
        demand(sum(group.records for group in result.groups) == measured, "its groups are not of its records")
        demand(max(group.pdtp for group in result.groups) == result.max_pdtp, "no group has its largest PDTP")
    reduction = result.reduction
    if reduction is not None:
        steps = len(reduction.removed)
        demand(len(reduction.max_pdtp) == steps + 1, "steps and values of its reduction differ in number")
