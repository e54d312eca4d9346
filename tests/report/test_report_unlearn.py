"""The `unlearn` answer as JSON, on a terminal and on a page."""

import io
import json
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from rich.console import Console
from support.html_pages import ALLOWED, Parsed
from support.saved_runs.names import HOSTILE
from support.saved_runs.unlearn import SEEDS, unlearn_audit, unlearn_run

from jaxaudit.errors import visible
from jaxaudit.metrics import Estimate
from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.record import from_json, to_json
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal
from jaxaudit.report.unlearn.kind import UNLEARN
from jaxaudit.report.unlearn.pictures import unlearn_pictures
from jaxaudit.report.unlearn.record import UnlearnRecord, median

NOTE = "Trained on digits."


def shown(run: Run[UnlearnRecord]) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(as_terminal(part_of(run)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def as_json(record: UnlearnRecord) -> dict[str, Any]:
    return json.loads(json.dumps(to_json(record), allow_nan=False))


TOLD = unlearn_audit({"efficacy": 9.0}, {"mine": {"efficacy": 0.1}, "a-longer-name": {}}, told=True)


@pytest.mark.parametrize(
    "run",
    [unlearn_run(), unlearn_run(audit=unlearn_audit({}, {}, 3, attacked=False)), unlearn_run(audit=TOLD)],
)
def test_a_record_comes_back_as_it_was(run: Run[UnlearnRecord]):
    value = as_json(run.result)
    assert from_json(UnlearnRecord, value) == run.result
    jsonschema.validate(value, schema_of("unlearn"))
    UNLEARN.check(run.result, {})


@pytest.mark.parametrize(
    "change",
    [
        {"odd": 1},
        {"forgotten": 3},
        {"schema": "jaxaudit.unlearn/1"},
        {"protocol": {"seeds": 1}},
        {"finding": None},
        {"methods": [{}]},
        {"caveats": "one"},
    ],
)
def test_other_keys_and_types_are_refused(change: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        from_json(UnlearnRecord, {**as_json(unlearn_run().result), **change})


def test_the_old_words_and_odd_scores_are_refused():
    for old in ("not told apart", "differs"):
        value = as_json(unlearn_run().result)
        value["methods"][3]["places"]["efficacy"]["verdict"] = old
        with pytest.raises(msgspec.ValidationError):
            from_json(UnlearnRecord, value)
    value = as_json(unlearn_run().result)
    value["methods"][3]["places"]["odd"] = value["methods"][3]["places"]["efficacy"]
    with pytest.raises(msgspec.ValidationError):
        from_json(UnlearnRecord, value)


def test_what_does_not_fit_is_refused():
    def wrong(change: Any, message: str) -> None:
        value = as_json(unlearn_run().result)
        change(value)
        with pytest.raises(ValueError, match=message):
            UNLEARN.check(from_json(UnlearnRecord, value), {})

    def without(value: Any) -> None:
        value["methods"] = value["methods"][3:]

    def unmeasured(value: Any) -> None:
        for method in value["methods"]:
            method["scores"]["efficacy"] = None

    wrong(lambda v: v["methods"].append(v["methods"][3]), "two methods have one name")
    wrong(without, "no original")
    wrong(unmeasured, "no method has an efficacy")
    wrong(lambda v: v["methods"][0]["scores"]["bound"]["values"].pop(), "differ in number")
    wrong(lambda v: v["protocol"].update(seeds=SEEDS + 1), "differ in number")
    wrong(lambda v: v["methods"][3].update(finding=None), "missing or out of place")
    wrong(lambda v: v["methods"][0].update(finding=v["finding"]), "missing or out of place")
    wrong(lambda v: v["methods"][3].update(conclusion=None), "not that of its finding")
    wrong(lambda v: v["methods"][3]["finding"].update(verdict="fine"), "not that of its finding")
    wrong(lambda v: v["methods"][3].update(places={}), "not that of its places")
    wrong(lambda v: v["finding"].update(verdict="inconclusive"), "its finding is that of no method")
    wrong(lambda v: v["caveats"].append("more"), "its caveats are not those")


def test_comparisons_with_retraining_that_do_not_fit_are_refused():
    def wrong(change: Any, message: str) -> None:
        value = as_json(unlearn_run(audit=TOLD).result)
        change(value["methods"][3])
        with pytest.raises(ValueError, match=message):
            UNLEARN.check(from_json(UnlearnRecord, value), {})

    wrong(lambda method: method.update(u_lira=None), "one of two comparisons")
    wrong(lambda method: method["challenge"]["epsilon"].pop(), "of other records")
    value = as_json(unlearn_run(audit=TOLD).result)
    value["methods"][2].update(challenge=None, u_lira=None)
    with pytest.raises(ValueError, match="compared with retraining, and it is not"):
        UNLEARN.check(from_json(UnlearnRecord, value), {})


def test_how_models_are_told_from_retrained_ones_is_in_every_output():
    run = unlearn_run(audit=TOLD)
    result = as_json(run.result)
    assert [method["challenge"] is None for method in result["methods"]] == [True, *[False] * 4]
    mine = result["methods"][3]
    assert mine["challenge"] == {
        "epsilon": [0.25, 50.0],
        "quality": {"value": 0.1875, "low": 0.125, "high": 0.25},
        "remaining_ratio": 1.0,
        "test_ratio": 0.9375,
        "score": {"value": 0.1758, "low": 0.11, "high": 0.24},
    }
    assert mine["u_lira"] == {"value": 0.5625, "low": 0.5, "high": 0.625}
    text, page = shown(run), Parsed(report_html([run])).text
    assert max(map(len, text.splitlines())) <= 80
    for said in ("0.19", "0.12 to 0.25", "1.00", "0.94", "0.18", "0.11 to 0.24", "0.56", "0.50 to 0.62"):
        assert said in text
        assert said in page
    assert "U-LiRA" in page
    pictures = {each.name: each for each in part_of(run).pictures()}
    assert pictures["quality"].numbers.rows[2] == ("mine", "0.1875", "0.1250", "0.2500")
    assert pictures["u-lira"].numbers.rows[2] == ("mine", "0.5625", "0.5000", "0.6250")
    for name in ("quality", "u-lira"):
        (axes,) = pictures[name].draw().axes
        assert [label.get_text() for label in axes.get_yticklabels()] == [row[0] for row in pictures[name].numbers.rows]
        assert axes.get_legend_handles_labels()[1] == ["retraining"]
    assert not {"quality", "u-lira"} & {each.name for each in part_of(unlearn_run()).pictures()}
    assert any("biased upward" in each for each in result["caveats"])


def test_too_few_seeds_to_tell_models_from_retrained_ones_are_said_and_no_table_is_shown():
    run = unlearn_run()
    assert all(method.challenge is None and method.u_lira is None for method in run.result.methods)
    text, page = " ".join(shown(run).split()), Parsed(report_html([run])).text
    for said in (text, page):
        assert f"need 16 seeds (--seeds); there are {SEEDS}" in said
        assert "Told from retrained" not in said


def test_a_ratio_over_0_is_null_and_shown_as_none():
    found = TOLD["mine"].challenge[0]._replace(test_ratio=np.nan, score=Estimate(*[np.nan] * 3))
    methods = tuple(each._replace(challenge=(found,)) if each.challenge else each for each in TOLD.methods)
    run = unlearn_run(audit=replace(TOLD, methods=methods))
    challenge = as_json(run.result)["methods"][3]["challenge"]
    assert (challenge["test_ratio"], challenge["score"]) == (None, None)
    assert "none" in shown(run)


def test_the_numbers_and_words_of_json():
    audit = unlearn_audit({"efficacy": 9.0}, {"mine": {"efficacy": np.inf, "bound": 0.1}, "same": {}})
    result = as_json(unlearn_run("records", audit, (NOTE,)).result)
    mine, same = result["methods"][3:]
    assert mine["scores"]["efficacy"] == {
        **dict.fromkeys(("median", "low", "high", "mean"), "infinity"),
        "values": ["infinity"] * SEEDS,
    }
    assert mine["scores"]["bound"]["values"] == audit["mine"].scores.bound[0].tolist()
    assert {name: place["verdict"] for name, place in mine["places"].items()} == {
        "efficacy": "above",
        "bound": "below",
        **dict.fromkeys(("remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"), "not distinguishable"),
    }
    assert mine["places"]["bound"]["p_value"] == 2 / 2**SEEDS
    assert [method["conclusion"] for method in result["methods"]] == [
        *(None, None, None, "distinguishable", "not distinguishable")
    ]
    assert result["methods"][0]["scores"]["attack"] is None
    assert result["finding"]["verdict"] == "distinguishable"
    for finding in (result["finding"], mine["finding"], same["finding"]):
        assert finding["caveats"][-1] == NOTE
    assert result["caveats"] == result["finding"]["caveats"]
    assert result["protocol"]["members_share"] == 4 / 6
    unattacked = unlearn_run(audit=unlearn_audit({}, {"mine": {}}, 3, attacked=False)).result
    assert unattacked.protocol.members_share is None
    assert unattacked.methods[3].places["bound"].verdict == "too few seeds"


@pytest.mark.parametrize(
    ("original", "method", "seeds"),
    [({"efficacy": 9.0}, {"efficacy": 0.1}, SEEDS), ({"efficacy": 9.0}, {}, SEEDS), ({}, {}, SEEDS), ({}, {}, 3)],
)
def test_terminal_and_page_say_what_was_decided(original: Any, method: Any, seeds: int):
    audit = unlearn_audit(original, {"mine": method}, seeds)
    run = unlearn_run(audit=audit, notes=(NOTE,))
    text, page = " ".join(shown(run).split()), Parsed(report_html([run])).text
    assert f"mine: {audit.finding.verdict}. {audit.finding.sentence}" in text
    assert f"{audit.finding.verdict} {audit.finding.sentence}" in page
    confidence = audit.finding.confidence
    for said in (*audit.finding.caveats, *audit.finding.would_change, NOTE):
        assert said in text
        assert said in page
    assert f"Confidence {confidence.word} {confidence.why}" in page
    assert (f"confidence: {confidence.word}. {confidence.why}" in text) == (confidence.word != "none")


def test_the_page_of_several_runs_has_one_chart_of_all():
    one, other = unlearn_run(), unlearn_run("other")
    page = Parsed(report_html([one, other])).text
    assert "Efficacy of each method's models" in page
    assert "distinguishable from retraining" in page


def test_a_run_without_methods_says_so():
    run = unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, {}), notes=(NOTE,))
    text = " ".join(shown(run).split())
    assert run.result.finding.sentence in text
    assert NOTE in text
    assert run.result.finding.sentence in Parsed(report_html([run])).text


def test_wide_ranges_fit_80_columns():
    audit = unlearn_audit({"efficacy": 1e9}, {"mine": {"efficacy": 1.5e-15, "bound": 2.5e-14}})
    lines = shown(unlearn_run(audit=audit)).splitlines()
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert "7.5e-16" in words
    assert "9e-16" in words
    assert "remaining" in words
    assert "inf" in shown(unlearn_run()).split("fisher")[1]


def test_hostile_names_stay_text():
    run = replace(unlearn_run(HOSTILE, notes=(HOSTILE,)), name=HOSTILE)
    html = report_html([run, run])
    page = Parsed(html)
    assert {tag for tag, _ in page.elements} <= ALLOWED
    assert visible(HOSTILE) in page.text
    assert not {c for c in html if not c.isprintable()} - {"\n"}
    assert not {c for c in shown(run) if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, 3.0], 2.0), ([np.inf, 1.0], np.inf), ([np.inf, np.inf], np.inf), ([5.0], 5.0)],
)
def test_a_median_of_infinities_is_no_nan(values: list[float], expected: float):
    assert median(np.array(values)) == expected


def test_layers_before_and_after_are_one_chart():
    audit = unlearn_audit({"information": 4.0}, {"amnesiac": {"information": 2.0}})
    (picture,) = [each for each in unlearn_pictures(unlearn_run(audit=audit)) if each.name == "layers"]
    axes = picture.draw().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dense/0", "dense/1", "dense/2"]
    assert axes.get_legend() is not None
    assert picture.numbers.columns == ("layer", "original", "retraining", "amnesiac")
    drawn = {line.get_label(): np.asarray(line.get_xdata()) for line in axes.lines}
    np.testing.assert_allclose(drawn["original"], 4 * drawn["retraining"], rtol=1e-6)
    np.testing.assert_allclose(drawn["amnesiac"], 2 * drawn["retraining"], rtol=1e-6)
