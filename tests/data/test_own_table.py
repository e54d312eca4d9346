"""One's own CSV or Parquet file, as a table and as a set: its columns, what is said of them, and what is refused."""

import csv
import datetime
import decimal
import json
from contextlib import nullcontext
from io import BytesIO
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data import MISSING, load, load_table
from jaxaudit.data.formats.parquet_file import unpacked_bytes
from jaxaudit.errors import InputError


@pytest.fixture
def read(tmp_path):
    def read_text(content, **options):
        path = tmp_path / "people.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_table(str(path), **options)

    return read_text


def column_of(*cells, rows=None):
    """A file of one column and a label that alternates."""
    cells = cells if rows is None else [cells[i % len(cells)] for i in range(rows)]
    return "a,label\n" + "".join(f"{cell},{'np'[i % 2]}\n" for i, cell in enumerate(cells))


def numbers(count):
    """As many different numbers, not in order."""
    return [7 * number % 1009 for number in range(count)]


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
    assert table.columns[1].categories == ("?", "Private", "State", MISSING)
    assert table.values.dtype == np.float32
    ten, eleven = (read(column_of(*range(count), rows=22)).columns[0].categories for count in (10, 11))
    assert ten == tuple(map(str, range(10)))
    assert eleven == ()


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "<NA>", "  "])
def test_what_pandas_writes_for_no_value_is_missing(read, missing):
    assert read(column_of(3, missing, 20, 3)).columns[0].categories == ("3", "20", MISSING)
    assert read(column_of(missing, missing)).columns[0].categories == (MISSING,)
    assert read(column_of("b", MISSING, missing)).values[:, 0].tolist() == [1, 0, 0]
    said = r"people.csv: row 21, column 'a' is empty, in a column of numbers \(2 of 22 rows\); .* frame.dropna\(subset="
    with pytest.raises(InputError, match=said):
        read(column_of(*numbers(20), missing, missing))
    with pytest.raises(InputError, match="row 2 has no label"):
        read(f"a,label\nx,n\nx,{missing}\nx,{missing}\n")


@pytest.mark.parametrize("text", ["-", ".", "?", "N/A", "unknown", "1,234", "-99 "])
def test_words_among_numbers_are_not_taken_for_categories_without_a_word(read, text):
    """As categories all numbers would lose their order, and a learner sees another record."""
    ages = [*range(20, 40), f'"{text}"', 40, f'"{text}"']
    if text.strip() == "-99":
        assert read(column_of(*ages)).columns[0].categories == ()
        return
    with pytest.raises(InputError, match=r"row 21, column 'a' holds words, in a column of numbers \(2 of 23 rows\)"):
        read(column_of(*ages))
    assert len(read(column_of(*ages), categorical=["a"]).columns[0].categories) == 22
    assert len(read(column_of(*range(10), "x", *range(10))).columns[0].categories) == 11


def test_identifiers_are_told(read, tmp_path):
    rows = [f"{i % 7},{900 + 7 * i},{700 - i}.5,p{i},{i % 2}\n" for i in range(30)]
    notes = read("age,patient,weight,person,label\n" + "".join(rows)).notes
    assert [note.partition(" has")[0] for note in notes] == ["column 'patient'", "column 'person'"]
    assert load(str(tmp_path / "people.csv")).notes == notes


def test_labels(read, tmp_path):
    table = read("a,label\nx,10\nx,9\ny,-1\n")
    assert (table.class_names, table.labels.tolist()) == (("-1", "9", "10"), [2, 1, 0])
    table = read("a,b,label\nx,no,u\nx,yes,v\ny,?no,w\n", label="b")
    assert (table.class_names, table.labels.tolist()) == (("?no", "no", "yes"), [1, 2, 0])
    assert table.columns[1].categories == ("u", "v", "w")
    assert len(read("a,label\n" + "".join(f"x,class {i}\n" for i in range(60))).class_names) == 60
    # A class without a record is one of sets that are compared, and not of a table that a classifier learns.
    table = read("a,label\n1,0\n2,2\n2,5\n")
    assert (table.class_names, table.labels.tolist()) == (("0", "2", "5"), [0, 1, 2])
    examples = load(str(tmp_path / "people.csv"))
    assert (examples.class_names, examples.labels.tolist()) == (tuple("012345"), [0, 2, 5])


def test_a_column_that_counts_the_rows_is_refused(read, tmp_path):
    content = "case,a,label\n" + "".join(f"{i},{'xz'[i % 2]},{i % 2}\n" for i in range(21))
    with pytest.raises(InputError, match=r"column 'case' counts the rows, .*leave it out \(`drop`\)"):
        read(content)
    assert [column.name for column in read(content, categorical=["case"]).columns] == ["case", "a"]
    assert [column.name for column in read(content, drop=["case"]).columns] == ["a"]
    (tmp_path / "people.csv").write_text(content.replace("x", "1").replace("z", "2"))
    with pytest.raises(InputError, match="column 'case' counts the rows"):
        load(str(tmp_path / "people.csv"))
    assert load(str(tmp_path / "people.csv"), drop=["case"]).titles == ("a",)


