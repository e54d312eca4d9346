"""Whatever the numbers: one verdict, decided once, that JSON, terminal and page say in the same words."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import RUNS, as_json
from support.saved_runs.attack import attack_audit, attack_run, with_accuracies
from support.saved_runs.efficacy import efficacy_audit, efficacy_run, weights
from support.saved_runs.ks import (
    OF_HOLDOUT,
    OF_RHO,
    OF_SHADOW,
    UNSURE,
    UNUSED,
    USED,
    audit_of,
    check,
    judged,
    ks_run,
    rho_between,
)
from support.saved_runs.pdtp import audit_of as pdtp_audit_of
from support.saved_runs.pdtp import run_of as pdtp_run_of
from support.saved_runs.power import power_audit, power_run
from support.saved_runs.unlearn import unlearn_audit, unlearn_run
from support.saved_runs.unlearn_outputs import unlearn_outputs_audit, unlearn_outputs_run
from support.terminals import said, shown

from jaxaudit.audits import Finding, Truth
from jaxaudit.json_types import from_builtins
from jaxaudit.metrics import SeedFloor, Separation
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS
from jaxaudit.report import Run, part_of, report_html, run_kind, schema_of

pytestmark = pytest.mark.usefixtures("no_charts")

ATTACKED = attack_audit(30)
Make = Callable[[], Run[Any]]


def findings(value: dict[str, Any]) -> list[tuple[str, Finding]]:
    """What a result in JSON concludes, with what each is about: of every target, of every method judged, or of all."""
    several = [each for each in value.get("targets", value.get("methods", ())) if each.get("finding")]
    about = {each["name"]: each["finding"] for each in several} or {_judged_weights(value): value["finding"]}
    return [(name, msgspec.convert(finding, Finding)) for name, finding in about.items()]


def _judged_weights(value: dict[str, Any]) -> str:
    return value["models"][0]["name"] if value["schema"].startswith("jaxaudit.efficacy/") else ""


def page_of(run: Run[Any]) -> str:
    """The page's text."""
    return Parsed(report_html(run)).text


def many_weights(count: int) -> Run[Any]:
    names = [
        *("retrained-without-them.safetensors", "original-of-march.safetensors"),
        *(f"untrained{place}" for place in range(4)),
    ]
    return efficacy_run(audit=efficacy_audit(*(weights(name, [1e-5, 2e-5]) for name in names[:count])))


def several_targets() -> Run[Any]:
    """By every test and by rho alone, each with checks that failed, some of which take its verdict away."""
    names = (*OF_RHO, *OF_HOLDOUT, *OF_SHADOW, CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS)
    unsure = msgspec.structs.replace(UNSURE, reasons=("too few records", "$x$ & <b>"))
    targets = []
    for place, name in enumerate(names):
        checks = tuple(check(each, each != name, place % 3 > 0, f"of {each}") for each in names)
        usage = ((USED, unsure), (UNUSED,), ())[place % 3]
        targets.append(
            judged(f"{place}.csv", rho_between(*((0.2, 0.4), (1.1, 1.3))[place % 2]), usage=usage, checks=checks)
        )
    return ks_run(audit=audit_of(*targets))


def exposed(**known: Any) -> Run[Any]:
    values = [0.0, 0.5, 1.5, np.inf]
    known = {"exact": np.array(values[::-1]), "duplicates": np.array([1, 2, 1, 1]), "examples": 9, **known}
    return pdtp_run_of(pdtp_audit_of(values, floor=SeedFloor(np.array(values), np.array(values)), **known))


