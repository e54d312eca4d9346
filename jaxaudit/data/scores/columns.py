"""The columns of a table of scores, one by one: their cells as numbers, and what no column may be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.group_values import MISSING, group_values, number_groups
from jaxaudit.data.overlap import SAME
from jaxaudit.data.scores.copies import ScoreColumn
from jaxaudit.data.scores.names import is_number, parts
from jaxaudit.data.texts import SETS
from jaxaudit.errors import InputError

LONGEST, MOST = 100, 1e75
"""Characters of a name, and how far a number may be from 0."""
ENOUGH = 20
"""Different rows from which on it is no chance that each occurs twice."""
CODES = tuple(sign * (10.0**digits - 1) for digits in range(2, 9) for sign in (-1, 1))
"""What tables have in place of a number that is missing: -99, 999 and the like."""
AWAY = 0.25
"""How far from all other numbers a code lies, as a share of their range; scores that are cut at 99 come closer."""


def cell_texts(values: Any) -> Any:
    """Byte strings, NumPy's type `S`, as texts; other bytes stay other texts."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "S" or values.ndim != 1:
        return values
    return [cell.decode("utf-8", "backslashreplace") for cell in values.tolist()]


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of a column; texts are not made an array, whose cells would all be as wide as the longest."""
    return tuple(values.shape) if hasattr(values, "shape") else (len(values),)


def columns_of(columns: Mapping[str, Any]) -> list[ScoreColumn]:
    """The columns of scores and covariates."""
    return [
        ScoreColumn(column, *parts(column), np.asarray(values, np.float64))
        for column, values in columns.items()
        if is_number(column)
    ]


def check_lengths(shapes: Mapping[str, tuple[int, ...]], name: str) -> None:
    """Rejects columns that have not one value for each record, by their shapes alone."""
    records = shapes["set"]
    wrong = {column: shape for column, shape in shapes.items() if shape != records}
    if wrong or len(records) != 1:
        listed = "; ".join(f"{column[:100]} has shape {shape}" for column, shape in list(wrong.items())[:5])
        raise InputError(
            f"{name}: the column set has shape {records}, and every column must have one value for each record"
            + (f": {listed}." if listed else ".")
        )


def column_numbers(column: str, values: Any, records: int, name: str) -> Float[np.ndarray, " records"]:
    """A column's cells as numbers, NaN where a cell is empty.

    Raises:
        InputError: a cell is no number, or one beyond `MOST`; or the name of the column is too long.
    """
    if len(column) > 3 * LONGEST:
        raise InputError(f"{name}: a column has a name of more than {3 * LONGEST} characters; give it a short one.")
    try:
        numbers = np.array(_with_gaps(values), np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: the column {column} has a cell that is not a number, or too large a one.") from error
    # Infinite ones included; squares and their sums stay finite.
    beyond = int((np.abs(numbers) > MOST).sum())
    if beyond:
        raise InputError(
            f"{name}: the column {column} has {beyond} infinite numbers or numbers beyond {MOST:g}; leave these "
            "records out, or give the logarithms of all."
        )
    return numbers


def _with_gaps(values: Any) -> Any:
    """The cells, with NaN for a text that stands for no number, such as NA of R; truth values stand by themselves."""
    if getattr(getattr(values, "dtype", None), "kind", "O") not in "OU":
        return values
    are_truths = {isinstance(cell, bool) for cell in values if isinstance(cell, int | float) and cell == cell}
    if len(are_truths) > 1:
        raise TypeError("a truth value beside numbers")
    return [np.nan if isinstance(cell, str) and cell.strip().casefold() in MISSING else cell for cell in values]


def refuse_useless(column: str, values: np.ndarray, sets: np.ndarray, name: str) -> None:
    """Refuses scores that are missing on part of a set, by a gap or a code, the same everywhere, or one value a set.

    Args:
        column, name: the names of the column and of the table, for messages.
        values: the score of each record; NaN if missing.
        sets: the name of the set of each record.

    Raises:
        InputError: the scores are useless in one of these ways.
    """
    of_sets = {set_name: values[sets == set_name] for set_name in SETS}
    for set_name, set_values in of_sets.items():
        missing = int(np.isnan(set_values).sum())
        if 0 < missing < len(set_values):
            raise InputError(
                f"{name}: the column {column} is empty for {missing} of {len(set_values)} records of the set "
                f"{set_name}; leave these records out, or ask the model again."
            )
    present = values[~np.isnan(values)]
    for code in (present.min(initial=np.inf), present.max(initial=-np.inf)):
        coded, away = present == code, np.abs(present - code)
        if (
            code in CODES
            and coded.sum() > 1
            and len(np.unique(present[~coded])) > SAME * (~coded).sum()
            and ((code < 0 <= present[~coded].min()) or away[~coded].min() > AWAY * np.ptp(present[~coded]))
        ):
            raise InputError(
                f"{name}: the column {column} has {int(coded.sum())} records of {code:g}, far from all others, as "
                "tables have it for a missing value; leave these records out, or ask the model again."
            )
    # A difference of the largest numbers would be infinite.
    if not len(present) or present.min() == present.max():
        raise InputError(f"{name}: the column {column} has no number, or the same one for all records; is it a score?")
    if all(
        len(set_values) > 1 and set_values.min() == set_values.max()
        for set_values in (of_sets["query"], of_sets["holdout"])
    ):
        raise InputError(f"{name}: the column {column} has one value on each set: it is the set, not a score.")


def refuse_repeated_records(cleaned: Mapping[str, Any], sets: np.ndarray, name: str) -> None:
    """Refuses a record that occurs twice, by its index within its set or by its text."""
    for column in ("index", "text"):
        if column in cleaned:
            # The records of different sets may be numbered from 0 each.
            labels = (
                map(str, cleaned[column]) if column == "text" else zip(sets, map(str, cleaned[column]), strict=True)
            )
            twice = len(sets) - len(set(labels))
            if twice:
                raise InputError(f"{name}: {twice} records occur twice (column {column}); keep one: a copy hides use.")


def refuse_repeated_rows(numbers: Mapping[str, Float[np.ndarray, " records"]], sets: np.ndarray, name: str) -> None:
    """Refuses a table in which every record has the numbers of another one of its set, as after joining it with itself.

    Whole tables are refused, since single records may be alike by chance: all numbers of rows occur twice, or three
    times, and there are enough different ones.
    """
    of_sets = np.unique(sets, return_inverse=True)[1]
    # The numbers of one column nearly always tell that rows are not repeated.
    if any(np.gcd.reduce(np.unique(values, return_counts=True)[1]) == 1 for values in numbers.values()):
        return
    columns = [of_sets, *(np.nan_to_num(values, nan=-np.inf) for values in numbers.values())]
    counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)[1]
    times = int(np.gcd.reduce(counts))
    if times > 1 and len(counts) >= ENOUGH:
        raise InputError(
            f"{name}: every record occurs {times} times, with the same numbers: was the table joined with itself? Keep "
            "one of each: a copy is no further evidence."
        )


def partition(
    cleaned: Mapping[str, Any], column: str, sets: np.ndarray, of: Sequence[str], name: str
) -> Int[np.ndarray, " records"] | None:
    """The values of a column as numbers from 0; -1 for records of other sets than these."""
    if column not in cleaned:
        return None
    rows = np.flatnonzero(np.isin(sets, of))
    numbers = np.full(len(sets), -1)
    numbers[rows] = number_groups(group_values(cleaned[column], rows, f"table {name} (column {column})"))
    return numbers
