"""What is read back from disk, and what is no run or contradicts itself; a row a record for other programs."""

import os
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pyarrow.csv
import pytest
from support.saved_runs import RUNS, as_json, save
from support.saved_runs.ks import ks_run, without_rho
from support.saved_runs.pdtp import pdtp_run
from support.saved_runs.unlearn import CHALLENGE, unlearn_audit, unlearn_run

from jaxaudit.errors import InputError
from jaxaudit.json_types import from_builtins
from jaxaudit.report import report_html, run_kind, schema_of
from jaxaudit.runs import as_cell, read_run, record_files
from jaxaudit.runs import directory as run_files


def of_many(folder: Path, records: int = 1000) -> Path:
    """A run of so many records, of which the result lists forty, as of more than it may list."""
    result = as_json(pdtp_run())
    result["distribution"][0]["records"] += records - 40
    return save(pdtp_run(), folder, {**result, "records_measured": records, "training_records": records})


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_comes_back_as_it_was(tmp_path, kind: str):
    run = RUNS[kind]()
    read = read_run(save(run, tmp_path / run.name))
    assert (read.name, read.kind, as_json(read)) == (run.name, kind, as_json(run))
    assert read.arrays.keys() == run.arrays.keys()
    for name, array in run.arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)
    if kind == "ks":  # arrays that no picture needs are not read
        more: dict[str, Any] = {**run.arrays, "labels": np.zeros(3)}
        np.savez(tmp_path / run.name / "confidences.npz", **more)
        assert set(read_run(tmp_path / run.name).arrays) == set(run.arrays)


def test_of_many_records_the_listed_ones_are_shown(tmp_path):
    assert report_html(read_run(of_many(tmp_path / "run")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (text, "result.json is damaged")
            for text in (
                "{",
                "[]",
                "[" * 100_000,
                '{"schema": NaN}',
                '{"a": 1' + "0" * 5000 + "}",
                # Bounded before they are parsed:
                '{"a": [' + "[]," * 600_000 + "1]}",
                '{"a": [' + "1," * 3_100_000 + "1]}",
                '{"a": 1e999}',
                '{"a": "\xff"}',
            )
        ),
        ("{}", "that an audit wrote"),
        *((f'{{"schema": "jaxaudit.{it}"}}', f"'jaxaudit.{it}'") for it in ("nonsense/3", "ks/2", "ks/4", "ks")),
        ('{"schema": 2}', "that an audit wrote"),
        ('{"schema": "jaxaudit.ks/3"}', "missing required field"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_result(tmp_path, text: str, said: str):
    (tmp_path / "result.json").write_text(text, encoding="latin-1")
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        read_run(tmp_path)
    assert time.process_time() - began < 2
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_run(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "stopped/unfinished").mkdir(parents=True)
    for name, message in (
        ("none", "none does not exist"),
        (".", r"result\.json"),
        ("stopped", "repeat its command"),
        (os.devnull, "cannot be read"),
        *((name, "loop|xxx") for name in ("x" * 5000, "loop", "loop/run")),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read_run(tmp_path / name)
        assert len(str(caught.value)) < 600
    folder = save(ks_run(), tmp_path / "run")
    monkeypatch.setattr(run_files, "LARGEST_RESULT", 100)
    with pytest.raises(InputError, match="is larger than"):
        read_run(folder)


@pytest.mark.parametrize("name", ["result.json", "confidences.npz"])
def test_neither_links_nor_channels_in_a_run_are_read(tmp_path, name: str):
    folder = save(ks_run(), tmp_path / "run")
    (folder / name).rename(tmp_path / "mine")
    (folder / name).symlink_to(tmp_path / "mine")
    with pytest.raises(InputError):
        read_run(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError):
        read_run(folder)


@pytest.mark.parametrize(
    ("kind", "name", "wrong", "said"),
    [
        ("ks", "query", lambda a: a[:1], "query confidences are misshapen"),
        ("ks", "target_1", lambda a: a[:9], "confidences called target_1 are misshapen"),
        ("ks", "target_0", lambda a: a + 2, "confidences called target_0 are not probabilities"),
        ("ks", "target_0", lambda a: None, "target_0"),
        ("ks", "query", lambda a: np.array([{}], object), "pickled objects"),
    ],
)
def test_arrays_that_do_not_belong_to_the_result(tmp_path, kind: str, name: str, wrong, said: str):
    run = RUNS[kind]()
    folder = save(run, tmp_path / "run")
    (path,) = folder.glob("*.npz")
    changed = wrong(run.arrays[name])
    others = {each: array for each, array in run.arrays.items() if each != name}
    np.savez(path, **others, **({} if changed is None else {name: changed}))
    with pytest.raises(InputError) as caught:
        read_run(folder)
    assert said in str(caught.value)
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputError, match="is not a readable"):
        read_run(folder)


def deciding(result: Any) -> Any:
    """The deciding test of the first target."""
    return result["targets"][0]["tests"][0]


def verdicts(target: Any, verdict: str) -> None:
    """Makes this the verdict of a target and of its tests."""
    for place in (target, *target["tests"]):
        place["finding"].update(verdict=verdict)


def accuracy(result: Any) -> Any:
    return result["methods"][0]["scores"]["forgotten_accuracy"]


def unmeasured(result: Any) -> None:
    for method in result["methods"]:
        del method["scores"]["efficacy"]


def told() -> Any:
    """A run of `unlearn` with seeds enough to tell models from retrained ones."""
    return unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, {"mine": {"efficacy": 0.1}, "other": {}}, told=CHALLENGE))


