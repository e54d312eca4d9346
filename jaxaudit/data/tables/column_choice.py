"""Selects columns of a table by name, with near matches for unknown names."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxaudit.data.tables.table import MISSING, Column, Table
from jaxaudit.errors import InputError


def check_choice(names: Sequence[str], source: str, **choices: Sequence[str]) -> None:
    """Checks the named columns against the columns of a table.

    Args:
        names: the table's columns.
        source: the name of the table in messages.
        choices: the columns of each choice (`label`, `categorical`, `numeric`, `drop`).

    Raises:
        InputError: a column is unknown (with near matches), or has two choices.
    """
    said: dict[str, str] = {}
    for what, chosen in choices.items():
        for name in chosen:
            if name not in names:
                near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=3)
                likely = [each for each in names if each.lower() in near]
                listed = len(names) > 1 and likely
                advice = f"did you mean {', '.join(map(repr, likely))}?" if listed else _listing(names)
                raise InputError(f"{source}: there is no column {name!r}; {advice}")
            if said.setdefault(name, what) != what:
                raise InputError(f"{source}: column {name!r} cannot be both {said[name]} and {what}; name it once.")


def _listing(names: Sequence[str]) -> str:
    suspect = len(names) == 1 or any(name.replace(".", "").isdigit() for name in names)
    hint = " Is the file comma-separated, with a header line?" if suspect else ""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"the columns are {', '.join(repr(name[:40]) for name in names[:10])}{more}.{hint}"


def recode(
    table: Table, *, categorical: Sequence[str] = (), numeric: Sequence[str] = (), drop: Sequence[str] = ()
) -> Table:
    """The table with some columns left out or of the other kind.

    Args:
        categorical: columns whose distinct numbers become the categories, in ascending order.
        numeric: columns whose categories are numbers, which become the values.
        drop: columns to leave out.

    Raises:
        InputError: when a column is unknown, named twice, a category is no finite number, or no column is left.
    """
    check_choice(
        [column.name for column in table.columns], table.name, categorical=categorical, numeric=numeric, drop=drop
    )
    if not (categorical or numeric or drop):
        return table
    kept = [place for place, column in enumerate(table.columns) if column.name not in drop]
    values, columns = table.values[:, kept], [table.columns[place] for place in kept]
    for place, column in enumerate(columns):
        if column.name in categorical and column.categories is None:
            distinct, codes = np.unique(values[:, place], return_inverse=True)
            values[:, place] = codes
            columns[place] = Column(column.name, tuple(f"{number:.17g}" for number in distinct))
        elif column.name in numeric and column.categories is not None:
            numbers = _as_numbers(column, table.name)
            codes = values[:, place].astype(np.intp)
            values = values.astype(np.float64)
            values[:, place] = numbers[codes]
            columns[place] = Column(column.name, None)
    return replace(table, values=values, columns=tuple(columns))


def _as_numbers(column: Column, source: str) -> np.ndarray:
    numbers = []
    for category in column.categories or ():
        try:
            number = float(category)
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            what = "has missing values" if category == MISSING else "holds text"
            raise InputError(f"{source}: column {column.name!r} {what}, so it cannot be numeric; leave it categorical.")
        numbers.append(number)
    return np.array(numbers)
