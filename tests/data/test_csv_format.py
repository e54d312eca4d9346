"""CSV files: how they are written, what is read of them, and what is refused before room is made for it."""

import time

import numpy as np
import pytest

from jaxaudit.data.formats.csv_file import CsvOptions, find_format, read_csv
from jaxaudit.data.tables.people import load_columns, read_people
from jaxaudit.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_csv(content, encoding="utf-8"):
        path = tmp_path / "a.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write_csv


def cells(table):
    return [list(line) for line in zip(*(column.to_pylist() for column in table.columns), strict=True)]


USUAL = [["âge", "city", "y"], ["1", "Zürich", "n"], ["2", "Bern", "p"]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_delimiters_and_encodings_are_found(write, delimiter, encoding):
    text = "\r\n".join(delimiter.join(line) for line in USUAL) + "\r\n"
    table = read_csv(write(text, encoding), header=False)
    assert cells(table) == USUAL
    said = {"semicolons": ";", "tabs": "\t", "vertical bars": "|"}
    assert [sign for word, sign in said.items() if word in table.note] == [delimiter] * (delimiter != ",")
    assert table.note.count(",") == (delimiter != "," and encoding not in ("utf-8", "utf-8-sig"))
    assert bool(table.note) == (delimiter != "," or encoding not in ("utf-8", "utf-8-sig"))


@pytest.mark.parametrize(
    ("content", "delimiter", "decimal"),
    [
        ("a;b\n1,5;2,5\n0,5;3\n", ";", ","),
        ("0,5;0,5\n0,25;0,75\n", ";", ","),
        ("a\tb\n1,5\t-2,5e3\n", "\t", ","),
        ("a;b\n1,5;2.5\n", ";", "."),
        ('a,b\n"1,5","2,5"\n', ",", "."),
        ('"a;b";c\n"x;y";1\n', ";", "."),
        ("a,b\nx;y,2\nz;t,3\n", ",", "."),
    ],
)
def test_what_stands_between_cells_and_in_numbers(tmp_path, content, delimiter, decimal):
    found, *_ = find_format(content.encode(), tmp_path / "a.csv", CsvOptions())
    assert (found.delimiter, found.decimal) == (delimiter, decimal)


def test_decimal_commas_are_numbers(write):
    table = read_csv(write("a;b\n 1,5;x\n-2,5e1;y\n3;z\n"))
    assert table.numbers(0).tolist() == [1.5, -25, 3]
    # Where the comma is the decimal sign, nobody knows what a point is.
    table = read_csv(write("a;y\n1,5;n\n1.234;p\n"), options=CsvOptions(decimal=","))
    with pytest.raises(InputError, match="row 2, column 'a' holds text"):
        table.numbers(0)
    people = read_people(write("a;y\n" + "".join(f"{i},5;{'np'[i % 2]}\n" for i in range(12))))
    assert people.values[:, 0].tolist() == [i + 0.5 for i in range(12)]
    assert people.notes[0] == "it is read as semicolons between cells, decimal commas"
    assert load_columns(write("a;label\n1,5;x\n2;y\n")).inputs.tolist() == [[1.5], [2]]


def test_what_is_dropped_is_as_if_it_were_not_there(write):
    path = write("id,patient,age,label\n1,ann,20,a\n2,bob,30,b\n")
    assert load_columns(path, groups=("patient", "nobody")).inputs.tolist() == [[20], [30]]
    with pytest.raises(InputError, match="no column 'nobody'"):
        load_columns(path, drop=("patient", "nobody"))
    with pytest.raises(InputError, match="no column other"):
        load_columns(path, drop=("patient", "age", "id"))
    # Without it the last of the others is the label, but not where a column that is named like one is dropped.
    assert load_columns(write("age,kind,patient\n1,a,p\n2,b,q\n"), groups=["patient"]).class_names == ("a", "b")
    path = write("age,kind,Label\n1,a,7\n2,b,7\n")
    with pytest.raises(InputError, match="'Label' is named like a label"):
        load_columns(path, drop=["Label"])
    assert load_columns(path, drop=["Label"], label="kind").class_names == ("a", "b")
    with pytest.raises(InputError, match="cannot be the label"):
        load_columns(path, drop=["kind"], label="kind")
    with pytest.raises(InputError, match="left out"):
        load_columns(write("patient\nann\nbob\n"), groups=["patient"])


READERS = [read_csv, load_columns, read_people, lambda path: read_csv(path, header=False)]


@pytest.mark.parametrize(
    "content",
    [
        b"," * 2**20,
        b"a,b\n" + b"," * 2**20 + b"\n",
        b'"' * 2**20,
        b"x" * 2**22,
        b"a\n" + b'"' + b"x" * 2**22,
        b"1" * 2**17 + b"x,y\n1,2\n",
        b"\xff\xfe" + b",\0" * 2**20,
        b"\0" * 2**10,
        b"a,b\n\xff\xfe\n",
        bytes(range(256)),
    ],
)
def test_bombs_are_refused_quickly(write, content):
    path, start = write(content), time.process_time()
    for reader in READERS:
        with pytest.raises(InputError) as raised:
            reader(path)
        assert len(str(raised.value)) < 500
    assert time.process_time() - start < 3 * len(READERS)


SECRET = "Grubers-Secret"


@pytest.mark.parametrize(
    "content",
    [
        f"a,y\n{SECRET},1\n{SECRET}\n",
        f"a,y\n1,{SECRET}\n{SECRET},0\n",
        f"39,{SECRET},y\n40,{SECRET},n\n",
        f"{SECRET},Rome\n{SECRET},Rome\nx,Bern\n",
        f"a,y\n{SECRET},\n1,2\n",
        f'a,y\n"{SECRET},2\n1,2\n',
        f"a,label\n1,{SECRET}\n1,0.5\n2,\n",
        "a,label\n1,0.123\n1,0.5\n",
        "a,label\n1,9000123\n1,9000124\n",
        f"a,y\n{SECRET},1\n1e999,0\n",
        f"a,y\n\x00{SECRET},1\n",
    ],
)
def test_no_message_says_what_stands_in_a_record(write, content):
    path = write(content)
    for reader in (*READERS[:3], lambda path: read_people(path, label="y", numeric=["a"])):
        try:
            reader(path)
        except InputError as error:
            assert not any(cell in str(error) for cell in (SECRET, "39,", "Rome", "0.123", "9000123"))  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "inputs", "names"),
    [
        ("a,label,b\n1,x,2.5\n3,y,-4e1\n", [[1, 2.5], [3, -40]], "xy"),
        ("Target,b\nx,1\ny,2\n", [[1], [2]], "xy"),
        ("\ufeffa,label\n 1 , x\n+3,y \n", [[1], [3]], "xy"),
        ('a,label\n1,"x"\n"3",y\n', [[1], [3]], "xy"),
        (",a,y\n0,7,x\n1,8,y\n", [[7], [8]], "xy"),
        ("id,a,y\n1,7,x\n2,8,y\n", [[7], [8]], "xy"),
        ("id,a,y\n5,7,x\n2,8,y\n", [[5, 7], [2, 8]], "xy"),
        ("id,a,y\n1,7,x\n5,8,y\n", [[1, 7], [5, 8]], "xy"),
    ],
)
def test_tables(write, content, inputs, names):
    examples = load_columns(write(content))
    assert examples.inputs.dtype == np.float32
    assert examples.inputs.tolist() == inputs
    assert examples.class_names == tuple(names)
    assert examples.labels.tolist() == [0, 1]
    assert examples.name == "a.csv"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,label\n", "there are no rows below the header line"),
        ("a,label\n1,x\nab,y\n", "a.csv: row 2, column 'a' holds text, not a number"),
        ("a,label\n1,x\n,y\n", "row 2, column 'a' is empty"),
        ("a,label\n1,x\nnan,y\n", "1 records"),
        ("a,label\n1,x\n2\n", "Row #3: Expected 2 columns, got 1"),
        (b"a,label\n1,\x81\n", "text in UTF-8, UTF-16 or Windows-1252"),
        ("a:label\n1:2\n", "the label; is it comma-separated"),
        ("a,label\n1,0.5\n", "column 'label': labels must be whole numbers or text"),
    ],
)
def test_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        load_columns(write(content))


