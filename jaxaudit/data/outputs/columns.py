"""The class columns of a table of outputs, and whether its first line names them."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.errors import InputError

INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0", "__index_level_0__")


def are_numbers(cells: Sequence[str]) -> bool:
    """Whether every cell reads as a number."""
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def is_header(first: list[str], one_line_too_many: bool, classes: int, class_names: Sequence[str] | None) -> bool:
    """Whether a first line with these cells names the columns."""
    if first[0] == "" or not are_numbers(first[1:]) or (len(first) == 1 and not are_numbers(first)):
        return True
    # A line of numbers names the columns only when it names the classes and the file is one line longer than the set.
    names = first[1:] if len(first) == classes + 1 else first
    numbered = names == [str(k) for k in range(classes)]
    return one_line_too_many and (numbered or (class_names is not None and set(names) == set(class_names)))


def class_columns(
    header: list[str] | None,
    leading: np.ndarray | None,
    count: int,
    classes: int,
    class_names: Sequence[str] | None,
    source: str,
) -> list[int]:
    """The columns that hold the classes, in class order; a leading row number or identifier is left out."""
    columns = list(range(count))
    # One column fewer than classes is enough for two classes: the probability of the second.
    if count > 1 and (count == classes + 1 or (classes == 2 and count == 2)):
        spare = count == classes + 1
        named = header is not None and header[0].lower() in INDEX_NAMES
        if leading is None:
            columns = columns[1:]
        elif _counts(leading) or (spare and named):
            if not _counts(leading) and _counts(np.sort(leading)):
                raise InputError(
                    f"{source}: its first column numbers the rows out of order; sort them into the order of the "
                    "query set."
                )
            columns = columns[1:]
    if header is None or class_names is None or len(columns) != classes:
        return columns
    titles = [header[column] for column in columns]
    unknown = [title for title in titles if title not in class_names]
    if len(set(titles)) == classes and not unknown:
        return [columns[titles.index(name)] for name in class_names]
    if len(unknown) < len(titles):
        raise InputError(
            f"{source}: some columns are named after classes, but {unknown[0] if unknown else titles[0]!r} "
            f"{'is not a class' if unknown else 'occurs twice'}; name all columns after the classes "
            f"({', '.join(map(str, list(class_names)[:5]))}, ...) or none."
        )
    return columns


def _counts(numbers: np.ndarray) -> bool:
    """True for 0, 1, 2, ... and 1, 2, 3, ...: at least three, because two could be outputs."""
    return len(numbers) > 2 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())
