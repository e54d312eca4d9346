"""The `pdtp` answer as a part of a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxaudit.errors import visible
from jaxaudit.report.numbers import nats, number, precise, text
from jaxaudit.report.page import Answer, Cells, Checked, Confidence, Part, Tone
from jaxaudit.report.pdtp.pictures import by_risk, distribution_picture, reduction_picture, riskiest_picture
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

TONES: dict[str, Tone] = {"publish": "good", "do not publish": "bad", "inconclusive": "open"}
LISTED = 50
TERMS = ("PDTP", "DTP-1", "nat", "seed floor", "bins")
MOVES = {1: "more with it", 0: "not moved", -1: "less with it"}


def pdtp_part(run: Run) -> Part:
    """What a page says of a run of `pdtp`."""
    result = run.result
    learner = text(result["provenance"]["options"].get("learner"))
    data = text(result["provenance"]["data"].get("name"))
    return Part(
        named(run),
        run.kind,
        "May this classifier be published?",
        f"A classifier ({learner}) was trained on {data} with and without each of {result['records_measured']:,} "
        "records, and asked about that record both times. How far its answer moves is the record's PDTP: the more, the "
        "more the classifier gives away that the record was there.",
        (_answer(result),),
        _checks(result),
        (
            distribution_picture(run),
            riskiest_picture(result),
            *([] if result["reduction"] is None else [reduction_picture(result["reduction"])]),
        ),
        (_numbers(result), _records(result)),
        _notes(result),
        repeat(result["provenance"]),
        TERMS,
    )


def _answer(result: Mapping[str, Any]) -> Answer:
    verdict = result["verdict"]
    words = {
        "publish": "The DTP-1 rule finds nothing against it.",
        "do not publish": "It gives away too much about at least one record it was trained on.",
        "inconclusive": "Nothing was found against it, but not every record was measured.",
    }
    risky = result["above_1"]
    return Answer(
        "the classifier",
        verdict,
        TONES[verdict],
        words[verdict],
        "largest PDTP in nats (more than 1 is too much)",
        number(result["max_pdtp"]),
        "",
        _confidence(result),
        (
            ("Records above 1", f"{risky:,} of {result['records_measured']:,}"),
            ("Records above the largest of their own seed floor", f"{result['seed_floor']['above']:,}"),
        ),
    )


def _notes(result: Mapping[str, Any]) -> tuple[str, ...]:
    lower = "PDTP is a lower bound: it asks at the record's own input only, and outputs elsewhere may move more."
    floor = (
        "A PDTP below its seed floor is still what that record moved under that seed; it is only no more than chance "
        "moves."
    )
    return (floor,) if _is_bounded(result) else (lower, floor)


def _is_bounded(result: Mapping[str, Any]) -> bool:
    """Whether it is proven that no measured record moves an output by more than 1 on any input."""
    bound = result.get("dtp_bound")
    return bound is not None and nats(bound) <= 1


def _confidence(result: Mapping[str, Any]) -> Confidence:
    because = visible(result["because"])
    if result["verdict"] == "inconclusive":
        return Confidence("none", f"{because}.")
    if result["verdict"] == "publish" and _is_bounded(result):
        return Confidence("strong", f"{because}.")
    if result["verdict"] == "publish":
        return Confidence("fair", f"{because}. PDTP is a lower bound, so a larger value elsewhere stays possible.")
    if not result["above_1_without_bins"]:
        return Confidence(
            "weak",
            f"{because}; but none would be without bins, so the edges of bins may have made it; try --bins 0.",
        )
    risky = [record for record in result["records"] if nats(record["pdtp"]) > 1]
    if not any(nats(record["pdtp"]) > nats(record["seed_floor_max"]) for record in risky):
        return Confidence("fair", f"{because}; but another seed alone moves the same records as far.")
    return Confidence("strong", f"{because}, also without bins, and further than another seed moves it.")


def _checks(result: Mapping[str, Any]) -> tuple[Checked, ...]:
    measured, risky, exact = result["records_measured"], result["above_1"], result["above_1_without_bins"]
    found = []
    whole = result["publish"] is not None
    found.append(
        Checked(
            "all records measured",
            "passed" if whole else "failed",
            f"{measured:,} records were measured" + ("" if whole else "; leave out --records to measure all"),
        )
    )
    floor = result["seed_floor"]
    if floor["seeded"]:
        above = floor["above"]
        found.append(
            Checked(
                "seed floor",
                "passed" if above or not risky else "warning",
                f"another seed alone moves a record by {number(floor['mean'])} on average, at most by "
                f"{number(floor['max'])}; {above:,} records are above the largest of their own floor",
            )
        )
    else:
        found.append(Checked("seed floor", "passed", "this learner has no seed: its floor is 0"))
    made = max(0, risky - exact)
    found.append(
        Checked(
            "bins",
            "warning" if made else "passed",
            f"{made:,} of the {risky:,} records above 1 would not be without bins (--bins 0)"
            if made
            else "no record is above 1 because of the edges of bins alone",
        )
    )
    if result["bound"] is not None and result["bound"] <= 1:
        words = (
            f"this learner moves no output by more than {number(result['bound'])} whatever the data: the rule cannot"
        )
        found.append(Checked("can fail at all", "warning", f"{words} fail, and passing it says little"))
    copies = sum(record["duplicates"] > 1 for record in result["records"])
    found.append(
        Checked(
            "copies",
            "warning" if copies else "passed",
            f"{copies:,} records have exact copies, which hide them: PDTP measures one copy at a time"
            if copies
            else "no record has an exact copy",
        )
    )
    alone = sum(record["only_member_of_its_class"] for record in result["records"])
    if alone:
        words = f"{alone:,} records are the only one of their class, which vanishes with them"
        found.append(Checked("classes", "warning", words))
    return tuple(sorted(found, key=lambda each: ("failed", "warning", "passed").index(each.state)))


def _numbers(result: Mapping[str, Any]) -> Cells:
    rows = [(f"PDTP that {float(share):.0%} of records do not exceed", value) for share, value in _quantiles(result)]
    rows += [("Largest PDTP", result["max_pdtp"]), ("Largest seed floor", result["seed_floor"]["max"])]
    shown = [(name, f"{number(value)} nats") for name, value in rows]
    bound = result["bound"]
    if bound is not None:
        shown.append(("No record can move any output by more than", f"{number(bound)} nats"))
    if result.get("dtp_bound") is not None:
        shown.append(
            ("No measured record moves an output on any input by more than", f"{number(result['dtp_bound'])} nats")
        )
    shown.append(("Accuracy on the measured records", f"{result['train_accuracy']:.1%}"))
    return Cells("Numbers", ("what", "value"), tuple(shown), ("value",))


def _quantiles(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(share, value) for share, value in result["quantiles"].items() if share.replace(".", "", 1).isdecimal()]


def _records(result: Mapping[str, Any]) -> Cells:
    records: Sequence[Mapping[str, Any]] = by_risk(result)[:LISTED]
    numbers = ("record", "PDTP", "without bins", "seed floor", "its largest", "copies")
    return Cells(
        f"The {len(records)} riskiest records (all of them are in records.csv)",
        (*numbers, "class that moves"),
        tuple(
            (
                str(record["index"]),
                *(precise(record[name]) for name in ("pdtp", "exact_pdtp", "seed_floor", "seed_floor_max")),
                f"{record['duplicates']:,}",
                f"{visible(record['class'])}, {MOVES[record['direction']]}",
            )
            for record in records
        ),
        numbers,
        folded=True,
    )
