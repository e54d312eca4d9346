"""What the `pdtp` audit concludes: one rule for every output."""

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxaudit.audits.finding import Checked, Confidence, Finding, State, in_order

if TYPE_CHECKING:
    from jaxaudit.audits.pdtp.result import PDTPAudit

NO_BINS = "Compare outputs without bins (--bins 0)."
NO_FLOOR = "Average over more keys (--measurements)."
ATTACK = "Attack the classifier before it is published (jaxaudit attack)."
MEASURE_ALL = "Measure all records (leave out --measured-records)."


def find(audit: "PDTPAudit") -> Finding:
    """The verdict by the DTP-1 rule (Long et al. 2017, section 5).

    `do not publish` if a record's PDTP is above 1 nat; `publish` if none is and all records were measured; else
    `inconclusive`: also where records are above 1 only because they cross the edge of a bin. The sentence names the
    bins, because outputs that are published with more digits may show more.
    """
    reasons, checks, caveats = _reasons(audit), _checks(audit), _caveats(audit)
    rule = f"DTP-1 rule, {f'outputs in {audit.bins:,} bins' if audit.bins else 'no bins'}"
    risky, measured = audit.above_1, len(audit.records)
    above = f"{risky:,} of {_records(measured)} {_has(risky)} a PDTP above 1 ({rule})"
    if audit.publish is None and risky:
        sentence = f"{above}, but none without bins: crossing the edge of one bin is enough."
        why = "Bins alone lift these records above 1."
        return Finding("inconclusive", "open", sentence, reasons, Confidence("none", why), checks, caveats, (NO_BINS,))
    if audit.publish is None:
        sentence = f"No PDTP is above 1 ({rule}), but only {_measured(audit)} were measured."
        why = "A record that was not measured may have a larger PDTP."
        return Finding(
            "inconclusive", "open", sentence, reasons, Confidence("none", why), checks, caveats, (MEASURE_ALL,)
        )
    if audit.publish:
        sentence = f"No record has a PDTP above 1 ({rule})."
        if _is_bounded(audit):
            sentence += " No record can move an output by more than 1 nat on any other input."
        return Finding("publish", "good", sentence, reasons, _passed(audit), checks, caveats, (ATTACK,))
    confidence, advice = _broken(audit)
    return Finding("do not publish", "bad", f"{above}.", reasons, confidence, checks, caveats, advice)


def _passed(audit: "PDTPAudit") -> Confidence:
    if _is_bounded(audit):
        return Confidence("strong", "All records were measured, and the bound over all inputs is at most 1.")
    return Confidence("fair", "All records were measured. PDTP is a lower bound: other inputs may move more.")


def _broken(audit: "PDTPAudit") -> tuple[Confidence, tuple[str, ...]]:
    if audit.above_1_within_floor == audit.above_1:
        return Confidence("fair", "Another seed alone moves these records as much."), (NO_FLOOR,)
    floor = "some exceed their seed floor" if audit.seeded else "the learner uses no random numbers"
    return Confidence("strong", f"Some records are above 1 without bins as well, and {floor}."), ()


def _reasons(audit: "PDTPAudit") -> tuple[str, ...]:
    bound = audit.largest_dtp_bound
    if bound is None:
        said = "not available for this learner"
    elif math.isinf(bound):
        said = "infinite, because a class vanishes with its only member"
    else:
        said = f"{_nats(bound)} nats"
    return (
        f"PDTP in nats: largest {_nats(audit.max_pdtp)}, median {_nats(float(np.median(audit.values)))}.",
        f"Records above their seed floor: {audit.above_floor:,} of {len(audit.records):,}.",
        f"DTP bound over all inputs: {said}.",
    )


def _checks(audit: "PDTPAudit") -> tuple[Checked, ...]:
    whole = audit.publish is not None or len(audit.records) == audit.examples
    found = [
        Checked(
            "records measured",
            "passed" if whole else "failed",
            f"{_measured(audit)} were measured" + ("" if whole else "; leave out --measured-records to measure all"),
        ),
        _seed_floor(audit),
        _bins(audit),
    ]
    if audit.largest_possible is not None:
        always = audit.largest_possible <= 1
        message = f"without bins, this learner moves no output by more than {audit.largest_possible:.2f} nats"
        message += (
            ": without bins it passes the DTP-1 rule whatever it is trained on"
            if always
            else " whatever it is trained on"
        )
        found.append(Checked("DTP-1 can fail", _warning(not always), message))
    found.append(
        Checked(
            "copies",
            _warning(not audit.copies),
            f"{_records(audit.copies)} {_has(audit.copies)} exact copies, which hide each other: PDTP measures one "
            "copy at a time"
            if audit.copies
            else "no record has an exact copy",
        )
    )
    alone = audit.lone_members
    found.append(
        Checked(
            "classes",
            _warning(not alone),
            f"{_records(alone)} {'is' if alone == 1 else 'are'} the only member of a class, which vanishes with it"
            if alone
            else "the class of every measured record has another member",
        )
    )
    return in_order(found)


def _seed_floor(audit: "PDTPAudit") -> Checked:
    if not audit.seeded:
        return Checked("seed floor", "passed", "this learner uses no random numbers: the seed floor is 0")
    risky, within = audit.above_1, audit.above_1_within_floor
    mean, largest = float(audit.floor.mean.mean()), float(audit.floor.largest.max())
    message = f"another seed alone moves a record by {_nats(mean)} nats on average, at most by {_nats(largest)}"
    if risky:
        message += f"; records above 1 that exceed the largest of their own seed floor: {risky - within:,} of {risky:,}"
    return Checked("seed floor", _warning(not within), message)


def _bins(audit: "PDTPAudit") -> Checked:
    made, risky = audit.binning_artefacts, audit.above_1
    if not audit.bins:
        return Checked("bins", "passed", "outputs are compared without bins")
    if not made:
        return Checked("bins", "passed", "no record is above 1 because of bin edges alone")
    what = "is a binning artefact" if made == 1 else "are binning artefacts"
    return Checked(
        "bins",
        "warning",
        f"{made:,} of {risky:,} records above 1 {what} ({audit.above_1_without_bins:,} with --bins 0): "
        "crossing one bin edge adds log 3 = 1.10",
    )


def _caveats(audit: "PDTPAudit") -> tuple[str, ...]:
    found = []
    if not _is_bounded(audit):
        found.append("PDTP is a lower bound: it is measured at the record's own input; other inputs may move more.")
    if audit.seeded:
        found.append(
            "A PDTP below its seed floor is still what the record moved under that seed, but no more than chance moves."
        )
    if audit.bins:
        most = math.log(2 * audit.bins - 1)
        found.append(f"Outputs are compared in {audit.bins:,} bins: no PDTP can exceed {most:.2f}.")
        hidden = int((~audit.risky & (audit.exact > 1)).sum())
        if hidden:
            found.append(f"Bins hide changes of small probabilities: {_records(hidden)} above 1 only with --bins 0.")
    if audit.publish:
        found.append("DTP-1 is a rule of thumb, not a guarantee.")
    return tuple(found)


def _warning(passed: bool) -> State:
    return "passed" if passed else "warning"


def _is_bounded(audit: "PDTPAudit") -> bool:
    """Whether it is proven that no measured record moves an output by more than 1 nat on any input."""
    bound = audit.largest_dtp_bound
    return bound is not None and bound <= 1


def _measured(audit: "PDTPAudit") -> str:
    return f"{len(audit.records):,} of {audit.examples:,} records"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"
