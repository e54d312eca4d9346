"""What `jaxaudit deal` writes has every value as it was given: nothing is rounded, cut or turned on the way."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from support.cli_runs import jaxaudit, refused

from jaxaudit.data import load


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


@pytest.mark.parametrize("form", ["png", "tif", "pgm"])
def test_scans_of_16_bits_keep_all_gray_levels(sets: Path, form: str) -> None:
    """Of 12-bit values in 16 bits: 60 different scans, of which 8 bits would leave a few dozen levels."""
    scans = np.random.default_rng(9).integers(0, 1177, (60, 16, 16)).astype(np.uint16)
    for row, scan in enumerate(scans):
        Path(f"scans/{'ab'[row % 2]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(scan).save(f"scans/{'ab'[row % 2]}/{row:03}.{form}")
    found = both_sides("scans")
    assert found["x"].dtype == np.uint16
    assert sorted_rows(found["x"]) == sorted_rows(scans)
    record = json.loads(Path("deal/deal.json").read_text())
    assert (record["source"]["groups"], record["copies"], record["by_groups"]) == (60, 0, False)
    # Judged, levels are shares of the scale of 16 bits, and two that differ by one stay apart.
    sets_of = ("--query", "deal/query.npz", "--holdout", "deal/holdout.npz")
    done = jaxaudit("shadows", "plan", *sets_of, "--models", "19", "--out", "bank")
    assert done.code == 0, done.err
    assert "up to 1,176 of 65,535" in done.err


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


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numbers_of_a_parquet_file_are_those_of_its_type(sets: Path, kind: type) -> None:
    numbers = (np.random.default_rng(3).normal(size=64) * 1e9).astype(kind)
    parquet.write_table(pyarrow.table({"a": numbers, "label": np.arange(64) % 2}), "all.parquet")
    assert sorted(both_sides("all.parquet")["x"][:, 0].tolist()) == sorted(numbers.tolist())


@pytest.mark.parametrize("kind", ["f8", "i8", ">i4", "u2", "?"])
def test_arrays_keep_their_type(sets: Path, kind: str) -> None:
    """Of a .npy, a folder and a split as of a .npz alone."""
    numbers = np.random.default_rng(4).uniform(0, 60_000, (60, 16))
    inputs = numbers > 30_000 if kind == "?" else numbers.astype(kind)
    labels = np.arange(60) % 2
    Path("folder").mkdir()
    for name, array in {"x": inputs, "y": labels, "folder/x": inputs, "folder/y": labels}.items():
        np.save(f"{name}.npy", array)
    np.savez("alone.npz", x=inputs, y=labels)
    np.savez("split.npz", x_train=inputs, y_train=labels, x_test=inputs[:9], y_test=labels[:9])
    for data in ("x.npy", "folder", "alone.npz", "split.npz@train"):
        found = both_sides(data, out=f"of {data}")["x"]
        assert (found.dtype.kind, found.dtype.itemsize) == (inputs.dtype.kind, inputs.dtype.itemsize)
        assert sorted_rows(found) == sorted_rows(inputs)


def test_what_64_bits_cannot_hold_is_refused(sets: Path) -> None:
    rows = "\n".join(f"{12345678901234567 + row},{row % 2}" for row in range(60))
    Path("ids.csv").write_text(f"id_,label\n{rows}\n")
    refused(("deal", "ids.csv", "--out", "deal"), ("2^53", "--drop"))


def test_the_label_is_said_and_can_be_named(sets: Path) -> None:
    """A coordinate is not taken for it; columns without a name and a value, and those of --drop, are left out."""
    rows = [f"{row}.5,{row % 7},{row % 3},{row % 4}," for row in range(60)]
    Path("moves.csv").write_text("\n".join(["x,y,z,activity,", *rows, ""]))
    refused(("deal", "moves.csv", "--out", "deal"), ("'y'", "'activity'", "--label"))
    done = jaxaudit("deal", "moves.csv", "--label", "activity", "--drop", "z", "--out", "deal")
    assert "column 5 has neither a name nor a value" in done.err
    query = load("deal/query.csv", label="activity")
    assert (query.titles, query.class_names) == (("x", "y"), tuple("0123"))
    Path("named.csv").write_text("\n".join(["a,b,c,class,", *rows, ""]))
    assert "column 'class' is read as the label" in jaxaudit("deal", "named.csv", "--out", "named").err
    query = ("--query", "named.csv@train[:30]", "--holdout", "named.csv@train[30:]", "--models", "19")
    for words, hint in ((("--label", "nobody"), "'nobody'"), (("--drop", "nobody"), "'nobody'")):
        refused(("shadows", "plan", *query, *words, "--out", "bank"), (hint,))
    refused(("deal", "hospital.npz", "--label", "a", "--out", "new"), ("--label is of the columns",))
