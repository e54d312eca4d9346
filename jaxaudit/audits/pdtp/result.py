"""The result of the `pdtp` audit, which is its JSON, its verdict, decided by one rule for all outputs.

PDTP is printed with what could mislead: the seed floor; copies of a record; a class that vanishes with its only member;
values above 1 that the edges of bins made; and, where it is proven (`BoundsDTP`), how far any other input can move.
"""

import math
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, field

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order, plural, undecided
from jaxaudit.json_types import Count, Nats, StrictStruct, demand
from jaxaudit.metrics.arrays import Numbers
from jaxaudit.metrics.pdtp import DTP_1

EDGES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, math.inf)
"""Edges in nats for counting records: exactly 0, then above one edge and not above the next."""


AtLeastOne = Annotated[int, Meta(ge=1)]


class Bar(StrictStruct, frozen=True):
    """One bar of a histogram: the number of records whose PDTP lies above `above` and not above `up_to`.

    PDTP is the largest change of any class's log-probability on a record when the record is left out of training, in
    nats. The seed floor is that change when only the training seed differs. The first bar counts exact zeros.

    `name` has the two edges in words, such as `0.3-1`; PDTP above 1 nat breaks the DTP-1 rule.
    """

    name: str
    above: Nats
    up_to: Nats
    breaks_dtp_1: bool
    records: Count
    by_seed_floor: Count


class Floor(StrictStruct, frozen=True):
    """How much another seed alone changes outputs, over the measured records, if the learner is `seeded`; `above`
    counts records whose PDTP is above the largest value of their own floor.
    """

    seeded: bool
    mean: Nats
    max: Nats
    above: Count


class Risk(StrictStruct, frozen=True):
    """One measured record: its index in the given table, from 0, and its numbers as in `PDTPAudit`, in nats; `class_`,
    the class whose probability changes most, is `class` in JSON.
    """

    index: Count
    pdtp: Nats
    exact_pdtp: Nats
    dtp_bound: Nats | None
    seed_floor: Nats
    seed_floor_max: Nats
    class_: str = field(name="class")
    direction: Literal[-1, 0, 1]
    duplicates: AtLeastOne
    only_member_of_its_class: bool


class GroupRisk(StrictStruct, frozen=True):
    """One group of records, such as a patient, that was left out as a whole: the index of its first measured record in
    the given table, the number of these, and the largest of their values, nats.
    """

    first: Count
    records: AtLeastOne
    pdtp: Nats
    seed_floor_max: Nats


class PDTPResult(StrictStruct, frozen=True, kw_only=True):
    """The result of the `pdtp` audit.

    Attributes:
        finding: `records exposed`, `no record exposed` or `inconclusive`.
        model: the kind of model that was trained here, in words.
        dtp_bound: an upper bound in nats of the change by any measured record, on any input and without bins; None if
            none is proven for the learner.
        above_1: number of records with a PDTP above 1 nat; `above_1_without_bins` without bins.
        above_1_within_floor: number of these not above the largest value of their own seed floor.
        copies: number of measured records with the same input and label as another record.
        lone_members: number of measured records that are the only ones of their class.
        train_accuracy: the share of measured records that A(T) classifies as labelled.
        same_outputs: whether A(T) gives all of them the same outputs.
        records: in the order of the table; if more than 100,000 were measured, only the riskiest.
        groups: if whole groups were left out, the groups of the measured records, in the order of the table;
            `largest_group` is the number of records of the largest one.
    """

    finding: Finding
    model: str
    max_pdtp: Nats
    median_pdtp: Nats
    dtp_bound: Nats | None
    seed_floor: Floor
    quantiles: dict[Literal["0.5", "0.9", "0.99"], Nats]
    distribution: Annotated[tuple[Bar, ...], Meta(min_length=1)]
    above_1: Count
    above_1_without_bins: Count
    above_1_within_floor: Count
    copies: Count
    lone_members: Count
    training_records: AtLeastOne
    records_measured: AtLeastOne
    train_accuracy: Annotated[float, Meta(ge=0, le=1)]
    same_outputs: bool
    records: Annotated[tuple[Risk, ...], Meta(min_length=1)]
    groups: tuple[GroupRisk, ...] | None = None
    largest_group: Count = 1


