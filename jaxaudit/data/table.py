"""`Table`: labelled records with named columns of numbers or categories, and its encodings for learners.

Sets are compared as numbers, of which a column of words has several (`codes_of_words`). For an estimator with an
encoder of its own they become an index into the words of the column again, and a frame with the words where it is
fitted.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real

from jaxaudit.data.examples import Examples
from jaxaudit.data.labels import as_number
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.selection import nearest_names
from jaxaudit.errors import InputError, refuse_wrong
from jaxaudit.json_types import hash_of

MISSING = "(missing)"


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a `Table`.

    Attributes:
        categories: names of the categories, in the order of their numbers; empty for a column of numbers. The category
            `MISSING` stands for missing values.
    """

    name: str
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.categories)) < len(self.categories):
            raise InputError(f"column {self.name!r}: give each category once.")


@dataclass(frozen=True, eq=False)
class Table:
    """Labelled records on the host, one column per attribute.

    Attributes:
        values: `[n, columns]`: the number, or the category's index in `Column.categories`. `float64`, `float32`, or
            `uint8` (where all are small whole numbers); other kinds of numbers become `float64`.
        labels: `int32[n]`, indices into `class_names`.
        notes: remarks on how it was read, one sentence each.

    Guarantees: those of `Examples`; category indices are valid; there is at least one column; names are unique.

    >>> Table(np.array([[1, 39.0], [0, 50.0]]), (Column("sex", ("Female", "Male")), Column("age")),
    ...       np.array([0, 1]), ("<=50K", ">50K"), "tiny")
    Table(tiny: 2 records of 2 columns, 1 of them numeric, 2 classes)
    """

    values: np.ndarray
    columns: tuple[Column, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    name: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        names = [column.name for column in self.columns]
        twice = [name for name in names if names.count(name) > 1]
        refuse_wrong(
            f"{self.name}: ",
            (
                f"values are {values.dtype} of shape {values.shape}, but there are {len(names)} columns, and an audit "
                "needs at least one beside the label; give numbers, one row per record and one column per attribute.",
                not names or values.shape[1:] != (len(names),) or values.dtype.kind not in "buif",
            ),
            (f"the column name {''.join(twice[:1])!r} occurs twice; give every column its own name.", twice),
        )
        if values.dtype.name not in ("float32", "float64", "uint8"):
            values = values.astype(np.float64)
        checked = Examples(values, self.labels, self.class_names, self.name)
        _check_categories(checked.inputs, self.columns, self.name)
        object.__setattr__(self, "values", checked.inputs)
        object.__setattr__(self, "labels", checked.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Table({self.name}: {len(self)} records of {len(self.columns)} columns, "
            f"{category_counts(self).count(0)} of them numeric, {len(self.class_names)} classes)"
        )

    def take(self, indices: np.ndarray | slice, name: str | None = None) -> "Table":
        """The records at `indices`, in that order; columns, categories and classes stay as they are."""
        return replace(self, values=self.values[indices], labels=self.labels[indices], name=name or self.name)

    @cached_property
    def content_hash(self) -> str:
        """`blake2b:...` over values with their type, labels, columns and classes; about a second per gigabyte."""
        values = np.ascontiguousarray(self.values, self.values.dtype.newbyteorder("<"))
        columns = [[column.name, column.categories or None] for column in self.columns]
        head = [values.dtype.str, values.shape, columns, self.class_names]
        # -0.0 equals 0.0 but has a different byte pattern.
        values = values + values.dtype.type(0) if values.dtype.kind == "f" else values
        return hash_of([json.dumps(head).encode() + b"\0", values.data, self.labels.astype("<i4").data])


def category_counts(table: Table) -> tuple[int, ...]:
    """The number of categories of each column; 0 for a column of numbers."""
    return tuple(len(column.categories) for column in table.columns)


def one_hot(table: Table) -> Examples:
    """Every record as inputs in [0, 1], for networks and estimators: `float32[n, inputs]`.

    | column | inputs |
    |---|---|
    | numbers | one: (number - smallest) / (largest - smallest) over *this* table; 0 where all are equal |
    | 3 categories or more | one per category: 1 for the record's own, else 0 |
    | 2 categories | one: the category's index, so that 836 yes/no attributes are 836 inputs |
    | 1 category | one, always 0 |

    Columns keep their order. The scale is that of the given table, not of a training set drawn from it, so that leaving
    a record out changes the model only by the record. Categories that no record has keep their input.

    Source: Long, Bindschaedler, Gunter (2017), section 5.2 ("we convert categorical attributes into binary attributes
    and normalize all the numerical attributes").
    """
    counts = np.array(category_counts(table))
    single = (counts < 3).nonzero()[0]
    widths = counts.copy()
    widths[single] = 1
    starts = np.cumsum(widths) - widths
    inputs = int(widths.sum())
    widest = f"{table.columns[int(widths.argmax())].name!r} has {int(widths.max())}"
    advice = f"drop the columns with most categories ({widest}) or use fewer records"
    refuse_larger(f"{table.name}, {len(table)} records of {inputs} inputs", 4 * inputs * len(table), MAX_BYTES, advice)
    out = np.zeros((len(table), inputs), np.float32)
    out[:, starts[single]] = _scaled(table, single)
    records = np.arange(len(table))
    for column in np.setdiff1d(np.arange(len(counts)), single):
        out[records, starts[column] + table.values[:, column].astype(np.intp)] = 1
    return Examples(out, table.labels, table.class_names, table.name)


def ordinal(table: Table) -> Examples:
    """Every record with one input per column, a category's index or a scaled number: `float32[n, columns]`."""
    inputs = _scaled(table, np.arange(len(table.columns)))
    return Examples(inputs, table.labels, table.class_names, table.name)


def candidate_indices(generator: np.random.Generator, records: int, count: int = 2000) -> Int[np.ndarray, " count"]:
    """The indices of `count` different records, in ascending order; every subset of this size is equally likely.

    Source: Long, Bindschaedler, Gunter (2017), section 5.1 ("we randomly sample 2,000 records as candidate set D").
    """
    if not 1 <= count <= records:
        raise InputError(
            f"{count} candidate records cannot be drawn from {records}; give a number from 1 to {records}."
        )
    return np.sort(generator.choice(records, count, replace=False))


def join_tables(parts: Sequence[Table], name: str) -> Table:
    """All records of `parts`, in order; they must agree in their columns, categories and classes."""
    first = parts[0]
    if len(parts) == 1:
        return replace(first, name=name)
    ours = [[(column.name, column.categories) for column in part.columns] for part in parts]
    for columns, part in zip(ours, parts, strict=True):
        if columns != ours[0] or part.class_names != first.class_names:
            raise InputError(f"{part.name} and {first.name} differ in columns or classes; convert both to one form.")
    return Table(
        np.concatenate([part.values for part in parts]),
        first.columns,
        np.concatenate([part.labels for part in parts]),
        first.class_names,
        name,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def duplicates(examples: Examples | Table) -> Int[np.ndarray, " records"]:
    """The number of records with the same inputs (or values of a table) and label as each record, including itself.

    Equal is exact equality, by `Examples.record_hashes`; -0.0 equals 0.0.

    >>> duplicates(Examples(np.array([[1, 2], [3, 4], [1, 2], [1, 2]]), np.array([0, 0, 0, 1]), ("a", "b"), "set"))
    array([2, 1, 2, 1])
    """
    if isinstance(examples, Table):
        examples = Examples(examples.values, examples.labels, examples.class_names, examples.name)
    inputs = np.unique(examples.record_hashes.view("S16"), return_inverse=True)[1]
    records = inputs * len(examples.class_names) + examples.labels
    _, indices, counts = np.unique(records, return_inverse=True, return_counts=True)
    return counts[indices].astype(np.int64)


def _check_categories(values: np.ndarray, columns: tuple[Column, ...], name: str) -> None:
    for column, codes in zip(columns, values.T, strict=True):
        size = len(column.categories)
        if size and not np.isin(codes, np.arange(size)).all():
            raise InputError(
                f"{name}: column {column.name!r} has a number that is none of its {size} categories, which are "
                "numbered from 0; is it numeric?"
            )


def _scaled(table: Table, indices: np.ndarray) -> np.ndarray:
    """`float32[n, columns]`: these columns, with numbers scaled to [0, 1] and category indices unchanged."""
    with np.errstate(over="ignore"):
        out = table.values[:, indices].astype(np.float32)
    for target, index in enumerate(indices):
        if not table.columns[index].categories:
            out[:, target] = _unit_interval(table.values[:, index])
    return out


def _unit_interval(numbers: np.ndarray) -> np.ndarray:
    numbers = numbers.astype(np.float64)
    low, high = numbers.min(), numbers.max()
    if low == high:
        return np.zeros(len(numbers))
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span):
        numbers, low, span = numbers / 2, low / 2, high / 2 - low / 2
    return (numbers - low) / span


def check_choice(names: Sequence[str], source: str, **choices: Sequence[str]) -> None:
    """Checks that each choice (`label`, `categorical`, `drop`) names columns of the table, and no column two."""
    choice_of_column: dict[str, str] = {}
    for choice_name, chosen in choices.items():
        for name in chosen:
            if name not in names:
                raise InputError(f"{source}: there is no column {name!r}. {nearest_names(name, names)}")
            if choice_of_column.setdefault(name, choice_name) != choice_name:
                raise InputError(
                    f"{source}: column {name!r} cannot be both {choice_of_column[name]} and {choice_name}; name it "
                    "once."
                )


WIDTH = 16
"""Numbers that stand for a word: as many as a digest has, of 32 bits each."""


def codes_of_words(words: Sequence[str]) -> Float[np.ndarray, "n numbers"]:
    """`float64[n, WIDTH]` within [-1, 1] by the digest of each word: random directions keep distances, whichever words
    a file has (the hashing trick: Weinberger et al. 2009). A missing word is empty.
    """
    digests = b"".join(hashlib.blake2b(word.encode()).digest() for word in words)
    return np.frombuffer(digests, "<u4").reshape(len(words), WIDTH) / 2.0**31 - 1


def columns_as_read(sets: Sequence[Examples]) -> tuple[Column, ...]:
    """The columns of these tables, with the words of all of them; a missing one is empty. None if they are no tables.

    They are in the order of the first table, as the inputs of all tables must be.
    """
    return tuple(
        Column(name, tuple(sorted({word for examples in sets for word in examples.words[name]})))
        for name in sets[0].words
    )


def as_indices(inputs: Real[np.ndarray, "n inputs"], columns: Sequence[Column]) -> Float[np.ndarray, "n columns"]:
    """Records as `codes_of_words` has them, with the index of each word in place of its codes."""
    values, at = np.empty((len(inputs), len(columns)), inputs.dtype), 0
    for place, column in enumerate(columns):
        width = WIDTH if column.categories else 1
        part, at = inputs[:, at : at + width], at + width
        if not column.categories:
            values[:, place] = part[:, 0]
            continue
        codes = codes_of_words(column.categories).astype(inputs.dtype)
        keys, rows = (np.ascontiguousarray(array).view(f"V{array.itemsize * WIDTH}")[:, 0] for array in (codes, part))
        order = np.argsort(keys)
        index = order[np.searchsorted(keys[order], rows).clip(max=len(keys) - 1)]
        assert (codes[index] == part).all(), "a record has a word that is none of its column's"
        values[:, place] = index
    return values


def frame(values: Real[np.ndarray, "n columns"], columns: Sequence[Column]) -> Any:
    """A pandas frame of these records: words as text, numbers as numbers, and what is missing as pandas has it."""
    try:
        import pandas
    except ImportError as error:
        raise InputError(
            "an estimator with an encoder of its own gets the columns as they are, in a frame of pandas, which is not "
            "installed: pip install pandas."
        ) from error
    arrays = {column.name: _cells(column, values[:, place]) for place, column in enumerate(columns)}
    return pandas.DataFrame(arrays)


def _cells(column: Column, values: Real[np.ndarray, " n"]) -> np.ndarray:
    if not column.categories:
        return values.astype(np.float64)
    words = [None if word in ("", MISSING) else word for word in column.categories]
    with suppress(ValueError):
        numbers = np.array([np.nan if word is None else as_number(word) for word in words])
        # Codes such as 01 and 1 are two words.
        if len(np.unique(numbers)) == len(numbers):
            return numbers[values.astype(int)]
    return np.array(words, object)[values.astype(int)]
