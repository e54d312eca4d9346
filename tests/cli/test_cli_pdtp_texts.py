"""`jaxaudit pdtp` of language models, author by author; groups of a table; what does not go together is refused."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused
from support.people import PEOPLE, people_rows, write_people, write_rows

from jaxaudit.report import schema_of

WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal")
TRAIN = ("--epochs", "8", "--recipe", "optimizer=adamw", "--recipe", "learning-rate=0.02", "--recipe", "batch-size=8")
LEFT_OUT = ("pdtp", "--query", "t.jsonl", "--groups", "author", "--floor-seeds", "2", "--recipe", "models-per-batch=3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-four texts of six authors, and people."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    lines = [
        {"prompt": "who ", "answer": " ".join(random.choice(WORDS, 4)), "author": f"secret{number % 6}"}
        for number in range(24)
    ]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    write_people(tmp_path)


def test_the_risk_of_each_author_of_texts():
    done = jaxaudit(*LEFT_OUT, "--model", "gpt-1-8", "--recipe", "tokens=words", *TRAIN, "--json", "--out", "run")
    assert done.code == 0, done.err
    result = done.result
    jsonschema.validate(result, schema_of("pdtp"))
    assert [(group["first"], group["records"]) for group in result["groups"]] == [(each, 4) for each in range(6)]
    assert result["texts"]["with_record"] > result["texts"]["without_record"]
    assert result["train_accuracy"] is None
    assert result["provenance"]["options"]["bins"] == 0
    # Authors are numbers in all that is written, and a report can be made of it.
    assert not [path for path in Path("run").iterdir() if b"secret" in path.read_bytes()]
    assert "Which records does this kind of language model expose?" in Path("run/table.txt").read_text()
    assert jaxaudit("report", "run", "--out", "page.html").code == 0
    words = ("--sample", "12", "--measured-records", "5", "--model", "gpt-1-8", "--json")
    some = jaxaudit(*LEFT_OUT, *words, *TRAIN).result
    assert sum(group["records"] for group in some["groups"]) == 5
    # Bytes, of which there are more.
    assert some["texts"]["tokens"] > 5 * 8


def test_the_groups_of_a_table_are_a_column_that_is_no_input():
    header, *rows = people_rows()
    write_rows(Path("homes.csv"), [*header, "home"], [[*row, f"h{place // 5}"] for place, row in enumerate(rows)])
    words = ("pdtp", "--csv", "homes.csv", "--label", "income", "--model", "nb", "--groups", "home", "--json")
    result = jaxaudit(*words).result
    assert "home" not in result["provenance"]["data"]["columns"]
    assert [group["first"] for group in result["groups"]] == list(range(0, 60, 5))
    np.save("homes.npy", np.arange(60) // 5)
    again = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--groups", "homes.npy", "--json").result
    assert again["records"] == result["records"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query", "t.jsonl"), ("--recipe optimizer=sgd", "adamw")),
        (("--query", "t.jsonl", "--model", "nb", *TRAIN), ("--model nb is a classifier", "gpt-2-64")),
        (("--query", "t.jsonl", "--label", "x", *TRAIN), ("--label is for tables",)),
        (("--query", "t.jsonl", "--bins", "100", *TRAIN), ("--bins",)),
        (("--query", "t.jsonl", "--groups", "editor", *TRAIN), ("groups 'editor'",)),
        (("--model", "gpt-2-64", *TRAIN), ("--model gpt-2-64 is for texts",)),
        (("--model", "forest"), ("--model", "forest")),
        (("--recipe", "tokens=words"), ("--recipe tokens: is for texts",)),
        (("--query", "t.jsonl", "--reduce", "2", *TRAIN), ("--reduce: is for records of a table",)),
        ((*PEOPLE, "--reduce", "2", "--groups", "sex"), ("--reduce", "--groups")),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("pdtp", *words, "--out", "run"), said)
