"""How CSV files are written, told apart by looking, and what is refused before room is made for it."""

import os
import time

import pytest

from jaxaudit.data.formats.csv_format import Asked, CsvFormat
from jaxaudit.data.sets.people import read_people
from jaxaudit.data.tables.csv_table import load_csv, read_csv, read_label_column
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
    assert table.format.delimiter == delimiter
    unusual = (encoding not in ("utf-8", "utf-8-sig")) + (delimiter != ",")
    assert str(table.format).count(",") == max(unusual - 1, 0)
    assert bool(str(table.format)) == bool(unusual)


@pytest.mark.parametrize(
    ("content", "delimiter", "decimal"),
    [
        ("a;b\n1,5;2,5\n0,5;3\n", ";", ","),
        ("0,5;0,5\n0,25;0,75\n", ";", ","),
        ("a\tb\n1,5\t-2,5e3\n", "\t", ","),
        ("a;b\n1,5;2.5\n", ";", "."),
        ("a;b\n15;25\n", ";", "."),
        ('a,b\n"1,5","2,5"\n', ",", "."),
        ('a,b\n"x;y",2\n', ",", "."),
        ('"a;b";c\n"x;y";1\n', ";", "."),
        ("a,b\nx;y,2\nz;t,3\n", ",", "."),
        ("label\ncat|dog\n", ",", "."),
        ("a\n1\n2\n", ",", "."),
    ],
)
def test_what_stands_between_cells_and_in_numbers(write, content, delimiter, decimal):
    found = read_csv(write(content)).format
    assert (found.delimiter, found.decimal) == (delimiter, decimal)


def test_a_ragged_line_is_held_against_most_others(write):
    with pytest.raises(InputError, match="Row #2: Expected 3 columns, got 2"):
        read_csv(write("a;b;c\n1;2\n1;2;3\n1;2;3\n"))


def test_decimal_commas_are_numbers(write):
    table = read_csv(write("a;b\n 1,5;x\n-2,5e1;y\n3;z\n"))
    assert table.numbers(0).tolist() == [1.5, -25, 3]
    # Where the comma is the decimal sign, nobody knows what a point is.
    table = read_csv(write("a;y\n1,5;n\n1.234;p\n"), asked=Asked(decimal=","))
    with pytest.raises(InputError, match="row 2, column 'a' holds text"):
        table.numbers(0)
    people = read_people(write("a;y\n" + "".join(f"{i},5;{'np'[i % 2]}\n" for i in range(12))))
    assert people.values[:, 0].tolist() == [i + 0.5 for i in range(12)]
    assert people.notes == ("it is read as semicolons between cells, decimal commas",)
    few = read_people(write("a;y\n10,5;n\n9,5;p\n"))
    assert few.columns[0].categories == ("9,5", "10,5")
    assert load_csv(write("a;label\n1,5;x\n2;y\n")).inputs.tolist() == [[1.5], [2]]


def test_what_is_dropped_is_as_if_it_were_not_there(write):
    path = write("id,patient,age,label\n1,ann,20,a\n2,bob,30,b\n")
    for drop, inputs in ((("patient", "nobody"), [[20], [30]]), (("patient", "age", "id"), None)):
        if inputs is None:
            with pytest.raises(InputError, match="no column other"):
                load_csv(path, drop=drop)
        else:
            assert load_csv(path, drop=drop).inputs.tolist() == inputs
    # Without it the last of the others is the label; a column that is named as a label is never dropped.
    assert load_csv(write("age,kind,patient\n1,a,p\n2,b,q\n"), drop=["patient"]).class_names == ("a", "b")
    assert load_csv(write("age,Label\n1,a\n2,b\n"), drop=["Label"]).class_names == ("a", "b")
    with pytest.raises(InputError, match="left out"):
        load_csv(write("patient\nann\nbob\n"), drop=["patient"])


