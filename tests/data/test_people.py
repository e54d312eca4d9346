"""A person's own CSV file: what its columns are found to be, what can be said of them, and what is refused."""

import csv
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.data.sets.people import read_people
from jaxaudit.data.tables.column_choice import recode
from jaxaudit.data.tables.describe import describe_table
from jaxaudit.data.tables.table import MISSING, Column, Table
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


def test_hand_case(read):
    table = read(PEOPLE, label="income", few=3)
    assert table.values.tolist() == [[39, 1, 1, 0], [50, 2, 2, 0], [38.5, 0, 0, 0], [53, 2, 10, 0]]
    assert table.values.dtype == np.float64
    assert [(column.name, column.categories) for column in table.columns] == [
        ("age", None),
        ("work", ("Private", "State", MISSING)),
        ("children", None),
        ("city", ("Rome",)),
    ]
    assert table.labels.tolist() == [0, 1, 0, 0]
    assert table.class_names == ("<=50K", ">50K")
    assert (table.name, table.notes) == ("people.csv", ())


def test_few_different_numbers_are_categories_in_the_order_of_numbers(read):
    table = read(PEOPLE, label="income")
    assert table.columns[2].categories == ("0", "1", "2", "10")
    assert table.columns[0].categories == ("38.5", "39", "50", "53")
    assert table.values.dtype == np.float32
    ten, eleven = (read(column_of(*range(count), rows=22), label="y").columns[0].categories for count in (10, 11))
    assert ten == tuple(map(str, range(10)))
    assert eleven is None


def test_different_texts_of_one_number_are_one_number(read):
    texts = ["1", "1.0", "+1", " 1 ", "1e0", *range(2, 10)]
    assert read(column_of(*texts), label="y").columns[0].categories is not None
    table = read(column_of(*texts), label="y", few=8)
    assert table.values[:, 0].tolist() == [1, 1, 1, 1, 1, *range(2, 10)]


def test_what_is_said_of_a_column_counts(read):
    table = read(PEOPLE, label="income", numeric=["children", "age"], drop=["city", "work"])
    assert [(column.name, column.categories) for column in table.columns] == [("age", None), ("children", None)]
    assert table.values.tolist() == [[39, 1], [50, 2], [38.5, 0], [53, 10]]
    table = read(column_of(*range(20)), label="y", categorical=["a"])
    assert table.columns[0].categories == tuple(map(str, range(20)))


@pytest.mark.parametrize("text", ["", "?", "NA", "n/a", "NaN", " ? ", '""'])
def test_missing_values_are_a_category(read, text):
    table = read(column_of("x", text, "b"), label="y")
    assert table.columns[0].categories == ("b", "x", MISSING)
    assert table.values[:, 0].tolist() == [1, 2, 0]


def test_missing_among_numbers_and_alone(read):
    table = read(column_of(3, "", 20, 3), label="y")
    assert table.columns[0].categories == ("3", "20", MISSING)
    assert read(column_of("", "?"), label="y").columns[0].categories == (MISSING,)
    assert read(column_of("b", MISSING, "?"), label="y").values[:, 0].tolist() == [1, 0, 0]
    table = read(column_of(*range(20), ""), label="y", categorical=["a"])
    assert table.columns[0].categories == (*map(str, range(20)), MISSING)


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
    assert table.notes == ("the first column, 'id', is a row number and is left out",)
    assert [column.name for column in read(content, categorical=["id"]).columns] == ["id", "a"]
    assert read(content, drop=["id"]).notes == ()
    table = read(",a,y\n5,x,0\n3,x,1\n")
    assert [column.name for column in table.columns] == ["column 1", "a"]


TEXTS = st.sampled_from(["1", "2.5", "-3", "10", "x", "é", "a b", "?", "", "nan", " y ", 'q"u', "a,b", "line\nbreak"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=8), st.integers(0, 3))
def test_columns_are_those_of_a_loop(tmp_path_factory, rows, few):
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
            read_people(path, label="y", few=few)
        return
    table = read_people(path, label="y", few=few)
    for place, (column, cells) in enumerate(zip(table.columns, expected, strict=True)):
        values = table.values[:, place]
        assert (values.tolist() if column.categories is None else [column.categories[int(v)] for v in values]) == cells
        if column.categories is not None:
            there = [category for category in column.categories if category != MISSING]
            assert there == sorted(there) or [float(each) for each in there] == sorted(map(float, there))


