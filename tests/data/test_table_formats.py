"""CSV and Parquet files: what is found of their form, and what is bounded before it is decoded."""

import json
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.memory import resident_at_most

from jaxaudit.data import encode_labels, load, load_groups, load_outputs, load_scores, load_table
from jaxaudit.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_csv(content, encoding="utf-8"):
        path = tmp_path / "a.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write_csv


USUAL = [["âge", "city", "label"], ["1", "Zürich", "n"], ["2", "Bern", "p"]]


@pytest.mark.parametrize(("delimiter", "encoding"), [(",", "utf-8-sig"), (";", "utf-8"), ("\t", "utf-8-sig")])
def test_delimiters_are_found(write, delimiter, encoding):
    path = write("\r\n".join(delimiter.join(line) for line in USUAL) + "\r\n", encoding)
    table = load_table(str(path))
    found = [(column.name, column.categories) for column in table.columns]
    assert found == [("âge", ("1", "2")), ("city", ("Bern", "Zürich"))]
    words = {";": "semicolons", "\t": "tabs"}
    assert table.notes == ((f"it is read as {words[delimiter]} between cells",) if delimiter != "," else ())


@pytest.mark.parametrize("encoding", ["utf-16-le", "latin-1"])
def test_other_encodings_are_refused(write, encoding):
    with pytest.raises(InputError, match=r"is not text in UTF-8.*pandas"):
        load_table(str(write("\n".join(",".join(line) for line in USUAL), encoding)))


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        ("a;b;label\n1,5;2,5;x\n0,5;3;y\n", [[1.5, 2.5], [0.5, 3]]),
        ("a\tb\tlabel\n1,5\t-2,5e3\tx\n2\t3\ty\n", [[1.5, -2500], [2, 3]]),
        ("a,b,label\n1.5,2e1,x\n.5,3,y\n", [[1.5, 20], [0.5, 3]]),
    ],
)
def test_what_stands_between_cells_and_in_numbers(write, content, numbers):
    assert load(str(write(content))).inputs.tolist() == numbers
    cells = "\n".join(line.replace("label", "c").rsplit(content[1], 1)[0] for line in content.splitlines()[1:])
    assert load_outputs(write(cells + "\n"), 2, 2, "logits").values.tolist() == numbers


def test_decimal_commas_are_numbers(write):
    # Where both signs stand, nobody knows what either is.
    with pytest.raises(InputError, match="row 1, column 1 holds text"):
        load_outputs(write("0,5;1,5\n1,5;0,5\n1.234;3\n"), 2, 3)
    people = load_table(str(write("a;label\n" + "".join(f"{i},5;{'np'[i % 2]}\n" for i in range(12)))))
    assert people.values[:, 0].tolist() == [i + 0.5 for i in range(12)]
    assert people.notes == ("it is read as semicolons between cells, decimal commas",)


CSV_READERS = [
    lambda path: load(str(path)),
    lambda path: load_table(str(path)),
    lambda path: load_outputs(path, 2, 3),
]


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n" + b"," * 2**20 + b"\n",
        b'"' * 2**20,
        b"a\n" + b'"' + b"x" * 2**22,
        b"1" * 2**17 + b"x,y\n1,2\n",
        b"\xff\xfe" + b",\0" * 2**20,
        b"a,b\n\xff\xfe\n",
        bytes(range(256)),
    ],
)
def test_bombs_are_refused(write, content):
    path = write(content)
    for reader in CSV_READERS:
        with pytest.raises(InputError) as raised:
            reader(path)
        assert len(str(raised.value)) < 500


@pytest.mark.parametrize("cell", ["1_0", "0.2_5"])
def test_what_python_alone_takes_for_a_number_is_text(cell: str, tmp_path: Path):
    outputs, scores = tmp_path / "outputs.csv", tmp_path / "scores.csv"
    outputs.write_text(f"a,b\n.5,.5\n.25,{cell}\n")
    scores.write_text(f"set,target.loss\nquery,{cell}\nholdout,2\n")
    for read in (lambda: load_outputs(outputs, ("a", "b"), 2), lambda: load_scores(scores)):
        with pytest.raises(InputError):
            read()
    assert encode_labels(np.array([cell, "7"]), None, "labels")[1] == tuple(sorted((cell, "7")))


ROWS, LONG = 2_000, 1 << 19
BOUND = 3 << 27


