"""The `pdtp` answer as JSON: what `jaxaudit pdtp --json` prints and `--out` writes."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from msgspec import Meta, field

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.pdtp.result import PDTPAudit, Reduction
from jaxaudit.metrics.pdtp import SOURCE
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Part, Provenance, Record, extended

MOST_RECORDS = 100_000
QUANTILES = (0.5, 0.9, 0.99)

Nats = Annotated[float, Meta(ge=0)] | Literal["infinity"]
Count = Annotated[int, Meta(ge=0)]


class SeedFloor(Part):
    """What another seed alone moves, over the measured records.

    Attributes:
        seeded: whether the learner's result depends on its seed at all.
        mean: over records, of the mean over seeds.
        max: the most that another seed moved any record.
        above: records whose PDTP is above the largest of their own floor.
    """

    seeded: bool
    mean: Nats
    max: Nats
    above: Count


class Bar(Part):
    """How many records have a PDTP, and a seed floor, between two edges; see `jaxaudit.audits.pdtp.result.Bar`."""

    name: str
    above: Nats
    up_to: Nats
    breaks_dtp_1: bool
    records: Count
    by_seed_floor: Count


class Risk(Part):
    """One measured record.

    Attributes:
        index: its index in the given table, from 0.
        pdtp: nats; `exact_pdtp` without bins.
        dtp_bound: an upper bound of its DTP, without bins; null if none is proven for the learner.
        seed_floor: the mean over seeds of what another seed alone moves.
        seed_floor_max: the maximum over seeds.
        class_: the class whose probability moves most; `class` in JSON.
        direction: 1 if the model with the record gives that class more, -1 if less, 0 if nothing moves.
        duplicates: records with the same input and label, itself included.
        only_member_of_its_class: whether the model without it has never seen its class.
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


class Reduced(Part):
    """What `--reduce` did; see `jaxaudit.audits.pdtp.result.Reduction`."""

    removed: list[Count]
    max_pdtp: list[Nats]


class PDTPRecord(Record, kw_only=True):
    """The object.

    Attributes:
        publish: the DTP-1 rule; null if it is inconclusive.
        because: the sentence of the finding.
        bound: an upper bound in nats of the change by any record, without bins and for any data; null if there is none.
        dtp_bound: an upper bound in nats of the change by any measured record, on any input and without bins; null if
            none is proven for the learner.
        quantiles: of PDTP over the measured records.
        distribution: the number of records by PDTP.
        above_1_without_bins: records above 1 without bins.
        above_1_within_floor: records above 1 that are not above the largest of their own seed floor.
        copies: measured records with the same input and label as another.
        lone_members: measured records that are the only one of their class.
        train_accuracy: on the measured records.
        records: in the order of the table; if more than `MOST_RECORDS` were measured, only the riskiest.
        reduction: what `--reduce` did; null without it.
    """

    schema: Literal["jaxaudit.pdtp/2"] = "jaxaudit.pdtp/2"
    finding: Finding
    max_pdtp: Nats
    median_pdtp: Nats
    publish: bool | None
    verdict: Literal["publish", "do not publish", "inconclusive"]
    because: str
    bound: Nats | None
    dtp_bound: Nats | None
    seed_floor: SeedFloor
    quantiles: dict[Literal["0.5", "0.9", "0.99"], Nats]
    distribution: Annotated[list[Bar], Meta(min_length=1)]
    above_1: Count
    above_1_without_bins: Count
    above_1_within_floor: Count
    copies: Count
    lone_members: Count
    training_records: Annotated[int, Meta(ge=1)]
    records_measured: Annotated[int, Meta(ge=1)]
    train_accuracy: Annotated[float, Meta(ge=0, le=1)]
    records: Annotated[list[Risk], Meta(min_length=1)]
    reduction: Reduced | None