NOTHING = ["", " nan", "NA", "NaN"]
TEXTS = st.sampled_from(["1", "2.5", "-3", "10", "x", "é", "a b", *NOTHING, " y ", 'q"u', "a,b", "line\nbreak"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=8), st.integers(0, 3))
def test_columns_are_those_of_a_loop(tmp_path_factory, rows, few):
    path = tmp_path_factory.getbasetemp() / "loop.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["a", "b", "label"])
        writer.writerows([*row, "np"[i % 2]] for i, row in enumerate(rows))
    expected = []
    for cells in zip(*rows, strict=True):
        cells = [cell.strip() for cell in cells]
        there = [cell for cell in cells if cell not in ("", "NA", "NaN", "nan")]
        words = {cell for cell in there if cell.strip("-0123456789.")}
        values = {float(cell) for cell in there if cell not in words}
        if len(values) > few:
            expected.append("refused" if words or len(there) < len(cells) else [float(cell) for cell in cells])
        else:
            order = sorted(set(there), key=str if words else float)
            expected.append([cell if cell in order else MISSING for cell in cells])
    refused = pytest.raises(InputError, match=r"(is empty|holds words), in a column of numbers")
    with mock.patch("jaxaudit.data.own_table.FEW", few), refused if "refused" in expected else nullcontext():
        table = load_table(str(path))
    if "refused" in expected:
        return
    for place, (column, cells) in enumerate(zip(table.columns, expected, strict=True)):
        values = table.values[:, place]
        assert (values.tolist() if not column.categories else [column.categories[int(v)] for v in values]) == cells
        if column.categories:
            there = [category for category in column.categories if category != MISSING]
            assert there == sorted(there) or [float(each) for each in there] == sorted(map(float, there))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "people.csv: is empty"),
        ("a,label\n", {}, "there are no rows below the header line. Is the file empty"),
        ("\na,label\n1,2\n", {}, "its first line is blank; delete it"),
        ("a,b,a,label\n1,2,3,4\n", {}, "two columns are named 'a' .*; name each column once"),
        (",a,label\n5,1,x\n3,2,y\n", {}, r"a column has no name .*frame.to_csv\('people.csv', index=False\)"),
        ("Unnamed: 0,a,label\n5,1,x\n3,2,y\n", {}, "a column has no name"),
        ("a,label\n" + "".join(f"x,n{i}\n" for i in range(1001)), {}, "1,001 different values"),
        (PEOPLE, {}, r"no column is named 'label', .*name the label \(`label`\), or, with pandas, write frame.rename"),
        (PEOPLE, {"label": "incme"}, "no column is named 'incme'"),
        (PEOPLE, {"label": "income", "drop": ["wrok"]}, r"'wrok'\. Did you mean work\?"),
        (PEOPLE, {"label": "income", "categorical": ["zzz"]}, "no column 'zzz'"),
        (PEOPLE, {"label": "income", "drop": ["income"]}, "'income' cannot be both label and drop; name it once"),
        (PEOPLE, {"label": "income", "drop": ["age"], "categorical": ["age"]}, "both categorical and drop"),
        (f"group,label\n{2**52},x\n{2**52 + 1},y\n", {}, "no column other than the label"),
        ("a,label\n1,0.5\n", {}, "column 'label': labels are whole numbers, "),
        ("a,label\nx,n\nx,n\n", {}, "has 1 different values, and a classifier needs 2 to 1,000 classes"),
        (column_of(*numbers(20), "1e999"), {}, "row 21, column 'a' is not finite"),
        ("a," * 32_768 + "\n", {}, "its first line has more than the allowed 32,768 columns"),
        # As a set: numbers and words are not mixed.
        ("a,label\n1,x\nab,y\n", None, r"row 2, column 'a' holds words, .*write numbers throughout, or words"),
        ("a,label\n1,x\n,y\n", None, "row 2, column 'a' is empty"),
        ("a,label\ninf,x\n1,y\n", None, "row 1, column 'a' is not finite"),
        ("a,label\n1,x\n2\n", None, "Row #3: Expected 2 columns, got 1"),
    ],
)
def test_refused(tmp_path, content, options, message):
    (tmp_path / "people.csv").write_text(content)
    with pytest.raises(InputError, match=message) as raised:
        load(str(tmp_path / "people.csv")) if options is None else read_table(tmp_path / "people.csv", **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "inputs"),
    [
        ("\ufeffa,label\n 1 , x\n+3,y \n", [[1], [3]]),
        ('id,a,label\n1,7.5,x\n"2",-4e1,y\n', [[1, 7.5], [2, -40]]),
        ("a,label,b\nTrue,x,false\nFalse,y,TRUE\n", [[1, 0], [0, 1]]),
    ],
)
def test_the_records_of_a_set(tmp_path, content, inputs):
    (tmp_path / "a.csv").write_text(content)
    examples = load(str(tmp_path / "a.csv"))
    assert examples.inputs.dtype == np.float32
    assert examples.inputs.tolist() == inputs
    assert (examples.class_names, examples.labels.tolist()) == (("x", "y"), [0, 1])


