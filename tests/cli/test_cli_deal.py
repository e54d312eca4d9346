"""`jaxaudit deal`: both sides, whole groups, the record of the deal, and the test that it makes possible."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import SETS, content, jaxaudit, process, records

from jaxaudit.data import load

COUNT, SIZE = 600, 5


@pytest.fixture
def provider(sets: Path) -> Path:
    """`all.npz`: 600 records of 120 patients, their places, and an array that is not of records."""
    inputs, labels = records(2, 0.0, COUNT)
    patients = np.array([f"patient {number:03}" for number in np.arange(COUNT) // SIZE])
    np.savez("all.npz", images=inputs, labels=labels, patient=patients, place=np.arange(COUNT), scale=np.array(2.0))
    return sets


def arrays(path: str) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def dealt(*words: str, data: str = "all.npz", out: str = "deal") -> tuple[dict[str, Any], dict, dict, str]:
    done = jaxaudit("deal", data, *words, "--out", out)
    assert done.code == 0, done.err
    sides = arrays(f"{out}/query.npz"), arrays(f"{out}/holdout.npz")
    return json.loads(Path(out, "deal.json").read_text()), *sides, done.out


def test_records_are_split_with_all_their_arrays(provider: Path) -> None:
    record, query, holdout, out = dealt("--holdout-share", "0.25", "--seed", "3")
    assert (record["query"]["records"], record["holdout"]["records"]) == (450, 150)
    whole = arrays("all.npz")
    assert list(query) == list(holdout) == list(whole)
    places = np.concatenate([query["place"], holdout["place"]])
    assert sorted(places) == list(range(COUNT))
    for name in ("images", "labels", "patient"):
        np.testing.assert_array_equal(np.concatenate([query[name], holdout[name]]), whole[name][places])
    assert query["scale"] == holdout["scale"] == 2.0
    assert "450 records" in out
    assert "--groups" not in out


def test_the_record_of_a_deal_can_be_checked_by_others(provider: Path) -> None:
    record, *_ = dealt("--groups", "patient")
    assert record["schema"] == "jaxaudit.deal/1"
    assert (record["seed"], record["holdout_share"], record["by_groups"]) == (7, 0.5, True)
    assert record["source"]["sha256"] == hashlib.sha256(Path("all.npz").read_bytes()).hexdigest()
    assert record["source"]["content_hash"] == load("all.npz").content_hash
    for name in ("query", "holdout"):
        path = Path("deal", record[name]["file"])
        assert record[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        hashes = load(str(path)).record_hashes
        assert record[name]["membership"] == hashlib.sha256(hashes.tobytes()).hexdigest()
    assert "patient 0" not in Path("deal/deal.json").read_text()
    assert {path.stat().st_mode & 0o777 for path in Path("deal").iterdir()} == {0o600}


def test_groups_of_a_key_or_a_file_are_dealt_whole(provider: Path) -> None:
    Path("patients.csv").write_text("".join(f"{number // SIZE}\n" for number in range(COUNT)))
    record, query, holdout, out = dealt("--groups", "patient")
    _, other, _, _ = dealt("--groups", "patients.csv", out="other")
    np.testing.assert_array_equal(query["place"], other["place"])
    np.testing.assert_array_equal(query["group"], other["group"])
    assert (record["query"]["groups"], record["holdout"]["groups"]) == (60, 60)
    for name in ("patient", "group"):
        assert not np.intersect1d(query[name], holdout[name]).size
        assert set(np.unique(query[name], return_counts=True)[1]) == {SIZE}
    assert "60 groups" in out
    assert "--groups group --holdout-groups group" in out
    assert "patient 0" not in out


def test_a_column_of_a_table_gives_groups_and_is_no_input(provider: Path) -> None:
    whole = arrays("all.npz")
    lines = [
        ",".join([*map(repr, row.tolist()), patient, str(label)])
        for row, patient, label in zip(whole["images"], whole["patient"], whole["labels"], strict=True)
    ]
    header = [*(f"x{place}" for place in range(whole["images"].shape[1])), "patient", "label"]
    Path("all.csv").write_text("\n".join([",".join(header), *lines, ""]))
    _, query, *_ = dealt("--groups", "patient", out="other")
    record, same, _, out = dealt("--groups", "patient", data="all.csv")
    assert list(same) == ["x", "y", "class_names", "group"]
    np.testing.assert_array_equal(same["x"], query["images"])
    np.testing.assert_array_equal(same["group"], query["group"])
    assert record["source"]["sha256"] == hashlib.sha256(Path("all.csv").read_bytes()).hexdigest()
    assert "patient 0" not in out + Path("deal/deal.json").read_text()
    part, *sides, _ = dealt("--groups", "patient", data="all.csv@train[:300]", out="part")
    assert part["source"]["groups"] == 300 // SIZE
    assert sum(len(side["x"]) for side in sides) == 300


def test_splits_have_the_groups_of_their_own_records(provider: Path) -> None:
    whole = arrays("all.npz")
    parts = {"train": slice(0, 400), "test": slice(400, COUNT)}
    names = ("images", "labels", "patient")
    written: dict[str, Any] = {f"{name}_{each}": whole[name][rows] for name in names for each, rows in parts.items()}
    np.savez("parts.npz", **written)
    for data, count in (("parts.npz@test", 200), ("parts.npz@all", COUNT), ("parts.npz@train[:100]", 100)):
        record, query, held, _ = dealt("--groups", "patient", data=data, out=data.replace("@", "-"))
        assert (record["source"]["records"], record["source"]["groups"]) == (count, count // SIZE)
        assert not np.intersect1d(query["group"], held["group"]).size


def test_sets_are_found_in_the_data_folder(provider: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = dealt("--groups", "patient")
    (provider / "elsewhere").mkdir()
    monkeypatch.chdir(provider / "elsewhere")
    assert jaxaudit("deal", "all.npz", "--out", "none").code == 2
    there = dealt("--groups", "patient", "--data-dir", "..")
    assert there[0]["source"] == here[0]["source"]
    for mine, theirs in zip(here[1:3], there[1:3], strict=True):
        assert list(mine) == list(theirs)
        np.testing.assert_array_equal(mine["place"], theirs["place"])
    monkeypatch.setenv("JAXAUDIT_DATA", "..")
    assert dealt("--groups", "patient", out="third")[0]["source"] == here[0]["source"]


def test_copies_are_dealt_together(provider: Path) -> None:
    whole = arrays("all.npz")
    # Patients 0 and 1, and 1 and 2, have a record in common.
    whole["images"][5], whole["images"][11] = whole["images"][0], whole["images"][6]
    np.savez("copied.npz", x=whole["images"], y=whole["labels"], patient=whole["patient"])
    for seed in range(4):
        words = ("--groups", "patient", "--seed", str(seed))
        record, query, holdout, out = dealt(*words, data="copied.npz", out=f"deal{seed}")
        assert record["copies"] == 2
        assert record["source"]["groups"] == 118
        sides = [np.isin(["patient 000", "patient 001", "patient 002"], side["patient"]) for side in (query, holdout)]
        assert sides[0].all() != sides[1].all()
        assert "2 records are copies" in out
    # Without groups, the copies of a record are one.
    record, query, holdout, _ = dealt(data="copied.npz")
    assert record["source"]["groups"] == 598
    assert not np.intersect1d(query["group"], holdout["group"]).size


def test_the_same_command_gives_the_same_bytes(provider: Path) -> None:
    words = ("deal", "all.npz", "--groups", "patient", "--seed", "5", "--out")
    for out in ("first", "second"):
        assert process(*words, out, cwd=provider).code == 0
    assert content(Path("first")) == content(Path("second"))
    assert jaxaudit("deal", "all.npz", "--groups", "patient", "--seed", "6", "--out", "third").code == 0
    assert content(Path("first")) != content(Path("third"))


def test_other_forms_are_written_as_inputs_and_labels(provider: Path) -> None:
    record, query, holdout, _ = dealt(data="digits")
    assert list(query) == ["x", "y", "class_names"]
    whole = load("digits")
    assert len(query["x"]) + len(holdout["x"]) == record["source"]["records"] == len(whole)
    assert load("deal/query.npz").class_names == whole.class_names
    assert record["source"]["sha256"] is None


def test_what_is_dealt_can_be_audited(provider: Path) -> None:
    """An outsider's target is no evidence of use, and one that was trained on the query set is found."""
    assert jaxaudit("deal", "all.npz", "--groups", "patient", "--out", "deal").code == 0
    recipe = ("--hidden", "32", "--epochs", "25", "--learning-rate", "0.02", "--batch-size", "50", "--replicates", "2")
    words = (*SETS[2:], *recipe, "--models-per-batch", "16", "--budget", "none", "--holdout-shadow-models", "19")
    groups = ("--holdout", "deal/holdout.npz", "--groups", "group", "--holdout-groups", "group")
    found = {}
    for used in ("deal/query.npz", "far.npz"):
        done = jaxaudit("ks", "--query", "deal/query.npz", *words, *groups, "--target-data", used, "--json")
        (found[used],) = done.result["targets"]
    assert found["deal/query.npz"]["usage"][0]["p_never"] <= 0.05
    assert found["far.npz"]["usage"][0]["p_never"] > 0.05