def repeated(rows: int = ROWS) -> pa.Array:
    """One long text in every row: a kilobyte in a file, and gigabytes as text."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * LONG]))


def columns(text: Any) -> pa.Table:
    """With this column of text, what every reader of tables takes."""
    rows = len(text)
    sets = {"set": ["query", "holdout"] * (rows // 2), "target.loss": np.arange(rows, dtype=float)}
    return pa.table({**sets, "text": text, "label": ["a", "b"] * (rows // 2)})


def written(table: pa.Table, **how: Any) -> bytes:
    stream = BytesIO()
    parquet.write_table(table, stream, compression="zstd", **how)
    return stream.getvalue()


def with_a_footer_that_lies() -> bytes:
    """Pages that unpack to 300 MB, of which the footer says 5 bytes."""
    data = written(columns(["x" * LONG] * 600), use_dictionary=False)
    size = varint(parquet.ParquetFile(BytesIO(data)).metadata.row_group(0).column(2).total_uncompressed_size)
    place, lie = data.rindex(size), bytes([0x80 | 10, *[0x80] * (len(size) - 2), 0])
    data = data[:place] + lie + data[place + len(lie) :]
    assert parquet.ParquetFile(BytesIO(data)).metadata.row_group(0).column(2).total_uncompressed_size == 5
    return data


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it."""
    number, found = 2 * number, bytearray()
    while number >= 128:
        found.append(128 | number & 127)
        number >>= 7
    return bytes([*found, number])


@pytest.fixture(scope="module", params=["a dictionary", "differences", "a lie"])
def bomb(request: pytest.FixtureRequest) -> bytes:
    """A Parquet file of a few kilobytes, and of gigabytes of text."""
    if request.param == "a dictionary":
        return written(columns(repeated()), store_schema=False)
    if request.param == "a lie":
        return with_a_footer_that_lies()
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    return written(columns(["x" * LONG] * 600), use_dictionary=False, column_encoding=encoding)


READERS: dict[str, Callable[[Path], Any]] = {
    "scores": load_scores,
    "records": lambda path: load_table(str(path)),
    "groups": lambda path: load_groups("text", str(path), ROWS, "query set"),
    "outputs": lambda path: load_outputs(path, 3, parquet.ParquetFile(path).metadata.num_rows),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_decoded_is_bounded_before(bomb: bytes, reader: str, tmp_path: Path):
    path = tmp_path / "t.parquet"
    path.write_bytes(bomb)
    assert path.stat().st_size < 300_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InputError):
        READERS[reader](path)
    assert pa.default_memory_pool().max_memory() <= max(before, BOUND)


def test_a_damaged_footer_ends_no_process(tmp_path: Path):
    """Pyarrow throws what nobody can catch where a chunk's counts do not fit its values, so it is not asked for chunks
    before these were read."""
    stream, path = BytesIO(), tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": [1.5, 2.5, 3.5, 4.5], "label": ["x", "y", "x", "y"]}), stream)
    data = stream.getvalue()
    path.write_bytes(data)
    whole = load(str(path)).inputs
    footer, refused = len(data) - 8 - int.from_bytes(data[-8:-4], "little"), 0
    for place, byte in product(range(footer, footer + 64), (0, 3, 25, 41, 54)):
        path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
        try:
            assert load(str(path)).inputs.shape == whole.shape
        except InputError:
            refused += 1
    assert 0 < refused < 320


def few(values: pa.Array, of: int, per_row: int = 1) -> pa.Array:
    """A list of this many values in each of `of` rows."""
    return pa.ListArray.from_arrays(pa.array(np.arange(of + 1, dtype=np.int32) * per_row), values)


