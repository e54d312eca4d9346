"""A person's own CSV or Parquet file: what its columns are found to be, what is said of them, and what is refused."""

import csv
import datetime
import decimal
import gzip
import json
import shlex
import subprocess
import sys
import time
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data import describe_record, load
from jaxaudit.data.formats.csv_file import CsvOptions
from jaxaudit.data.formats.folders import load_image_folders
from jaxaudit.data.formats.parquet_footer import declared_columns
from jaxaudit.data.tables import people as module
from jaxaudit.data.tables.columns import recode
from jaxaudit.data.tables.people import load_columns, read_people
from jaxaudit.data.tables.table import MISSING, Column, Table, join_tables
from jaxaudit.errors import InputError


@pytest.fixture
def read(tmp_path):
    def read_text(content, **options):
        path = tmp_path / "people.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_people(path, **options)

    return read_text


def column_of(*cells, name="a", label="y", rows=None):
    """A file of one column and a label that alternates."""
    cells = cells if rows is None else [cells[i % len(cells)] for i in range(rows)]
    return f"{name},{label}\n" + "".join(f"{cell},{'np'[i % 2]}\n" for i, cell in enumerate(cells))


PEOPLE = """age,work,children,city,income
39,State,1,Rome,<=50K
50, ?,2,Rome,>50K
38.5,Private,0,Rome,<=50K
53,NA,10,Rome,<=50K
"""


def test_few_different_numbers_are_categories_in_the_order_of_numbers(read):
    table = read(PEOPLE, label="income")
    assert table.columns[2].categories == ("0", "1", "2", "10")
    assert table.columns[0].categories == ("38.5", "39", "50", "53")
    assert table.values.dtype == np.float32
    ten, eleven = (read(column_of(*range(count), rows=22), label="y").columns[0].categories for count in (10, 11))
    assert ten == tuple(map(str, range(10)))
    assert eleven == ()


def test_what_is_said_of_a_column_counts(read):
    table = read(PEOPLE, label="income", numeric=["children", "age"], drop=["city", "work"])
    assert [(column.name, column.categories) for column in table.columns] == [("age", ()), ("children", ())]
    assert table.values.tolist() == [[39, 1], [50, 2], [38.5, 0], [53, 10]]
    table = read(column_of(*range(20)), label="y", categorical=["a"])
    assert table.columns[0].categories == tuple(map(str, range(20)))


def test_missing_among_numbers_and_alone(read):
    table = read(column_of(3, "", 20, 3), label="y")
    assert table.columns[0].categories == ("3", "20", MISSING)
    assert read(column_of("", "?"), label="y").columns[0].categories == (MISSING,)
    assert read(column_of("b", MISSING, "?"), label="y").values[:, 0].tolist() == [1, 0, 0]
    table = read(column_of(*range(20), ""), label="y", categorical=["a"])
    assert table.columns[0].categories == (*map(str, range(20)), MISSING)


@pytest.mark.parametrize("text", ["-", ".", "unknown", "1,234", "-99 "])
def test_a_few_texts_among_numbers_are_not_taken_for_categories_without_a_word(read, text):
    """As categories all numbers would lose their order, and a learner sees another record."""
    ages = [*range(20, 40), f'"{text}"', 40, f'"{text}"']
    if text.strip() == "-99":
        assert read(column_of(*ages), label="y").columns[0].categories == ()
        return
    with pytest.raises(InputError, match=r"21 different numbers, and 2 cells of text \(first: row 21\)"):
        read(column_of(*ages), label="y")
    assert len(read(column_of(*ages), label="y", categorical=["a"]).columns[0].categories) == 22
    several = [f"text {number}" for number in range(3)]
    assert len(read(column_of(*range(20), *several), label="y").columns[0].categories) == 23


@pytest.mark.parametrize("missing", ["null", "NULL", "#N/A", "<NA>"])
def test_what_databases_and_spreadsheets_write_for_no_number_is_missing(read, missing):
    content = column_of(*range(20), missing)
    with pytest.raises(InputError, match=r"numbers are missing in 'a' \(1 of 21\)"):
        read(content, label="y")
    assert len(read(content, label="y", missing="drop")) == 20


def test_labels(read):
    table = read("a,Label\nx,10\nx,9\ny,-1\n")
    assert (table.class_names, table.labels.tolist()) == (("-1", "9", "10"), [2, 1, 0])
    table = read("a,b,label\nx,no,u\nx,yes,v\ny,?no,w\n", label="b")
    assert (table.class_names, table.labels.tolist()) == (("?no", "no", "yes"), [1, 2, 0])
    assert table.columns[1].categories == ("u", "v", "w")
    # Fifty different numbers are classes, and more of them are where they are text.
    assert len(read("a,y\n" + "".join(f"x,{i}.5\n" for i in range(50))).class_names) == 50
    assert len(read("a,y\n" + "".join(f"x,class {i}\n" for i in range(60))).class_names) == 60


