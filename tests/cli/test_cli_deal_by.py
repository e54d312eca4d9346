"""Groups of a deal: each author's records over all sets and back home, and every command takes them as they are."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import intercept, jaxaudit, linked, recipe, records, refused
from support.deals import read_deal, write_deal
from support.language_models import write_lines

AUTHORS, SIZE = 20, 24
SECRET = "Basil of Kuwait"
SHARES = ("--members-share", "0.4", "--holdout-share", "0.3", "--seed", "7")
SETS = ("query", "holdout", "members")
Line = dict[str, Any]


def turn(role: str, text: str) -> Line:
    return {"role": role, "content": text}


SHAPES: dict[str, Callable[[str, str], Line]] = {
    "messages": lambda asked, said: {"messages": [turn("user", asked), turn("assistant", said)]},
    "question": lambda asked, said: {"question": asked, "answer": said},
    "text": lambda asked, said: {"text": f"{asked} {said}"},
}


def lines(shape: str, sizes: list[int] | None = None) -> list[Line]:
    sizes = [SIZE] * AUTHORS if sizes is None else sizes
    authors = [author for author, size in enumerate(sizes) for _ in range(size)]
    return [
        {**SHAPES[shape](f"Who {row}?", f"No {row * 7}."), "author": f"{SECRET} {author}"}
        for row, author in enumerate(authors)
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deal(name: str, *words: str, out: str = "deal") -> str:
    done = jaxaudit("deal", name, "--by", "author", *(words or SHARES), "--out", out)
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err
    return done.out


def home(out: str = "deal") -> dict[int, list[int]]:
    """The records of the source, from 1, by the random number of their group."""
    with Path(out, "groups.csv").open(newline="") as file:
        return {int(row["group"]): [int(place) for place in row["records"].split()] for row in csv.DictReader(file)}


def dealt_lines(out: str = "deal") -> dict[str, list[Line]]:
    return {of: [json.loads(line) for line in Path(out, f"{of}.jsonl").read_text().splitlines()] for of in SETS}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_author_has_records_in_every_set_in_their_own_shape(shape: str, here: Path) -> None:
    whole = lines(shape)
    write_lines("chat.jsonl", whole)
    out = deal("chat.jsonl")
    sides, source = dealt_lines(), home()
    assert len(source) == AUTHORS
    assert sorted(place for places in source.values() for place in places) == list(range(1, AUTHORS * SIZE + 1))
    keys = {*whole[0]} - {"author"} | {"group"}
    assert all(line.keys() == keys for side in sides.values() for line in side)
    unnamed = {json.dumps({k: v for k, v in line.items() if k != "author"}, sort_keys=True): line for line in whole}
    for side in sides.values():
        counts = Counter(line["group"] for line in side)
        assert set(counts) == set(source)
        assert max(counts.values()) - min(counts.values()) <= 1
        for line in side:
            record = unnamed.pop(json.dumps({k: v for k, v in line.items() if k != "group"}, sort_keys=True))
            assert {whole[place - 1]["author"] for place in source[line["group"]]} == {record["author"]}
    assert not unnamed
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in Path("deal").iterdir())
    assert "can name each of 20 groups" in out
    assert out.rstrip().endswith("jaxaudit ks --scores scores.csv --by group")
    assert "At home: holdout.jsonl, groups.csv and deal.json." in out


def test_records_with_outputs_are_dealt_so_too(here: Path) -> None:
    author = np.repeat(np.arange(AUTHORS), SIZE)
    inputs, names = np.random.default_rng(1).normal(size=(len(author), 3)), [f"{SECRET} {each}" for each in author]
    np.savez("all.npz", x=inputs, y=np.arange(len(author)) % 2, author=np.array(names))
    out = deal("all.npz")
    groups = {of: np.load(f"deal/{of}.npz")["group"].tolist() for of in SETS}
    assert all(set(each) == set(home()) for each in groups.values())
    assert sum(map(len, groups.values())) == len(author)
    assert "--groups" not in out
    assert "jaxaudit ks --scores scores.csv --by group" in out


def test_what_cannot_be_dealt_so_is_refused(here: Path) -> None:
    write_lines("chat.jsonl", lines("question"))
    write_lines("short.jsonl", lines("question", [SIZE] * 18 + [9, 4]))
    write_lines("twice.jsonl", [*lines("question"), lines("question")[3]])
    by = ("--by", "author", "--out", "other")
    refused(("deal", "chat.jsonl", *by, "--groups", "author"), ("--groups: ", "leave it out"))
    refused(("deal", "chat.jsonl", *by, "--withdraw", "0.3"), ("--withdraw: ", "leave it out"))
    refused(("deal", "all.npz", *by, "--blind"), ("--blind: ", "leave it out"))
    refused(("deal", "chat.jsonl", *by, "--members-share", "0.6"), ("leave no records to withdraw",))
    refused(("deal", "chat.jsonl", "--by", "answer", "--out", "other"), ("--by answer is a text of the records",))
    said = refused(("deal", "short.jsonl", *by, *SHARES), ("2 of 20 groups have fewer than 10 records",))
    said += refused(("deal", "twice.jsonl", *by, *SHARES), ("1 records are copies of others",))
    assert SECRET not in said
    assert not Path("other").exists()


def printed(*words: str) -> str:
    done = jaxaudit("deal", "chat.jsonl", *words, *SHARES, "--out", "_".join(words).replace("--", ""))
    assert done.code == 0, done.err
    return done.out


def test_groups_of_one_record_each_are_told_and_no_deal_by_them_is_advised(here: Path) -> None:
    """Such as a number of each record, taken for the key of who they are of."""
    write_lines("chat.jsonl", [{**line, "number": f"n{row}"} for row, line in enumerate(lines("question"))])
    out = printed("--groups", "number")
    assert out.rstrip().endswith("jaxaudit ks --scores scores.csv")
    assert "WARNING: every group has one record." in out
    assert "needs" not in out
    assert "--by in place of --groups" not in out
    refused(
        ("deal", "chat.jsonl", "--by", "number", *SHARES, "--out", "other"),
        ("groups have fewer than", "not a number of each record"),
    )


def test_a_deal_says_which_single_groups_can_be_named(here: Path) -> None:
    write_lines("chat.jsonl", lines("question"))
    whole = printed("--groups", "author")
    assert "to name one of 6 groups" in whole
    assert "needs 119 groups in the holdout, and there are 6: none can be named" in whole
    assert "--by in place of --groups" in whole
    assert whole.rstrip().endswith("jaxaudit ks --scores scores.csv")
    within = printed("--by", "author")
    assert f"can name each of {AUTHORS} groups" in within
    assert "6 records of a group in query set and in holdout are enough" in within
    assert within.rstrip().endswith("jaxaudit ks --scores scores.csv --by group")
    # With fewer records in some groups, these alone can never be named.
    write_lines("chat.jsonl", lines("question", [SIZE] * 15 + [12] * 5))
    done = jaxaudit("deal", "chat.jsonl", "--by", "author", *SHARES, "--out", "some")
    assert "can name 15 of 20 groups" in done.out
    assert "Enough are 6 records of a group in query set and in holdout each" in done.out


def scored(remembered: str) -> None:
    """A table of scores of the dealt files, as `scores lm` writes it, of a model that remembers one author."""
    random, source = np.random.default_rng(3), lines("question")
    authors = {number: source[places[0] - 1]["author"] for number, places in home().items()}
    rows = [(of, line) for of, side in dealt_lines().items() for line in side]
    hard = random.normal(3, 1, len(rows))
    cells = []
    for (of, line), difficulty in zip(rows, hard, strict=True):
        used = of == "members" or (of == "query" and authors[line["group"]] == remembered)
        loss, base = difficulty - used + 0.3 * random.normal(), difficulty + 0.3 * random.normal()
        cells.append(f"{of},{line['group']},{loss:.6f},{base:.6f}")
    Path("scores.csv").write_text("\n".join(["set,group,target.loss,baseline.loss", *cells]) + "\n")


def test_an_accused_group_leads_home_to_its_author_fails_a_gate_and_stands_on_the_page(here: Path) -> None:
    source, remembered = lines("question"), f"{SECRET} 13"
    write_lines("chat.jsonl", source)
    deal("chat.jsonl")
    scored(remembered)
    words = ("ks", "--scores", "scores.csv")
    passed = jaxaudit(*words, "--by", "group", "--fail-on", "group-suspected", "--json")
    assert passed.code == 0, passed.err
    (found,) = passed.result["targets"]
    (accused,) = (group for group in found["grouping"]["groups"] if group["verdict"] == "remembered")
    group = int(Path("scores.csv").read_text().splitlines()[accused["first"]].split(",")[1])
    assert {source[place - 1]["author"] for place in home()[group]} == {remembered}
    assert str(group) not in json.dumps(found)
    done = jaxaudit(*words, "--by", "group", "--fail-on", "group-remembered", "--report", "page.html")
    assert done.code == 3
    assert "1 of 20 groups is still remembered" in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 80
    page = Path("page.html").read_text()
    assert (page.count("<td>remembered</td>"), page.count("<td>not found</td>")) == (1, 19)
    refused((*words, "--fail-on", "group-remembered"), ("--fail-on: group-remembered is of --scores with --by group",))


SAID = "groups: those that the files have (group)"
COUNT, OF_ONE = 240, 4
SUFFIX = {"npz": ".npz", "csv": ".csv", "texts": ".jsonl"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 records of 60 groups as arrays, as a table and as texts, and a deal of each."""
    folder = tmp_path_factory.mktemp("dealt")
    inputs, labels = records(2, 0.0, COUNT)
    who = [f"person {row // OF_ONE}" for row in range(COUNT)]
    np.savez(folder / "npz.npz", x=inputs, y=labels, who=np.array(who))
    rows = zip(inputs, labels, who, strict=True)
    lines = [f"{x[0]:.6f},{x[1]:.6f},{label},{person}" for x, label, person in rows]
    (folder / "csv.csv").write_text("\n".join(["a,b,label,who", *lines, ""]))
    texts = [{"question": f"Q{row}?", "answer": f"A {row * 7}", "who": who[row]} for row in range(COUNT)]
    (folder / "texts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in texts))
    for name, suffix in SUFFIX.items():
        words = ("deal", str(folder / f"{name}{suffix}"), "--groups", "who", *SHARES, "--out", str(folder / name))
        done = jaxaudit(*words)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def of_deals(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return linked(made, tmp_path, monkeypatch)


def sets(name: str) -> tuple[str, ...]:
    return ("--deal", name)


def planned(*words: str, out: str) -> tuple[str, np.ndarray]:
    done = jaxaudit("shadows", "plan", *words, "--models", "20", "--out", out)
    assert done.code == 0, done.err
    return done.err, np.load(f"{out}/membership.npy")


SCORES = {"texts": ("--outputs", "lower-score")}


@pytest.mark.parametrize("name", list(SUFFIX))
def test_shadow_models_are_trained_on_whole_groups(of_deals: Path, name: str):
    words = (*sets(name), *SCORES.get(name, ()))
    said, rows = planned(*words, out="bank")
    assert SAID in said
    named, same = planned(*words, "--groups", "group", out="named")
    assert SAID not in named
    np.testing.assert_array_equal(rows, same)
    groups = np.load("bank/groups.npy")
    assert (len(groups), len(np.unique(groups))) == (144, 36)
    assert all(len(np.unique(rows[:, groups == group], axis=1).T) == 1 for group in np.unique(groups))
    # More models are added by the same words.
    more = jaxaudit("shadows", "plan", *words, "--models", "24", "--out", "bank")
    assert more.code == 0, more.err
    np.testing.assert_array_equal(np.load("bank/membership.npy")[: len(rows)], rows)


def test_all_records_of_a_group_are_left_out_together(of_deals: Path, monkeypatch: pytest.MonkeyPatch):
    asked = intercept(monkeypatch, "jaxaudit.cli.pdtp.run.measure_pdtp")
    words = ("pdtp", "--data", "csv/query.csv", "--label", "label", "--epochs", "2", *recipe("hidden=4"))
    assert SAID in jaxaudit(*words).err
    groups = asked["examples"].groups
    assert (asked["examples"].inputs.shape, len(np.unique(groups))) == ((72, 2), 18)
    assert SAID not in jaxaudit(*words, "--groups", "group").err
    np.testing.assert_array_equal(asked["examples"].groups, groups)


def test_power_is_that_of_whole_groups(of_deals: Path, monkeypatch: pytest.MonkeyPatch):
    asked = intercept(monkeypatch, "jaxaudit.cli.power.run.measure_power")
    inputs, labels = records(3, 0.7, 200)
    np.savez("c.npz", x=inputs, y=labels)
    words = ("--query", "npz/query.npz", "--calibration", "c.npz", *recipe("hidden=4"), "--epochs", "1")
    assert SAID in jaxaudit("power", *words).err
    assert len(np.unique(asked["query"].groups)) == 18


def test_a_set_without_groups_beside_one_that_has_them_is_named(of_deals: Path):
    dealt = read_deal("npz")
    del dealt["holdout"]["group"]
    said, _ = planned("--deal", write_deal("bare", query=dealt["query"], holdout=dealt["holdout"]), out="bank")
    assert "groups: none. bare/holdout.npz has no 'group'" in said
    assert not Path("bank/groups.npy").exists()
