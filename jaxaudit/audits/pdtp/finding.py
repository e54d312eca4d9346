"""The verdict of the `pdtp` audit, decided by one rule for the terminal, the page and the JSON.

PDTP: how far leaving a record out of training moves the output on it, in nats.

PDTP is printed with what could mislead. The seed floor, copies of a record, a class that vanishes with its only member,
values above 1 that the edges of bins made, and smoothing that passes the rule whatever the data. PDTP asks at the
record's own input; where it is proven how far any other can move (learners say so, `BoundsDTP`: the paper's constants
do not hold of normalised outputs, the log-odds of the record's class do), that bound stands beside it. What stands in a
risky record is private: it is shown on the terminal when asked for, never in a file.
"""

import math

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order
from jaxaudit.audits.pdtp.result import PDTPResult
from jaxaudit.metrics.pdtp import DTP_1, publishable

NO_BINS = "Compare outputs without bins."
NO_FLOOR = "Average over more keys."
ATTACK = "Attack the classifier before it is published (jaxaudit attack)."
MEASURE_ALL = "Measure all records."
LARGE = 0.1
"""Models without more than this share of the records take other minibatches (`learners/batch_order.py`)."""


def pdtp_finding(result: PDTPResult, bins: int, with_and_without_bins: int) -> Finding:
    """The verdict by the DTP-1 rule (Long et al. 2017, section 5).

    `do not publish` if a record's PDTP is above 1 nat; `publish` if none is and all records were measured. Otherwise
    `inconclusive`, as also if records are above 1 only because they cross the edge of a bin. The sentence names the
    bins, because outputs that are published with more digits may reveal more.

    `result` has no finding yet; `with_and_without_bins` counts records above 1 both with and without bins.
    """
    artefacts, hidden = (count - with_and_without_bins for count in (result.above_1, result.above_1_without_bins))
    reasons, checks, caveats = _reasons(result), _checks(result, bins, artefacts), _caveats(result, bins, hidden)
    outputs = f"outputs in {bins:,} bins" if bins else "no bins"
    outputs = outputs if result.texts is None else "probability of the whole text"
    rule = f"DTP-1 rule, {outputs}{'' if result.groups is None else ', whole groups left out'}"
    risky, measured = result.above_1, result.records_measured
    above = f"{risky:,} of {_records(measured)} {_has(risky)} a PDTP above 1 ({rule})"
    if result.publish is None and risky:
        sentence = f"{above}, but none without bins: crossing the edge of one bin is enough."
        why = "Bins alone lift these records above 1."
        return Finding("inconclusive", "open", sentence, reasons, Confidence("none", why), checks, caveats, (NO_BINS,))
    if result.publish is None:
        sentence = f"No PDTP is above 1 ({rule}), but only {_measured(result)} were measured."
        sure = Confidence("none", "A record that was not measured may have a larger PDTP.")
        return Finding("inconclusive", "open", sentence, reasons, sure, checks, caveats, (MEASURE_ALL,))
    if result.publish:
        sentence = f"No record has a PDTP above 1 ({rule})."
        sure = Confidence("fair", "All records were measured. PDTP is a lower bound: other inputs may move more.")
        if _is_bounded(result):
            sentence += " No record can move an output by more than 1 nat on any other input."
            sure = Confidence("strong", "All records were measured, and the bound over all inputs is at most 1.")
        return Finding("publish", "good", sentence, reasons, sure, checks, caveats, (ATTACK,))
    floor = "some exceed their seed floor" if result.seed_floor.seeded else "the learner uses no random numbers"
    sure, advice = Confidence("strong", f"Some records are above 1 without bins as well, and {floor}."), ()
    if result.above_1_within_floor == risky:
        sure, advice = Confidence("fair", "Another seed alone moves these records as much."), (NO_FLOOR,)
    return Finding("do not publish", "bad", f"{above}.", reasons, sure, checks, caveats, advice)


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
        risky = sum(not publishable(group.pdtp) for group in result.groups)
        reasons.append(f"Groups with a record above 1: {risky:,} of {len(result.groups):,}.")
    if result.texts is not None:
        log_likelihood, unknown = result.texts.with_record, result.texts.without_record
        reasons.append(
            f"Mean log-likelihood of a token, nats: {log_likelihood:.3f} by the model, {unknown:.3f} by models "
            "without it."
        )
    return (*reasons, f"DTP bound over all inputs: {bound_text}.")


def _checks(result: PDTPResult, bins: int, artefacts: int) -> tuple[Checked, ...]:
    whole, words = result.publish is not None or result.records_measured == result.training_records, _measured(result)
    words = f"{words} were measured"
    checks = [
        assumed("records measured", whole, words, f"{words}; measure all", decisive=True),
        _seed_floor(result),
        _bins(result, bins, artefacts),
    ]
    if result.bound is not None:
        moves = f"without bins, this learner moves no output by more than {result.bound:.2f} nats"
        always = f"{moves}: without bins it passes the DTP-1 rule whatever it is trained on"
        checks.append(assumed("DTP-1 can fail", result.bound > DTP_1, f"{moves} whatever it is trained on", always))
    copies = (
        f"{_records(result.copies)} {_has(result.copies)} exact copies, which hide each other: PDTP measures one copy "
        "at a time"
    )
    checks.append(assumed("copies", not result.copies, "no record has an exact copy", copies))
    if result.groups is not None:
        size = f"the largest group has {_records(result.largest_group)} of {result.training_records:,}"
        large = f"{size}: models without it take other minibatches, so its PDTP contains what a seed moves"
        share = result.largest_group / result.training_records
        checks.append(assumed("size of groups", share <= LARGE, size, large))
    if result.texts is None:
        alone, class_message = result.lone_members, "the class of every measured record has another member"
        are = "is" if alone == 1 else "are"
        only = f"{_records(alone)} {are} the only member of a class, which vanishes with it"
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
            caveats.append(f"Bins hide changes of small probabilities: {_records(hidden)} above 1 only without bins.")
    if result.texts is not None:
        caveats.append(
            "e to the power of PDTP is the ratio of a text's probabilities with and without it, all tokens together, "
            "so a longer text moves more. What else the model may write of it is not measured."
        )
    if result.publish:
        caveats.append("DTP-1 is a rule of thumb, not a guarantee.")
    return tuple(caveats)


def _is_bounded(result: PDTPResult) -> bool:
    """Whether it is proven that no measured record moves an output by more than 1 nat on any input."""
    bound = result.dtp_bound
    return bound is not None and bound <= 1


def _measured(result: PDTPResult) -> str:
    return f"{result.records_measured:,} of {result.training_records:,} records"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"