def test_what_is_dropped_is_as_if_it_were_not_there(tmp_path):
    path = str(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("patient,age,label\nann,20,a\nbob,30,b\n")
    assert load(path, groups=("patient", "nobody")).inputs.tolist() == [[20], [30]]
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"drop": ("patient", "age")}, "no column other"),
        ({"label": "patient", "groups": ("patient",)}, "'patient' cannot be both label and drop"),
    )
    for options, message in refused:
        with pytest.raises(InputError, match=message):
            load(path, **options)  # pyright: ignore[reportArgumentType]


def test_numbers_of_a_table_can_be_read_without_rounding(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,label\n0.1,123456789,0\n1e-320,-9007199254740991,1\n")
    assert load(str(path), exact=True).inputs.tolist() == [[0.1, 123456789], [1e-320, -9007199254740991]]
    assert load(str(path)).inputs.dtype == np.float32
    path.write_text("a,label\n12345678901234567,0\n1,1\n")
    with pytest.raises(InputError, match="whole numbers of 2"):
        load(str(path), exact=True)
    path.write_text("a,label\n1e17,0\n1,1\n")
    assert load(str(path), exact=True).inputs.tolist() == [[1e17], [1]]


N = 24
COLUMNS = {
    "age": [i + 0.25 for i in range(N)],
    "work": [["state", "private", None][i % 3] for i in range(N)],
    "children": [i % 4 for i in range(N)],
    "label": ["no" if i % 2 else "yes" for i in range(N)],
}


def read_table(path, **options):
    return load_table(str(path), **options)


@pytest.fixture
def write(tmp_path):
    def write_parquet(columns, **how):
        path = tmp_path / "people.parquet"
        parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **how)
        return path

    return write_parquet


def test_words_are_numbers_that_no_file_changes(tmp_path):
    """Sets of one provider have not all the same words, and each word must be the same in all."""

    def inputs_of(*words: str) -> np.ndarray:
        rows = [f"{word},{row % 7},{'xy'[row % 2]}" for row, word in enumerate(words)]
        (tmp_path / "words.csv").write_text("\n".join(["town,a,label", *rows, ""]))
        found = load(str(tmp_path / "words.csv"))
        assert found.titles == (*(f"town ({place})" for place in range(16)), "a")
        return found.inputs[:, :16]

    first, other = inputs_of("Ulm", "Bern", "", "Ulm"), inputs_of("Wien", "NA", " Bern ")
    assert (first[0] == first[3]).all()
    assert (first[1] == other[2]).all()
    assert (first[2] == other[1]).all()
    distances = [np.abs(one - two).sum() for one, two in combinations((*first[:3], other[0]), 2)]
    assert min(distances) > 5
    assert np.abs(first).max() <= 1
    many = inputs_of(*(f"word {row}" for row in range(4000))).astype(np.float64)
    # As random directions: of one length, nearly, and at right angles on average.
    assert (many**2).sum(axis=1).mean() == pytest.approx(16 / 3, rel=0.02)
    assert abs((many[:2000] * many[2000:]).sum(axis=1).mean()) < 0.15


def test_gaps_among_numbers_are_kept_where_they_are_asked_for(write, tmp_path):
    """Whatever stands for them, and whatever the file; records with the same ones are equal."""
    path = tmp_path / "gaps.csv"
    path.write_text("a,b,c,town,sure,label\n1.5,,1,Ulm,true,x\nNA,2,,,,y\n<NA>,2, nan ,,,x\n0.25,3,,Bern,false,y\n")
    examples = load(str(path), gaps=True)
    numbers = np.array([[1.5, np.nan, 1], [np.nan, 2, np.nan], [np.nan, 2, np.nan], [0.25, 3, np.nan]], np.float32)
    np.testing.assert_array_equal(examples.inputs[:, :3], numbers)
    # A missing word is as no word; true and false are numbers, with gaps, too.
    assert (len(examples.titles), examples.gaps) == (3 + 16 + 1, ("a", "b", "c", "sure"))
    np.testing.assert_array_equal(examples.inputs[:, -1], np.array([1, np.nan, np.nan, 0], np.float32))
    hashes = examples.record_hashes.tolist()
    assert (hashes[1] == hashes[2], len(set(hashes))) == (True, 3)
    file = write({"a": [1.5, None, None, 0.25], "b": [None, 2, 2, 3], "c": [1, None, None, None], "label": [*"xyxy"]})
    np.testing.assert_array_equal(load(str(file), gaps=True).inputs, numbers)
    # A number of the row, and one of the person, are told with an empty cell, too.
    for numbers_of, words in ((lambda row: row, "counts the rows"), (lambda row: 900 - 3 * row, "")):
        rows = [f"{'' if row == 7 else numbers_of(row)},{row % 4}.5,{'xy'[row % 2]}" for row in range(30)]
        path.write_text("\n".join(["person,weight,label", *rows]))
        with pytest.raises(InputError, match=f"column 'person' {words}") if words else nullcontext():
            (note,) = load(str(path), gaps=True).notes
            assert "'person'" in note


