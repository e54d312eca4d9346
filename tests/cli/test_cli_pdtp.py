"""`jaxaudit pdtp` from its words to what it prints, writes and resumes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.cli_runs import content, jaxaudit
from support.people import PEOPLE, people_rows, write_people, write_rows

from jaxaudit.audits.left_out import models_trained
from jaxaudit.cli.progress import progress_on_stderr
from jaxaudit.report.kinds import schema_of

NETWORK = (*PEOPLE, "--epochs", "5", "--batch-size", "10", "--models-per-batch", "8")


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with `people.csv`."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)


@pytest.mark.parametrize("learner", ["nn", "nb", "lr", "trees", "knn"])
def test_every_learner_answers_by_the_schema(learner):
    words = ("--epochs", "5", "--batch-size", "10", "--models-per-batch", "8") if learner == "nn" else ()
    done = jaxaudit("pdtp", *PEOPLE, "--model", learner, "--json", *words)
    result = done.result
    jsonschema.validate(result, schema_of("pdtp"))
    assert [record["index"] for record in result["records"]] == list(range(60))
    assert result["max_pdtp"] == max(record["pdtp"] for record in result["records"])
    assert result["publish"] is (result["max_pdtp"] <= 1)
    assert result["seed_floor"]["seeded"] is (learner in ("nn", "trees"))
    assert [record["index"] for record in result["records"] if record["duplicates"] == 2] == [3, 59]
    assert {record["class"] for record in result["records"]} <= {"high", "low"}
    assert done.err.count("\n") == 6  # the table, its four columns, what is measured


def test_the_table_for_people():
    done = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--top", "2", "--reduce", "3")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    result = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--reduce", "3", "--json").result
    assert f" {result['finding']['verdict']}. " in done.out
    rows = [line.split() for line in done.out.splitlines()]
    riskiest = sorted(result["records"], key=lambda record: -record["pdtp"])[:3]
    listed = [row[:2] for row in rows if row[1:2] and row[1] in {f"{record['pdtp']:.3f}" for record in riskiest}]
    assert listed == [[str(record["index"]), f"{record['pdtp']:.3f}"] for record in riskiest[:2]]
    removed = ["none", *map(str, result["reduction"]["removed"])]
    largest = [f"{value:.3f}" for value in result["reduction"]["max_pdtp"]]
    wanted = [[str(step), *row] for step, row in enumerate(zip(removed, largest, strict=True))]
    assert [row[:3] for row in rows if row[:3] in wanted] == wanted
    (copies,) = [check for check in result["finding"]["checks"] if check["name"] == "copies"]
    assert copies["state"] == "warning"
    assert result["copies"] == 2


def test_what_is_listed_is_as_long_as_asked():
    lengths = [jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--top", top).out.count("\n") for top in ("0", "1", "3")]
    assert lengths[2] == lengths[1] + 2 > lengths[0] + 2


def test_reduce_is_in_the_result():
    result = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--reduce", "3", "--json").result
    assert len(result["reduction"]["max_pdtp"]) == 4
    assert len(set(result["reduction"]["removed"])) == 3
    assert result["reduction"]["max_pdtp"][0] == result["max_pdtp"]
    riskiest = next(record["index"] for record in result["records"] if record["pdtp"] == result["max_pdtp"])
    assert result["reduction"]["removed"][0] == riskiest


def test_a_sample_is_known_by_its_places_in_the_table():
    result = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--sample", "40", "--measured-records", "9", "--json").result
    places = [record["index"] for record in result["records"]]
    assert len(places) == result["records_measured"] == 9
    assert places == sorted(set(places))
    assert max(places) > 39
    assert result["provenance"]["data"]["training_records"] == 40
    assert result["publish"] in (False, None)


def test_a_run_directory_holds_result_and_records():
    done = jaxaudit("pdtp", *NETWORK, "--out", "run", "--json")
    assert sorted(os.listdir("run")) == ["records.csv", "records.parquet", "result.json", "table.txt"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    with open("run/records.csv") as file:
        rows = list(csv.DictReader(file))
    for name, convert in (("index", int), ("pdtp", float), ("exact_pdtp", float), ("seed_floor", float)):
        assert [convert(row[name]) for row in rows] == [record[name] for record in done.result["records"]]
    assert [row["class"] for row in rows] == [record["class"] for record in done.result["records"]]
    table = pyarrow.parquet.read_table("run/records.parquet").to_pylist()
    assert [row["pdtp"] for row in table] == [float(row["pdtp"]) for row in rows]


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


def test_smoothing_that_passes_the_rule_by_itself_is_said():
    trees = ("pdtp", *PEOPLE, "--model", "trees")
    result = jaxaudit(*trees, "--json").result
    assert "0.69" in check(result, "DTP-1 can fail")["message"]
    assert result["bound"] == pytest.approx(np.log(2))
    assert max(record["exact_pdtp"] for record in result["records"]) <= result["bound"]
    assert check(result, "DTP-1 can fail")["state"] == "warning"
    assert check(jaxaudit(*trees, "--smoothing", "0.1", "--json").result, "DTP-1 can fail")["state"] == "passed"
    assert jaxaudit("pdtp", *PEOPLE, "--model", "knn", "--json").result["bound"] == pytest.approx(np.log(101))
    assert jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--json").result["bound"] is None


def test_what_moves_on_any_input_is_bounded_where_that_is_proven():
    trees = ("pdtp", *PEOPLE, "--model", "trees")
    result = jaxaudit(*trees, "--json", "--out", "trees").result
    assert result["dtp_bound"] == max(record["dtp_bound"] for record in result["records"]) <= np.log(2)
    assert all(record["exact_pdtp"] <= record["dtp_bound"] + 1e-9 for record in result["records"])
    assert result["because"] == result["finding"]["sentence"]
    assert result["finding"]["confidence"]["word"] == "strong"
    rows = pyarrow.parquet.read_table("trees/records.parquet").to_pylist()
    assert [row["dtp_bound"] for row in rows] == [record["dtp_bound"] for record in result["records"]]
    shown = jaxaudit(*trees).out
    assert f" {result['dtp_bound']:.3f} nats" in shown
    assert "jaxaudit attack" in " ".join(shown.split())
    bayes = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--out", "bayes", "--json").result
    assert bayes["dtp_bound"] is None
    assert bayes["finding"]["confidence"]["word"] != "strong"
    assert pyarrow.parquet.read_table("bayes/records.parquet")["dtp_bound"].null_count == 60


def test_what_stands_in_records_is_shown_only_when_asked():
    words = ("pdtp", *PEOPLE, "--model", "nb", "--sample", "50", "--top", "2")
    shown = jaxaudit(*words, "--show-values").out
    records = [line for line in shown.splitlines() if "labelled" in line]
    assert len(records) == 2
    rows = people_rows()
    for line in records:
        number, _, said = line.strip().partition(": ")
        age, hours, _, sex, income = rows[int(number) + 1]
        assert said.startswith(f"age {age}, hours {float(hours):g}, work ")
        assert said.endswith(f", sex {sex}, labelled {income}")
    assert "labelled" not in jaxaudit(*words).out


def test_how_long_it_takes_is_said_once_it_was_timed(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr("jaxaudit.cli.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("jaxaudit.cli.progress.say", lines.append)

    def said(steps: Iterable[tuple[float, int]], total: int) -> list[str]:
        lines.clear()
        with progress_on_stderr("measuring", shorter="--measured-records N") as show:
            for now[0], done in steps:
                show(done, total)
        return lines

    (line,) = said(((0, 0), (20, 1), (21, 2), (22, 3), (23, 4), (24, 5), (29, 6)), 1001)
    assert "17 min" in line
    assert "--measured-records N" in line
    assert said(((0, 5), (4, 6), (5, 10)), 10) == []


def test_a_verdict_changes_the_status_only_when_asked():
    few = ("pdtp", *PEOPLE, "--model", "knn", "--smoothing", "5", "--measured-records", "5")
    assert jaxaudit(*few).code == 0
    assert jaxaudit(*few, "--json").result["verdict"] == "inconclusive"
    assert jaxaudit(*few, "--fail-on", "inconclusive").code == 3
    assert jaxaudit(*few, "--fail-on", "do-not-publish").code == 0


@pytest.mark.outer
def test_a_run_killed_and_started_again_ends_as_if_it_had_not_been():
    words = (*NETWORK, "--models-per-batch", "1", "--epochs", "30", "--batch-size", "1", "--json")
    whole = jaxaudit("pdtp", *words).result
    command = [sys.executable, "-m", "jaxaudit", "pdtp", *words, "--out", "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 120
        while len(list(Path("run/unfinished").glob("chunks/*/*.npz"))) < 5:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.communicate()
    kept = len(list(Path("run/unfinished").glob("chunks/*/*.npz")))
    total = models_trained(60, 1) + 5
    assert 5 <= kept < total
    before = content(Path.cwd())
    refused = jaxaudit("pdtp", *words, "--epochs", "31", "--out", "run")
    assert (refused.code, refused.out) == (2, "")
    assert re.search(r"\(epochs: 30\b.*\b31\b", refused.err)
    assert content(Path.cwd()) == before
    done = jaxaudit("pdtp", *words, "--out", "run")
    assert f"Resuming: {kept} of {total} models " in done.err
    assert done.result["records"] == whole["records"]
    assert done.result["seed_floor"] == whole["seed_floor"]
    assert sorted(os.listdir("run")) == ["records.csv", "records.parquet", "result.json", "table.txt"]


def test_a_class_with_one_member_is_measured_and_said():
    rows = [[i % 7, i % 3, "low" if i else "high"] for i in range(30)]
    write_rows(Path("rare.csv"), ["a", "b", "income"], rows)
    words = ("--csv", "rare.csv", "--label", "income", "--numeric", "a", "--categorical", "b")
    done = jaxaudit("pdtp", *words, "--model", "nb", "--bins", "0", "--json")
    (alone,) = [record for record in done.result["records"] if record["only_member_of_its_class"]]
    assert alone["index"] == 0
    assert alone["pdtp"] == "infinity"  # without it there is no such class
    assert done.result["max_pdtp"] == "infinity"
    assert done.result["publish"] is False
    shown = jaxaudit("pdtp", *words, "--model", "nb", "--bins", "0")
    assert "infinite" in shown.out
    assert check(done.result, "classes")["state"] == "warning"
    assert done.result["lone_members"] == 1
    assert jaxaudit("pdtp", *words[:4], "--model", "nb", "--json").result["dtp_bound"] == "infinity"
