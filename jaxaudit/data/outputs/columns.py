"""Which columns of a table of outputs are the classes: by their names, or by what is in the others."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxaudit.data.formats.row_numbers import INDEX_NAMES, counting
from jaxaudit.data.outputs.expected import HARD_LABELS, Expected
from jaxaudit.data.outputs.titles import class_within, classes_named
from jaxaudit.errors import InputError

PANDAS_INDEX = "__index_level_0__"


class Chosen(NamedTuple):
    """The columns that hold the classes, in class order; the others as in `files.OutputColumns`."""

    columns: list[int]
    notes: tuple[str, ...]
    only: int | None = None
    absent: tuple[int, ...] = ()


def are_numbers(cells: Sequence[str], decimal: str) -> bool:
    """Whether all of these cells are numbers, of which some may be infinite or NaN."""
    try:
        [float(cell.replace(decimal, ".")) for cell in cells]
    except ValueError:
        return False
    return True


def is_header(first: Sequence[str], one_line_too_many: bool, expected: Expected, decimal: str = ".") -> bool:
    """Whether a first line with these cells names the columns."""
    texts = [cell for cell in first if not are_numbers([cell], decimal)]
    if first[0] == "" or len(texts) > 1 or len(first) == len(texts):
        return True
    if one_line_too_many and list(first) == ["0"]:
        return True  # what pandas calls a column without a name
    # A line of numbers, beside a text that may name a record, names the columns only if it names classes and the file
    # is one line longer than the set.
    names = [cell for cell in first if cell not in texts]
    names = names[1:] if len(names) == expected.classes + 1 else names
    classes = [classes_named([name], expected) for name in names]
    numbered = names == list(map(str, range(expected.classes)))
    return one_line_too_many and (numbered or ([] not in classes and len(set(map(str, classes))) == len(names)))


def choose_columns(
    header: Sequence[str],
    texts: Collection[int],
    indices: Collection[int],
    numbers: Sequence[np.ndarray | None],
    expected: Expected,
    source: str,
) -> Chosen:
    """The columns that hold the classes; one that names or numbers the rows is left out.

    Args:
        header: the names of the columns; empty if they have none.
        texts: the columns of text.
        indices: the columns that are known to be an index, such as that of pandas.
        numbers: the numbers of each column; None of those that are not needed or none.

    Raises:
        InputError: the columns, or their names, do not fit the classes.
    """

    def is_of_rows(column: int) -> bool:
        return column in texts or column in indices or _named_index(header, column)

    columns, classes = list(range(len(numbers))), expected.classes
    notes: tuple[str, ...] = ()
    # One column fewer than classes is enough for two classes: the probability of the second.
    if len(columns) > 1 and (len(columns) == classes + 1 or (classes == 2 and len(columns) == 2)):
        spare = _spare(header, texts, indices, numbers, expected, source)
        if spare is not None:
            columns.remove(spare)
            if spare not in texts:
                _refuse_out_of_order(numbers[spare], titled(header, spare), source)
                notes = (f"{titled(header, spare)} numbers the rows and is left out: rows are in the set's order",)
    elif header and 1 < len(columns) <= classes:
        # Without a column for a class that the model does not know there may be one for the rows all the same.
        columns = [column for column in columns if classes_named([header[column]], expected) or not is_of_rows(column)]
    titles = [header[column] for column in columns] if header else []
    if len(columns) == classes and not (titles and classes_named(titles, expected)):
        _refuse_whole(header, {column: numbers[column] for column in columns}, source)
    if not titles:
        return Chosen(columns, notes)
    return _by_name(columns, titles, notes, expected, source)


def titled(header: Sequence[str], column: int) -> str:
    """What messages call a column."""
    return f"column {column + 1}" + (f" ({header[column][:40]!r})" if header and header[column] else "")


def _by_name(columns: list[int], titles: list[str], notes: tuple[str, ...], expected: Expected, source: str) -> Chosen:
    """These columns in the order of the classes that their titles name, or as they are if they name none."""
    classes, order = expected.classes, classes_named(titles, expected)
    if len(columns) == 1 < classes:
        if order == [0] and titles[0].removesuffix(".0") == "0":
            raise InputError(
                f"{source}: its one column is headed '0', which is the first class, and what pandas calls a column "
                "without a name: head it p_0 or p_1, the class that it is of, or give a column for each class."
            )
        within = None if order or classes != 2 else class_within(titles[0], expected)
        if within is not None:
            raise InputError(
                f"{source}: its one column is headed {titles[0][:40]!r}, which has the name of the class "
                f"{expected.title(within)} in it: it is of that class, or of {expected.title(1 - within)} as a column "
                "without the name of a class. Head it with the name of its class, or give a column for each class."
            )
        return Chosen(columns, notes, only=order[0] if order and classes == 2 else None)
    if order and len(set(order)) == len(order) and len(order) <= classes:
        absent = tuple(index for index in range(classes) if index not in order)
        if absent:
            notes = (*notes, f"no column for {', '.join(map(expected.title, absent[:5]))}: read as never predicted")
        return Chosen([columns[place] for place in np.argsort(order)], notes, absent=absent)
    if len(columns) != classes or expected.class_names is None:
        return Chosen(columns, notes)
    if titles == list(map(str, range(classes))):
        return Chosen(columns, (*notes, "its columns are numbered from 0: taken in their order"))
    if classes == 2 and [class_within(title, expected) for title in titles] == [1, 0]:
        raise InputError(
            f"{source}: its columns {titles[0][:40]!r} and {titles[1][:40]!r} have the names of the second and the "
            "first class in them; name the columns after the classes, or put them in the order of the classes."
        )
    class_indices = [classes_named([title], expected) for title in titles]
    if any(class_indices):
        places = [place for place, class_index in enumerate(class_indices) if not class_index]
        wrong = titles[places[0] if places else 0]
        raise InputError(
            f"{source}: some columns are named after classes, but {wrong[:40]!r} "
            f"{'is not a class' if places else 'occurs twice'}; name all columns after the classes "
            f"({', '.join(map(str, list(expected.class_names)[:5]))}, ...) or none."
        )
    return Chosen(columns, (*notes, "its columns are not named after the classes: taken in their order"))


def _spare(
    header: Sequence[str],
    texts: Collection[int],
    indices: Collection[int],
    numbers: Sequence[np.ndarray | None],
    expected: Expected,
    source: str,
) -> int | None:
    """The one column that names or numbers the rows."""
    if len(texts) == 1 or (not texts and len(indices) == 1):
        return next(iter(texts or indices))
    if texts or (len(header) == expected.classes and classes_named(header, expected)):
        return None if numbers[0] is None or texts or not counts_records(numbers[0]) else 0
    titled_columns = [column for column in range(len(numbers)) if _named_index(header, column)]
    column = titled_columns[0] if len(titled_columns) == 1 else 0
    leading = numbers[column]
    other_columns = [
        column_numbers for place, column_numbers in enumerate(numbers) if place != column and column_numbers is not None
    ]
    if leading is None:
        return None
    if counts_records(leading):
        return column
    # No outputs are whole numbers that all differ, beside others that are not whole.
    distinct = len(leading) > 2 and _whole(leading) and len(np.unique(leading)) == len(leading)
    if distinct and expected.classes == 2 and other_columns and np.isin(other_columns[0], (0, 1)).all():
        raise InputError(f"{source}: {HARD_LABELS}.")
    return column if titled_columns or (distinct and not any(map(_whole, other_columns))) else None


def _named_index(header: Sequence[str], column: int) -> bool:
    """Whether a column is called an index; without a name it is one only if it is the first."""
    if not header:
        return False
    name = header[column].lower()
    return name == PANDAS_INDEX or (name in INDEX_NAMES and (column == 0 or name != ""))


def _refuse_whole(header: Sequence[str], columns: Mapping[int, np.ndarray | None], source: str) -> None:
    """Refuses the only column of whole numbers beside others that are not whole: no outputs are so.

    Saturated probabilities and their logarithms are, and so is a constant first column, such as zeros, beside logits.
    Of several classes only a column whose numbers all differ is refused, since logits with few digits may all be whole.
    """
    numbers = [column for column in columns.values() if column is not None]
    if len(numbers) < max(2, len(columns)) or len(numbers[0]) < 3:
        return
    whole = [place for place, column in enumerate(numbers) if column[0] == np.rint(column[0]) and _whole(column)]
    if len(whole) != 1 or (whole == [0] and (numbers[0] == numbers[0][0]).all()):
        return
    column = numbers[whole[0]]
    if len(columns) > 2 and len(np.unique(column)) < len(column):
        return
    rows = np.stack(numbers, axis=1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if any((np.abs(shares.sum(axis=1) - 1) <= 1e-3).all() for shares in (rows, np.exp(rows))):
            return
    column_title = titled(header, list(columns)[whole[0]])
    give = "both classes, or one column" if len(columns) == 2 else "one column per class"
    raise InputError(f"{source}: {column_title} has only whole numbers: an index, a fold or a label? Give {give}.")


def _refuse_out_of_order(numbers: np.ndarray | None, column_title: str, source: str) -> None:
    """Refuses a column that numbers the rows, but not from the first to the last."""
    if numbers is not None and not counts_records(numbers) and counts_records(np.sort(numbers)):
        raise InputError(f"{source}: {column_title} numbers the rows out of order; sort them.")


def counts_records(numbers: np.ndarray) -> bool:
    """Whether it is 0, 1, 2, ... or 1, 2, 3, ...: at least three, because two could be outputs."""
    return len(numbers) > 2 and counting(numbers)


def _whole(numbers: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((numbers == np.rint(numbers)).all())
