"""Whatever the numbers: one verdict, decided once, that JSON, terminal and page say in the same words.

Results are drawn within their types, not measured, so that combinations come up that no data would make soon.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.html_pages import Parsed
from support.saved_runs import RUNS, as_json
from support.saved_runs.attack import attack_audit, attack_run, with_accuracies
from support.saved_runs.efficacy import CONTRACTED, efficacy_audit, efficacy_run, weights
from support.saved_runs.ks import (
    OF_HOLDOUT,
    OF_RHO,
    OF_SHADOW,
    USED,
    audit_of,
    check,
    judged,
    ks_run,
    rho_between,
)
from support.saved_runs.pdtp import audit_of as pdtp_audit_of
from support.saved_runs.pdtp import run_of as pdtp_run_of
from support.saved_runs.power import KNOWN, power_audit, power_run
from support.saved_runs.unlearn import SEEDS, unlearn_audit, unlearn_run
from support.saved_runs.unlearn_outputs import unlearn_outputs_audit, unlearn_outputs_run
from support.terminals import said, shown

from jaxaudit.audits import Finding, Truth
from jaxaudit.json_types import from_builtins
from jaxaudit.metrics import SeedFloor, Separation, Usage
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS
from jaxaudit.report import Run, part_of, report_html, run_kind, schema_of

pytestmark = pytest.mark.usefixtures("no_charts")

UNIT = st.floats(0, 1)
FACTORS = st.sampled_from([1e-4, 0.1, 1.0, 9.0, 1e6, np.inf])
NATS = st.one_of(st.floats(0, 4), st.sampled_from([0.0, 1.0, np.nextafter(1, 2), np.inf]))
MEDIANS = NATS.map(lambda value: value if np.isfinite(value) else np.nan)


ATTACKED = {targets: attack_audit(targets) for targets in (2, 8, 30)}
Make = Callable[[], Run[Any]]
"""What is drawn makes a run afterwards: checks of types draw numbers of their own, which a strategy may not."""


@st.composite
def usages(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Of the holdout and the shadow test, each with numbers that need not go together."""
    made = []
    for method in draw(st.sampled_from([(), ("holdout",), ("shadow",), ("holdout", "shadow")])):
        verdict = draw(st.sampled_from(["forgotten", "not forgotten", "inconclusive"]))
        fraction, p_fully, detectable = draw(UNIT), draw(st.none() | UNIT), draw(st.none() | UNIT)
        low, high = sorted((draw(UNIT), draw(UNIT)))
        reasons = tuple(draw(st.lists(st.sampled_from(["too few records", "no power", "$x$ & <b>"]), max_size=2)))
        more = reasons, draw(UNIT), draw(st.none() | UNIT), "used"
        made.append((method, verdict, draw(UNIT), p_fully, fraction, low, high, detectable, *more))
    return made


@st.composite
def of_ks(draw: st.DrawFn) -> Make:
    usage = draw(usages())
    with_rho = not usage or draw(st.booleans())
    names = (*OF_RHO, *OF_HOLDOUT, *OF_SHADOW, CALIBRATION_LIKE_QUERY, SHADOW_ACCURACY, TARGET_OUTPUTS)
    interval = st.tuples(st.floats(0, 3), st.floats(0, 3)) | st.just((np.nan, np.nan))
    failing = st.dictionaries(st.sampled_from(names), st.booleans(), max_size=3)
    truths = st.sampled_from([None, Truth(0.5, 10, "not forgotten")])
    targets = draw(st.lists(st.tuples(interval, MEDIANS, failing, truths), min_size=1, max_size=3))

    def target(place: int, ends: Any, median: float, failed: dict[str, bool], truth: Truth | None) -> Any:
        rho = rho_between(min(ends), max(ends), median if np.isnan(ends[0]) else None)
        checks = tuple(check(each, each not in failed, failed.get(each, True), f"of {each}") for each in names)
        used = tuple(Usage(*each) for each in usage)
        known: dict[str, Any] = {"checks": checks, "truth": truth}
        return judged(f"{place}.csv", rho, usage=used, with_rho=with_rho, **known)

    return lambda: ks_run(audit=audit_of(*(target(place, *each) for place, each in enumerate(targets))))


@st.composite
def of_attack(draw: st.DrawFn) -> Make:
    def accuracy() -> tuple[float, float, float]:
        low, value, high = sorted(draw(st.tuples(*[st.floats(0.3, 0.9)] * 3)))
        return value, low, high

    both, targets = (accuracy(), accuracy()), draw(st.sampled_from([2, 8, 30]))
    known: dict[str, Any] = {
        "test_accuracy": draw(UNIT),
        "guess_accuracy": draw(UNIT),
        "p_value": draw(st.floats(0.001, 1)),
    }
    return lambda: attack_run(audit=with_accuracies(ATTACKED[targets], *both, **known))