MADE = {**RUNS, "ks of use": lambda: ks_run(audit=without_rho()), "unlearn of many seeds": told}


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (
            "ks",
            lambda r: r["targets"][0]["tests"][-1]["details"]["rho"]["values"].pop(),
            "replicates of rho and its distances differ",
        ),
        ("ks", lambda r: r["targets"][0]["finding"].update(verdict="inconclusive"), "a target has two verdicts"),
        ("ks", lambda r: verdicts(r["targets"][0], "exposed"), "a verdict is none of"),
        ("ks", lambda r: r["targets"].clear(), "it has no target"),
        ("ks of use", lambda r: deciding(r)["details"].update(method="shadow"), "are those of another test"),
        ("ks of use", lambda r: deciding(r).update(name="rho"), "are those of another test"),
        ("ks of use", lambda r: deciding(r).update(name="shadow"), "a test twice"),
        ("ks of use", lambda r: deciding(r)["confidences"].pop("fraction"), "no confidence in its numbers"),
        ("ks of use", lambda r: deciding(r).update(details=None), "without numbers"),
        ("ks", lambda r: r["targets"][0]["tests"].clear(), "length >= 1"),
        ("ks", lambda r: r["targets"][1]["tests"].pop(), "length >= 1|rho is missing"),
        ("ks", lambda r: r.update(noise_floor=None), "rho is missing, or its noise floor"),
        ("ks", lambda r: r["provenance"]["data"].pop("query"), "required field `query`"),
        ("ks", lambda r: r["provenance"]["data"].update(reference={"name": "r"}), r"\$\.reference"),
        *(
            (
                kind,
                lambda r, role=role, wrong=wrong: r["provenance"]["data"].update({role: wrong}),
                rf"\$\.{role}\b",
            )
            for kind in ("ks", "power")
            for role in ("query", "calibration", "holdout", "members", "reference", "shadows", "scores")
            for wrong in (
                True,
                [],
                {"name": True, "records": 3, "models": 3},
                {"name": "n", "records": -1, "models": 1.5},
            )
        ),
        ("attack", lambda r: r.update(decided_by="mine"), "decides is none of its attacks"),
        ("attack", lambda r: r["attacks"][0]["roc"]["low"].pop(), "ROC curve is misshapen"),
        ("pdtp", lambda r: r["finding"].update(verdict="no record exposed"), "does not follow"),
        ("pdtp", lambda r: r.update(records_measured=39), "do not match or are damaged"),
        ("pdtp", lambda r: r.update(above_1=0), "do not match or are damaged"),
        ("pdtp", lambda r: [bar.update(records=0) for bar in r["distribution"]], "do not match or are damaged"),
        # What cannot be shown.
        ("attack", lambda r: r["splits"]["records"][0]["accuracy"].pop("distance"), "do not match or are damaged"),
        ("attack", lambda r: r["attacks"][1]["tpr_at_fpr"].pop(), "at other false positive rates"),
        ("attack", lambda r: r.update(splits=None), "do not match or are damaged"),
        ("efficacy", lambda r: r["models"].clear(), "length >= 1"),
        *(
            ("efficacy", lambda r, at=at: r["models"][at]["layers"].clear(), "different layers, or none")
            for at in (0, 1)
        ),
        ("efficacy", lambda r: r["models"][1].update(name=r["models"][0]["name"]), "one name"),
        ("power", lambda r: r["holdouts"].clear(), "a size is missing, or twice"),
        ("power", lambda r: r["sizes"][0].update(given=True), "a size is missing, or twice"),
        ("power", lambda r: r["fractions"].reverse(), "fractions do not rise"),
        ("power", lambda r: r["fractions"].pop(), "different fractions"),
        ("power", lambda r: r.pop("fractions"), "fractions"),
        ("power", lambda r: r["sizes"][0]["chances"].pop(), "different fractions"),
        ("power", lambda r: r["sizes"][0]["conclusions"].pop(), "not those of its sizes"),
        ("efficacy", lambda r: r["records"][0]["information"].clear(), "do not match or are damaged"),
        ("unlearn", lambda r: r.update(methods=r["methods"][3:]), "do not match or are damaged"),
        *(
            ("unlearn", lambda r, score=score: r["methods"][0]["scores"][score]["values"].pop(), "number of models")
            for score in ("bound", "efficacy")
        ),
        ("unlearn", lambda r: r["methods"][0].update(models=99), "number of models"),
        ("unlearn", lambda r: accuracy(r).update(mean=10**400), "Expected a number"),
        ("unlearn of many seeds", unmeasured, "no method has an efficacy"),
        ("unlearn of many seeds", lambda r: r["methods"][3].update(finding=None), "missing or out of place"),
        ("unlearn of many seeds", lambda r: r["methods"][3]["finding"].update(verdict="inconclusive"), "of no method"),
        ("unlearn of many seeds", lambda r: r["methods"][3]["finding"].update(verdict="forgotten"), "none of a method"),
        ("unlearn of many seeds", lambda r: r["methods"][3].update(places={}), "not that of its places"),
        (
            "unlearn of many seeds",
            lambda r: r["finding"].update(verdict="inconclusive"),
            "its finding is that of no method",
        ),
        ("unlearn_outputs", lambda r: r["methods"][0]["scores"].clear(), "other scores"),
        ("unlearn_outputs", lambda r: accuracy(r).pop("interval"), "an accuracy is none, or has no interval"),
        ("unlearn_outputs", lambda r: accuracy(r).update(mean="infinity"), "an accuracy is none, or has no interval"),
        ("unlearn_outputs", lambda r: accuracy(r).update(values=[]), "number of models"),
        ("unlearn_outputs", lambda r: r.pop("level"), "level"),
        ("unlearn_outputs", lambda r: r["methods"][2].update(finding=None), "missing or out of place"),
        ("unlearn_outputs", lambda r: r["methods"][2]["finding"].update(verdict="forgotten"), "none of a method"),
        (
            "unlearn_outputs",
            lambda r: r["methods"][3]["finding"].update(verdict="distinguishable"),
            "that were not compared",
        ),
        (
            "unlearn_outputs",
            lambda r: r["finding"].update(verdict="not distinguishable"),
            "its finding is that of no method",
        ),
    ],
)
def test_results_that_contradict_themselves(tmp_path, kind: str, change, said: str):
    run = MADE[kind]()
    result = as_json(run)
    change(result)
    with pytest.raises(InputError, match=said):
        read_run(save(run, tmp_path / "run", result))


