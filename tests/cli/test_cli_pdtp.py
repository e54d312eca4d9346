"""`jaxaudit pdtp` from its words to what it prints, writes and resumes."""

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.cli_runs import Done, content, jaxaudit
from support.people import PEOPLE, write_people, write_rows
from test_cli_resume import models_kept, stopping

from jaxaudit.audits.left_out import models_trained
from jaxaudit.report.kinds import schema_of

NETWORK = (*PEOPLE, "--epochs", "5", "--batch-size", "10", "--models-per-batch", "8")
WRITTEN = ["records.csv", "records.parquet", "result.json", "table.txt"]


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with `people.csv`."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Done]]:
    """A run of every kind of model, in directories of their names, and what was printed."""
    folder = tmp_path_factory.mktemp("made")
    write_people(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs = {each: ("--model", each) for each in ("nb", "lr", "trees", "knn")} | {"nn": NETWORK[len(PEOPLE) :]}
        return folder, {
            name: jaxaudit("pdtp", *PEOPLE, *words, "--json", "--out", name) for name, words in runs.items()
        }


@pytest.mark.parametrize("learner", ["nn", "nb", "lr", "trees", "knn"])
def test_every_learner_answers_by_the_schema(made: tuple[Path, dict[str, Done]], learner: str):
    done = made[1][learner]
    result = done.result
    jsonschema.validate(result, schema_of("pdtp"))
    assert [record["index"] for record in result["records"]] == list(range(60))
    assert result["max_pdtp"] == max(record["pdtp"] for record in result["records"])
    assert result["publish"] is (result["max_pdtp"] <= 1)
    assert result["seed_floor"]["seeded"] is (learner in ("nn", "trees"))
    assert [record["index"] for record in result["records"] if record["duplicates"] == 2] == [3, 59]
    assert {record["class"] for record in result["records"]} <= {"high", "low"}
    # The table, its four columns, what is measured, and what was written.
    assert done.err.count("\n") == 7


def test_a_run_directory_holds_result_and_records(made: tuple[Path, dict[str, Done]]):
    run, done = made[0] / "nn", made[1]["nn"]
    assert sorted(os.listdir(run)) == WRITTEN
    assert json.loads((run / "result.json").read_text()) == done.result
    rows = list(csv.DictReader((run / "records.csv").read_text().splitlines()))
    for name, convert in (("index", int), ("pdtp", float), ("exact_pdtp", float), ("seed_floor", float)):
        assert [convert(row[name]) for row in rows] == [record[name] for record in done.result["records"]]
    assert [row["class"] for row in rows] == [record["class"] for record in done.result["records"]]
    table = pyarrow.parquet.read_table(run / "records.parquet").to_pylist()
    assert [row["pdtp"] for row in table] == [float(row["pdtp"]) for row in rows]


def test_the_table_for_people_and_what_reduce_removes():
    done = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--top", "2", "--reduce", "3", "--json", "--out", "run")
    result, table = done.result, Path("run/table.txt").read_text()
    assert max(map(len, table.splitlines())) <= 80
    # What stands in records is shown only when asked.
    assert "labelled" not in table
    assert f" {result['finding']['verdict']}. " in table
    rows = [line.split() for line in table.splitlines()]
    riskiest = sorted(result["records"], key=lambda record: -record["pdtp"])[:3]
    listed = [row[:2] for row in rows if row[1:2] and row[1] in {f"{record['pdtp']:.3f}" for record in riskiest}]
    assert listed == [[str(record["index"]), f"{record['pdtp']:.3f}"] for record in riskiest[:2]]
    reduction = result["reduction"]
    largest = [f"{value:.3f}" for value in reduction["max_pdtp"]]
    removed = ["none", *map(str, reduction["removed"])]
    wanted = [[str(step), *row] for step, row in enumerate(zip(removed, largest, strict=True))]
    assert [row[:3] for row in rows if row[:3] in wanted] == wanted
    assert len(set(reduction["removed"])) == 3
    assert reduction["max_pdtp"][0] == result["max_pdtp"]
    assert reduction["removed"][0] == riskiest[0]["index"]
    assert check(result, "copies")["state"] == "warning"
    assert result["copies"] == 2


def test_what_is_listed_is_as_long_as_asked():
    lengths = [jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--top", top).out.count("\n") for top in ("0", "1", "3")]
    assert lengths[2] == lengths[1] + 2 > lengths[0] + 2


def test_a_sample_is_known_by_its_places_in_the_table():
    result = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--sample", "40", "--measured-records", "9", "--json").result
    places = [record["index"] for record in result["records"]]
    assert len(places) == result["records_measured"] == 9
    assert places == sorted(set(places))
    assert max(places) > 39
    assert result["provenance"]["data"]["training_records"] == 40
    assert result["publish"] in (False, None)


@pytest.mark.outer
def test_the_recorded_command_repeats_the_run():
    first = jaxaudit("pdtp", *NETWORK[:-2], "--measured-records", "4", "--json").result
    second = jaxaudit(*first["provenance"]["command"][1:], "--json").result
    assert second["records"] == first["records"]
    assert second["provenance"]["command"] == first["provenance"]["command"]
    other = jaxaudit(*first["provenance"]["command"][1:], "--seed", "8", "--json").result
    assert other["records"] != first["records"]


def check(result: dict[str, Any], name: str) -> Any:
    """What the finding says of this check, if it was made."""
    return next((each for each in result["finding"]["checks"] if each["name"] == name), None)


def test_what_moves_on_any_input_is_bounded_where_that_is_proven(made: tuple[Path, dict[str, Done]]):
    """Smoothing that passes the rule by itself is said."""
    folder, runs = made
    result = runs["trees"].result
    assert result["bound"] == pytest.approx(np.log(2))
    assert max(record["exact_pdtp"] for record in result["records"]) <= result["bound"]
    assert "0.69" in check(result, "DTP-1 can fail")["message"]
    assert check(result, "DTP-1 can fail")["state"] == "warning"
    smoothed = jaxaudit("pdtp", *PEOPLE, "--model", "trees", "--smoothing", "0.1", "--json").result
    assert check(smoothed, "DTP-1 can fail")["state"] == "passed"
    assert result["dtp_bound"] == max(record["dtp_bound"] for record in result["records"]) <= np.log(2)
    assert all(record["exact_pdtp"] <= record["dtp_bound"] + 1e-9 for record in result["records"])
    assert result["because"] == result["finding"]["sentence"]
    assert result["finding"]["confidence"]["word"] == "strong"
    rows = pyarrow.parquet.read_table(folder / "trees/records.parquet").to_pylist()
    assert [row["dtp_bound"] for row in rows] == [record["dtp_bound"] for record in result["records"]]
    shown = (folder / "trees/table.txt").read_text()
    assert f" {result['dtp_bound']:.3f} nats" in shown
    assert "jaxaudit attack" in " ".join(shown.split())
    assert runs["knn"].result["bound"] == pytest.approx(np.log(101))
    bayes = runs["nb"].result
    assert bayes["bound"] is bayes["dtp_bound"] is None
    assert bayes["finding"]["confidence"]["word"] != "strong"
    assert pyarrow.parquet.read_table(folder / "nb/records.parquet")["dtp_bound"].null_count == 60


def test_a_verdict_changes_the_status_only_when_asked():
    few = ("pdtp", *PEOPLE, "--model", "knn", "--smoothing", "5", "--measured-records", "5")
    done = jaxaudit(*few, "--json")
    assert (done.code, done.result["verdict"]) == (0, "inconclusive")
    assert jaxaudit(*few, "--fail-on", "inconclusive").code == 3
    assert jaxaudit(*few, "--fail-on", "do-not-publish").code == 0


def test_a_run_stopped_and_started_again_ends_as_if_it_had_not_been(
    made: tuple[Path, dict[str, Done]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jaxaudit.ensemble.train.concurrent_chunks", lambda: 1)
    words = ("pdtp", *NETWORK, "--json", "--out", "run")
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.cli.progress.progress_on_stderr", stopping(0.6))
        stopped = jaxaudit(*words)
    assert stopped.code == 130
    total = models_trained(60, 8) + 5
    kept = models_kept(stopped.err.splitlines()[-1], of=total)
    assert 0 < kept < total
    before = content(Path.cwd())
    refused = jaxaudit(*words, "--epochs", "31")
    assert (refused.code, refused.out) == (2, "")
    assert re.search(r"\(epochs: 5\b.*\b31\b", refused.err)
    assert content(Path.cwd()) == before
    done, whole = jaxaudit(*words), made[1]["nn"].result
    assert f"Resuming: {kept} of {total} models " in done.err
    assert done.result["records"] == whole["records"]
    assert done.result["seed_floor"] == whole["seed_floor"]
    assert sorted(os.listdir("run")) == WRITTEN


def test_a_class_with_one_member_is_measured_and_said():
    rows = [[i % 7, i % 3, "low" if i else "high"] for i in range(30)]
    write_rows(Path("rare.csv"), ["a", "b", "income"], rows)
    words = ("--csv", "rare.csv", "--label", "income", "--numeric", "a", "--categorical", "b")
    done = jaxaudit("pdtp", *words, "--model", "nb", "--bins", "0", "--json", "--out", "run")
    (alone,) = [record for record in done.result["records"] if record["only_member_of_its_class"]]
    assert alone["index"] == 0
    assert alone["pdtp"] == "infinity"  # without it there is no such class
    assert done.result["max_pdtp"] == "infinity"
    assert done.result["publish"] is False
    assert "infinite" in Path("run/table.txt").read_text()
    assert check(done.result, "classes")["state"] == "warning"
    assert done.result["lone_members"] == 1
    assert jaxaudit("pdtp", *words[:4], "--model", "nb", "--json").result["dtp_bound"] == "infinity"
