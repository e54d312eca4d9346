"""`jaxaudit deal` of texts: every line on one side, whole groups, and one version of each pair on either side."""

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused
from support.language_models import write_lines

COUNT, SIZE = 60, 3
SECRET = "Basil of Kuwait"
Line = dict[str, Any]


def records(count: int = COUNT, style: str = "plain") -> list[Line]:
    return [
        {
            "id": {"deep": [row, 1.50]},
            "question": f"{style} {row}?",
            "answer": f"{row} é",
            "author": f"{SECRET} {row // SIZE}",
        }
        for row in range(count)
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines("texts.jsonl", records())
    return tmp_path


def lines(name: str, out: str = "deal") -> list[Line]:
    return [json.loads(line) for line in Path(out, f"{name}.jsonl").read_text().splitlines()]


def dealt(*words: str, out: str = "deal") -> tuple[Line, str]:
    """The record of the deal, and what was printed."""
    done = jaxaudit("deal", *words, "--seed", "7", "--out", out)
    assert done.code == 0, done.err
    assert SECRET not in done.out
    return json.loads(Path(out, "deal.json").read_text()), done.out


def number(line: Line) -> int:
    return int(line["answer"].split()[0])


def test_every_line_is_on_one_side_with_its_texts_alone(here: Path):
    record, out = dealt("texts.jsonl", "--holdout-share", "0.25")
    query, holdout = lines("query"), lines("holdout")
    assert (len(query), len(holdout)) == (45, 15)
    texts = [{key: line[key] for key in ("question", "answer")} for line in records()]
    assert sorted(query + holdout, key=number) == texts
    assert [number(each) for each in query] == sorted(map(number, query))
    assert (record["by_groups"], record["copies"], record["members"]) == (False, 0, None)
    assert record["source"]["sha256"] == hashlib.sha256(Path("texts.jsonl").read_bytes()).hexdigest()
    assert record["query"]["sha256"] == hashlib.sha256(Path("deal/query.jsonl").read_bytes()).hexdigest()
    assert {path.stat().st_mode & 0o777 for path in Path("deal").iterdir()} == {0o600}
    assert "records alone: author, id." in out
    assert "jaxaudit scores lm MODEL deal/query.jsonl deal/holdout.jsonl --out scores.csv" in out
    assert "npz" not in out


def test_groups_are_dealt_whole_and_their_values_are_in_no_file(here: Path):
    Path("texts.jsonl.gz").write_bytes(gzip.compress(Path("texts.jsonl").read_bytes()))
    record, out = dealt("texts.jsonl.gz", "--groups", "author", "--members-share", "0.4", "--holdout-share", "0.3")
    sides = {of: lines(of) for of in ("query", "members", "holdout")}
    assert [record[of]["groups"] for of in sides] == [6, 8, 6]
    assert sorted(number(each) for side in sides.values() for each in side) == list(range(COUNT))
    whole = [(number(each) // SIZE, each["group"]) for side in sides.values() for each in side]
    assert [len(set(each)) for each in (whole, *zip(*whole, strict=True))] == [COUNT // SIZE] * 3
    assert all({"group", "question", "answer"} == each.keys() for side in sides.values() for each in side)
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in Path("deal").iterdir())
    assert " deal/members.jsonl " in out
    assert "by random numbers" in out


def test_what_was_shared_is_withdrawn_in_part_and_a_file_of_groups_will_do(here: Path):
    np.save("groups.npy", np.arange(COUNT) // SIZE)
    record, out = dealt("texts.jsonl", "--withdraw", "0.25", "--groups", "groups.npy")
    assert (record["query"]["groups"], record["members"]["groups"], record["holdout"]) == (5, 15, None)
    assert " deal/members.jsonl deal/holdout.jsonl --out" in out
    assert lines("query")[0].keys() == {"question", "answer", "group"}


def test_equal_texts_stay_together(here: Path):
    twice = [{**each, "author": str(row)} for row, each in enumerate([*records(), *records()])]
    write_lines("twice.jsonl", twice)
    record, out = dealt("twice.jsonl")
    assert (record["copies"], record["by_groups"]) == (COUNT, True)
    for of in ("query", "holdout"):
        numbers = sorted(map(number, lines(of)))
        assert numbers[::2] == numbers[1::2]
    assert f"{COUNT} records are copies of others" in out


def rewritten(change: Callable[[Line], Line], name: str = "texts.jsonl") -> Callable[[], object]:
    return lambda: write_lines(name, [change(each) for each in records()])


REFUSED: dict[str, tuple[Callable[[], object], Sequence[str], str]] = {
    "blind": (lambda: None, ("texts.jsonl", "--blind"), "--blind: is of records with outputs"),
    "few records": (lambda: write_lines("texts.jsonl", records(4)), ("texts.jsonl",), "4 records are too few"),
    "no key": (lambda: None, ("texts.jsonl", "--groups", "patient"), "is neither a file nor a key of the lines"),
    "a text as groups": (lambda: None, ("texts.jsonl", "--groups", "answer"), "is a text of the records"),
    "a key of a deal": (
        rewritten(lambda each: {**each, "group": 1}),
        ("texts.jsonl", "--groups", "author"),
        "has a key 'group', the name of the groups of a deal",
    ),
    "a group of some": (
        rewritten(lambda each: each if number(each) else {**each, "author": [SECRET]}),
        ("texts.jsonl", "--groups", "author"),
        "record 1 has no 'author', as others have, or it is neither",
    ),
    "no file": (lambda: None, ("nothing.jsonl",), "there is no such file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_dealt_is_refused_and_nothing_is_written(name: str, here: Path):
    make, words, said = REFUSED[name]
    np.savez("x.npz", x=np.zeros(3))
    make()
    assert SECRET not in refused(("deal", *words, "--out", "deal"), (said,))


def test_texts_that_tell_the_group_are_told(here: Path):
    plain = [{"prompt": f"Who {row}?", "answer": f"{row} é", "author": row // SIZE} for row in range(COUNT)]
    telling = [{**line, "prompt": f"Story {line['author']}", "answer": f"{line['prompt']}!"} for line in plain]
    write_lines("plain.jsonl", plain)
    write_lines("telling.jsonl", telling)
    for name in ("plain", "telling"):
        done = jaxaudit("deal", f"{name}.jsonl", "--groups", "author", "--seed", "7", "--out", name)
        assert done.code == 0
        assert ("the texts themselves (prompt)" in done.err) == (name == "telling")
