"""`jaxaudit pdtp` from its words to what it prints and writes; tables of your own; what is refused."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import Done, jaxaudit, refused
from support.people import PEOPLE, people_rows, write_people, write_rows

from jaxaudit.report import schema_of

NETWORK = (*PEOPLE, "--epochs", "5", "--recipe", "batch-size=10", "--recipe", "models-per-batch=8")
FOREST = ("--model", "sklearn.ensemble:RandomForestClassifier", "--recipe", "n_estimators=5")
WRITTEN = ["records.csv", "result.json", "table.txt"]


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with `people.csv`."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)
    Path("texts.jsonl").write_text("{}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Done]]:
    """A run of every kind of model, in directories of their names, and what was printed."""
    folder = tmp_path_factory.mktemp("made")
    write_people(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs = {"nb": ("--model", "nb"), "nn": NETWORK[len(PEOPLE) :], "forest": FOREST}
        return folder, {
            name: jaxaudit("pdtp", *PEOPLE, *words, "--json", "--out", name) for name, words in runs.items()
        }


KINDS = {
    "nn": "a neural network",
    "nb": "naive Bayes",
    "forest": "RandomForestClassifier",
}


@pytest.mark.parametrize("learner", KINDS)
def test_every_learner_answers_by_the_schema(made: tuple[Path, dict[str, Done]], learner: str):
    done = made[1][learner]
    result = done.result
    jsonschema.validate(result, schema_of("pdtp"))
    assert [record["index"] for record in result["records"]] == list(range(60))
    assert result["max_pdtp"] == max(record["pdtp"] for record in result["records"])
    assert (result["finding"]["verdict"] == "no record exposed") is (result["max_pdtp"] <= 1)
    assert f"({KINDS[learner]}) that jaxaudit trained here: " in result["finding"]["sentence"]
    assert result["seed_floor"]["seeded"] is (learner in ("nn", "forest"))
    assert [record["index"] for record in result["records"] if record["duplicates"] == 2] == [3, 59]
    assert {record["class"] for record in result["records"]} <= {"high", "low"}
    if learner == "nb":
        assert result["dtp_bound"] is None
        assert (check(result, "copies")["state"], result["copies"]) == ("warning", 2)


def test_a_run_directory_holds_result_and_records(made: tuple[Path, dict[str, Done]]):
    run, done = made[0] / "nn", made[1]["nn"]
    assert sorted(os.listdir(run)) == WRITTEN
    assert json.loads((run / "result.json").read_text()) == done.result
    rows = list(csv.DictReader((run / "records.csv").read_text().splitlines()))
    for name, convert in (("index", int), ("pdtp", float), ("exact_pdtp", float), ("seed_floor", float)):
        assert [convert(row[name]) for row in rows] == [record[name] for record in done.result["records"]]
    assert [row["class"] for row in rows] == [record["class"] for record in done.result["records"]]


def test_a_sample_is_known_by_its_places_in_the_table():
    result = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--sample", "40", "--measured-records", "9", "--json").result
    places = [record["index"] for record in result["records"]]
    assert len(places) == result["records_measured"] == 9
    assert places == sorted(set(places))
    assert max(places) > 39
    assert result["provenance"]["data"]["training_records"] == 40
    assert result["finding"]["verdict"] in ("records exposed", "inconclusive")
    assert jaxaudit(*result["provenance"]["command"][1:], "--json").result["records"] == result["records"]


def check(result: dict[str, Any], name: str) -> Any:
    """What the finding says of this check, if it was made."""
    return next((each for each in result["finding"]["checks"] if each["name"] == name), None)


# Tables of your own, and what is refused.


def test_the_groups_of_a_table_are_a_column_that_is_no_input():
    header, *rows = people_rows()
    write_rows(Path("homes.csv"), [*header, "home"], [[*row, f"h{place // 5}"] for place, row in enumerate(rows)])
    words = ("pdtp", "--data", "homes.csv", "--label", "income", "--model", "nb", "--groups", "home", "--json")
    result = jaxaudit(*words).result
    assert "home" not in result["provenance"]["data"]["columns"]
    assert [group["first"] for group in result["groups"]] == list(range(0, 60, 5))
    np.save("homes.npy", np.arange(60) // 5)
    again = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--groups", "homes.npy", "--json").result
    assert again["records"] == result["records"]


def test_an_identifier_is_pointed_at():
    header, *rows = people_rows()
    write_rows(Path("ids.csv"), ["case", *header], [[f"c-{i}", *row] for i, row in enumerate(rows)])
    done = jaxaudit("pdtp", "--data", "ids.csv", "--label", "income", "--model", "nb", "--sample", "50")
    assert "'case' has another value in most records" in done.err
    assert "c-1" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--label", "income"), ("--label", "breast-cancer")),
        (("--data", "digits", "--drop", "x"), ("--drop", "digits")),
        ((*PEOPLE, "--sample", "61"), ("--sample 61", "60", "people.csv")),
        ((*PEOPLE, "--measured-records", "61"), ("--measured-records 61", "60", "people.csv")),
        (("--data", "people.csv", "--label", "incom"), ("incom",)),
        (("--data", "texts.jsonl"), ("--data texts.jsonl", "`jaxaudit attack --shadows bank`")),
        (("--model", "forest"), ("--model forest",)),
        (("--recipe", "smoothing=2"), ("--recipe smoothing", "--model nb")),
        (("--model", "nb", "--epochs", "3", "--recipe", "hidden=8"), ("--recipe hidden, --epochs", "--model nb")),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("pdtp", *words, "--out", "run"), said)