def test_a_column_in_which_nearly_all_records_differ_is_pointed_at(read):
    prices = column_of(*(f"EUR {i}" for i in range(20)))
    (note,) = read(prices).notes
    assert note.startswith("column 'a' has a different value")
    assert note.endswith("--drop a leaves it out")
    (note,) = read(column_of(*(f"EUR {i}" for i in range(19)), "EUR 3", name="a b")).notes
    assert note.startswith("column 'a b' has 19 categories in 20 records")
    assert "--drop 'a b'" in note
    assert read(prices, categorical=["a"]).notes == ()
    assert read(column_of(*(f"EUR {i}" for i in range(11)), rows=22)).notes == ()
    (note,) = read(column_of(*(7 * i % 100 for i in range(40)))).notes
    assert note.startswith("column 'a' has a different value")
    for different in ([0.5, *range(30)], [0, *range(30)], range(19)):
        assert read(column_of(*different)).notes == ()
    assert read(column_of(*range(40)), numeric=["a"]).notes == ()


MANY = column_of(*range(20))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "people.csv: is empty"),
        ("a,y\n", {"label": "y"}, "there are no records below the header line. Is the file empty"),
        ("\na,y\n1,2\n", {}, "its first line is blank; delete it"),
        ("a,y\nx,n\nx,p,3\n", {}, "Row #3: Expected 2 columns, got 3"),
        (b"a,y\n\x81,n\n", {}, "text in UTF-8, UTF-16 or Windows-1252"),
        ("a,b,a,y\n1,2,3,4\n", {}, "its own name in the header"),
        (
            "0.5,1\n0.1,0\n",
            {},
            "looks like a record, not like column names, because",
        ),
        (PEOPLE, {}, "the label; name the label column"),
        ("y,class\n1,2\n", {}, "columns 'y', 'class' could all be the label; name the label column"),
        (PEOPLE, {"label": "incme"}, r"'incme'; did you mean 'income'\?"),
        (PEOPLE, {"label": "Age"}, r"'Age'; did you mean 'age'\?"),
        (PEOPLE, {"label": "income", "drop": ["zzz"]}, "'zzz'; the columns are 'age', 'work', 'children'"),
        ("a:y\nx:n\n", {"label": "y"}, "the columns are 'a:y'. Is the file comma-separated, with a header line?"),
        ("a:income\nx:n\n", {"label": "income"}, "the columns are 'a:income'. Is the file comma-separated, with a"),
        ("70,cook,high\n60,cook,low\n", {"label": "income"}, "looks like a record"),
        (
            PEOPLE,
            {"label": "income", "drop": ["income"]},
            "column 'income' cannot be both label and drop; name it once",
        ),
        (PEOPLE, {"label": "income", "numeric": ["age"], "categorical": ["age"]}, "both categorical and numeric"),
        (PEOPLE, {"label": "income", "drop": ["age", "work", "children", "city"]}, "no column"),
        ("a,y\nx,n\nx,n\n", {}, "every row has the same label .column 'y'.; a classifier needs at least two classes"),
        ("a,y\nx,n\nx,\nx,?\n", {}, "2 rows have no label .column 'y', first: row 2.; delete them"),
        ("a,y\nx,n\nx,\n", {}, "1 row has no label .column 'y', first: row 2.; delete it"),
        (
            "a,y\n" + "".join(f"x,{i}.5\n" for i in range(51)),
            {},
            r"51 different numbers; a classifier needs a few classes\. Replace the numbers by",
        ),
        (
            "a,y\n" + "".join(f"x,n{i}\n" for i in range(6)),
            {"most_classes": 5},
            "6 different texts, more than 5 classes; is it an identifier",
        ),
        (
            MANY + ",n\n",
            {},
            r"numbers are missing in 'a' \(1 of 21\); .*--missing drop, mean or category",
        ),
        (MANY + "?,n\n" * 4, {}, r"'a' \(4 of 24\)"),
        (MANY + "x1,n\n", {"numeric": ["a"]}, "text, not a number; correct it"),
        (MANY + "1_0,n\n", {"numeric": ["a"]}, "row 21, column 'a'"),
        (MANY + "1e999,n\n", {}, "row 21, column 'a' is not finite; correct it"),
        (column_of(1, "-inf"), {}, "row 2, column 'a' is not finite"),
        (
            column_of(*range(20), "x"),
            {"most_categories": 20},
            "21 different categories, more than 20; row 21",
        ),
        (column_of(*"abcdef"), {"most_categories": 5}, "6 different categories, more than 5; is it an identifier"),
        ("a,b,c\n1,2,3\n", {"most_columns": 2}, "its first line has 3 columns or"),
        (PEOPLE, {"max_bytes": 100}, r"0\.00 GiB, more than the"),
    ],
)
def test_refused(read, content, options, message):
    with pytest.raises(InputError, match=message) as raised:
        read(content, **options)
    assert "\n" not in str(raised.value)