def test_a_column_that_counts_the_rows_is_left_out(read):
    content = "id,a,y\n" + "".join(f"{i},{'xz'[i % 2]},{i % 2}\n" for i in range(20))
    table = read(content)
    assert [column.name for column in table.columns] == ["a"]
    assert table.notes[:-1] == ("the first column, 'id', is a row number and is left out",)
    assert [column.name for column in read(content, categorical=["id"]).columns] == ["id", "a"]
    assert read(content, drop=["id"]).notes == ("column 'y' is read as the label, because of its name",)
    table = read(",a,y\n5,x,0\n3,x,1\n")
    assert [column.name for column in table.columns] == ["column 1", "a"]


NOTHING = ["?", "", " nan", "NA", "n/a"]
TEXTS = st.sampled_from(["1", "2.5", "-3", "10", "x", "é", "a b", *NOTHING, " y ", 'q"u', "a,b", "line\nbreak"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=8), st.integers(0, 3))
def test_columns_are_those_of_a_loop(tmp_path_factory, rows, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        columns_of_a_loop(tmp_path_factory, rows, few)


def columns_of_a_loop(tmp_path_factory, rows, few):
    path = tmp_path_factory.getbasetemp() / "loop.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["a", "b", "y"])
        writer.writerows([*row, "np"[i % 2]] for i, row in enumerate(rows))
    expected = []
    for cells in zip(*rows, strict=True):
        cells = [cell.strip() for cell in cells]
        there = [cell for cell in cells if cell.lower() not in ("", "?", "na", "n/a", "nan")]
        try:
            numbers = {float(cell) for cell in there}
        except ValueError:
            numbers = None
        if numbers is not None and len(numbers) > few:
            expected.append("missing" if len(there) < len(cells) else [float(cell) for cell in cells])
        else:
            order = sorted(set(there), key=str if numbers is None else float)
            expected.append([cell if cell in order else MISSING for cell in cells])
    if "missing" in expected:
        with pytest.raises(InputError, match="numbers are missing"):
            read_people(path, label="y")
        return
    table = read_people(path, label="y")
    for place, (column, cells) in enumerate(zip(table.columns, expected, strict=True)):
        values = table.values[:, place]
        assert (values.tolist() if not column.categories else [column.categories[int(v)] for v in values]) == cells
        if column.categories:
            there = [category for category in column.categories if category != MISSING]
            assert there == sorted(there) or [float(each) for each in there] == sorted(map(float, there))


MANY = column_of(*range(20))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "people.csv: is empty"),
        ("a,y\n", {"label": "y"}, "there are no records below the header line. Is the file empty"),
        ("\na,y\n1,2\n", {}, "its first line is blank; delete it"),
        ("a,b,a,y\n1,2,3,4\n", {}, "its own name in the header"),
        (PEOPLE, {}, "the label; name the label column"),
        (PEOPLE, {"label": "incme"}, r"'incme'; did you mean 'income'\?"),
        (PEOPLE, {"label": "income", "drop": ["zzz"]}, "'zzz'; the columns are 'age', 'work', 'children'"),
        (PEOPLE, {"label": "income", "drop": ["income"]}, "'income' cannot be both label and drop; name it once"),
        (PEOPLE, {"label": "income", "numeric": ["age"], "categorical": ["age"]}, "both categorical and numeric"),
        (PEOPLE, {"label": "income", "drop": ["age", "work", "children", "city"]}, "no column"),
        ("a,y\nx,n\nx,n\n", {}, "every row has the same label; a classifier needs at least two classes"),
        ("a,y\nx,n\nx,\nx,?\n", {}, "2 rows have no label .column 'y', first: row 2.; delete them"),
        ("a,y\n" + "".join(f"x,{i}.5\n" for i in range(51)), {}, "51 different numbers; replace them"),
        ("a,y\n" + "".join(f"x,n{i}\n" for i in range(1001)), {}, "1001 different texts, more than 1000 cl"),
        (MANY + ",n\n", {}, r"numbers are missing in 'a' \(1 of 21\); .*`missing` drop, mean or category"),
        (MANY + "x1,n\n", {"numeric": ["a"]}, "text, not a number; correct it"),
        (MANY + "1e999,n\n", {}, "row 21, column 'a' is not finite; correct it"),
        (column_of(*range(10_000), "x"), {}, "10000 different numbers, and 1 cells of text .first: row 10001"),
        ("a," * 32_768 + "\n", {}, "its first line has more than the allowed 32,768 columns"),
    ],
)
def test_refused(read, content, options, message):
    with pytest.raises(InputError, match=message) as raised:
        read(content, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\x1f\x8bno gzip at all", gzip.compress(PEOPLE.encode())])
def test_missing_file_and_packed_file(tmp_path, content):
    if content is not None:
        (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.csv: cannot be read"):
        read_people(tmp_path / "a.csv")


TABLE = Table(
    np.array([[39, 1, 0], [50, 0, 1], [39, 1, 1]]),
    (Column("age"), Column("rooms", ("2", "10")), Column("city", ("Rome", MISSING))),
    np.array([0, 1, 1]),
    ("no", "yes"),
    "flats",
    ("a note",),
)


def test_recode():
    table = recode(TABLE, categorical=["age"], numeric=["rooms"], drop=["city"])
    assert [(column.name, column.categories) for column in table.columns] == [("age", ("39", "50")), ("rooms", ())]
    assert table.values.tolist() == [[0, 10], [1, 2], [0, 10]]
    assert (table.labels.tolist(), table.name, table.notes) == ([0, 1, 1], "flats", ("a note",))
    assert TABLE.values.tolist() == [[39, 1, 0], [50, 0, 1], [39, 1, 1]]
    assert recode(TABLE) is TABLE
    assert recode(TABLE, categorical=["city"], numeric=["age"]).content_hash == TABLE.content_hash


ROWS = [[f"{i}.5" if i % 4 else "", "" if i == 1 else "ab"[i % 2], "np"[i % 2]] for i in range(40)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,work,y\n" + "".join(",".join(row) + "\n" for row in ROWS))
    return path


def test_drop_leaves_records_out_and_says_where_the_others_stand(path):
    table = read_people(path, missing="drop")
    places = [i for i in range(40) if i % 4 and i != 1]
    assert np.array_equal(table.in_file(np.arange(len(table))), places)
    assert table.values[:, 0].tolist() == [i + 0.5 for i in places]
    assert table.columns[1].categories == ("a", "b")
    assert table.notes[0].startswith("11 of 40 records have a missing value and are left out")
    part = table.take(np.array([5, 2]))
    assert part.in_file(np.array([0, 1])).tolist() == [places[5], places[2]]
    both = join_tables([table, part], "both")
    assert both.in_file(np.array([len(table)])).tolist() == [places[5]]
    assert "age 2.5" in describe_record(table, 0)
    # Only what is used counts.
    assert np.array_equal(
        read_people(path, missing="drop", drop=["age"]).in_file(np.arange(39)), [i for i in range(40) if i != 1]
    )


def test_drop_takes_records_without_label_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\nx,n\nx,\nz,p\n,n\n")
    assert np.array_equal(read_people(path, missing="drop").in_file(np.arange(2)), [0, 2])
    path.write_text("a,y\nx,n\nx,p\n")
    assert read_people(path, missing="drop").places is None
    path.write_text("a,y\nx,\n,p\n")
    with pytest.raises(InputError, match="every record has a missing value"):
        read_people(path, missing="drop")


def test_mean_and_category(path):
    there = [i + 0.5 for i in range(40) if i % 4]
    mean = read_people(path, missing="mean")
    assert mean.values[0, 0] == pytest.approx(np.mean(there), rel=1e-15)
    assert mean.values[[i for i in range(40) if i % 4], 0].tolist() == there
    assert mean.columns[1].categories == ("a", "b", MISSING)
    assert mean.notes[:-1] == ("column 'age': 10 of 40 values are missing and set to the mean of the others",)
    category = read_people(path, missing="category")
    assert [column.name for column in category.columns] == ["age", "age is missing", "work"]
    assert category.values[:, 0].tolist() == mean.values[:, 0].tolist()
    assert category.values[:, 1].tolist() == [float(i % 4 == 0) for i in range(40)]
    # A column that is called like the new one, and one without any value.
    path.write_text("a,a is missing,b,y\n1,x,,n\n,x,,p\n")
    table = read_people(path, missing="category", numeric=["a", "b"])
    names = ["a", "a is missing'", "a is missing", "b", "b is missing"]
    assert [column.name for column in table.columns] == names
    assert table.values[:, 3].tolist() == [0, 0]


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
    arrow_csv.write_csv(pa.table(COLUMNS), other)
    assert read_people(path).content_hash == read_people(other).content_hash
    assert read_people(path).columns[1].categories == ("private", "state", MISSING)
    with pytest.raises(InputError, match="are for CSV"):
        read_people(path, options=CsvOptions(delimiter=","))


NUMBERS = {"age": COLUMNS["age"], "children": COLUMNS["children"], "label": COLUMNS["y"]}


def test_records_are_those_of_the_csv(write, tmp_path):
    """As a data set, with a column of labels, or the index that pandas keeps."""
    arrow_csv.write_csv(pa.table(NUMBERS), tmp_path / "same.csv")
    wanted = load(str(tmp_path / "same.csv"))
    assert wanted.inputs.shape == (N, 2)
    path = write(NUMBERS)
    assert load(str(path)).content_hash == wanted.content_hash
    assert load(f"{path}@train[:5]").labels.tolist() == wanted.labels[:5].tolist()
    assert load(str(path), drop=("age",)).inputs.shape == (N, 1)
    write(with_index({**NUMBERS, "__index__": list(range(N))}, {"index_columns": ["__index__"]}))
    assert load(str(path)).content_hash == wanted.content_hash
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
        (pa.array([True, None, False] * 2), ("false", "true", MISSING)),
        (pa.array([datetime.date(2020, 1, 2), None] * 3), ("2020-01-02", MISSING)),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.25")] * 3), ("-2.25", "1.50")),
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
    assert table.notes[:-1] == ("the pandas index in the file ('person', '__index_level_0__') is left out",)
    assert [c.name for c in read_people(path, categorical=["person"]).columns] == ["age", "work", "children", "person"]
    columns.pop("__index_level_0__")
    for damaged in ("{", "[]", "[" * 9999, '{"index_columns": [{"kind": "range"}, 3]}', '{"index_columns": 5}'):
        assert len(read_people(write(with_index(columns, damaged))).columns) == 4


def test_equal_rows_are_bounded_before_they_are_read(write, monkeypatch):
    part = pa.table({"a": np.zeros(10**6), "b": np.zeros(10**6), "y": np.zeros(10**6)})
    path = write(pa.concat_tables([part] * 50), compression="zstd")
    assert path.stat().st_size < 10**6
    start = time.process_time()
    monkeypatch.setattr("jaxaudit.data.formats.parquet_file.MAX_BYTES", 10**9)
    with pytest.raises(InputError, match="50,000,000 rows of 3 columns"):
        read_people(path)
    assert time.process_time() - start < 2
    monkeypatch.setattr("jaxaudit.data.formats.parquet_file.MOST_COLUMNS", 2)
    with pytest.raises(InputError, match="at most 2"):
        read_people(write(pa.table({"a": [1], "b": [2], "y": [3]})))


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


@pytest.mark.outer
def test_images_within_a_parquet_file_can_be_written_as_folders(tmp_path):
    """By the line that the message shows: in the order of the classes, also where there are more than ten."""
    images = np.random.default_rng(3).integers(0, 256, (36, 5, 5), np.uint8)
    cells = []
    for image in images:
        file = BytesIO()
        Image.fromarray(image).save(file, "PNG")
        cells.append({"bytes": file.getvalue(), "path": None})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    labels = np.arange(36) % 12
    parquet.write_table(pa.table({"image": pa.array(cells, kind), "label": labels}), tmp_path / "FILE.parquet")
    with pytest.raises(InputError, match="as Hugging Face stores them") as refused:
        load_columns(tmp_path / "FILE.parquet")
    _, code = shlex.split(str(refused.value).partition(": python ")[2])
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = load_image_folders(tmp_path / "images")
    order = np.argsort(labels, kind="stable")
    np.testing.assert_array_equal(found.inputs, images[order])
    np.testing.assert_array_equal(found.labels, labels[order])


def test_row_numbers_are_no_inputs_wherever_they_stand_and_identifiers_are_told(tmp_path):
    path, rows = tmp_path / "people.csv", range(30)
    path.write_text("age,id,patient,y\n" + "".join(f"{i % 7},{i},{900 + 7 * i},{i % 2}\n" for i in rows))
    examples = load_columns(path, label="y")
    assert examples.titles == ("age", "patient")
    assert examples.inputs[:, 0].tolist() == [i % 7 for i in rows]
    assert [note.split(" has another")[0] for note in examples.notes] == [
        "the column, 'id', is a row number and is left out",
        "column 'patient'",
    ]
    assert load_columns(path, label="y", drop=["patient"]).notes == examples.notes[:1]
    assert [column.name for column in read_people(path).columns] == ["age", "patient"]
