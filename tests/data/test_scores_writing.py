"""`write_scores`: what is written reads back bit for bit, and nothing that is there is ever touched."""

import csv
import os
import stat
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data import write_scores
from jaxaudit.errors import InputError

FLOATS = arrays.arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False))


@given(values=FLOATS)
def test_a_number_reads_back_bit_for_bit(values: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("scores")
    for name, read in (("s.csv", arrow_csv.read_csv), ("s.parquet", parquet.read_table)):
        write_scores(folder / name, {"set": ["query"] * len(values), "target.loss": values})
        back = read(folder / name)["target.loss"].cast("double").to_numpy()
        np.testing.assert_array_equal(back.view(np.int64), values.view(np.int64))
    with open(folder / "s.csv", newline="") as file:
        python = [float(row["target.loss"]) for row in csv.DictReader(file)]
    np.testing.assert_array_equal(np.array(python).view(np.int64), values.view(np.int64))


def test_numbers_of_32_bits_keep_their_value(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.csv", {"target.loss": np.array([0.1], np.float32)})
    assert float((tmp_path / "s.csv").read_text().split()[1]) == np.float32(0.1)


def test_what_was_not_measured_is_an_empty_cell(tmp_path: Path) -> None:
    columns = {"index": [0, 1, 2], "target.loss": [0.5, None, float("nan")], "text": ['a "b",\nc', None, "d"]}
    write_scores(tmp_path / "s.csv", columns)
    with open(tmp_path / "s.csv", newline="") as file:
        assert list(csv.reader(file))[1:] == [["0", "0.5", 'a "b",\nc'], ["1", "", ""], ["2", "", "d"]]
    write_scores(tmp_path / "s.parquet", columns)
    assert parquet.read_table(tmp_path / "s.parquet")["target.loss"].to_pylist() == [0.5, None, None]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are those of Unix")
def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.csv", {"set": ["query"]})
    assert stat.S_IMODE(os.stat(tmp_path / "s.csv").st_mode) == 0o600


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    there, target = tmp_path / "there.csv", tmp_path / "target.csv"
    there.write_text("mine")
    for link in ("link.csv", "dangling.csv"):
        (tmp_path / link).symlink_to(there if link == "link.csv" else target)
    (tmp_path / "folder.csv").mkdir()
    for name in ("there.csv", "link.csv", "dangling.csv", "folder.csv"):
        with pytest.raises(InputError, match="already exists"):
            write_scores(tmp_path / name, {"set": ["query"]})
    assert there.read_text() == "mine"
    assert not target.exists()


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for name, columns, match in (
        ("s.txt", {"set": ["query"]}, ".csv or a .parquet"),
        ("no/s.csv", {"set": ["query"]}, "no directory"),
        ("s.csv", {"set": ["query"], "target.loss": [1.0, 2.0]}, "a cell a record"),
    ):
        with pytest.raises(InputError, match=match):
            write_scores(tmp_path / name, columns)
    assert not list(tmp_path.iterdir())