def test_what_was_asked_for_counts(write):
    path = write("a;b\n1,5;2\n")
    assert cells(read_csv(path, header=False, asked=Asked(delimiter=":"))) == [["a;b"], ["1,5;2"]]
    assert read_csv(path, asked=Asked(decimal=".")).format == CsvFormat("utf-8", ";", ".")
    path = write("a,b\nž,2\n", "iso8859-2")
    assert cells(read_csv(path, asked=Asked(encoding="iso8859-2")))[0][0] == "ž"
    path = write("a,b\nx,2\n", "utf-16-le")
    with pytest.raises(InputError, match=r"zero bytes.*utf-16-le"):
        read_csv(path)
    assert cells(read_csv(path, asked=Asked(encoding="utf-16-le"))) == [["x", "2"]]


@pytest.mark.parametrize(
    "asked",
    [
        Asked(delimiter=""),
        Asked(delimiter="ab"),
        Asked(delimiter='"'),
        Asked(delimiter="\n"),
        Asked(delimiter="é"),
        Asked(encoding="klingon"),
        Asked(encoding="zlib"),
        Asked(encoding="a\0"),
        Asked(encoding="utf-16"),
        Asked(decimal=";"),
    ],
)
def test_what_cannot_be_asked_for(write, asked):
    with pytest.raises(InputError):
        read_csv(write("a,b\n1,é\n1,"), asked=asked)


READERS = [
    read_csv,
    load_csv,
    read_label_column,
    read_people,
    lambda path: read_csv(path, header=False),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    [
        b"," * 2**20,
        b";" * 2**21,
        b"a,b\n" + b"," * 2**20 + b"\n",
        b'"' * 2**20,
        b"x" * 2**22,
        b"a\n" + b'"' + b"x" * 2**22,
        b"1" * 2**17 + b"x,y\n1,2\n",
        b"\xff\xfe" + b",\0" * 2**20,
        b"\0" * 2**10,
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"a,b\n\xff\xfe\n",
        bytes(range(256)),
    ],
)
def test_bombs_are_refused_quickly(write, reader, content):
    path = write(content)
    start = time.process_time()
    with pytest.raises(InputError) as raised:
        reader(path)
    assert time.process_time() - start < 3
    assert len(str(raised.value)) < 500


def test_many_columns_take_time_in_proportion(write):
    count = 30_000
    path = write(",".join(f"c{i}" for i in range(count)) + "\n" + (",".join("1" * count) + "\n") * 2)
    start = time.process_time()
    assert load_csv(path).inputs.shape == (2, count - 1)
    assert time.process_time() - start < 5


def test_what_is_no_plain_file(tmp_path):
    os.mkfifo(tmp_path / "fifo.csv")
    for path in (tmp_path / "fifo.csv", tmp_path, tmp_path / "none.csv", tmp_path / "a\0.csv", tmp_path / ("x" * 5000)):
        for reader in (read_csv, read_people):
            with pytest.raises(InputError):
                reader(path)


def test_a_path_that_is_no_utf8(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("a,label\n1,x\n2,y\n")
    assert load_csv(path).inputs.tolist() == [[1], [2]]
    assert len(read_people(path)) == 2


SECRET = "Grubers-Secret"


def said_by(read):
    try:
        read()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "content",
    [
        f"a,y\n{SECRET},1\n{SECRET}\n",
        f"a,y\n1,{SECRET}\n{SECRET},0\n",
        f"39,{SECRET},y\n40,{SECRET},n\n",
        f"{SECRET},Rome\n{SECRET},Rome\nx,Bern\n",
        f"a,y\n1,{SECRET}\n2,{SECRET}\n",
        f"a,y\n{SECRET},\n1,2\n",
        f'a,y\n"{SECRET},2\n1,2\n',
        f"a,label\n1,{SECRET}\n1,0.5\n2,\n",
        "a,label\n1,0.123\n1,0.5\n",
        "a,label\n1,9000123\n1,9000124\n",
        f"a,y\n{SECRET},1\n1e999,0\n",
        f"a,y\n\x00{SECRET},1\n",
    ],
)
@pytest.mark.parametrize("reader", [*READERS[:4], lambda path: read_people(path, label="y", numeric=["a"])])
def test_no_message_says_what_stands_in_a_record(tmp_path_factory, reader, content):
    path = tmp_path_factory.mktemp("quiet") / "a.csv"
    path.write_text(content)
    said = said_by(lambda: reader(path))
    for cell in (SECRET, "39,", "Rome", "0.123", "9000123"):
        assert cell not in said
