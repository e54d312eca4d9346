"""`jaxaudit deal`: its sides, whole groups, every value as it was given, the record of the deal, the test it allows."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import csv
from scipy import stats
from support.cli_runs import arrays, content, jaxaudit, records, refused
from support.deals import write_deal

from jaxaudit.data import load
from jaxaudit.metrics import deal_holdout
from jaxaudit.randomness import stream

COUNT, SIZE = 600, 5


@pytest.fixture
def provider(sets: Path) -> Path:
    """`all.npz`: 600 records of 120 patients, and further arrays, of which one is not of records."""
    inputs, labels = records(2, 0.0, COUNT)
    patients = np.array([f"patient {number:03}" for number in np.arange(COUNT) // SIZE])
    np.savez("all.npz", images=inputs, labels=labels, patient=patients, place=np.arange(COUNT), scale=np.array(2.0))
    return sets


def dealt(*words: str, data: str = "all.npz", out: str = "deal") -> tuple[dict[str, Any], dict, dict, str]:
    """The record, two sides (the holdout, or what stays where records are withdrawn), and the output."""
    done = jaxaudit("deal", data, *(() if "--seed" in words else ("--seed", "7")), *words, "--out", out)
    assert done.code == 0, done.err
    names = sorted(path.name for path in Path(out).iterdir())
    members, holdout = "--members-share" in words or "--withdraw" in words, "--withdraw" not in words
    home = ["groups.csv"] * ("--groups" in words)
    assert names == ["deal.json", *home, *["holdout.npz"] * holdout, *["members.npz"] * members, "query.npz"]
    other = "holdout" if holdout else "members"
    sides = arrays(f"{out}/query.npz"), arrays(f"{out}/{other}.npz")
    return json.loads(Path(out, "deal.json").read_text()), *sides, done.out


def places(*sides: dict[str, np.ndarray]) -> np.ndarray:
    """Where the records of these sides, one after the other, stand in `all.npz`."""
    rows = {row.tobytes(): place for place, row in enumerate(arrays("all.npz")["images"])}
    return np.array([rows[row.tobytes()] for side in sides for row in side["x"]])


def written(folder: str) -> bytes:
    """All bytes of a deal; those of text in arrays as one byte per character."""
    return b"".join(path.read_bytes() for path in Path(folder).iterdir()).replace(b"\0\0\0", b"")


def test_records_are_split_without_further_arrays(provider: Path) -> None:
    record, query, holdout, out = dealt("--holdout-share", "0.25", "--seed", "3")
    assert (record["query"]["records"], record["members"], record["holdout"]["records"]) == (450, None, 150)
    whole = arrays("all.npz")
    assert list(query) == list(holdout) == ["x", "y"]
    assert sorted(places(query, holdout)) == list(range(COUNT))
    np.testing.assert_array_equal(np.concatenate([query["y"], holdout["y"]]), whole["labels"][places(query, holdout)])
    assert "450 records" in out
    assert "patient, place, scale" in out
    assert not any(word in out for word in ("--groups", "members"))
    assert "jaxaudit ks --deal deal --target OUTPUTS --before OUTPUTS_BEFORE\n" in out


def test_the_record_of_a_deal_can_be_checked_by_others(provider: Path) -> None:
    record, *_ = dealt("--groups", "patient", "--members-share", "0.2")
    assert record["schema"] == "jaxaudit.deal/1"
    assert (record["seed"], record["by_groups"]) == (7, True)
    assert (record["holdout_share"], record["members_share"], record["withdraw"]) == (0.5, 0.2, None)
    assert record["source"]["sha256"] == hashlib.sha256(Path("all.npz").read_bytes()).hexdigest()
    assert record["source"]["content_hash"] == load("all.npz").content_hash
    for name in ("query", "members", "holdout"):
        path = Path("deal", record[name]["file"])
        assert record[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        hashes = load(str(path)).record_hashes
        assert record[name]["membership"] == hashlib.sha256(hashes.tobytes()).hexdigest()
    assert {path.stat().st_mode & 0o777 for path in Path("deal").iterdir()} == {0o600}


def test_members_are_dealt_from_what_the_holdout_leaves(provider: Path) -> None:
    words = ("--holdout-share", "0.3", "--groups", "patient")
    _, _, alone, _ = dealt(*words, out="alone")
    record, query, holdout, out = dealt(*words, "--members-share", "0.4")
    members = arrays("deal/members.npz")
    np.testing.assert_array_equal(holdout["x"], alone["x"])
    sides = {"query": query, "members": members, "holdout": holdout}
    assert [record[name]["groups"] for name in sides] == [36, 48, 36]
    assert sorted(places(*sides.values())) == list(range(COUNT))
    assert sum(len(np.unique(side["group"])) for side in sides.values()) == COUNT // SIZE
    assert "jaxaudit ks --deal deal --target OUTPUTS\n" in out
    assert "query, members and holdout of one .npz" in out


def test_what_was_shared_before_is_split_into_what_is_withdrawn_and_what_stays(provider: Path) -> None:
    _, shared, kept, _ = dealt("--groups", "patient", out="first")
    record, query, members, out = dealt("--withdraw", "0.25", "--groups", "group", data="first/query.npz")
    assert (record["withdraw"], record["holdout_share"], record["members_share"]) == (0.25, None, None)
    assert (record["query"]["groups"], record["members"]["groups"], record["holdout"]) == (15, 45, None)
    assert sorted(places(query, members)) == sorted(places(shared))
    assert "the holdout.npz of the earlier deal beside query.npz" in out
    assert "jaxaudit ks --deal deal --target OUTPUTS\n" in out
    # Groups that are still distinct, of the earlier holdout, have other numbers although the seed is the same.
    for one, other in ((query, members), (query, kept), (members, kept)):
        assert not np.intersect1d(one["group"], other["group"]).size


@pytest.mark.parametrize("words", [(), ("--members-share", "0.2"), ("--withdraw", "0.4")])
def test_nobody_can_repeat_a_deal_without_its_seed(provider: Path, words: tuple[str, ...]) -> None:
    for out in ("first", "second"):
        assert jaxaudit("deal", "all.npz", *words, "--out", out).code == 0
    seeds = [json.loads(Path(out, "deal.json").read_text())["seed"] for out in ("first", "second")]
    assert arrays("first/query.npz")["x"].tolist() != arrays("second/query.npz")["x"].tolist()
    assert jaxaudit("deal", "all.npz", *words, "--seed", str(seeds[0]), "--out", "again").code == 0
    assert content(Path("again")) == content(Path("first"))


def test_every_bit_of_a_seed_counts(provider: Path) -> None:
    """`jax.random.key` drops all but 32; below that, deals are those of this key."""
    queries = [places(dealt("--seed", str(1 + (1 << bit)), out=f"of {bit}")[1]) for bit in (1, 32, 33, 62)]
    assert len({tuple(each) for each in queries}) == 4
    held = deal_holdout(stream(jax.random.key(3), "deal"), COUNT)
    np.testing.assert_array_equal(queries[0], np.flatnonzero(~held))


@pytest.mark.parametrize("key", ["patient_id", "Patient-ID"])
def test_no_value_of_a_group_is_written(provider: Path, key: str) -> None:
    """Neither words nor whole numbers, of which any of four bytes may stand by chance among random ones."""
    # The reader of groups takes a name in capitals or small letters, with hyphens or without.
    whole: dict[str, Any] = arrays("all.npz")
    names, numbers = whole.pop("patient"), 910_000_000_000_000 + np.arange(COUNT) // SIZE
    Path("elsewhere").mkdir()
    whole[key] = names if key == "patient_id" else numbers
    np.savez("elsewhere/records.npz", **whole)
    words = ("--groups", "PATIENT_id", "--members-share", "0.2", "--withdraw", "0.3")
    for out, chosen in (("deal", words[:4]), ("withdrawn", (*words[:2], *words[4:]))):
        record, query, other, said = dealt(*chosen, data="elsewhere/records.npz", out=out)
        assert list(query) == list(other) == ["x", "y", "group"]
        assert record["source"]["name"] == "records.npz"
        assert b"patient" not in written(out).lower()
        for number in np.unique(numbers).tolist():
            texts = (str(number).encode(), number.to_bytes(8, "little"), number.to_bytes(8, "big"))
            assert not any(text in each.read_bytes() for each in Path(out).iterdir() for text in texts)
        assert "patient" not in said.lower()
        assert "elsewhere" not in said


@pytest.mark.parametrize("groups", ["patient", "ids.npy"])
def test_inputs_and_labels_with_values_of_the_groups_are_refused(provider: Path, groups: str) -> None:
    random = np.random.default_rng(1)
    usual, few = {"a": random.normal(size=60), "b": random.normal(size=60)}, np.arange(60) // SIZE
    for name, ids, more, said in (
        ("inputs", 900_001 + few, {"patient_id": 900_001 + few, "label": few % 2}, "column 'patient_id' has"),
        ("labels", few, {"label": few}, "labels are the values of the groups"),
    ):
        np.save("ids.npy", ids)
        columns = {**usual, **({"patient": ids} if groups == "patient" else {}), **more}
        csv.write_csv(pyarrow.table(columns), f"{name}.csv")
        assert "9000" not in refused(("deal", f"{name}.csv", "--groups", groups, "--out", "deal"), (said,))


def test_class_names_with_values_of_the_groups_are_refused(provider: Path) -> None:
    whole = arrays("all.npz")
    names = np.array(["patient 003", "b", "c"])
    np.savez("named.npz", x=whole["images"], y=whole["labels"], patient=whole["patient"], class_names=names)
    words = ("deal", "named.npz", "--groups", "patient", "--out", "deal")
    assert "003" not in refused(words, ("class names have values of the groups",))


def test_the_number_of_a_group_is_random(provider: Path) -> None:
    """Rank correlation with the order of the file, over 8 deals of 120 groups: 8 p-values, none below 1e-4 / 8."""
    found = []
    for seed in range(8):
        _, *sides, _ = dealt("--groups", "patient", "--seed", str(seed), out=f"deal{seed}")
        numbers = np.concatenate([side["group"] for side in sides])
        assert numbers.max() < 2**53
        order = numbers[np.argsort(places(*sides))][::SIZE]
        found.append(stats.kendalltau(np.arange(len(order)), order)[1])
    assert min(found) > 1e-4 / 8


def test_a_part_of_a_table_is_dealt_as_arrays(provider: Path) -> None:
    whole = arrays("all.npz")
    columns = {f"x{place}": column for place, column in enumerate(whole["images"].T)}
    csv.write_csv(pyarrow.table({**columns, "patient": whole["patient"], "label": whole["labels"]}), "all.csv")
    part, query, *_ = dealt("--groups", "patient", data="all.csv@train[:300]", out="part")
    assert (part["source"]["records"], part["source"]["groups"]) == (300, 300 // SIZE)
    assert list(query) == ["x", "y", "class_names", "group"]


def test_one_of_several_splits_is_dealt_where_it_is_named_alone(provider: Path) -> None:
    """Records of the others would be in no side: files, folders and sets of TensorFlow Datasets alike."""
    parts, whole = {"train": slice(0, 300), "val": slice(300, 400), "test": slice(400, COUNT)}, arrays("all.npz")
    named: dict[str, Any] = {f"{to}_{name}": whole[name][parts[to]] for to in parts for name in ("images", "labels")}
    np.savez("parts.npz", **named)
    Path("folder").mkdir()
    for name, array in named.items():
        np.save(f"folder/{name}.npy", array)
    for data in ("parts.npz", "folder"):
        ways = (f"{data}@all", f"{data}@train", f"{data}@train+test")
        refused(("deal", data, "--out", "deal"), ("300 of its 600 records", *ways))
    assert "train, validation, test" in jaxaudit("deal", "parts.npz", "--out", "deal").err
    for data, count in {"parts.npz@train": 300, "parts.npz@train+test": 500, "folder@all": 600}.items():
        record, query, _, out = dealt(data=data, out=f"of {count}")
        assert (record["source"]["records"], data in out, list(query)[:2]) == (count, True, ["x", "y"])


def test_what_deal_writes_is_planned_as_it_stands(provider: Path) -> None:
    """Copies are one group each, also those that only other commands see, since they read images in gray.

    Commands that take the files find the groups there.
    """
    random = np.random.default_rng(1)
    images = random.integers(0, 255, (60, 4, 4, 3), np.uint8)
    images[7] = images[3]
    # 114 * 34 is 299 * 11 + 587: as bright as each other.
    images[20], images[41] = (0, 0, 34), (11, 1, 0)
    np.savez("color.npz", x=images, y=np.arange(60) % 2)
    for seed in range(2):
        deal = f"deal{seed}"
        record, query, holdout, out = dealt("--seed", str(seed), data="color.npz", out=deal)
        assert record["copies"] == 2
        numbers = zip(np.r_[query["x"], holdout["x"]], np.r_[query["group"], holdout["group"]], strict=True)
        of_image = {image.tobytes(): number for image, number in numbers}
        groups = [of_image[image.tobytes()] for image in images]
        assert (groups[3] == groups[7], groups[20] == groups[41], len(np.unique(groups))) == (True, True, 58)
        assert "belong together (group)" in out
        plan = ("shadows", "plan", "--models", "19", "--deal")
        done = jaxaudit(*plan, deal, "--out", f"bank{seed}")
        assert (done.code, np.load(f"bank{seed}/groups.npy").max()) == (0, 57), done.err
        for side in (query, holdout):
            del side["group"]
        refused((*plan, write_deal("bare", query=query, holdout=holdout), "--out", f"none{seed}"), ("give --groups",))


def test_other_forms_are_written_as_inputs_and_labels(provider: Path) -> None:
    record, query, holdout, _ = dealt(data="digits")
    assert list(query) == ["x", "y", "class_names"]
    whole = load("digits")
    assert len(query["x"]) + len(holdout["x"]) == record["source"]["records"] == len(whole)
    assert load("deal/query.npz").class_names == whole.class_names
    assert record["source"]["sha256"] is None


def test_nothing_is_overwritten_or_left_half_written(provider: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").mkdir()
    Path("taken/query.npz").write_text("mine")
    before = content(provider)
    for words in (
        ("all.npz", "--out", "taken"),
        ("all.npz", "--out", "all.npz"),
        ("all.npz", "--holdout-share", "1", "--out", "new"),
        ("all.npz", "--members-share", "0", "--out", "new"),
        ("all.npz", "--members-share", "0.4", "--holdout-share", "0.6", "--out", "new"),
        ("all.npz", "--withdraw", "1", "--out", "new"),
        ("all.npz", "--withdraw", "0.5", "--holdout-share", "0.5", "--out", "new"),
        ("all.npz", "--seed", str(2**63), "--out", "new"),
        ("all.npz", "--groups", "labels", "--out", "new"),
        ("all.npz", "--groups", "nobody", "--out", "new"),
        ("all.npz", "--groups", "nobody.npy", "--out", "new"),
        ("all.npz",),
        ("--out", "new"),
        ("gone.npz", "--out", "new"),
    ):
        done = jaxaudit("deal", *words)
        assert (done.code, done.out, "Error" in done.err) == (2, "", True), words
    assert content(provider) == before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jaxaudit.cli.deal.run.write_record", full)
    refused(("deal", "all.npz", "--out", "new"))


def test_an_array_called_group_is_not_replaced(provider: Path) -> None:
    whole = arrays("all.npz")
    np.savez("named.npz", x=whole["images"], y=whole["labels"], group=whole["place"] // SIZE, other=whole["place"] // 2)
    for words in ((), ("--groups", "other")):
        refused(("deal", "named.npz", *words, "--out", "deal"))
    record, query, holdout, _ = dealt("--groups", "group", data="named.npz")
    assert not np.intersect1d(query["group"], holdout["group"]).size
    assert record["query"]["groups"] == 60


@pytest.mark.parametrize("kind", ["f8", "i8", ">i4", "u2", "?"])
def test_arrays_and_images_keep_their_type(sets: Path, kind: str) -> None:
    """Of a folder and a split as of a .npz alone; scans keep all gray levels of 16 bits."""
    numbers = np.random.default_rng(4).uniform(0, 60_000, (60, 16))
    inputs = numbers > 30_000 if kind == "?" else numbers.astype(kind)
    labels = np.arange(60) % 2
    Path("folder").mkdir()
    for name, array in {"x": inputs, "y": labels}.items():
        np.save(f"folder/{name}.npy", array)
    np.savez("alone.npz", x=inputs, y=labels)
    np.savez("split.npz", x_train=inputs, y_train=labels, x_test=inputs[:9], y_test=labels[:9])
    ways = ["folder", "alone.npz", "split.npz@train"]
    if kind == "u2":
        for row, scan in enumerate(inputs):
            Path(f"scans/{row % 2}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(scan.reshape(4, 4)).save(f"scans/{row % 2}/{row:03}.png")
        ways.append("scans")
    for data in ways:
        assert jaxaudit("deal", data, "--out", f"of {data}").code == 0
        found = np.concatenate([arrays(f"of {data}/{side}.npz")["x"] for side in ("query", "holdout")])
        assert (found.dtype.kind, found.dtype.itemsize) == (inputs.dtype.kind, inputs.dtype.itemsize)
        assert sorted(found.reshape(60, -1).tolist()) == sorted(inputs.tolist())


def test_the_label_has_its_name_or_is_named(sets: Path) -> None:
    """Columns of --drop are left out; a split begins at the last @, but where the path itself has one."""
    rows = [f"{row}.5,{row % 7},{row % 3},{row % 4}" for row in range(60)]
    Path("moves.csv").write_text("\n".join(["x,y,z,activity", *rows, ""]))
    refused(("deal", "moves.csv", "--out", "deal"), ("'label'", "--label", "pandas"))
    Path("a@b").mkdir()
    done = jaxaudit("deal", "moves.csv", "--label", "activity", "--drop", "z", "--out", "a@b/deal")
    assert done.code == 0, done.err
    query = load("a@b/deal/query.csv", label="activity")
    assert (query.titles, query.class_names) == (("x", "y"), tuple("0123"))
    fewer = [f"{row}.5,{row % 7},{row % 4}" for row in range(60, 120)]
    Path("c@1.csv").write_text("\n".join(["x,y,activity", *fewer, ""]))
    plan = ("shadows", "plan", "--models", "19", "--out", "bank", "--deal", "a@b/deal")
    np.savez("other.npz", x=np.random.default_rng(1).normal(size=(60, 2)), y=np.arange(60) % 4)
    for words, said in (
        (("--label", "nobody"), ("--label nobody", "'activity'")),
        (("--drop", "nobody"), ("'nobody'",)),
        # In which order the columns of arrays are is not known.
        (("--calibration", "other.npz"), ("query.csv names its columns and other.npz does not",)),
    ):
        refused((*plan, *words), said)
    done = jaxaudit(*plan, "--calibration", "c@1.csv")
    assert done.code == 0, done.err
    refused(("deal", "other.npz", "--label", "a", "--out", "new"), ("--label: is of the columns",))
    refused(("deal", "other.npz", "--drop", "a", "--out", "new"), ("--drop: is of the columns",))