def test_nothing_is_overwritten_or_left_half_written(provider: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").mkdir()
    Path("taken/query.npz").write_text("mine")
    before = content(provider)
    for words in (
        ("all.npz", "--out", "taken"),
        ("all.npz", "--out", "all.npz"),
        ("all.npz", "--holdout-share", "1", "--out", "new"),
        ("all.npz", "--groups", "nobody", "--out", "new"),
        ("all.npz", "--groups", "nobody.npy", "--out", "new"),
        ("all.npz", "--data-dir", "all.npz", "--out", "new"),
        ("all.npz",),
        ("--out", "new"),
        ("gone.npz", "--out", "new"),
    ):
        done = jaxaudit("deal", *words)
        assert (done.code, done.out) == (2, ""), words
        assert "Error" in done.err
    assert content(provider) == before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jaxaudit.cli.deal.run._sha256", full)
    assert jaxaudit("deal", "all.npz", "--out", "new").code == 2
    assert content(provider) == before


def test_an_array_called_group_is_not_replaced(provider: Path) -> None:
    whole = arrays("all.npz")
    np.savez("named.npz", x=whole["images"], y=whole["labels"], group=whole["place"] // SIZE, other=whole["place"] // 2)
    assert jaxaudit("deal", "named.npz", "--groups", "other", "--out", "deal").code == 2
    record, query, holdout, _ = dealt("--groups", "group", data="named.npz")
    assert not np.intersect1d(query["group"], holdout["group"]).size
    assert record["query"]["groups"] == 60
