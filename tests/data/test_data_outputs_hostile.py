"""Files of outputs from strangers: no memory beyond what the shape needs, and no exception but `InputError`."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from support.outputs_files import NAMES, P, csv, table, write_outputs

from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.errors import InputError


@pytest.mark.parametrize("content", [csv(P), P, {"p": P}, table(P)], ids=["csv", "npy", "npz", "parquet"])
def test_names_that_are_no_utf_8(tmp_path, content):
    path = write_outputs(tmp_path, content)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).with_suffix(path.suffix)
    try:
        path.rename(odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    assert load_outputs(odd, NAMES, 20).probabilities.shape == (20, 4)


def test_changed_bytes_of_a_parquet_footer(tmp_path):
    """Read or refused; names that are no UTF-8 were a UnicodeDecodeError."""
    path = write_outputs(tmp_path, table(P, ["aaaa", "bbbb", "cccc", "dddd"]))
    whole, refused = path.read_bytes(), 0
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    names = [place for place in range(start, len(whole)) if whole[place : place + 4] in (b"aaaa", b"dddd")]
    for place in [*names, *range(start, len(whole), 7)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xB5]) + whole[place + 1 :])
        try:
            load_outputs(path, NAMES, 20)
        except InputError:
            refused += 1
    assert names
    assert refused > 10


@pytest.mark.parametrize("line", ["," * 100_000, "0.25," * 6 + "0.1"])
def test_a_wide_table_is_refused_before_it_is_parsed(tmp_path, monkeypatch, line):
    path = write_outputs(tmp_path, (line + "\n") * 3)
    monkeypatch.setattr(arrow_csv, "read_csv", lambda *_: pytest.fail("parsed"))
    with pytest.raises(InputError, match="columns but the query set"):
        load_outputs(path, NAMES, 20)


def test_a_first_line_without_end_is_refused(tmp_path, monkeypatch):
    path = write_outputs(tmp_path, "1" * (2 << 20))
    monkeypatch.setattr(arrow_csv, "read_csv", lambda *_: pytest.fail("parsed"))
    with pytest.raises(InputError, match="first line is longer than"):
        load_outputs(path, NAMES, 20)


def test_a_table_longer_than_its_records_can_be_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    monkeypatch.setattr(arrow_csv, "read_csv", lambda *_: pytest.fail("parsed"))
    with pytest.raises(InputError, match="longer than 20 rows of 4 numbers can be"):
        load_outputs(path, NAMES, 20)


def test_more_numbers_than_the_records_can_have_are_not_read(tmp_path, monkeypatch):
    """A sparse file takes no room on the disk, and its array would."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**26, 4)}
    path = tmp_path / "out.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2**31)
    allocate = np.empty
    small = lambda shape, *rest: allocate(shape, *rest) if np.prod(shape) < 1e6 else pytest.fail("allocated")  # noqa: E731
    monkeypatch.setattr(np, "empty", small)
    with pytest.raises(InputError, match="GiB"):
        load_outputs(path, NAMES, 20)


def test_names_of_records_in_parquet_are_not_read(tmp_path):
    """A dictionary holds one long text, and a column of it has one a record."""
    names = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 2_000_000])
    values = np.random.default_rng(0).dirichlet(np.ones(4), 1000)
    made = pa.table({"file": names} | {name: values[:, k] for k, name in enumerate(NAMES)})
    parquet.write_table(made, tmp_path / "out.parquet", store_schema=False)
    assert (tmp_path / "out.parquet").stat().st_size < 1_000_000
    before = pa.default_memory_pool().max_memory()
    np.testing.assert_allclose(load_outputs(tmp_path / "out.parquet", NAMES, 1000).values, values)
    assert pa.default_memory_pool().max_memory() < before + 50_000_000


def test_parquet_of_many_columns_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    parquet.write_table(table(np.tile(P, 3), [f"c{k}" for k in range(12)]), tmp_path / "out.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "read", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(InputError, match="has 12 columns but the query set"):
        load_outputs(tmp_path / "out.parquet", NAMES, 20)


def test_columns_of_one_name_in_parquet(tmp_path):
    twice = pa.table([pa.array(P[:, k]) for k in range(4)], names=["p"] * 4)
    parquet.write_table(twice, tmp_path / "out.parquet")
    np.testing.assert_array_equal(load_outputs(tmp_path / "out.parquet", NAMES, 20).values, P)


def test_huge_logits_are_read_without_a_warning(tmp_path):
    outputs = load_outputs(write_outputs(tmp_path, np.array([[1e308, -1e308], [3.5, 4.0]])), 2, 2)
    assert outputs.kind == "logits"
    assert outputs.probabilities[0].tolist() == [1, 0]


def test_no_message_shows_a_number_of_the_file(tmp_path):
    with pytest.raises(InputError) as refused:
        load_outputs(write_outputs(tmp_path, np.array([0.25, 7.125])), 2, 2, kind="probabilities")
    assert "7.125" not in str(refused.value)


def test_lists_without_values_are_refused(tmp_path: Path):
    parquet.write_table(pa.table({"p": pa.array([[]] * 3, pa.list_(pa.float64()))}), tmp_path / "o.parquet")
    with pytest.raises(InputError):
        load_outputs(tmp_path / "o.parquet", 2, 3)
