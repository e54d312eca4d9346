"""A person's own Parquet file: read as the same table in CSV is, within bounds, or refused in words."""

import datetime
import decimal
import json
import time
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from jaxaudit.data import load
from jaxaudit.data.files import load_path
from jaxaudit.data.formats.csv_format import Asked
from jaxaudit.data.formats.parquet_footer import declared_columns
from jaxaudit.data.sets.people import read_people
from jaxaudit.data.tables.table import MISSING
from jaxaudit.errors import InputError

N = 24
COLUMNS = {
    "age": [i + 0.25 for i in range(N)],
    "work": [["state", "private", None][i % 3] for i in range(N)],
    "children": [i % 4 for i in range(N)],
    "y": ["no" if i % 2 else "yes" for i in range(N)],
}


@pytest.fixture
def write(tmp_path):
    def write_parquet(columns, **how):
        path = tmp_path / "people.parquet"
        parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **how)
        return path

    return write_parquet


@pytest.mark.parametrize("name", ["people.parquet", "people.csv"])
def test_the_table_is_that_of_the_csv(write, tmp_path, name):
    path = write(COLUMNS).rename(tmp_path / "dir").rename(tmp_path / name)
    other = tmp_path / "same.csv"
    csv.write_csv(pa.table(COLUMNS), other)
    assert read_people(path).content_hash == read_people(other).content_hash
    assert read_people(path).columns[1].categories == ("private", "state", MISSING)
    with pytest.raises(InputError, match="are for CSV"):
        read_people(path, asked=Asked(delimiter=","))


NUMBERS = {"age": COLUMNS["age"], "children": COLUMNS["children"], "label": COLUMNS["y"]}


def test_records_are_those_of_the_csv(write, tmp_path):
    """As a data set, with a column of labels, labels beside it, or the index that pandas keeps."""
    csv.write_csv(pa.table(NUMBERS), tmp_path / "same.csv")
    wanted = load(str(tmp_path / "same.csv"))
    assert wanted.inputs.shape == (N, 2)
    path = write(NUMBERS)
    assert load(str(path)).content_hash == wanted.content_hash
    assert load(f"{path}@train[:5]").labels.tolist() == wanted.labels[:5].tolist()
    assert load(str(path), drop=("age",)).inputs.shape == (N, 1)
    write(with_index({**NUMBERS, "__index__": list(range(N))}, {"index_columns": ["__index__"]}))
    assert load(str(path)).content_hash == wanted.content_hash
    write({name: values for name, values in NUMBERS.items() if name != "label"})
    np.save(tmp_path / "y.npy", np.array(NUMBERS["label"]))
    assert load_path(path, tmp_path / "y.npy").content_hash == wanted.content_hash
    for column, words in (
        ([None, *COLUMNS["age"][1:]], "row 1, column 'age' is empty"),
        (COLUMNS["work"], "column 'age' holds text"),
        ([[1.0, 2.0]] * N, "column 'age' has values of type list"),
    ):
        with pytest.raises(InputError, match=words):
            load(str(write({**NUMBERS, "age": column})))


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        (pa.array(["b", None, "a"] * 2).dictionary_encode(), ("a", "b", MISSING)),
        (pa.array([3, 1, None] * 2).dictionary_encode(), ("1", "3", MISSING)),
        (pa.array([True, None, False] * 2), ("false", "true", MISSING)),
        (pa.array([datetime.date(2020, 1, 2), None] * 3), ("2020-01-02", MISSING)),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.25")] * 3), ("-2.25", "1.50")),
        (pa.array([0.5, float("nan"), None] * 2), ("0.5", MISSING)),
        (pa.array([2**63, 1] * 3, pa.uint64()), ("1", str(2**63))),
        (pa.nulls(6), (MISSING,)),
    ],
)
def test_kinds_of_columns(write, values, categories):
    table = read_people(write({"a": values, "y": [0, 1] * 3}))
    assert table.columns[0].categories == categories