LONG = "other digits + 50% of digits"
EXAMPLES: dict[str, Make] = {
    **{f"{kind}: plain": make for kind, make in RUNS.items()},
    "ks: no numbers": lambda: ks_run(audit=audit_of(judged(rho=rho_between(np.nan, np.nan, np.nan)), floor=())),
    "ks: long name": lambda: ks_run(audit=audit_of(judged(LONG, usage=(USED,), truth=Truth(0.5, 10, "not forgotten")))),
    "ks: several targets": several_targets,
    "attack: nothing": lambda: attack_run(
        audit=with_accuracies(ATTACKED, (0.5, 0.4, 0.6), (0.5, 0.49, 0.51), test_accuracy=0.5, p_value=0.6)
    ),
    "pdtp: part of the records": exposed,
    "pdtp: one model": lambda: exposed(seeded=False, dtp_bound=np.array([0.0, 0.5, 1.5, 2.0]), train_accuracy=0.3),
    "unlearn: few seeds": lambda: unlearn_run(
        audit=unlearn_audit({}, {"mine": {"bound": 9.0}, "fisher": {}}, 3, attacked=False, notes=("A note.",))
    ),
    "unlearn: every method distinguishable": lambda: unlearn_run(
        audit=unlearn_audit({"efficacy": 9.0}, {"mine": {"efficacy": 0.1}, "fisher": {"bound": np.inf}})
    ),
    "unlearn_outputs: too few": lambda: unlearn_outputs_run(audit=unlearn_outputs_audit("mine <b>", 3, 7, 9.0, None)),
    "efficacy: no gradient": lambda: efficacy_run(
        audit=efficacy_audit(weights("mine", [0.0] * 3, {"dense/kernel": "vmap"}, short=True), draws=True)
    ),
    "power: hopeless": lambda: power_run(
        audit=power_audit(0.01, 1_234_567, 1_000_000, Separation(0.3, 0.05, 0.04, 0.09, 6))
    ),
    **{f"efficacy: {count} weights": partial(many_weights, count) for count in (1, 6)},
    "unlearn: wide ranges": lambda: unlearn_run(
        audit=unlearn_audit({"efficacy": 1e9}, {"mine": {"efficacy": 1.5e-15, "bound": 2.5e-14}})
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_comes_back_from_json_fits_a_terminal_and_says_one_thing(name: str):
    run = EXAMPLES[name]()
    said_once(run)
    value = as_json(run)
    jsonschema.validate(value, schema_of(run.kind))
    assert value["schema"] == run.result.schema
    printed = shown(run, width=80)
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    # Of other audits a table says why.
    if run.kind == "pdtp":
        assert all(reason in said(run) for _, finding in findings(value) for reason in finding.reasons)


def said_once(run: Run[Any]) -> None:
    kind, value = run_kind(run.kind), as_json(run)
    # Nothing is decided again where a result is read: what is shown from here on was read.
    run = replace(run, result=from_builtins(kind.record, value))
    assert as_json(run) == value
    kind.check(run.result)
    if run.arrays:
        kind.check_arrays(run.result, run.arrays)
    text, page, found = said(run), page_of(run), findings(value)
    for about, finding in found:
        assert f"{about}: {finding.verdict}. {finding.sentence}".removeprefix(": ") in text
        assert f"{finding.verdict} {finding.sentence}" in page
    answers = part_of(run).answers
    trusted = [(answer.about, *each) for answer in answers for each in answer.confidences]
    assert [answer.confidences[0][1] for answer in answers] == [finding.confidence for _, finding in found]
    for what, each in {(what, each) for _, what, each in trusted}:
        assert f"{what[:1].upper()}{what[1:]} {each.word} {each.why}" in page
        whose = [about for about, *said_of in trusted if said_of == [what, each]]
        names = "" if len(whose) == len(found) else f" ({', '.join(whose)})"
        # A terminal does not say that nothing deserves no confidence.
        assert (f"{what}{names}: {each.word}. {each.why}" in text) == (each.word != "none")
    failed = {
        (check.name, check.message) for _, finding in found for check in finding.checks if check.state == "failed"
    }
    assert text.count("FAILED ") == page.count("✕ failed ") == len(failed)
    for name, message in failed:
        assert re.search(rf"FAILED {re.escape(name)}( \([^)]*\))?: {re.escape(message)}", text)
        assert re.search(rf"✕ failed {re.escape(name)}( \([^)]*\))? {re.escape(message)}", page)
    every = [check for _, finding in found for check in finding.checks]
    passed = dict.fromkeys(
        check.name for check in every if all(other.state == "passed" for other in every if other.name == check.name)
    )
    assert not passed or f"checks passed: {', '.join(passed)}" in text
    for _, finding in found:
        assert (finding.verdict == "inconclusive") or not any(each.state == "failed" for each in finding.checks)
        for words in (*finding.caveats, *finding.would_change):
            assert words in text
            assert words in page


@pytest.mark.parametrize(
    ("accuracy", "verdict", "stops"),
    [(0.99, "gives records away", True), (0.6, "gives some away", True), (0.5, "no better than guessing", False)],
)
def test_a_gate_on_a_milder_grade_stops_a_worse_one(accuracy: float, verdict: str, stops: bool):
    both = (accuracy, accuracy - 0.002, accuracy + 0.002), (0.5, 0.499, 0.501)
    part = part_of(attack_run(audit=with_accuracies(ATTACKED, *both)))
    assert part.answers[0].finding.verdict == verdict
    assert ("gives-some-away" in part.conditions) is stops