def distribution(values: Numbers, floors: Numbers) -> tuple[Bar, ...]:
    """Counts of records by PDTP and by seed floor, nats, between `EDGES`."""
    between = [(0.0, 0.0), *pairwise(EDGES)]
    names = ("0", *(f"{low:g}-{high:g}" for low, high in between[1:-1]), f"above {EDGES[-2]:g}")
    counts = zip(_counts(values), _counts(floors), strict=True)
    return tuple(
        Bar(name, low, high, high > DTP_1, *of_bar)
        for name, (low, high), of_bar in zip(names, between, counts, strict=True)
    )


def _counts(values: Numbers) -> list[int]:
    return np.bincount(np.searchsorted(EDGES, values, side="left"), minlength=len(EDGES)).tolist()


def check_pdtp_result(result: PDTPResult) -> None:
    demand(len(result.records) <= result.records_measured <= result.training_records, "it has too few records")
    possible = "inconclusive", "records exposed" if result.above_1 else "no record exposed"
    demand(result.finding.verdict in possible, "its verdict does not follow from the DTP-1 rule")
    demand(sum(bar.records for bar in result.distribution) > 0, "its distribution is empty")


NO_BINS = "Compare outputs without bins."
NO_FLOOR = "Average over more keys."
MEASURE_ALL = "Measure all records."
TRAIN_LONGER = "Train the classifier as you do yours: longer, or with larger steps."
LARGE = 0.1
"""Models without more than this share of the records take other minibatches (`learners/learner.py`)."""


def pdtp_finding(result: PDTPResult, bins: int, with_and_without_bins: int) -> Finding:
    """The verdict by the DTP-1 rule (Long et al. 2017, section 5), from a result without finding.

    `records exposed` if a record's PDTP is above 1 nat; `no record exposed` if none is, all records were measured, and
    the classifier tells records apart, or a bound is proven. Otherwise `inconclusive`, as also if records are above 1
    only because they cross the edge of a bin: `with_and_without_bins` counts records above 1 in both ways.
    """
    artefacts, hidden = (count - with_and_without_bins for count in (result.above_1, result.above_1_without_bins))
    reasons, checks, caveats = _reasons(result), _checks(result, bins, artefacts), _caveats(result, bins, hidden)
    outputs = f"outputs in {bins:,} bins" if bins else "no bins"
    rule = f"DTP-1 rule, {outputs}{'' if result.groups is None else ', whole groups left out'}"
    risky, measured = result.above_1, result.records_measured
    above = f"{risky:,} of {plural(measured, 'record')} {_has(risky)} a PDTP above 1 ({rule})"
    if risky == artefacts > 0:
        sentence = f"{above}, but none without bins: crossing the edge of one bin is enough."
        why = "Bins alone lift these records above 1."
        return undecided(sentence, reasons, why, caveats, (NO_BINS,), checks)
    if not risky and measured < result.training_records:
        sentence = f"No PDTP is above 1 ({rule}), but only {_measured(result)} were measured."
        why = "A record that was not measured may have a larger PDTP."
        return undecided(sentence, reasons, why, caveats, (MEASURE_ALL,), checks)
    if not risky and result.same_outputs and not _is_bounded(result):
        sentence = f"No record has a PDTP above 1 ({rule}), but the classifier gives all records the same outputs."
        why = "A classifier that tells no records apart shows nothing of one that does."
        return undecided(sentence, reasons, why, caveats, (TRAIN_LONGER,), checks)
    if not risky:
        sentence = f"No record has a PDTP above 1 ({rule})."
        sure = Confidence("fair", "All records were measured. PDTP is a lower bound: other inputs may move more.")
        if _is_bounded(result):
            sentence += " No record can move an output by more than 1 nat on any other input."
            sure = Confidence("strong", "All records were measured, and the bound over all inputs is at most 1.")
        return Finding("no record exposed", "good", sentence, reasons, sure, checks, caveats)
    floor = "some exceed their seed floor" if result.seed_floor.seeded else "the learner uses no random numbers"
    sure, advice = Confidence("strong", f"Some records are above 1 without bins as well, and {floor}."), ()
    if result.above_1_within_floor == risky:
        sure, advice = Confidence("fair", "Another seed alone moves these records as much."), (NO_FLOOR,)
    return Finding("records exposed", "bad", f"{above}.", reasons, sure, checks, caveats, advice)