@st.composite
def of_pdtp(draw: st.DrawFn) -> Make:
    count = draw(st.integers(1, 6))

    def each_of(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(one, min_size=count, max_size=count))

    low, high = np.sort([each_of(NATS), each_of(NATS)], axis=0)
    known: dict[str, Any] = {
        "exact": np.array(each_of(NATS)),
        "dtp_bound": np.array(each_of(NATS)) if draw(st.booleans()) else None,
        "duplicates": np.array(each_of(st.integers(1, 3))),
        "only_member": np.array(each_of(st.booleans())),
        "examples": count + draw(st.integers(0, 2)),
        "seeded": draw(st.booleans()),
        "train_accuracy": draw(UNIT),
    }
    values = each_of(NATS)
    return lambda: pdtp_run_of(pdtp_audit_of(values, floor=SeedFloor(low, high), **known))


@st.composite
def of_unlearn(draw: st.DrawFn) -> Make:
    scores = st.sampled_from(["efficacy", "bound", "remaining_accuracy", "forgotten_accuracy"])
    factors = st.dictionaries(scores, FACTORS, max_size=3)
    names = draw(st.lists(st.sampled_from(["amnesiac", "fisher", "mine"]), unique=True, max_size=3))
    original, methods = draw(factors), {name: draw(factors) for name in names}
    seeds, attacked = draw(st.sampled_from([3, SEEDS])), draw(st.booleans())
    notes = draw(st.sampled_from([(), ("A note.",)]))
    return lambda: unlearn_run(audit=unlearn_audit(original, methods, seeds, attacked=attacked, notes=notes))


@st.composite
def of_efficacy(draw: st.DrawFn) -> Make:
    norms = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=3, max_size=3)
    paths = draw(st.sampled_from([CONTRACTED, {"dense/kernel": "vmap"}]))
    names = ["mine", *draw(st.sampled_from([(), ("retrained",), ("retrained", "untrained")]))]
    of_each = [(name, draw(norms), draw(st.booleans())) for name in names]
    draws = draw(st.booleans())
    return lambda: efficacy_run(
        audit=efficacy_audit(*(weights(name, found, paths, short=short) for name, found, short in of_each), draws=draws)
    )


@st.composite
def of_power(draw: st.DrawFn) -> Make:
    other: dict[str, Any] = {"difference": draw(st.floats(-0.5, 2)), "models": draw(st.sampled_from([4, 19, 31]))}
    measured = msgspec.structs.replace(KNOWN, **other)
    fraction, records = draw(st.floats(0.01, 1)), draw(st.integers(8, 900))
    return lambda: power_run(audit=power_audit(fraction, records, 500, measured))


@st.composite
def of_unlearn_outputs(draw: st.DrawFn) -> Make:
    numbers = (
        draw(st.integers(1, 8)),
        draw(st.sampled_from([1, 7, 8, 16])),
        draw(st.sampled_from([-9.0, 0.0, 1.0, 9.0])),
    )
    original = draw(st.sampled_from([None, 0.0, 12.0]))
    return lambda: unlearn_outputs_run(audit=unlearn_outputs_audit("mine <b>", *numbers, original))


DRAWN = {
    "ks": of_ks(),
    "power": of_power(),
    "pdtp": of_pdtp(),
    "attack": of_attack(),
    "efficacy": of_efficacy(),
    "unlearn": of_unlearn(),
    "unlearn_outputs": of_unlearn_outputs(),
}


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


LONG = "printed-digits + 50% of digits"
EXAMPLES: dict[str, Make] = {
    **{f"{kind}: plain": make for kind, make in RUNS.items()},
    "ks: no numbers": lambda: ks_run(audit=audit_of(judged(rho=rho_between(np.nan, np.nan, np.nan)), floor=())),
    "ks: long name": lambda: ks_run(audit=audit_of(judged(LONG, usage=(USED,), truth=Truth(0.5, 10, "not forgotten")))),
    "power: hopeless": lambda: power_run(
        audit=power_audit(0.01, 1_234_567, 1_000_000, Separation(0.3, 0.05, 0.04, 0.09, 6))
    ),
    **{f"efficacy: {count} weights": partial(many_weights, count) for count in (1, 6)},
    "unlearn: wide ranges": lambda: unlearn_run(
        audit=unlearn_audit({"efficacy": 1e9}, {"mine": {"efficacy": 1.5e-15, "bound": 2.5e-14}})
    ),
}


def test_all_audits_are_drawn():
    assert set(DRAWN) == set(RUNS)


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


@pytest.mark.parametrize("kind", RUNS)
def test_every_output_says_the_same(kind: str):
    @settings(max_examples=10)
    @given(DRAWN[kind])
    def one(make: Make) -> None:
        said_once(make())

    one()


def said_once(run: Run[Any]) -> None:
    kind, value = run_kind(run.kind), as_json(run)
    # Nothing is decided again where a result is read: what is shown from here on was read.
    run = replace(run, result=from_builtins(kind.record, value))
    assert as_json(run) == value
    kind.check(run.result, run.arrays)
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
    part = part_of(attack_run(audit=with_accuracies(ATTACKED[30], *both)))
    assert part.answers[0].finding.verdict == verdict
    assert ("gives-some-away" in part.conditions) is stops