def test_missing_file_and_packed_file(tmp_path):
    with pytest.raises(InputError, match=r"none.csv: cannot be read"):
        read_people(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_bytes(b"\x1f\x8bno gzip at all")
    with pytest.raises(InputError, match=r"a.csv: cannot be read"):
        read_people(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(gzip.compress(PEOPLE.encode()))
    with pytest.raises(InputError, match=r"b\.csv: cannot be read as CSV, because it is"):
        read_people(tmp_path / "b.csv")


def test_description(read):
    table = read(PEOPLE, label="income", few=3)
    assert [str(summary) for summary in describe_table(table)] == [
        "age: numeric, 38.5 to 53",
        "work: 3 categories (Private, State, ...), 2 missing",
        "children: numeric, 0 to 10",
        "city: 1 category (Rome), constant",
    ]
    age, work, _, city = describe_table(table)
    assert (work.missing, work.categories, age.constant, city.constant) == (2, 3, False, True)
    many = read(column_of(*"aabbbcd"), label="y")
    assert str(describe_table(many)[0]) == "a: 4 categories (b, a, c, ...)"
    nothing = read("a,b,y\n,x,n\n,x,p\n", label="y")
    assert str(describe_table(nothing)[0]) == "a: 1 category, 2 missing, constant"
    same = read(column_of(3, rows=2), label="y", numeric=["a"])
    assert str(describe_table(same)[0]) == "a: numeric, 3 to 3, constant"


TABLE = Table(
    np.array([[39, 1, 0], [50, 0, 1], [39, 1, 1]]),
    (Column("age", None), Column("rooms", ("2", "10")), Column("city", ("Rome", MISSING))),
    np.array([0, 1, 1]),
    ("no", "yes"),
    "flats",
    ("a note",),
)


def test_recode():
    table = recode(TABLE, categorical=["age"], numeric=["rooms"], drop=["city"])
    assert [(column.name, column.categories) for column in table.columns] == [("age", ("39", "50")), ("rooms", None)]
    assert table.values.tolist() == [[0, 10], [1, 2], [0, 10]]
    assert (table.labels.tolist(), table.name, table.notes) == ([0, 1, 1], "flats", ("a note",))
    assert TABLE.values.tolist() == [[39, 1, 0], [50, 0, 1], [39, 1, 1]]
    assert recode(TABLE) is TABLE
    assert recode(TABLE, categorical=["city"], numeric=["age"]).content_hash == TABLE.content_hash


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": ["town"]}, "'town'; the columns are 'age', 'rooms', 'city'"),
        ({"drop": ["age"], "numeric": ["age"]}, "column 'age' cannot be both numeric and drop"),
        ({"drop": ["age", "rooms", "city"]}, "there is no column"),
        ({"numeric": ["city"]}, "column 'city' holds text, so it cannot be numeric; leave it categorical"),
    ],
)
def test_recode_refuses(options, message):
    with pytest.raises(InputError, match=message):
        recode(TABLE, **options)


def test_missing_values_are_no_numbers():
    table = Table(np.zeros((1, 1)), (Column("a", ("1", MISSING)),), np.array([0]), ("no",), "tiny")
    with pytest.raises(InputError, match="column 'a' has missing values, so it cannot be numeric"):
        recode(table, numeric=["a"])