@pytest.mark.parametrize("values", [[[1, 2], [3]] * 3, [{"a": 1}] * 6, [b"\xff\x00"] * 6, [datetime.timedelta(1)] * 6])
def test_columns_without_a_text_are_refused_or_left_out(write, values):
    path = write({"a": values, "b": ["u", "v"] * 3, "y": [0, 1] * 3})
    with pytest.raises(InputError, match="values of type"):
        read_people(path)
    assert [column.name for column in read_people(path, drop=["a"]).columns] == ["b"]


def with_index(columns, index):
    table = pa.table(columns)
    return table.replace_schema_metadata({"pandas": index if isinstance(index, str) else json.dumps(index)})


def test_the_index_that_pandas_kept_is_left_out(write):
    columns = {**COLUMNS, "person": [f"p{i}" for i in range(N)], "__index_level_0__": list(range(5, N + 5))}
    path = write(with_index(columns, {"index_columns": ["person", "__index_level_0__"]}))
    table = read_people(path)
    assert [column.name for column in table.columns] == ["age", "work", "children"]
    assert table.notes == ("the pandas index in the file ('person', '__index_level_0__') is left out",)
    assert [c.name for c in read_people(path, categorical=["person"]).columns] == ["age", "work", "children", "person"]
    columns.pop("__index_level_0__")
    for damaged in ("{", "[]", "[" * 9999, '{"index_columns": [{"kind": "range"}, 3]}', '{"index_columns": 5}'):
        assert len(read_people(write(with_index(columns, damaged))).columns) == 4


def test_equal_rows_are_bounded_before_they_are_read(write):
    part = pa.table({"a": np.zeros(10**6), "b": np.zeros(10**6), "y": np.zeros(10**6)})
    path = write(pa.concat_tables([part] * 50), compression="zstd")
    assert path.stat().st_size < 10**6
    start = time.process_time()
    with pytest.raises(InputError, match="50,000,000 rows of 3 columns unpack to"):
        read_people(path)
    assert time.process_time() - start < 2
    text = pa.array(["x" * 10**6, "z"]).dictionary_encode()
    path = write({"a": text.take(pa.array([0, 1] * 5000)), "y": [0, 1] * 5000})
    with pytest.raises(InputError, match="the texts of column 'a'"):
        read_people(path)
    with pytest.raises(InputError, match="at most 2"):
        read_people(write(pa.table({"a": [1], "b": [2], "y": [3]})), most_columns=2)


def test_damaged_files_are_refused(write):
    whole = write(COLUMNS).read_bytes()
    path = write(COLUMNS)
    random = np.random.default_rng(3)
    for trial in range(60):
        data = bytearray(whole)
        if trial % 3 == 0:
            del data[int(random.integers(4, len(data))) :]
        else:
            data[int(random.integers(4, len(data)))] ^= 1 << int(random.integers(8))
        path.write_bytes(data)
        try:
            read_people(path, missing="mean")
        except InputError as error:
            assert "private" not in str(error)  # noqa: PT017


def test_names_occur_once_and_records_exist(write):
    with pytest.raises(InputError, match="two columns have"):
        read_people(write(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])))
    with pytest.raises(InputError, match="no records"):
        read_people(write({"a": pa.array([], pa.int64()), "y": pa.array([], pa.string())}))
    with pytest.raises(InputError):
        read_people(write(pa.table({})))


def written(table: pa.Table, **how: Any) -> bytes:
    stream = BytesIO()
    parquet.write_table(table, stream, **how)
    return stream.getvalue()


@pytest.mark.parametrize("how", [{}, {"row_group_size": 77}, {"compression": "gzip", "use_dictionary": False}])
def test_the_footer_is_read_as_pyarrow_reads_it(how):
    table = pa.table(
        {
            "a": np.arange(1000.0),
            "text": [f"{n % 7}" for n in range(1000)],
            "lists": [[1.0] * (n % 4) for n in range(1000)],
            "empty": pa.array([None] * 1000, pa.int32()),
        }
    )
    data = written(table, **how)
    metadata = parquet.ParquetFile(BytesIO(data)).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for column, found in enumerate(declared_columns(BytesIO(data))):
        parts = [group.column(column) for group in groups]
        assert found.values == sum(part.num_values for part in parts)
        assert found.unpacked_bytes == sum(part.total_uncompressed_size for part in parts)
