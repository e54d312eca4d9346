"""The `ks` answer as a part of a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxaudit.audits.ks.settle import concerned, rests_on
from jaxaudit.errors import visible
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Verdict
from jaxaudit.report.ks.pictures import confidence_pictures, distances_picture, own_rho_picture
from jaxaudit.report.ks.usage import TESTS, least_noticed, measured, usage_cells, usage_facts
from jaxaudit.report.ks.usage_pictures import shares_pictures
from jaxaudit.report.numbers import level_of, number, precise, share, span
from jaxaudit.report.page import Answer, Cells, Checked, Confidence, Part, State, Tone
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

TONES: dict[str, Tone] = {"forgotten": "good", "not forgotten": "bad", "inconclusive": "open"}
TERMS = (
    *("query set", "calibration set", "target", "confidence", "query model", "calibration model", "empirical CDF"),
    *("Kolmogorov-Smirnov distance", "rho", "replicate", "noise floor", "positive control", "the paper's rule"),
    *("interval", "log-odds"),
)


def ks_part(run: Run) -> Part:
    """What a page says of a run of `ks`."""
    targets = run.result["targets"]
    data = run.result["provenance"]["data"]
    query, calibration = (visible(data[role]["name"]) for role in ("query", "calibration"))
    several = len(targets) > 1
    used = usage_cells(targets)
    return Part(
        named(run),
        run.kind,
        f"Has the {'model' if not several else 'target'} forgotten the query set?",
        f"The query set is {query} ({data['query']['records']:,} records). Models were trained here on it, and others "
        f"on {calibration} ({data['calibration']['records']:,} records), which has no part in it. "
        + (
            _asked(targets, data.get("holdout"))
            or "Which of the two does the target resemble in its confidences on the query set?"
        ),
        tuple(_answer(target, run.result["provenance"]) for target in targets),
        _checks(targets),
        (
            *shares_pictures(targets, level_of(run.result["provenance"])),
            *(picture for place in range(len(targets)) for picture in confidence_pictures(run, place)),
            own_rho_picture(run),
            distances_picture(run),
        ),
        (_targets(targets), *used, _replicates(targets)),
        _notes(targets),
        repeat(run.result["provenance"]),
        TERMS + (("used fraction", "detectable fraction", "EMA") if used else ()),
    )


def _asked(targets: Sequence[Mapping[str, Any]], holdout: Mapping[str, Any] | None) -> str:
    """What the tests of use ask, where one decides."""
    methods = {target.get("method", "rho") for target in targets}
    if "holdout" in methods and holdout is not None:
        return (
            f"The holdout is {visible(holdout['name'])} ({holdout['records']:,} records), which nobody was given. Do "
            "the target's outputs tell the query set from it, as those of models do that used the query set?"
        )
    if "shadow" in methods:
        return "Among models that used none, half and all of the query set, which are the target's outputs like?"
    return ""


def _notes(targets: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    methods = {target.get("method", "rho") for target in targets}
    said = []
    if methods & set(TESTS):
        said.append("Forgotten is said of shares from the least that would have shown up, and of no smaller one.")
    if "holdout" in methods:
        said.append(
            "The holdout test is exact only where the holdout was drawn like the query set, and given to nobody."
        )
    if "shadow" in methods:
        said.append(
            "The shadow test supposes that the target was designed and trained like the models made here; where a part "
            "of the query set was used, the rest of it can look used too, and the share be overstated."
        )
    if "rho" in methods:
        said += [
            "Forgotten is no proof: a tenth of the query set, used, can go unnoticed.",
            "A target trained on data just like the calibration set has a rho around 1, so inconclusive is the usual "
            "answer for it.",
        ]
    if methods != {"holdout"}:
        said.append("Not forgotten can be wrong where the target was trained on other data much like the query set.")
    return tuple(said)


def _answer(target: Mapping[str, Any], provenance: Mapping[str, Any]) -> Answer:
    verdict = target["verdict"]
    tested = target.get("method", "rho") in TESTS
    least = least_noticed(target)
    words = {
        "forgotten": f"No use of the query set shows; the use of {least} of it, or more, would have, 19 times of 20."
        if tested
        else "It does not resemble models that were trained on the query set.",
        "not forgotten": "The query set, or a part of it, was used."
        if tested
        else "It resembles models that were trained on the query set.",
        "inconclusive": "These data and models do not tell.",
    }
    facts = [("The paper's rule says", target["paper_rule"]), *usage_facts(target)]
    truth = target["truth"]
    if truth is not None:
        facts.append(("In truth", f"{truth['expected']}: it used {share(truth['used_fraction'])} of the query set"))
    found = measured(target)
    return Answer(
        visible(target["name"]),
        verdict,
        TONES[verdict],
        words[verdict],
        found.name,
        found.shown,
        f"{found.between} ({level_of(provenance)} interval)" if found.between else "",
        _confidence(target),
        tuple(facts),
        f"{verdict} (of {least} or more)" if tested and verdict == "forgotten" else "",
    )


def _confidence(target: Mapping[str, Any]) -> Confidence:
    because = visible(target["because"])
    said = target["verdict"]
    failed = [check for check in target["checks"] if not check["passed"]]
    warnings = [visible(check["name"]) for check in failed if _rests(target, check, said)]
    if target["verdict"] == "inconclusive":
        return Confidence("none", f"{because}.")
    if warnings:
        return Confidence("weak", f"{because}. But not every check that it rests on passed: {', '.join(warnings)}.")
    if target.get("method") == "holdout" and target["verdict"] == "not forgotten":
        return Confidence("strong", f"{because}. The test is exact if the provider drew query set and holdout alike.")
    return Confidence(
        "fair", f"{because}. Every check that it rests on passed, and no check guards against everything: see below."
    )


def _rests(target: Mapping[str, Any], check: Mapping[str, Any], verdict: Verdict | None = None) -> bool:
    """Whether the target's method, or this verdict by it, rests on this check, or was taken away by it."""
    found = rests_on(target.get("method", "rho"), _made(check), verdict)
    return found or target["because"].startswith(f"{check['name']}:")


