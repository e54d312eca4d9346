"""A row a record for other programs, of classes whose names try something."""

from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet

from jaxaudit.runs.row_files import Columns, as_cell, record_files

FORMULAS = ["=cmd|'/C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1"]
NAMES = [*FORMULAS, "a\x1b[2J", "a\nb", "-1.5", "1e-3", "a;=b", "class", ""]
COLUMNS = {"index": np.arange(len(NAMES)), "class": np.array(NAMES), "value": np.linspace(0, 1 / 3, len(NAMES))}


def written(path: Path, columns: Columns) -> Path:
    with path.open("wb") as file:
        record_files(columns)[path.name](file)
    return path


def test_a_spreadsheet_finds_no_formula_and_a_terminal_no_escape(tmp_path: Path):
    path = written(tmp_path / "records.csv", COLUMNS)
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) == len(NAMES) + 2
    assert all(line.isprintable() for line in lines)
    table = pyarrow.csv.read_csv(path)
    cells = [str(each) for each in table.column("class").to_pylist()]
    for name, cell in zip(NAMES, cells, strict=True):
        assert not cell.lstrip().startswith(("=", "+", "@")), name
    assert cells[2] == "'-2+3"
    assert cells[6:10] == ["a\\nb", "-1.5", "1e-3", "a;'=b"]
    assert table.column("value").to_pylist() == COLUMNS["value"].tolist()
    assert all(as_cell(text) == text for text in ("1,5", "+3", "-7e-12", "plain", "a - b", "ש日本"))
    # So are names of columns; Parquet holds all as they are.
    path = written(tmp_path / "records.csv", {"=1+1": np.zeros(1), "a\x1b[31m": np.zeros(1)})
    assert path.read_text("utf-8").splitlines()[0] == '"\'=1+1","a\\x1b[31m"'
    table = pyarrow.parquet.read_table(written(tmp_path / "records.parquet", COLUMNS))
    assert table.column("class").to_pylist() == NAMES
    assert table.column("index").to_pylist() == list(range(len(NAMES)))