@pytest.mark.parametrize(
    ("header", "options", "place", "noted"),
    [
        ("x,y,z,activity", {"label": "activity"}, 3, False),
        ("x,y,z,activity", {"label": "y"}, 1, False),
        ("x,y,z,class", {}, 3, True),
        ("x,Y", {}, 1, True),
        ("x,z,y", {}, 2, True),
        ("y,a,b", {}, 0, True),
        ("a,b,c", {}, 2, True),
        ("label,b,target", {"drop": ["target"]}, 0, True),
    ],
)
def test_which_column_is_the_label(write, header, options, place, noted):
    """As it was named, or by its name, or the last: what was guessed is said; a y beside an x may be a coordinate."""
    names = header.split(",")
    rows = [[10 * row + column + 1 for column in range(len(names))] for row in range(3)]
    path = write("\n".join([header, *(",".join(map(str, row)) for row in rows), ""]))
    found = load_columns(path, **options)
    assert found.class_names == tuple(str(row[place]) for row in rows)
    assert [repr(names[place]) in note for note in found.notes] == [True] * noted


@pytest.mark.parametrize("options", [{}, {"label": "nobody"}, {"drop": ["y"]}])
def test_a_label_that_nobody_can_tell_is_refused(write, options):
    path = write("x,y,z,activity\n1,2,3,0\n4,5,6,1\n")
    with pytest.raises(InputError, match="`label`"):
        load_columns(path, **options)
    with pytest.raises(InputError, match=r"`label`|no column 'nobody'"):
        read_people(path, **options)


@pytest.mark.parametrize(
    "content",
    [
        "id,diagnosis,mean,\n7,M,1.5\n5,B,2.5\n",
        "id,diagnosis,mean,\n7,M,1.5,\n5,B,2.5,\n",
        "id,diagnosis,mean,Unnamed: 32\n7,M,1.5,\n5,B,2.5,NaN\n",
    ],
)
def test_a_column_without_a_name_and_a_value_is_left_out(write, content):
    path = write(content)
    found = load_columns(path, label="diagnosis", drop=["id"])
    assert (found.inputs.tolist(), found.class_names) == ([[1.5], [2.5]], ("B", "M"))
    assert len(found.notes) == (content.count("1.5,") or content.count("Unnamed"))
    assert [column.name for column in read_people(path, label="diagnosis", numeric=["mean"]).columns] == ["id", "mean"]
    # Named, it is read as it is.
    if "Unnamed" in content:
        with pytest.raises(InputError, match="row 1 has no label"):
            load_columns(path, label="Unnamed: 32")


def test_numbers_of_a_table_can_be_read_without_rounding(write):
    path = write("a,b,label\n0.1,123456789,0\n1e-320,-9007199254740991,1\n")
    assert load_columns(path, exact=True).inputs.tolist() == [[0.1, 123456789], [1e-320, -9007199254740991]]
    assert load_columns(path).inputs.dtype == np.float32
    with pytest.raises(InputError, match="whole numbers of 2"):
        load_columns(write("a,label\n12345678901234567,0\n1,1\n"), exact=True)
    assert load_columns(write("a,label\n1e17,0\n1,1\n"), exact=True).inputs.tolist() == [[1e17], [1]]
