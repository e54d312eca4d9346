"""The `efficacy` and `unlearn` answers as JSON and as tables, where numbers are not ordinary."""

import io
import json

import jsonschema
import numpy as np
import pytest
from rich.console import Console

from jaxaudit.audits.efficacy.audit import EfficacyAudit, JudgedWeights
from jaxaudit.metrics.efficacy import MeasuredEfficacy, efficacy
from jaxaudit.report.efficacy import record as module
from jaxaudit.report.efficacy.record import caveats, efficacy_json, efficacy_schema
from jaxaudit.report.efficacy.table import efficacy_table
from jaxaudit.report.unlearn.record import median


def judged(name: str, norms: list[float], paths: dict[str, str] | None = None) -> JudgedWeights:
    values = np.array(norms)
    found = efficacy(values, float(values.min()))
    return JudgedWeights(
        name, MeasuredEfficacy(values, {"dense": found}, found, paths or {"dense/kernel": "contracted"}), 0.5, -1.0
    )


def audit(*models: JudgedWeights, draws: bool = False) -> EfficacyAudit:
    return EfficacyAudit(models[0], tuple(models[1:]), np.arange(len(models[0].measured.per_example)), 3, draws)


def test_its_figure_has_a_row_for_each_weights_and_infinite_ones_too():
    efficacies, bounds = audit(judged("mine", [0.0, 0.0]), judged("retrained", [1.0, 4.0])).plot().axes
    assert [label.get_text() for label in efficacies.get_yticklabels()] == ["mine", "retrained"]
    assert [np.asarray(line.get_xdata()).tolist() for line in efficacies.lines if line.get_marker() == "o"] == [
        [],
        [0.4],
    ]
    legend = bounds.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["mine", "retrained"]


def shown(found: EfficacyAudit, top: int = 5) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(efficacy_table(found, ("a", "b", "c[red]\x1b[2J"), (), top))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_infinite_efficacy_is_said_and_fits_the_schema():
    found = audit(judged("perfect", [0.0, 0.0, 0.0]), judged("other", [1.0, 2.0, 3.0]))
    result = efficacy_json(found, ("a", "b", "c"), (), {})
    jsonschema.validate(result, json.loads(efficacy_schema()))
    assert result["models"][0]["efficacy"] == result["models"][0]["bound"] == "infinity"
    assert result["models"][1]["efficacy"] == 0.5
    assert any("infinite efficacy of perfect: every gradient is 0" in said for said in result["caveats"])
    assert "infinite" in shown(found)
    json.dumps(result, allow_nan=False)


def test_the_most_exposed_records_are_those_with_the_smallest_norms():
    found = audit(judged("model", [3.0, 0.5, 1.0]))
    text = shown(found, top=2)
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] in (["a"], ["b"], [r"c[red]\x1b[2J"])]
    assert [row[0] for row in rows] == ["1", "2"]
    assert "\x1b" not in text
    assert "c[red]" in text


def test_beyond_so_many_records_the_most_exposed_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_RECORDS", 2)
    result = efficacy_json(audit(judged("model", [3.0, 0.5, 1.0])), ("a", "b", "c"), (), {})
    assert [record["index"] for record in result["records"]] == [1, 2]
    assert result["records_measured"] == 3


def test_what_took_the_slow_path_and_randomness_are_said():
    paths = {"dense/kernel": "contracted", **{f"loop/{index}": "vmap(grad)" for index in range(5)}}
    found = audit(judged("model", [1.0, 2.0, 3.0], paths), draws=True)
    said = " ".join(caveats(found, ("a note",)))
    assert "by vmap(grad), where no rule matched: loop/0, loop/1, loop/2 and 2 more" in said
    assert "it was judged in evaluation mode" in said
    assert "a lone efficacy is no verdict" in said
    assert said.endswith("a note")
    assert "1 of 6 parameters contracted" in shown(found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, 3.0], 2.0), ([np.inf, 1.0], np.inf), ([np.inf, np.inf], np.inf), ([5.0], 5.0)],
)
def test_a_median_of_infinities_is_no_nan(values: list[float], expected: float):
    assert median(np.array(values)) == expected


def test_long_names_are_broken_and_not_cut():
    names = ["retrained-without-them.safetensors", "original-of-march.safetensors", "another.safetensors", "untrained"]
    found = audit(*(judged(name, [1.0, 2.0]) for name in names))
    console = Console(file=io.StringIO(), width=80)
    console.print(efficacy_table(found, ("a", "b", "c"), (), 5))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert "2 most exposed records, by their information" in text
    assert max(map(len, text.splitlines())) <= 80


def test_short_floats_are_said():
    model = judged("mine", [1.0, 2.0])
    short = model._replace(measured=model.measured._replace(short=True))
    said = "the network computes in floats of 16 bits or fewer"
    assert not any(said in each for each in caveats(audit(model), ()))
    assert any(said in each for each in caveats(audit(short), ()))
