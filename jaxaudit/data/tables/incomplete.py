"""Missing numbers of your own table: refused, dropped or filled."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from jaxaudit.data.formats.cells import are_missing
from jaxaudit.data.tables.csv_table import TextTable
from jaxaudit.data.tables.table import Column
from jaxaudit.errors import InputError

Missing = Literal["error", "drop", "mean", "category"]


class Filled(NamedTuple):
    """Columns made of one with gaps, and the sentence to be said of them."""

    columns: tuple[Column, ...]
    values: tuple[np.ndarray, ...]
    note: str


def check_missing(missing: str) -> None:
    """Refuses a word that is no choice.

    Raises:
        InputError: with those that are.
    """
    if missing not in get_args(Missing):
        raise InputError(f"--missing must be one of {', '.join(get_args(Missing))}, not {missing!r}.")


def complete_rows(table: TextTable, columns: Sequence[int]) -> np.ndarray:
    """The rows that have a value in all of these columns, in order."""
    gaps = np.zeros(table.rows, bool)
    for column in columns:
        gaps |= are_missing(table.columns[column])
    return np.flatnonzero(~gaps)


def fill(name: str, numbers: np.ndarray, taken: Sequence[str], missing: Missing) -> Filled:
    """A column of numbers without the gaps (NaN) it has, for the choices `mean` and `category`.

    The mean is that of all values that are there, taken once: no model that leaves a record out has another one, as
    none has another scale. So an audit does not see what a record gives away through the mean alone.

    >>> fill("age", np.array([20, np.nan, 40]), (), "category").columns
    (Column(name='age', categories=None), Column(name='age is missing', categories=('no', 'yes')))
    """
    gaps = np.isnan(numbers)
    there = numbers[~gaps]
    largest = max(abs(there).max(initial=0.0), np.finfo(float).tiny)
    # Divided first: the sum of the largest numbers there are is infinite.
    values = np.where(gaps, (there / largest).mean() * largest if len(there) else 0.0, numbers)
    note = f"column {name!r}: {gaps.sum():,} of {len(gaps):,} values are missing and set to the mean of the others"
    if missing == "mean":
        return Filled((Column(name, None),), (values,), note)
    indicator = f"{name} is missing"
    while indicator in taken:
        indicator += "'"
    columns = Column(name, None), Column(indicator, ("no", "yes"))
    return Filled(columns, (values, gaps.astype(np.float64)), f"{note}, and column {indicator!r} marks them")


def refuse_gaps(gaps: dict[str, int], rows: int, source: str) -> None:
    """Raises `InputError` where columns of numbers have gaps: so many each, of so many rows."""
    if gaps:
        listed = ", ".join(f"{name!r} ({count:,} of {rows:,})" for name, count in list(gaps.items())[:10])
        more = f" and {len(gaps) - 10} more columns" if len(gaps) > 10 else ""
        raise InputError(
            f"{source}: numbers are missing in {listed}{more}; choose what to do (--missing drop, mean or "
            "category), make the column categorical (--categorical) or leave it out (--drop)."
        )
