"""The set that a file of outputs must fit, and the order of the file's rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxaudit.errors import InputError

HARD_LABELS = "these are predicted labels, but confidences are needed; save the probabilities or logits of every class"
RECORD = "record"
"""The column or array with the names of records in what `jaxaudit deal --blind` writes."""
LONGEST_NAME = 4096
"""The most characters of a record's name."""
SPARE = 1 << 26
"""Bytes that any file may have, however few the records, so that a file of another set gets the right error."""


class Expected(NamedTuple):
    """The set that outputs must fit: its numbers of records and classes, the class names, and its name in messages.

    `records` are the names of its records in order, if they are known: a file that names its records is read by them.
    """

    rows: int
    classes: int
    class_names: Sequence[str] | None
    of: str
    records: Sequence[str] | None = None

    def check_rows(self, count: int, source: str) -> None:
        """Rejects a number of rows other than one per record."""
        if count != self.rows:
            header = " Is the first line a header that does not name the classes?" if count == self.rows + 1 else ""
            raise InputError(
                f"{source}: has {count} rows but the {self.of} has {self.rows} records; give one row per record, in "
                f"the order of the {self.of}.{header}"
            )

    def other_columns(self, count: int, source: str) -> InputError:
        """The error for a file whose number of columns is not the number of classes."""
        shown_names = [name[:40] for name in (self.class_names or ())[:10]]
        names = (
            f" ({', '.join(shown_names)}{', ...' if self.classes > len(shown_names) else ''})" if shown_names else ""
        )
        advice = (
            "Leave out the others, such as names of records and predicted classes."
            if count > self.classes
            else "A class that the model does not know has a column of zeros, or, in a table whose header names the "
            "classes, no column."
        )
        return InputError(
            f"{source}: has {count} columns but the {self.of} has {self.classes} classes{names}; give one column per "
            f"class, in label order. {advice}"
        )

    def title(self, index: int) -> str:
        """What messages call a class."""
        return repr(str(self.class_names[index] if self.class_names else index)[:40])


class OutputColumns(NamedTuple):
    """The numbers in a file of outputs, and what its reader took them for.

    Attributes:
        values: `[rows, columns]`, integers or floats of the file's own type; rows in the order of the records' names if
            the file and its reader know them, columns in the order of the classes.
        notes: what the reader guessed or left out, in words.
        only: of a single column the class that its header names, if it does.
        absent: classes without a column in a table whose header names the others.
    """

    values: np.ndarray
    notes: tuple[str, ...] = ()
    only: int | None = None
    absent: tuple[int, ...] = ()


def order_of_rows(
    names: Sequence[str] | None, where: str, expected: Expected, source: str
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The order in which to take a file's rows so that they follow the records of the set, and notes for the user.

    The order is None if rows are taken as they come: if the file does not name its records, or the names of the set's
    records are not known.

    Args:
        names: the names of records in the file, row by row; None if there are none.
        where: the place of these names in the file, for messages.
        expected: the set.
        source: the name of the file, for messages.

    Raises:
        InputError: the names of the set's records are known, and the file has others.
    """
    record_names = expected.records
    if record_names is None:
        note = f"{where} is not used: rows are taken in the order of the {expected.of}"
        return None, (note,) if names is not None else ()
    if names is None:
        return None, (f"it does not name its records: rows are taken in the order of the {expected.of}",)
    rows = {name: row for row, name in enumerate(names)}
    if len(names) != len(record_names) or rows.keys() != set(record_names):
        raise InputError(
            f"{source}: the names of records in {where} are not those of the {expected.of}, each once: these are "
            f"outputs on other records, or the names were changed. Give the outputs on this {expected.of}, with its "
            f"names, or the {expected.of} that these outputs are on."
        )
    return np.array([rows[name] for name in record_names]), (f"rows are put in order by the names in {where}",)
