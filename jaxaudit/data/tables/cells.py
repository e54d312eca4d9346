"""The cells of one column of your own table: numbers, categories or classes, and which are missing.

No message contains the content of a cell.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jaxaudit.data.formats.text_table import decimal_points, float_cells, trimmed
from jaxaudit.data.tables.table import MISSING
from jaxaudit.errors import InputError

MISSING_TEXTS = ("", "?", "na", "n/a", "nan", "null", "#n/a", "<na>")
FEW_TEXTS = 0.1
"""Different texts for each different number, up to which a column of numbers is not taken for categories."""
MOST_CATEGORIES, MOST_CLASSES, MOST_NUMBERED = 10_000, 1_000, 50


class ColumnCells(NamedTuple):
    """A column's cells, with every distinct text stored once.

    Attributes:
        codes: for each row, the index of its text in the other arrays.
        texts: the distinct texts.
        missing: whether each text stands for a missing value, such as `?`.
        numbers: the number in each text; NaN where the text is no number.
        is_number: whether each text is a number.
    """

    codes: np.ndarray  # [n], indices into the others
    texts: pa.StringArray
    missing: np.ndarray
    numbers: np.ndarray  # NaN where the text is no number
    is_number: np.ndarray

    def row(self, chosen: np.ndarray) -> int:
        """The first row, counted from 1, whose text is among the chosen ones."""
        return int(np.argmax(chosen[self.codes])) + 1


def are_missing(cells: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """`bool[n]`: which cells hold no value."""
    lower = pc.call_function("utf8_lower", [trimmed(cells)])
    are_in_texts = pc.call_function("is_in", [lower], pc.SetLookupOptions(pa.array(MISSING_TEXTS)))
    return are_in_texts.to_numpy() if isinstance(are_in_texts, pa.ChunkedArray) else _array(are_in_texts)


def read_cells(column: pa.ChunkedArray, decimal: str) -> ColumnCells:
    """The cells of a column of text; blanks around a value are ignored."""
    encoded = trimmed(column).combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    missing = are_missing(texts)
    numbers, is_number = np.full(len(texts), np.nan), np.zeros(len(texts), bool)
    present_texts = decimal_points(texts.filter(pa.array(~missing)), decimal)
    try:
        numbers[~missing] = _array(pc.cast(present_texts, pa.float64()))
        is_number[~missing] = True
    except pa.ArrowInvalid:
        for index, text in zip(np.flatnonzero(~missing).tolist(), present_texts.to_pylist(), strict=True):
            if "_" not in text:
                with suppress(ValueError):
                    numbers[index], is_number[index] = float(text), True
    return ColumnCells(_array(encoded.indices), texts, missing, numbers, is_number)


def all_numbers(column: pa.ChunkedArray, decimal: str, more_than: int) -> np.ndarray | None:
    """`float64[n]` if every cell is a finite number and more than `more_than` differ; None otherwise or if unsure.

    Gives the result of `read_cells` without inspecting every distinct text.
    """
    numbers = float_cells(column, decimal)
    if numbers is None or not np.isfinite(numbers).all():
        return None
    # The first rows usually decide, and checking all takes longer than reading them.
    few = all(len(np.unique(part)) <= more_than for part in (numbers[:1000], numbers))
    return None if few else numbers


def are_numeric(cells: ColumnCells, few: int, name: str, source: str) -> bool:
    """Whether all present values are numbers, more than `few` of them distinct; none may be infinite.

    Where a few texts stand among many different numbers, nothing is guessed: they may stand for missing values, and as
    categories the numbers would lose their order.
    """
    present = ~cells.missing
    texts, numbers = present & ~cells.is_number, len(np.unique(cells.numbers[present & cells.is_number]))
    if texts.any():
        if numbers > few and texts.sum() <= FEW_TEXTS * numbers:
            raise InputError(
                f"{source}: column {name!r} has {numbers} different numbers, and {int(texts[cells.codes].sum())} cells "
                f"of text (first: row {cells.row(texts)}). If these are missing values, leave their cells empty; if "
                "they are numbers, such as 90+, write them as such; or make the column categorical (`categorical`)."
            )
        return False
    _refuse_infinite(cells, name, source)
    return len(np.unique(cells.numbers[present])) > few


def as_numbers(cells: ColumnCells, name: str, source: str) -> np.ndarray:
    """`float64[n]`, NaN where a value is missing; no other value may be text, or infinite."""
    text = ~cells.missing & ~cells.is_number
    if text.any():
        raise InputError(
            f"{source}: row {cells.row(text)}, column {name!r} contains text, not a number; correct it, or make the "
            "column categorical (`categorical`) or leave it out (`drop`)."
        )
    _refuse_infinite(cells, name, source)
    return cells.numbers[cells.codes]


def as_categories(cells: ColumnCells, name: str, source: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The categories in ascending order (numerical if all are numbers), and the index of each record's category."""
    present = ~cells.missing
    if int(present.sum()) > MOST_CATEGORIES:
        raise InputError(
            f"{source}: column {name!r} has more than {MOST_CATEGORIES} categories; is it an identifier? Leave it out "
            "(`drop`)."
        )
    order = _order(cells)
    rank = np.full(len(present), len(order))
    rank[order] = np.arange(len(order))
    texts = [cells.texts[int(index)].as_py() for index in order]
    if MISSING in texts:
        rank[cells.missing] = texts.index(MISSING)
    elif cells.missing.any():
        texts.append(MISSING)
    return tuple(texts), rank[cells.codes]


def as_classes(cells: ColumnCells, name: str, source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """`int32[n]` and the classes: the distinct texts in sorted order, numbers in numerical order.

    Raises:
        InputError: a label is missing, all are equal, or there are too many classes.
    """
    if cells.missing.any():
        count = int(cells.missing[cells.codes].sum())
        raise InputError(
            f"{source}: {count} {'row has' if count == 1 else 'rows have'} no label (column {name!r}, first: row "
            f"{cells.row(cells.missing)}); delete {'it' if count == 1 else 'them'} (or `missing` drop)."
        )
    classes = len(cells.texts)
    numbered = cells.is_number.all()
    wrong = None
    if classes == 1:
        wrong = "every row has the same label; a classifier needs at least two classes"
    elif numbered and classes > MOST_NUMBERED:
        wrong = f"it has {classes} different numbers; replace them by ranges (such as <=50K and >50K)"
    elif classes > MOST_CLASSES:
        wrong = f"it has {classes} different texts, more than {MOST_CLASSES} classes; is it an identifier?"
    if wrong:
        raise InputError(f"{source}: the label column {name!r}: {wrong}, or name another column (`label`).")
    categories, codes = as_categories(cells, name, source)
    return codes.astype(np.int32), categories


def _order(cells: ColumnCells) -> np.ndarray:
    """Indices of the non-missing texts in ascending order, numerical if all are numbers."""
    indices = np.flatnonzero(~cells.missing)
    texts = cells.texts.take(pa.array(indices)).to_pylist()
    if cells.is_number[indices].all():
        return indices[np.array(sorted(range(len(indices)), key=lambda i: (cells.numbers[indices[i]], texts[i])), int)]
    return indices[np.array(sorted(range(len(indices)), key=texts.__getitem__), int)]


def _refuse_infinite(cells: ColumnCells, name: str, source: str) -> None:
    infinite = cells.is_number & ~np.isfinite(cells.numbers)
    if infinite.any():
        raise InputError(
            f"{source}: row {cells.row(infinite)}, column {name!r} is not finite; correct it, or make the column "
            "categorical (`categorical`) or leave it out (`drop`)."
        )


def _array(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)