def test_a_result_with_a_part_twice_is_refused(tmp_path):
    save(ks_run(), tmp_path / "run")
    place = tmp_path / "run/result.json"
    place.write_text(place.read_text().replace('"targets":', '"targets": [], "targets":', 1))
    with pytest.raises(InputError, match="twice"):
        read_run(tmp_path / "run")


FORMULAS = ["=cmd|'/C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1"]
NAMES = [*FORMULAS, "a\x1b[2J", "a\nb", "-1.5", "1e-3", "a;=b", "class", ""]
COLUMNS = {"index": np.arange(len(NAMES)), "class": np.array(NAMES), "value": np.linspace(0, 1 / 3, len(NAMES))}


def written(path: Path, columns: dict[str, np.ndarray]) -> Path:
    with path.open("wb") as file:
        record_files(columns)[path.name](file)
    return path


def test_a_spreadsheet_finds_no_formula_and_a_terminal_no_escape(tmp_path: Path):
    path = written(tmp_path / "records.csv", COLUMNS)
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) == len(NAMES) + 2
    assert all(line.isprintable() for line in lines)
    table = pyarrow.csv.read_csv(path)
    cells = [str(each) for each in table.column("class").to_pylist()]
    for name, cell in zip(NAMES, cells, strict=True):
        assert not cell.lstrip().startswith(("=", "+", "@")), name
    assert cells[2] == "'-2+3"
    assert cells[6:10] == ["a\\nb", "-1.5", "1e-3", "a;'=b"]
    assert table.column("value").to_pylist() == COLUMNS["value"].tolist()
    assert all(as_cell(text) == text for text in ("1,5", "+3", "-7e-12", "plain", "a - b", "ש日本"))
    # So are names of columns.
    path = written(tmp_path / "records.csv", {"=1+1": np.zeros(1), "a\x1b[31m": np.zeros(1)})
    assert path.read_text("utf-8").splitlines()[0] == '"\'=1+1","a\\x1b[31m"'