def _made(check: Mapping[str, Any]) -> Check:
    return Check(check["name"], check["passed"], 0.0, 0.0, check["decisive"], "")


def _checks(targets: Sequence[Mapping[str, Any]]) -> tuple[Checked, ...]:
    """Every check once: where all targets had the same outcome, without their names.

    Of one that failed and that no verdict rests on, the first outcome stands for all.
    """
    said: dict[tuple[str, State, str], list[str]] = {}
    aside: dict[str, str] = {}
    for target in targets:
        for check in target["checks"]:
            if not check["passed"] and not _rests(target, check):
                message = aside.setdefault(check["name"], visible(check["message"]))
                name = f"{visible(check['name'])}, for {concerned(_made(check))} alone"
                said.setdefault((name, "warning", message), []).append(target["name"])
                continue
            state: State = "passed" if check["passed"] else "failed" if check["decisive"] else "warning"
            said.setdefault((visible(check["name"]), state, visible(check["message"])), []).append(target["name"])
    found = []
    for (name, state, message), whose in said.items():
        of = "" if len(whose) == len(targets) else f" ({', '.join(visible(each) for each in whose)})"
        found.append(Checked(name + of, state, message))
    return tuple(sorted(found, key=lambda each: ("failed", "warning", "passed").index(each.state)))


def _targets(targets: Sequence[Mapping[str, Any]]) -> Cells:
    return Cells(
        "Targets",
        ("target", "verdict", "rho", "interval", "the paper's rule"),
        tuple(
            (
                visible(target["name"]),
                target["verdict"],
                number(target["rho"]["median"], 4),
                span(target["rho"], 4) or "none",
                target["paper_rule"],
            )
            for target in targets
        ),
        ("rho",),
    )


def _replicates(targets: Sequence[Mapping[str, Any]]) -> Cells:
    return Cells(
        "Replicates: rho is the first distance divided by the second",
        ("target", "replicate", "to the target", "to the calibration model", "rho"),
        tuple(
            (visible(target["name"]), str(place + 1), precise(above), precise(below), precise(rho))
            for target in targets
            for place, (above, below, rho) in enumerate(
                zip(target["ks"]["target"], target["ks"]["calibration"], target["rho"]["values"], strict=True)
            )
        ),
        ("replicate", "to the target", "to the calibration model", "rho"),
        folded=True,
    )
