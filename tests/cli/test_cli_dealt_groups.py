"""Groups that `jaxaudit deal` wrote into the files: every command takes them by one rule, and says so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import jaxaudit, linked, records

SAID = "groups: those that the files have (group)"
COUNT, SIZE = 240, 4
SHARES = ("--members-share", "0.4", "--holdout-share", "0.3", "--seed", "7")
SUFFIX = {"npz": ".npz", "csv": ".csv", "texts": ".jsonl"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 records of 60 groups as arrays, as a table and as texts, and a deal of each."""
    folder = tmp_path_factory.mktemp("dealt")
    inputs, labels = records(2, 0.0, COUNT)
    who = [f"person {row // SIZE}" for row in range(COUNT)]
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
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return linked(made, tmp_path, monkeypatch)


def sets(name: str) -> tuple[str, ...]:
    return tuple(word for role in ("query", "holdout") for word in (f"--{role}", f"{name}/{role}{SUFFIX[name]}"))


def planned(*words: str, out: str) -> tuple[str, np.ndarray]:
    done = jaxaudit("shadows", "plan", *words, "--models", "20", "--out", out)
    assert done.code == 0, done.err
    return done.err, np.load(f"{out}/membership.npy")


SCORES = {"texts": ("--outputs", "score", "--direction", "lower")}


@pytest.mark.parametrize("name", list(SUFFIX))
def test_shadow_models_are_trained_on_whole_groups(here: Path, name: str):
    words = (*sets(name), *SCORES.get(name, ()))
    said, rows = planned(*words, out="bank")
    assert SAID in said
    named, same = planned(*words, "--groups", "group", "--holdout-groups", "group", out="named")
    assert SAID not in named
    np.testing.assert_array_equal(rows, same)
    groups = np.load("bank/groups.npy")
    assert (len(groups), len(np.unique(groups))) == (144, 36)
    assert all(len(np.unique(rows[:, groups == group], axis=1).T) == 1 for group in np.unique(groups))
    # More models are added by the same words.
    more = jaxaudit("shadows", "plan", *words, "--models", "24", "--out", "bank")
    assert more.code == 0, more.err
    np.testing.assert_array_equal(np.load("bank/membership.npy")[: len(rows)], rows)


@pytest.mark.parametrize(("count", "words"), [(144, sets("npz")), (72, sets("npz")[:2])])
def test_coins_deal_whole_groups_also_without_a_holdout(here: Path, count: int, words: tuple[str, ...]):
    said, rows = planned(*words, "--coins", out="bank")
    assert SAID in said
    groups = np.load("bank/groups.npy")
    assert groups.shape == (count,)
    assert all(len(np.unique(rows[:, groups == group], axis=1).T) == 1 for group in np.unique(groups))


def test_an_attack_on_texts_takes_the_groups_of_the_deal(here: Path):
    words = ("attack", "--query", "texts/query.jsonl", "--model", "gpt-1-8", "--tokens", "words", "--epochs", "1")
    done = jaxaudit(*words, "--optimizer", "adamw", "--pooled-shadow-models", "4", "--dry-run")
    assert done.code == 0, done.err
    assert SAID in done.err


def test_a_dry_run_of_training_reads_the_same_groups(here: Path):
    words = ("shadows", "train", "--model", "mlp", "--hidden", "4", "--epochs", "1", "--models", "20", "--dry-run")
    words += ("--out", "bank")
    assert SAID in jaxaudit(*words, *sets("csv")).err


def test_members_of_a_bank_of_whole_groups_need_no_word(here: Path):
    _, rows = planned(*sets("npz"), out="bank")
    classes = int(np.load("bank/labels.npy").max()) + 1
    labels = np.load("bank/labels.npy")
    random = np.random.default_rng(0)
    for model, row in enumerate(rows):
        np.save("outputs.npy", random.normal(size=(144, classes)) + 2 * np.eye(classes)[labels] * row[:, None])
        assert jaxaudit("shadows", "add", "bank", "outputs.npy", "--model", str(model)).code == 0
    for role, count in (("query", 72), ("holdout", 72), ("members", 96)):
        np.save(f"{role}.npy", random.normal(size=(count, classes)))
    words = ["ks", "--shadows", "bank", "--members", "npz/members.npz", "--target", "query.npy", "--json"]
    words += ["--holdout-target", "holdout.npy", "--members-target", "members.npy"]
    plain, named = jaxaudit(*words), jaxaudit(*words, "--members-groups", "group")
    assert plain.code == 0, plain.err
    assert (SAID in plain.err, SAID in named.err) == (True, False)
    assert plain.result["targets"] == named.result["targets"]


def test_power_is_that_of_whole_groups(here: Path):
    random = np.random.default_rng(1)
    np.savez("c.npz", x=random.normal(size=(200, 2)).astype(np.float32), y=np.arange(200) % 2)
    with np.load("npz/query.npz") as arrays:
        dealt = dict(arrays)
    half = {"x": dealt["x"][:, :2].astype(np.float32), "y": np.arange(len(dealt["y"])) % 2, "group": dealt["group"]}
    np.savez("q.npz", **half)
    words = ("--query", "q.npz", "--calibration", "c.npz", "--hidden", "4", "--epochs", "1", "--dry-run")
    assert SAID in jaxaudit("power", *words).err
    # Another array of this name is none of a deal.
    np.savez("q.npz", **{**half, "group": np.arange(len(dealt["y"])) % 2})
    assert SAID not in jaxaudit("power", *words).err


def measured(*words: str) -> Any:
    done = jaxaudit("pdtp", *words, "--epochs", "2", "--batch-size", "16", "--hidden", "4", "--json")
    assert done.code == 0, done.err
    return done


def test_all_records_of_a_group_are_left_out_together(here: Path):
    words = ("--csv", "csv/query.csv", "--label", "label", "--measured-records", "3")
    plain, named = measured(*words), measured(*words, "--groups", "group")
    assert (SAID in plain.err, SAID in named.err) == (True, False)
    assert plain.result["records"] == named.result["records"]
    assert plain.result["provenance"]["data"]["columns"] == ["a", "b"]


def test_steps_of_single_records_take_no_groups(here: Path):
    words = ("--csv", "csv/query.csv", "--label", "label", "--model", "nb", "--reduce", "1", "--json")
    done = jaxaudit("pdtp", *words)
    assert (done.code, SAID in done.err) == (0, False), done.err


def test_a_set_without_groups_beside_one_that_has_them_is_named(here: Path):
    with np.load("npz/holdout.npz") as arrays:
        np.savez("bare.npz", **{name: array for name, array in arrays.items() if name != "group"})
    said, _ = planned("--query", "npz/query.npz", "--holdout", "bare.npz", out="bank")
    assert "groups: none. bare.npz has no 'group'" in said
    assert not Path("bank/groups.npy").exists()