@pytest.mark.parametrize("kind", RUNS)
def test_other_keys_and_types_are_refused(kind: str):
    value, record = as_json(RUNS[kind]()), run_kind(kind).record
    known_to_the_schema = ({"odd": 1}, {"finding": 1})
    for change in (*known_to_the_schema, {"schema": f"jaxaudit.{kind}/1"}):
        with pytest.raises(msgspec.ValidationError):
            from_builtins(record, {**value, **change})
    for change in known_to_the_schema:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**value, **change}, schema_of(kind))


def merged(value: Any, change: Any) -> Any:
    """The same with these fields; of lists, the last is changed; a score that there is not is as one that there is."""
    if isinstance(change, dict) and isinstance(value, dict):
        return {**value, **{name: merged(value.get(name, value.get("bound")), new) for name, new in change.items()}}
    return [*value[:-1], merged(value[-1], change[0])] if isinstance(change, list) else change


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("ks", {"targets": [{wrong: value}]}) for wrong, value in (("verdict", "maybe"), ("name", 3), ("extra", 1))),
        ("ks", {"targets": [{"truth": {"used_fraction": 2, "odd": 1}}]}),
        *(("ks", {"targets": [{"finding": {word: "fine"}}]}) for word in ("tone", "confidence", "more")),
        *(("ks", {"provenance": change}) for change in ({"command": "jaxaudit"}, {"seed": "7"}, {"more": 1})),
        *(("pdtp", {"records": [{wrong: value}]}) for wrong, value in (("direction", 2), ("class_", "a"))),
        *(("pdtp", {"max_pdtp": value}) for value in (-0.5, True, "inf", "-infinity", None, [1.0])),
        ("efficacy", {"models": [{"bound": "nan"}]}),
        ("unlearn", {"methods": [{"places": {"odd": {"verdict": "above"}}}]}),
    ],
)
def test_other_keys_and_types_within_a_result_are_refused(kind: str, change: dict[str, Any]):
    value = as_json(RUNS[kind]())
    changed = merged(value, change)
    with pytest.raises(msgspec.ValidationError):
        from_builtins(run_kind(kind).record, changed)
    if kind == "ks":
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, schema_of(kind))