HIDDEN: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "bytes": (pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array([b"x" * LONG])), {}),
    "bytes of one length": (pa.array([b"x" * (LONG << 3)] * 40, pa.binary(LONG << 3)), {}),
    "lists of texts": (few(repeated(2 * ROWS), ROWS, 2), {}),
    "maps": (pa.MapArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int32)), repeated(), repeated()), {}),
    "nulls": (few(pa.nulls(ROWS << 14), ROWS, 1 << 14), {}),
    "lists of lists": (few(few(pa.array(np.zeros(ROWS << 14, np.int8)), ROWS << 4, 1 << 10), ROWS, 16), {}),
    "front-coded lists": (
        few(pa.array(["x" * (LONG >> 1)] * 400), 200, 2),
        {"use_dictionary": False, "column_encoding": {"hidden.list.element": "DELTA_BYTE_ARRAY"}},
    ),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_types_decide_before_anything_is_decoded(kind: str, tmp_path: Path):
    """Outputs are numbers, so no other column is read."""
    hidden, how = HIDDEN[kind]
    path, rows = tmp_path / "t.parquet", len(hidden)
    table = pa.table({"0": np.full(rows, 0.25), "hidden": hidden})
    parquet.write_table(table, path, compression="zstd", store_schema=False, **how)
    before = pa.default_memory_pool().max_memory()
    with resident_at_most(BOUND), pytest.raises(InputError):
        READERS["outputs"](path)
    assert pa.default_memory_pool().max_memory() <= max(before, BOUND)


def test_numbers_are_bounded_by_what_they_take_as_text(tmp_path: Path):
    """Nine million decimals of 38 digits, in a few kilobytes."""
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, np.int32)), pa.array([Decimal(10**37)]))
    parquet.write_table(pa.table(dict.fromkeys("abc", cells)), tmp_path / "t.parquet", store_schema=False)
    with pytest.raises(InputError, match="more than the allowed"):
        load_table(str(tmp_path / "t.parquet"), label="a")


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"data_page_version": "2.0", "compression": "none"},
        {"use_dictionary": False},
        {"use_dictionary": ["few"], "column_encoding": {"large": "DELTA_BINARY_PACKED"}},
        {"data_page_size": 100, "write_page_index": True},
    ],
)
def test_an_honest_file_is_read_as_it_was_written(how: dict[str, Any], tmp_path: Path):
    columns = {
        "number": pa.array(np.random.default_rng(1).normal(size=1000)),
        "large": pa.array([10**17 + row for row in range(1000)]),
        "text": pa.array([f"a long beginning, and {row}" for row in range(1000)]),
        "few": pa.array([f"{row % 7}" for row in range(1000)], pa.large_string()),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table(columns), path, **how)
    for name in columns:
        wanted = list(map(str, columns[name].to_pylist()))
        assert load_groups(name, str(path), 1000, "query set").tolist() == wanted


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_are_stored_as_differences_are_refused_with_the_line_that_writes_them_otherwise(
    encoding: str, tmp_path: Path
):
    path = tmp_path / "t.parquet"
    table = pa.table({"text": [f"a long beginning, and {row}" for row in range(100)]})
    parquet.write_table(table, path, use_dictionary=False, column_encoding={"text": encoding})
    with pytest.raises(InputError, match="to_parquet"):
        load_groups("text", str(path), 100, "query set")


def test_columns_that_are_not_read_may_be_of_any_type(tmp_path: Path):
    """But Arrow reads the column a.b where a is asked for."""
    beside = pa.table({"a": np.full(2, 0.25), "a.b": [b"x", b"y"]})
    parquet.write_table(beside, tmp_path / "o.parquet")
    with pytest.raises(InputError, match="its beginning"):
        load_outputs(tmp_path / "o.parquet", 2, 2)
    table = pa.table({"a": [1, 2], "tokens": [[1, 2], [3]]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert load_groups("a", str(tmp_path / "t.parquet"), 2, "query set").tolist() == ["1", "2"]
    with pytest.raises(InputError):
        load_groups("tokens", str(tmp_path / "t.parquet"), 2, "query set")


def test_an_index_with_the_name_of_a_label_is_the_label(tmp_path: Path):
    """pandas keeps its index in a column; left out, another column would become the label."""
    table = pa.table({"a": [1.0, 2.0] * 10, "b": [0.0, 1.0] * 10, "label": ["x", "y"] * 10})
    kept = table.replace_schema_metadata({"pandas": json.dumps({"index_columns": ["label"]})})
    parquet.write_table(kept, tmp_path / "t.parquet")
    assert load_table(str(tmp_path / "t.parquet")).class_names == ("x", "y")


@pytest.mark.parametrize("content", [b"a,label\n1,2\n", bytes(range(256)), b"PA"], ids=["CSV", "noise", "cut"])
def test_what_ends_in_parquet_and_is_none_is_not_read_as_something_else(tmp_path: Path, content: bytes):
    path = tmp_path / "table.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match="Parquet"):
        load_table(str(path))
