"""Columns of tables as they were, for estimators with an encoder of their own."""

from pathlib import Path

import numpy as np
import pytest

from jaxaudit.data import load, load_table
from jaxaudit.data.table import as_indices, columns_as_read, frame
from jaxaudit.errors import InputError

pytest.importorskip("pandas")
ROWS = [
    ("Roma", 31, "f", 1.5),
    ("Bari", 4, "", 2.25),
    ("Roma", 57, "m", 0.1),
    ("", 8, "f", 7.0),
    ("a,b'\"", 9, "NA", 1),
]


def write(path: Path, rows: list[tuple[object, ...]]) -> str:
    lines = [
        ",".join(f'"{str(cell).replace(chr(34), chr(34) * 2)}"' for cell in (*row, "x" if at % 2 else "y"))
        for at, row in enumerate(rows)
    ]
    path.write_text("\n".join(["city,age,sex,dose,label", *lines]) + "\n")
    return str(path)


def test_words_and_numbers_come_back_as_they_stood(tmp_path: Path):
    """Also where a word stands in one of the sets alone."""
    sets = [load(write(tmp_path / f"{part}.csv", rows)) for part, rows in (("one", ROWS[:3]), ("other", ROWS[3:]))]
    columns = columns_as_read(sets)
    assert [column.name for column in columns] == ["city", "age", "sex", "dose"]
    assert [len(column.categories) for column in columns] == [4, 0, 3, 0]
    values = as_indices(np.concatenate([examples.inputs for examples in sets]), columns)
    cells = frame(values, columns).astype(object).where(lambda table: table.notna(), None)
    wanted = [tuple(None if cell in ("", "NA") else cell for cell in row) for row in ROWS]
    assert [(*row[:3], round(row[3], 6)) for row in cells.itertuples(index=False)] == wanted


def test_words_that_look_like_something_else_stay_words(tmp_path: Path):
    """The word for a missing cell, two codes of one number, and a name that a part of a column of words has."""
    file = tmp_path / "odd.csv"
    file.write_text("kind,code,label\n(missing),01,x\nred,1,y\n,01,x\nblue,1_2,y\n")
    table = load_table(str(file))
    assert frame(table.values, table.columns)["code"].tolist() == ["01", "1", "01", "1_2"]
    examples = load(str(file), drop=["code"])
    cells = frame(as_indices(examples.inputs, columns_as_read([examples])), columns_as_read([examples]))
    assert cells["kind"].fillna("none").tolist() == ["none", "red", "none", "blue"]
    file.write_text("x (0),x,label\n0.5,red,x\n0.7,blue,y\n")
    with pytest.raises(InputError, match="x \\(0\\)"):
        load(str(file))


def test_few_different_numbers_of_a_table_are_numbers(tmp_path: Path):
    """Where they are categories of a `Table`, with a missing one among them."""
    file = tmp_path / "few.csv"
    file.write_text("visits,kind,label\n3,a,x\n1,b,y\n,a,x\n10,c,y\n")
    table = load_table(str(file))
    assert [len(column.categories) for column in table.columns] == [4, 3]
    cells = frame(table.values, table.columns)
    assert cells["visits"].tolist()[:2] == [3.0, 1.0]
    assert np.isnan(cells["visits"][2])
    assert cells["kind"].tolist() == ["a", "b", "a", "c"]
