"""Columns of a table: chosen by name, converted between numbers and categories, or described."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxaudit.data.selection import near_names
from jaxaudit.data.tables.table import MISSING, Column, Table
from jaxaudit.errors import InputError

_MANY = 10


def check_choice(names: Sequence[str], source: str, **choices: Sequence[str]) -> None:
    """Checks that each choice (`label`, `categorical`, `numeric`, `drop`) names columns of the table, and no column
    two.
    """
    choice_of_column: dict[str, str] = {}
    for choice_name, chosen in choices.items():
        for name in chosen:
            if name not in names:
                likely = near_names(name, names) if len(names) > 1 else []
                advice = f"did you mean {', '.join(map(repr, likely))}?" if likely else _listing(names)
                raise InputError(f"{source}: there is no column {name!r}; {advice}")
            if choice_of_column.setdefault(name, choice_name) != choice_name:
                raise InputError(
                    f"{source}: column {name!r} cannot be both {choice_of_column[name]} and {choice_name}; name it "
                    "once."
                )


def _listing(names: Sequence[str]) -> str:
    suspect = len(names) == 1 or any(name.replace(".", "").isdigit() for name in names)
    hint = " Is the file comma-separated, with a header line?" if suspect else ""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"the columns are {', '.join(repr(name[:40]) for name in names[:10])}{more}.{hint}"


def recode(
    table: Table, *, categorical: Sequence[str] = (), numeric: Sequence[str] = (), drop: Sequence[str] = ()
) -> Table:
    """The table with some columns dropped or converted between numbers and categories.

    Args:
        categorical: columns whose distinct numbers become the categories, in ascending order.
        numeric: columns whose categories are numbers, which become the values.
        drop: columns to leave out.
    """
    check_choice(
        [column.name for column in table.columns], table.name, categorical=categorical, numeric=numeric, drop=drop
    )
    if not (categorical or numeric or drop):
        return table
    kept = [index for index, column in enumerate(table.columns) if column.name not in drop]
    values, columns = table.values[:, kept], [table.columns[index] for index in kept]
    for index, column in enumerate(columns):
        if column.name in categorical and not column.categories:
            distinct, codes = np.unique(values[:, index], return_inverse=True)
            values[:, index] = codes
            columns[index] = Column(column.name, tuple(f"{number:.17g}" for number in distinct))
        elif column.name in numeric and column.categories:
            numbers = _as_numbers(column, table.name)
            codes = values[:, index].astype(np.intp)
            values = values.astype(np.float64)
            values[:, index] = numbers[codes]
            columns[index] = Column(column.name)
    return replace(table, values=values, columns=tuple(columns))


def _as_numbers(column: Column, source: str) -> np.ndarray:
    numbers = np.full(len(column.categories), np.nan)
    with suppress(ValueError):
        numbers = np.array([float(category) for category in column.categories])
    if not np.isfinite(numbers).all():
        trouble = "has missing values" if MISSING in column.categories else "holds text"
        raise InputError(f"{source}: column {column.name!r} {trouble}, so it cannot be numeric; leave it categorical.")
    return numbers


class ColumnSummary(NamedTuple):
    """A summary of a column.

    Attributes:
        name: the column's name.
        categories: the number of categories; 0 for numbers.
        low, high: the smallest and the largest number; NaN for categories.
        common: the names of up to three most common categories, the commonest first, without `MISSING`. None if nearly
            every record has its own category, which may identify it.
        missing: the number of missing values.
        constant: whether all records have the same value.
    """

    name: str
    categories: int
    low: float
    high: float
    common: tuple[str, ...]
    missing: int
    constant: bool

    def __str__(self) -> str:
        if self.categories:
            rest = ["..."] if self.common and self.categories > len(self.common) else []
            plural = "category" if self.categories == 1 else "categories"
            examples = f" ({', '.join([*self.common, *rest])})" if self.common else ""
            text = f"{self.categories} {plural}{examples}"
        else:
            text = f"numeric, {self.low:g} to {self.high:g}"
        missing = f", {self.missing} missing" if self.missing else ""
        return f"{self.name}: {text}{missing}{', constant' if self.constant else ''}"


def describe_table(table: Table) -> tuple[ColumnSummary, ...]:
    """A summary of every column, in the table's order.

    >>> from jaxaudit.data.tables.table import Column
    >>> values = np.array([[1, 39], [0, 50], [1, 28.5]])
    >>> for summary in describe_table(
    ...     Table(values, (Column("sex", ("F", "M")), Column("age")), np.array([0, 1, 1]), ("no", "yes"), "tiny")
    ... ):
    ...     print(summary)
    sex: 2 categories (M, F)
    age: numeric, 28.5 to 50
    """
    return tuple(_summary(table, index) for index in range(len(table.columns)))


def _summary(table: Table, index: int) -> ColumnSummary:
    column, values = table.columns[index], table.values[:, index]
    low, high = float(values.min()), float(values.max())
    if not column.categories:
        return ColumnSummary(column.name, 0, low, high, (), 0, low == high)
    counts = np.bincount(values.astype(np.intp), minlength=len(column.categories))
    order = np.argsort(-counts, kind="stable").tolist()
    shown = [] if len(counts) > max(_MANY, len(values) / 2) else order
    common = [column.categories[i] for i in shown if counts[i] and column.categories[i] != MISSING]
    missing = int(counts[column.categories.index(MISSING)]) if MISSING in column.categories else 0
    return ColumnSummary(column.name, len(counts), np.nan, np.nan, tuple(common[:3]), missing, low == high)


def describe_record(table: Table, index: int, most: int = 20) -> str:
    """The values of one record, up to `most` columns, and its label. As private as the record itself.

    >>> from jaxaudit.data.tables.table import Column
    >>> columns = Column("sex", ("F", "M")), Column("age")
    >>> describe_record(Table(np.array([[1, 39.5]]), columns, np.array([1]), ("no", "yes"), "tiny"), 0)
    'sex M, age 39.5, labelled yes'
    """
    shown = [
        f"{column.name} {column.categories[int(value)] if column.categories else f'{value:g}'}"
        for column, value in zip(table.columns[:most], table.values[index].tolist(), strict=False)
    ]
    rest = [f"{len(table.columns) - most} more columns"] if len(table.columns) > most else []
    return ", ".join([*shown, *rest, f"labelled {table.class_names[table.labels[index]]}"])
