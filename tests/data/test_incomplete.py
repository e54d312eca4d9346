"""Missing numbers of a person's own table: refused, or what a person says shall become of them."""

import numpy as np
import pytest

from jaxaudit.data import describe_record
from jaxaudit.data.sets.people import read_people
from jaxaudit.data.tables.incomplete import check_missing, fill
from jaxaudit.data.tables.resolve import load_table
from jaxaudit.data.tables.table import MISSING, join_tables
from jaxaudit.errors import InputError

ROWS = [[f"{i}.5" if i % 4 else "", "" if i == 1 else "ab"[i % 2], "np"[i % 2]] for i in range(40)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,work,y\n" + "".join(",".join(row) + "\n" for row in ROWS))
    return path


def test_refused_unless_said(path):
    with pytest.raises(InputError, match=r"missing in 'age' \(10 of 40\).*--missing drop, mean or category"):
        read_people(path)
    with pytest.raises(InputError, match="error, drop, mean, category, not 'zero'"):
        check_missing("zero")


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
    assert mean.notes == ("column 'age': 10 of 40 values are missing and set to the mean of the others",)
    category = read_people(path, missing="category")
    assert [column.name for column in category.columns] == ["age", "age is missing", "work"]
    assert category.values[:, 0].tolist() == mean.values[:, 0].tolist()
    assert category.values[:, 1].tolist() == [float(i % 4 == 0) for i in range(40)]


def test_a_column_that_looks_like_the_new_one_and_one_without_any_value(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,a is missing,b,y\n1,x,,n\n,x,,p\n")
    table = read_people(path, missing="category", numeric=["a", "b"])
    names = ["a", "a is missing'", "a is missing", "b", "b is missing"]
    assert [column.name for column in table.columns] == names
    assert table.values[:, 3].tolist() == [0, 0]


def test_the_mean_of_the_largest_numbers_is_finite():
    numbers = np.array([1.7e308, np.nan, 1.6e308, -0.0])
    filled = fill("a", numbers, (), "mean").values[0]
    assert filled[1] == pytest.approx(1.1e308)
    assert fill("a", np.array([0.0, np.nan]), (), "mean").values[0].tolist() == [0, 0]


def test_named_sets_have_no_choice():
    with pytest.raises(InputError, match="--missing"):
        load_table("wine", missing="drop")
    with pytest.raises(InputError, match="--delimiter"):
        load_table("wine", delimiter=";")
