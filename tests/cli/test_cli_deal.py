"""`jaxaudit deal`: its sides, whole groups, every value as it was given, the record of the deal, the test it allows."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import csv, parquet
from scipy import stats
from support.cli_runs import arrays, content, jaxaudit, records, refused
from support.deals import write_deal

from jaxaudit.data import load
from jaxaudit.metrics import deal_holdout
from jaxaudit.randomness import stream

COUNT, SIZE = 600, 5
ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


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
    # The reader of groups takes a name in capitals or small letters, with hyphens or without.
    named: dict[str, Any] = {key if name == "patient" else name: each for name, each in arrays("all.npz").items()}
    np.savez("all.npz", **named)
    Path("elsewhere").mkdir()
    Path("all.npz").rename("elsewhere/records.npz")
    words = ("--groups", "PATIENT_id", "--members-share", "0.2", "--withdraw", "0.3")
    for out, chosen in (("deal", words[:4]), ("withdrawn", (*words[:2], *words[4:]))):
        record, query, other, said = dealt(*chosen, data="elsewhere/records.npz", out=out)
        assert list(query) == list(other) == ["x", "y", "group"]
        assert record["source"]["name"] == "records.npz"
        assert b"patient" not in written(out).lower()
        assert "patient" not in said.lower()
        assert "elsewhere" not in said


@pytest.mark.parametrize(("form", "groups"), [("csv", "patient"), ("parquet", "patient"), ("csv", "ids.npy")])
def test_inputs_and_labels_with_values_of_the_groups_are_refused(provider: Path, form: str, groups: str) -> None:
    random = np.random.default_rng(1)
    usual, few = {"a": random.normal(size=60), "b": random.normal(size=60)}, np.arange(60) // SIZE
    for name, ids, more, said in (
        ("inputs", 900_001 + few, {"patient_id": 900_001 + few, "label": few % 2}, "column 'patient_id' has"),
        ("labels", few, {"label": few}, "labels are the values of the groups"),
    ):
        np.save("ids.npy", ids)
        columns = {**usual, **({"patient": ids} if groups == "patient" else {}), **more}
        table = pyarrow.table(columns)
        if form == "csv":
            csv.write_csv(table, f"{name}.csv")
        else:
            parquet.write_table(table, f"{name}.parquet")
        assert "9000" not in refused(("deal", f"{name}.{form}", "--groups", groups, "--out", "deal"), (said,))


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


def test_a_deal_by_whole_numbers_leaves_none_of_them(provider: Path) -> None:
    """Nor does a file beside it, and two deals that nobody seeded differ in numbers.

    Of numbers of four bytes one may stand by chance in a file of random ones.
    """
    numbers = 910_000_000_000_000 + np.arange(COUNT) // SIZE
    whole = arrays("all.npz")
    np.savez("whole.npz", x=whole["images"], y=whole["labels"], patient=numbers)
    found = []
    for out in ("first", "second"):
        assert jaxaudit("deal", "whole.npz", "--groups", "patient", "--members-share", "0.2", "--out", out).code == 0
        data = b"".join(path.read_bytes() for path in Path(out).iterdir())
        for number in np.unique(numbers).tolist():
            texts = (str(number).encode(), *(number.to_bytes(8, order) for order in ORDERS))
            assert not any(text in data for text in texts)
        found.append(arrays(f"{out}/query.npz")["group"])
    assert not np.intersect1d(*found).size


def both_sides(data: str, *words: str, out: str = "deal") -> dict[str, np.ndarray]:
    """The arrays of query set and holdout, one after the other."""
    done = jaxaudit("deal", data, *words, "--out", out)
    assert done.code == 0, done.err
    sides = []
    for side in ("query", "holdout"):
        if Path(data).suffix in (".csv", ".parquet"):
            sides.append({"x": load(f"{out}/{side}{Path(data).suffix}", exact=True).inputs})
            continue
        with np.load(f"{out}/{side}.npz", allow_pickle=False) as found:
            sides.append(dict(found))
    return {name: np.concatenate([side[name] for side in sides]) for name in sides[0] if name != "class_names"}


def sorted_rows(array: np.ndarray) -> list[list[float]]:
    return sorted(array.reshape(len(array), -1).tolist())


def test_scans_of_16_bits_keep_all_gray_levels(sets: Path) -> None:
    """Of 12-bit values in 16 bits: 60 different scans, of which 8 bits would leave a few dozen levels."""
    scans = np.random.default_rng(9).integers(0, 1177, (60, 16, 16)).astype(np.uint16)
    for row, scan in enumerate(scans):
        Path(f"scans/{'ab'[row % 2]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(scan).save(f"scans/{'ab'[row % 2]}/{row:03}.png")
    found = both_sides("scans")
    assert found["x"].dtype == np.uint16
    assert sorted_rows(found["x"]) == sorted_rows(scans)
    record = json.loads(Path("deal/deal.json").read_text())
    assert (record["source"]["groups"], record["copies"], record["by_groups"]) == (60, 0, False)
    # Judged, levels are shares of the scale of 16 bits, and two that differ by one stay apart.
    done = jaxaudit("shadows", "plan", "--deal", "deal", "--models", "19", "--out", "bank")
    assert done.code == 0, done.err


NUMBERS = [0.1, 1 / 3, 123_456_789.0, 1e-320, -9_007_199_254_740_991.0, 1e30, 5e-324, 2.5]
"""Of which 32 bits have the last one alone."""


@pytest.fixture
def table(sets: Path) -> np.ndarray:
    """The numbers of `all.csv`, 64 records of three columns and a label."""
    found = np.random.default_rng(2).permuted(np.tile(NUMBERS, (3, 8)), axis=1).T * [1, -1, 1]
    found[:, 2] = np.arange(64) + 0.1
    rows = [",".join(map(repr, (*row, "ab"[place % 2]))) for place, row in enumerate(found.tolist())]
    Path("all.csv").write_text("\n".join(["a,b,c,label", *rows, ""]).replace("'", ""))
    return found


def test_numbers_of_a_table_are_not_rounded(table: np.ndarray) -> None:
    assert sorted_rows(both_sides("all.csv", "--blind")["x"]) == sorted_rows(table)
    lines = [line.split(",") for line in Path("deal/challenge.csv").read_text().splitlines()[1:]]
    assert sorted([float(cell) for cell in line[1:]] for line in lines) == sorted_rows(table)


@pytest.mark.parametrize("kind", ["f8", "i8", ">i4", "u2", "?"])
def test_arrays_keep_their_type(sets: Path, kind: str) -> None:
    """Of a folder and a split as of a .npz alone."""
    numbers = np.random.default_rng(4).uniform(0, 60_000, (60, 16))
    inputs = numbers > 30_000 if kind == "?" else numbers.astype(kind)
    labels = np.arange(60) % 2
    Path("folder").mkdir()
    for name, array in {"x": inputs, "y": labels}.items():
        np.save(f"folder/{name}.npy", array)
    np.savez("alone.npz", x=inputs, y=labels)
    np.savez("split.npz", x_train=inputs, y_train=labels, x_test=inputs[:9], y_test=labels[:9])
    for data in ("folder", "alone.npz", "split.npz@train"):
        found = both_sides(data, out=f"of {data}")["x"]
        assert (found.dtype.kind, found.dtype.itemsize) == (inputs.dtype.kind, inputs.dtype.itemsize)
        assert sorted_rows(found) == sorted_rows(inputs)


def test_the_label_has_its_name_or_is_named(sets: Path) -> None:
    """Columns of --drop are left out."""
    rows = [f"{row}.5,{row % 7},{row % 3},{row % 4}" for row in range(60)]
    Path("moves.csv").write_text("\n".join(["x,y,z,activity", *rows, ""]))
    refused(("deal", "moves.csv", "--out", "deal"), ("'label'", "--label", "pandas"))
    done = jaxaudit("deal", "moves.csv", "--label", "activity", "--drop", "z", "--out", "deal")
    assert done.code == 0, done.err
    query = load("deal/query.csv", label="activity")
    assert (query.titles, query.class_names) == (("x", "y"), tuple("0123"))
    Path("named.csv").write_text("\n".join(["a,b,c,label", *rows, ""]))
    assert jaxaudit("deal", "named.csv", "--out", "named").code == 0
    plan = ("shadows", "plan", "--models", "19", "--out", "bank")
    refused((*plan, "--deal", "named", "--label", "nobody"), ("--label nobody", "'label'"))
    refused((*plan, "--query", "named/query.csv", "--calibration", "named.csv", "--label", "nobody"), ("'nobody'",))
    refused((*plan, "--deal", "named", "--drop", "nobody"), ("'nobody'",))
    refused(("deal", "hospital.npz", "--label", "a", "--out", "new"), ("--label: is of the columns",))
    np.savez("other.npz", x=np.random.default_rng(1).normal(size=(60, 2)), y=np.arange(60) % 4)
    assert jaxaudit("deal", "other.npz", "--out", "arrays").code == 0
    refused((*plan, "--deal", "arrays", "--calibration", "other.npz", "--drop", "a"), ("--drop: is of the columns",))
    # A split begins at the last @, but where the path itself has one.
    Path("a@b").mkdir()
    done = jaxaudit("deal", "moves.csv", "--label", "activity", "--drop", "z", "--out", "a@b/deal")
    assert done.code == 0, done.err
    fewer = [f"{row}.5,{row % 7},{row % 4}" for row in range(60, 120)]
    Path("c@1.csv").write_text("\n".join(["x,y,activity", *fewer, ""]))
    with_signs = ("--deal", "a@b/deal", "--calibration", "c@1.csv")
    done = jaxaudit(*plan[:-1], "of-three", *with_signs)
    assert done.code == 0, done.err
    # The label is of the table; in which order the columns of the arrays are is not known.
    mixed = ("--query", "deal/query.csv", "--calibration", "other.npz", "--label", "activity")
    refused((*plan, *mixed), ("query.csv names its columns and other.npz does not",))