NUMBERS = {"age": COLUMNS["age"], "children": COLUMNS["children"], "label": COLUMNS["label"]}


def test_records_are_those_of_the_csv(write, tmp_path):
    arrow_csv.write_csv(pa.table(NUMBERS), tmp_path / "same.csv")
    wanted = load(str(tmp_path / "same.csv"))
    assert wanted.inputs.shape == (N, 2)
    assert load(f"{write(NUMBERS)}@all").content_hash == wanted.content_hash
    for column, words in (
        ([None, *COLUMNS["age"][1:]], "row 1, column 'age' is empty"),
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
    table = read_table(write({"a": values, "label": [0, 1] * 3}))
    assert table.columns[0].categories == categories


@pytest.mark.parametrize("values", [[[1, 2], [3]] * 3, [{"a": 1}] * 6, [b"\xff\x00"] * 6, [datetime.timedelta(1)] * 6])
def test_columns_without_a_text_are_refused_or_left_out(write, values):
    path = write({"a": values, "b": ["u", "v"] * 3, "label": [0, 1] * 3})
    with pytest.raises(InputError, match="values of type"):
        read_table(path)
    assert [column.name for column in read_table(path, drop=["a"]).columns] == ["b"]


def with_index(columns, index):
    table = pa.table(columns)
    return table.replace_schema_metadata({"pandas": index if isinstance(index, str) else json.dumps(index)})


def test_an_index_that_pandas_kept_is_refused_until_it_is_left_out(write):
    columns = {**COLUMNS, "person": [f"p{i}" for i in range(N)], "__index_level_0__": list(range(5, N + 5))}
    index = ["person", "__index_level_0__"]
    path = write(with_index(columns, {"index_columns": index}))
    for drop in ((), index[:1], index[1:]):
        with pytest.raises(InputError, match="is an index of pandas"):
            read_table(path, drop=drop)
    assert [column.name for column in read_table(path, drop=index).columns] == ["age", "work", "children"]
    named = read_table(path, drop=index[1:], categorical=["person"]).columns
    assert [column.name for column in named] == ["age", "work", "children", "person"]
    columns.pop("__index_level_0__")
    for damaged in ("{", "[]", "[" * 9999, '{"index_columns": [{"kind": "range"}, 3]}', '{"index_columns": 5}'):
        assert len(read_table(write(with_index(columns, damaged))).columns) == 4


def test_names_occur_once_and_records_exist(write):
    with pytest.raises(InputError, match="two of one name"):
        read_table(write(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])))
    with pytest.raises(InputError, match="no rows"):
        read_table(write({"a": pa.array([], pa.int64()), "label": pa.array([], pa.string())}))
    with pytest.raises(InputError):
        read_table(write(pa.table({})))


def written(table: pa.Table, **how: Any) -> bytes:
    stream = BytesIO()
    parquet.write_table(table, stream, **how)
    return stream.getvalue()


def test_equal_rows_are_bounded_before_they_are_read(write, monkeypatch):
    part = pa.table({"a": np.zeros(10**6), "b": np.zeros(10**6), "label": np.zeros(10**6)})
    path = write(pa.concat_tables([part] * 5), compression="zstd")
    assert path.stat().st_size < 10**5
    monkeypatch.setattr("jaxaudit.data.formats.parquet_file.MAX_BYTES", 10**8)
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(InputError, match="5,000,000 rows of 3 columns"):
        read_table(path)
    monkeypatch.setattr("jaxaudit.data.formats.parquet_file.MOST_COLUMNS", 2)
    with pytest.raises(InputError, match="at most 2"):
        read_table(write(pa.table({"a": [1], "b": [2], "label": [3]})))


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
    columns = [group.column(column) for group in groups for column in range(len(table.columns))]
    assert unpacked_bytes(BytesIO(data)) == sum(column.total_uncompressed_size for column in columns)
