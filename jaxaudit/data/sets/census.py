"""American Community Survey: person records of the Census Bureau's public files (PUMS), and excerpts of them."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from jaxaudit.data.formats.csv_file import csv_batches, header_line
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.tables.table import Column, Table
from jaxaudit.errors import InputError

RACES = (
    "White",
    "Black or African American",
    "American Indian",
    "Alaska Native",
    "American Indian or Alaska Native, tribes specified or not, no other races",
    "Asian",
    "Native Hawaiian or Other Pacific Islander",
    "Some Other Race",
    "Two or More Races",
)
# Codes count from 1.
_ALONE = ("Widowed", "Divorced", "Separated", "Never married")
MARITAL = {
    "MAR": ("Married", *_ALONE),
    "MSP": ("Married, spouse present", "Married, spouse absent", *_ALONE),
}
MINIMUM_AGE = 15
SEXES = ("Male", "Female")
CLASSES = ("<=50K", ">50K")
_NOT_APPLICABLE = ["", "N", "NA", "b", "bb", "bbbbbbb"]


def census(paths: Sequence[Path], name: str) -> Table:
    """The persons in ACS person files (`.csv`, gzipped or not), one after the other.

    Columns: `age` (AGEP, a number: `recode(table, categorical=["age"])` makes every year a category), `marital-status`
    (MAR, or MSP where a file has no MAR), `race` (RAC1P), `sex` (SEX), with the categories of the Bureau's dictionary
    whether they occur or not. Classes: PINCP, the person's income in dollars, is over 50,000 or not. Incomes are not
    adjusted for inflation within the survey's year (ADJINC).

    Persons to whom income does not apply (empty or `N`: all below 15) are left out; the table's notes say how many, and
    how many of the others are below 15. The paper speaks of "all 1.6 million records" of 2013 and not of whom that
    leaves out; all who have an income figure is this function's choice.

    Files are read in pieces; a file with every column of the Bureau's is accepted, and only these columns are kept.
    Codes must be in the dictionary, and all files have one column for the marital status.

    Source: U.S. Census Bureau, ACS PUMS data dictionary, 2018; NIST, Diverse Community Data Excerpts. Used in Long et
    al. (2017), section 8.
    """
    headers = {path: _header(path) for path in paths}
    marital = next((key for key in MARITAL if all(key in header for header in headers.values())), None)
    for path, header in headers.items():
        lacking = [column for column in ("AGEP", "RAC1P", "SEX", "PINCP") if column not in header]
        if not any(key in header for key in MARITAL):
            lacking.append("MAR or MSP")
        if lacking:
            raise InputError(
                f"{path}: has no column {', '.join(lacking)}; is it a file of ACS *person* records with a header line?"
            )
    if marital is None:
        raise InputError(
            f"{name}: some files have only MAR, others only MSP; use those with one coding of the marital status."
        )
    parts, labels, without, young = [], [], 0, 0
    limits = (None, len(MARITAL[marital]), len(RACES), len(SEXES))
    for path, header in headers.items():
        needed_columns = [header[column] for column in ("AGEP", marital, "RAC1P", "SEX", "PINCP")]
        cells = _cells(path, needed_columns)
        has_income = ~np.isnan(cells[:, 4])
        without += int((~has_income).sum())
        old_enough = ~(cells[:, 0] < MINIMUM_AGE)
        young += int((has_income & ~old_enough).sum())
        kept = cells[has_income & old_enough]
        for index, limit in enumerate(limits):
            _check(kept[:, index], limit, needed_columns[index], path)
        parts.append((kept[:, :4] - [0, 1, 1, 1]).astype(np.float32))
        labels.append((kept[:, 4] > 50_000).astype(np.int32))
    values = np.concatenate(parts)
    notes = []
    if without:
        persons = len(values) + without + young
        notes.append(f"{without} of {persons} persons are left out because income does not apply to them")
    if young:
        notes.append(f"{young} persons with an income are left out: they are younger than {MINIMUM_AGE}")
    if len(values) == 0:
        raise InputError(f"{name}: no person is left ({'; '.join(notes) or 'the files have no records'}).")
    kinds = {"age": (), "marital-status": MARITAL[marital], "race": RACES, "sex": SEXES}
    columns = tuple(Column(*name_and_kind) for name_and_kind in kinds.items())
    return Table(values, columns, np.concatenate(labels), CLASSES, name, tuple(notes))


def _header(path: Path) -> dict[str, str]:
    """The columns' names, upper case -> as written."""
    line = header_line(path)
    with parsing(f"{path}: its first line is not a CSV header", "is it a file of ACS person records?"):
        names = next(csv.reader([line.decode("utf-8-sig")]), [])
    return {name.strip().upper(): name for name in names}


def _cells(path: Path, needed_columns: Sequence[str]) -> np.ndarray:
    """`float64[n, wanted]`: these columns, NaN for empty cells."""
    batches = csv_batches(
        path,
        dict.fromkeys(needed_columns, pa.float64()),
        f"{path}: cannot be read as ACS person records",
        "is the file whole?",
        max_bytes=MAX_BYTES,
        null_values=_NOT_APPLICABLE,
    )
    read = [np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1) for batch in batches]
    return np.concatenate([np.empty((0, len(needed_columns))), *read])


def _check(cells: np.ndarray, codes: int | None, column: str, path: Path) -> None:
    bad = ~((cells >= 0) & (cells < 200)) if codes is None else ~((cells >= 1) & (cells <= codes))
    bad |= cells != np.rint(cells)
    if bad.any():
        raise InputError(
            f"{path}: {int(bad.sum())} persons with an income have a {column} that is not in the ACS dictionary; "
            "is it a file of ACS person records?"
        )