def pdtp_record(
    audit: PDTPAudit, reduction: Reduction | None, class_names: Sequence[str], provenance: Provenance
) -> PDTPRecord:
    """The record of an audit.

    Args:
        audit: what was found; its `records` by their place in the table that was given.
        reduction: what became of it as records were removed, by the same places; None where none were.
        class_names: in label order.
        provenance: what repeats the run.
    """
    floor, finding, bound = audit.floor, audit.finding, audit.largest_dtp_bound
    quantiles = {f"{share:g}": np.quantile(audit.values, share, method="inverted_cdf") for share in QUANTILES}
    return PDTPRecord(
        finding=finding,
        max_pdtp=extended(audit.max_pdtp),
        median_pdtp=extended(np.median(audit.values)),
        publish=audit.publish,
        verdict=finding.verdict,  # pyright: ignore[reportArgumentType]
        because=finding.sentence,
        bound=None if audit.largest_possible is None else extended(audit.largest_possible),
        dtp_bound=None if bound is None else extended(bound),
        seed_floor=SeedFloor(
            audit.seeded, extended(np.mean(floor.mean)), extended(np.max(floor.largest)), audit.above_floor
        ),
        quantiles={share: extended(value) for share, value in quantiles.items()},  # pyright: ignore[reportArgumentType]
        distribution=[Bar(*bar[:2], extended(bar.up_to), *bar[3:]) for bar in audit.distribution],
        above_1=audit.above_1,
        above_1_without_bins=audit.above_1_without_bins,
        above_1_within_floor=audit.above_1_within_floor,
        copies=audit.copies,
        lone_members=audit.lone_members,
        training_records=audit.examples,
        records_measured=len(audit.records),
        train_accuracy=audit.train_accuracy,
        records=_risks(audit, class_names, _listed(audit)),
        reduction=reduction and Reduced(reduction.removed.tolist(), [extended(each) for each in reduction.max_pdtp]),
        papers=cited([SOURCE]),
        provenance=provenance,
    )


def pdtp_columns(audit: PDTPAudit, class_names: Sequence[str]) -> dict[str, np.ndarray]:
    """The same of every measured record for `record_files`; NaN where there is no number."""
    return {
        "index": audit.records.astype(np.int64),
        "pdtp": audit.values,
        "exact_pdtp": audit.exact,
        "dtp_bound": np.full(len(audit.records), np.nan) if audit.dtp_bound is None else audit.dtp_bound,
        "seed_floor": audit.floor.mean,
        "seed_floor_max": audit.floor.largest,
        "class": np.array(class_names)[audit.classes],
        "direction": audit.directions.astype(np.int8),
        "duplicates": audit.duplicates.astype(np.int64),
        "only_member_of_its_class": audit.only_member,
    }


def _listed(audit: PDTPAudit) -> Int[np.ndarray, " listed"]:
    """The places of the riskiest `MOST_RECORDS` in the order of the table."""
    return np.sort(np.argsort(-audit.values, kind="stable")[:MOST_RECORDS])


def _risks(audit: PDTPAudit, class_names: Sequence[str], places: Int[np.ndarray, " listed"]) -> list[Risk]:
    columns = (
        *(audit.records, audit.values, audit.exact, audit.floor.mean, audit.floor.largest),
        *(audit.classes, audit.directions, audit.duplicates, audit.only_member),
    )
    bounds = [None] * len(places) if audit.dtp_bound is None else map(extended, audit.dtp_bound[places].tolist())
    rows = zip(*(column[places].tolist() for column in columns), bounds, strict=True)
    return [
        Risk(
            index=index,
            pdtp=extended(value),
            exact_pdtp=extended(exact),
            dtp_bound=bound,
            seed_floor=extended(floor),
            seed_floor_max=extended(floor_max),
            class_=str(class_names[place]),
            direction=direction,
            duplicates=copies,
            only_member_of_its_class=alone,
        )
        for index, value, exact, floor, floor_max, place, direction, copies, alone, bound in rows
    ]
