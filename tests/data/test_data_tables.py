"""CSV files: features, labels, and the row and column of what is wrong."""

import numpy as np
import pytest

from jaxaudit.data.labels import encode_labels
from jaxaudit.data.tables.csv_table import load_csv, read_label_column
from jaxaudit.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_csv(content):
        path = tmp_path / "a.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_csv


@pytest.mark.parametrize(
    ("content", "inputs", "names"),
    [
        ("a,label,b\n1,x,2.5\n3,y,-4e1\n", [[1, 2.5], [3, -40]], "xy"),
        ("a,CLASS\n1,0\n3,1\n", [[1], [3]], "01"),
        ("Target,b\nx,1\ny,2\n", [[1], [2]], "xy"),
        ("a,b\n1,x\n3,y\n", [[1], [3]], "xy"),
        ("\ufeffa,label\n 1 , x\n+3,y \n", [[1], [3]], "xy"),
        ('a,label\n1,"x"\n"3",y\n', [[1], [3]], "xy"),
        (",a,y\n0,7,x\n1,8,y\n", [[7], [8]], "xy"),
        ("id,a,y\n1,7,x\n2,8,y\n", [[7], [8]], "xy"),
        ("id,a,y\n5,7,x\n2,8,y\n", [[5, 7], [2, 8]], "xy"),
        ("id,a,y\n1,7,x\n5,8,y\n", [[1, 7], [5, 8]], "xy"),
        ("0,1,2\n7,8,0\n9,6,1\n", [[7, 8], [9, 6]], "01"),
        (",0,1\n0,8,0\n1,6,1\n", [[8], [6]], "01"),
        ("a,label\r\n1,x\r\n3,y\r\n", [[1], [3]], "xy"),
    ],
)
def test_tables(write, content, inputs, names):
    examples = load_csv(write(content))
    assert examples.inputs.dtype == np.float32
    assert examples.inputs.tolist() == inputs
    assert examples.class_names == tuple(names)
    assert examples.labels.tolist() == [0, 1]
    assert examples.name == "a.csv"


def test_types_may_change_far_down(write):
    # Past a megabyte, where a reader that guesses types from the start of the file has long decided.
    lines = [f"{i % 7},{i % 2}" for i in range(400_000)]
    lines[-1] = "0.5,1"
    examples = load_csv(write("a,label\n" + "\n".join(lines) + "\n"))
    assert len(examples) == 400_000
    assert examples.inputs[-1, 0] == 0.5


def test_a_blank_first_line(write):
    with pytest.raises(InputError, match=r"a\.csv: its first line is blank; delete it"):
        load_csv(write("\na,label\n1,x\n3,y\n"))
    with pytest.raises(InputError, match=r"a\.csv: its first line is blank; delete it"):
        read_label_column(write("\nx\ny\n"))


def test_chosen_label_column_and_labels_from_elsewhere(write):
    path = write("a,label,b\n1,2,x\n3,4,y\n")
    assert load_csv(path, "b").inputs.tolist() == [[1, 2], [3, 4]]
    path = write("a,b\n1,2\n3,4\n")
    examples = load_csv(path, labels=encode_labels(np.array([1, 0]), None, "y"))
    assert examples.inputs.tolist() == [[1, 2], [3, 4]]
    assert examples.labels.tolist() == [1, 0]
    with pytest.raises(InputError, match="2 rows but 3 labels"):
        load_csv(path, labels=encode_labels(np.array([1, 0, 1]), None, "y"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a,label\n", "there are no rows below the header line"),
        ("a,label\n1,x\nab,y\n", "a.csv: row 2, column 'a' holds text, not a number"),
        ("a,label\n1,x\n,y\n", "row 2, column 'a' is empty"),
        ("a,label\n1,x\n1,\n", "row 2 has no label .column 'label' is empty"),
        ("a,label\n1,x\nnan,y\n", "1 records"),
        ("a,label\n1,x\n1e99,y\n", "NaN or infinite"),
        ("a,label\n1,x\n2\n", "Row #3: Expected 2 columns, got 1"),
        (b"a,label\n1,\x81\n", "text in UTF-8, UTF-16 or Windows-1252"),
        ("0.5,1\n0.1,0\n", "looks like a record, not like column names, because"),
        ("a,y,label\n1,0,1\n", "columns 'y', 'label' could all be the label"),
        ("a:label\n1:2\n", "the label; is it comma-separated"),
        ("a,label\n1,0.5\n", "column 'label': labels must be whole numbers or text"),
    ],
)
def test_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        load_csv(write(content))


def test_unclear_label_column(write):
    with pytest.raises(InputError, match="'b'; the columns are a, label"):
        load_csv(write("a,label\n1,2\n"), "b")
    with pytest.raises(InputError, match="there are several columns"):
        load_csv(write("a,a\n1,2\n"), "a")


def test_missing(tmp_path):
    with pytest.raises(InputError, match="cannot be read as CSV"):
        load_csv(tmp_path / "none.csv")


@pytest.mark.parametrize("content", ["x\ny\n", "label\nx\ny\n", "id,label\n0,x\n1,y\n"])
def test_label_column(write, content):
    assert read_label_column(write(content)).tolist() == ["x", "y"]
