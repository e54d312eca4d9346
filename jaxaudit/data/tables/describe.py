"""A summary of a table, column by column, to check before an audit."""

from typing import NamedTuple

import numpy as np

from jaxaudit.data.tables.table import MISSING, Table

_MANY = 10


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
    ...     Table(values, (Column("sex", ("F", "M")), Column("age", None)), np.array([0, 1, 1]), ("no", "yes"), "tiny")
    ... ):
    ...     print(summary)
    sex: 2 categories (M, F)
    age: numeric, 28.5 to 50
    """
    return tuple(_summary(table, place) for place in range(len(table.columns)))


def _summary(table: Table, place: int) -> ColumnSummary:
    column, values = table.columns[place], table.values[:, place]
    low, high = float(values.min()), float(values.max())
    if column.categories is None:
        return ColumnSummary(column.name, 0, low, high, (), 0, low == high)
    counts = np.bincount(values.astype(np.intp), minlength=len(column.categories))
    order = np.argsort(-counts, kind="stable").tolist()
    shown = [] if len(counts) > max(_MANY, len(values) / 2) else order
    common = [column.categories[i] for i in shown if counts[i] and column.categories[i] != MISSING]
    missing = int(counts[column.categories.index(MISSING)]) if MISSING in column.categories else 0
    return ColumnSummary(column.name, len(counts), np.nan, np.nan, tuple(common[:3]), missing, low == high)


def describe_record(table: Table, place: int, most: int = 20) -> str:
    """The values of one record, up to `most` columns, and its label. As private as the record itself.

    >>> from jaxaudit.data.tables.table import Column
    >>> columns = Column("sex", ("F", "M")), Column("age", None)
    >>> describe_record(Table(np.array([[1, 39.5]]), columns, np.array([1]), ("no", "yes"), "tiny"), 0)
    'sex M, age 39.5, labelled yes'
    """
    shown = [
        f"{column.name} {f'{value:g}' if column.categories is None else column.categories[int(value)]}"
        for column, value in zip(table.columns[:most], table.values[place].tolist(), strict=False)
    ]
    rest = [f"{len(table.columns) - most} more columns"] if len(table.columns) > most else []
    return ", ".join([*shown, *rest, f"labelled {table.class_names[table.labels[place]]}"])