def _reasons(result: PDTPResult) -> tuple[str, ...]:
    bound = result.dtp_bound
    if bound is None:
        bound_text = "not available for this learner"
    elif math.isinf(bound):
        bound_text = "infinite, because a class vanishes with its only member"
    else:
        bound_text = f"{_nats(bound)} nats"
    reasons = [
        f"PDTP in nats: largest {_nats(result.max_pdtp)}, median {_nats(result.median_pdtp)}.",
        f"Records above their seed floor: {result.seed_floor.above:,} of {result.records_measured:,}.",
    ]
    if result.groups is not None:
        risky = sum(group.pdtp > DTP_1 for group in result.groups)
        reasons.append(f"Groups with a record above 1: {risky:,} of {len(result.groups):,}.")
    return (*reasons, f"DTP bound over all inputs: {bound_text}.")


def _checks(result: PDTPResult, bins: int, artefacts: int) -> tuple[Checked, ...]:
    whole = result.above_1 > artefacts or result.records_measured == result.training_records
    words = f"{_measured(result)} were measured"
    checks = [
        assumed("records measured", whole, words, f"{words}; measure all", decisive=True),
        _seed_floor(result),
        _bins(result, bins, artefacts),
    ]
    copies = (
        f"{plural(result.copies, 'record')} {_has(result.copies)} exact copies, which hide each other: PDTP measures "
        "one copy at a time"
    )
    checks.append(assumed("copies", not result.copies, "no record has an exact copy", copies))
    if result.groups is not None:
        size = f"the largest group has {plural(result.largest_group, 'record')} of {result.training_records:,}"
        large = f"{size}: models without it take other minibatches, so its PDTP contains what a seed moves"
        share = result.largest_group / result.training_records
        checks.append(assumed("size of groups", share <= LARGE, size, large))
    apart = "the classifier gives records different outputs"
    same = "the classifier gives all records the same outputs: it learned nothing, or its training diverged"
    checks.append(assumed("outputs differ", not result.same_outputs, apart, same))
    alone, class_message = result.lone_members, "the class of every measured record has another member"
    are = "is" if alone == 1 else "are"
    only = f"{plural(alone, 'record')} {are} the only member of a class, which vanishes with it"
    checks.append(assumed("classes", not alone, class_message, only))
    return in_order(checks)


def _seed_floor(result: PDTPResult) -> Checked:
    if not result.seed_floor.seeded:
        return Checked("seed floor", "passed", "this learner uses no random numbers: the seed floor is 0")
    risky, within = result.above_1, result.above_1_within_floor
    mean, largest = result.seed_floor.mean, result.seed_floor.max
    message = f"another seed alone moves a record by {_nats(mean)} nats on average, at most by {_nats(largest)}"
    if risky:
        message += f"; records above 1 that exceed the largest of their own seed floor: {risky - within:,} of {risky:,}"
    return assumed("seed floor", not within, message, message)


def _bins(result: PDTPResult, bins: int, artefacts: int) -> Checked:
    artefact_words = "is a binning artefact" if artefacts == 1 else "are binning artefacts"
    return assumed(
        "bins",
        not (bins and artefacts),
        "no record is above 1 because of bin edges alone" if bins else "outputs are compared without bins",
        f"{artefacts:,} of {result.above_1:,} records above 1 {artefact_words} ({result.above_1_without_bins:,} "
        "without bins): crossing one bin edge adds log 3 = 1.10",
    )


def _caveats(result: PDTPResult, bins: int, hidden: int) -> tuple[str, ...]:
    caveats = []
    if not _is_bounded(result):
        caveats.append("PDTP is a lower bound: it is measured at the record's own input; other inputs may move more.")
    if result.seed_floor.seeded:
        caveats.append(
            "A PDTP below its seed floor is still what the record moved under that seed, but no more than chance moves."
        )
    if bins:
        most = math.log(2 * bins - 1)
        caveats.append(f"Outputs are compared in {bins:,} bins: no PDTP can exceed {most:.2f}.")
        if hidden:
            caveats.append(
                f"Bins hide changes of small probabilities: {plural(hidden, 'record')} above 1 only without bins."
            )
    if not result.above_1 and result.records_measured == result.training_records:
        caveats.append("DTP-1 is a rule of thumb, not a guarantee.")
    return tuple(caveats)


def _is_bounded(result: PDTPResult) -> bool:
    """Whether it is proven that no measured record moves an output by more than 1 nat on any input."""
    bound = result.dtp_bound
    return bound is not None and bound <= 1


def _measured(result: PDTPResult) -> str:
    return f"{result.records_measured:,} of {result.training_records:,} records"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"
