"""`jaxaudit attack` from its words to what it prints, writes, refuses and resumes."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused
from support.people import PEOPLE, write_people

from jaxaudit.report import schema_of

SMALL = ("--iterations", "2", "--targets", "5")
BAYES = (*PEOPLE, *SMALL, "--model", "nb", "--attacks", "distance,frequency")
RECORDS = 61


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `people.csv`, of an odd number of people."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)
    with (tmp_path / "people.csv").open("a") as file:
        file.write("40,20.5,state,F,low\n")
    return tmp_path


# What is printed and written.


def test_json_is_all_of_stdout_and_follows_the_schema():
    done = jaxaudit("attack", *PEOPLE, *SMALL, "--model", "nb", "--json")
    result = done.result
    jsonschema.validate(result, schema_of("attack"))
    assert done.out.count("\n") == 1
    assert [one["name"] for one in result["attacks"]] == ["untargeted", "distance", "frequency"]
    splits = result["splits"]
    assert (splits["candidates"], splits["measured_iterations"]) == (60, 2)
    assert (result["models"], result["records"]) == (4, 5)
    assert len({target["index"] for target in splits["records"]}) == 5
    assert all(0 <= target["index"] < RECORDS for target in splits["records"])
    lines = done.err.splitlines()
    assert lines[0] == "people.csv: 61 records, 4 columns, 2 classes"
    # 4 attacked, 20 untargeted shadows, 5 x 3 x 4 of pairs for 5 targets in groups of 2, and none for closed forms.
    assert any("84 models" in line for line in lines)


def test_the_run_directory_holds_the_same_result_and_plain_arrays(people: Path):
    done = jaxaudit("attack", *BAYES, "--json", "--out", "run")
    assert json.loads((people / "run/result.json").read_text()) == done.result
    with np.load(people / "run/scores.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"records", "truth", "pdtp", "distance", "frequency"}
        assert arrays["records"].tolist() == [target["index"] for target in done.result["splits"]["records"]]
        right = (arrays["distance"] > 0) == arrays["truth"]
        assert right.mean() == pytest.approx(done.result["attacks"][0]["metrics"]["accuracy"]["value"])
    assert jaxaudit("attack", *BAYES, "--out", "run").err.startswith("Error: --out run ")


@pytest.mark.outer
def test_the_same_command_and_the_one_that_it_records_give_the_same_numbers():
    one, other = (jaxaudit("attack", *BAYES, "--json").result for _ in range(2))
    command = one["provenance"]["command"]
    assert command[:2] == ["jaxaudit", "attack"]
    again = jaxaudit(*command[1:], "--json").result
    assert (again["splits"], again["attacks"]) == (one["splits"], one["attacks"])
    for each in (one, other):
        del each["provenance"]["seconds"], each["provenance"]["started"]
    assert one == other
    moved = jaxaudit("attack", *BAYES, "--json", "--seed", "8").result
    assert moved["splits"]["records"] != one["splits"]["records"]


# What is refused.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attacks", "distanc"), ("--attacks", "'distanc'", "distance?")),
        (("--attacks", ","), ("--attacks", "untargeted, distance, frequency")),
        (("--targets", "61"), ("--targets", "at most 60", "got 61")),
        (("--sample", "62"), ("--sample 62", "61", "people.csv")),
        (("--sample", "31"), ("31 candidates cannot be split",)),
        (("--targets", "1"), ("--targets", "at least 2", "got 1")),
        (("--targets", "2", "--iterations", "1", "--seed", "2"), ("one half",)),
    ],
)
def test_options_that_cannot_be_used(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("attack", *PEOPLE, *words), said)
