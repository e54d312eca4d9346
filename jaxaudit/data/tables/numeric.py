"""Your own CSV or Parquet file -> records of numbers, with one column of labels."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.csv_file import ASKED_NOTHING, Asked, read_csv
from jaxaudit.data.formats.text_table import (
    LABEL_NAMES,
    MAGIC,
    TextTable,
    check_header,
    counts_rows,
    label_place,
    read_parquet,
    trimmed,
)
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError


def read_text_table(
    path: Path,
    *,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    asked: Asked = ASKED_NOTHING,
) -> tuple[TextTable, tuple[str, ...]]:
    """The cells of a CSV file with a header line, or of a Parquet file; and what is to be said of how it is written.

    Args:
        path: the file; its first bytes tell which it is.
        keep, drop: as for `read_parquet`.
        asked: the format of a CSV file, as far as it should not be detected.

    Raises:
        InputError: as `read_csv` and `read_parquet`; or a CSV file has no header line.
    """
    with open_data(path) as stream:
        parquet = stream.read(len(MAGIC)) == MAGIC
    if parquet:
        if asked != ASKED_NOTHING:
            raise InputError(f"{path}: is Parquet; --delimiter, --encoding and --decimal are for CSV.")
        return read_parquet(path, keep=keep, drop=drop)
    table = read_csv(path, asked=asked)
    check_header(table, path)
    return table, (f"it is read as {table.note}",) if table.note else ()


def load_columns(
    path: Path,
    label_column: str | None = None,
    labels: tuple[np.ndarray, tuple[str, ...]] | None = None,
    drop: Sequence[str] = (),
) -> Examples:
    """The records of a CSV file with a header line or of a Parquet file, as `float32[n, features]`.

    The label column is `label_column`, else the one named label, labels, class, target or y (in any case),
    else the last. A first column without a name, or named index or id, that counts the rows is not a feature; nor are
    the columns that pandas kept its index in.

    Args:
        labels: encoded labels and class names from elsewhere; every column is then a feature.
        drop: columns that are read as if the file did not have them, unless they are named as a label is.

    Raises:
        InputError: when the file has no header line, no rows or no features, a cell is not a number, or the
            label column is unclear.
    """
    table, _ = read_text_table(path, keep=() if label_column is None else (label_column,), drop=drop)
    if table.rows == 0:
        raise InputError(f"{path}: there are no rows below the header line. Is the file empty?")
    table = table.without([name for name in drop if name.lower() not in LABEL_NAMES])
    if not table.columns:
        raise InputError(f"{path}: there is no column other than those left out; add inputs and labels.")
    features = list(range(len(table.header or ())))
    if counts_rows(table):
        features.remove(0)
    if labels is None:
        column = _label_column(table, label_column)
        features = [feature for feature in features if feature != column]
        cells = trimmed(table.columns[column]).to_numpy().astype(str)
        empty = np.flatnonzero(cells == "")
        if len(empty):
            raise InputError(f"{path}: row {empty[0] + 1} has no label ({table.title(column)} is empty).")
        labels = encode_labels(cells, None, f"{path.name}, {table.title(column)}")
    if not features:
        raise InputError(f"{path}: there is no column other than the label; is it comma-separated?")
    if len(labels[0]) != table.rows:
        raise InputError(f"{path}: {table.rows} rows but {len(labels[0])} labels; give one label per row, in order.")
    inputs = np.empty((table.rows, len(features)), np.float32)
    for place, feature in enumerate(features):
        with np.errstate(over="ignore"):
            inputs[:, place] = table.numbers(feature)
    return Examples(inputs, labels[0], labels[1], path.name)


def read_label_column(path: Path) -> np.ndarray:
    """The labels, as text, in a CSV file of one column (a header such as `label` is optional) or of several.

    Raises:
        InputError: as `load_columns`.
    """
    table = read_csv(path, header=False)
    if len(table.columns) > 1:
        table = table.with_header()
        return table.columns[_label_column(table, None)].to_numpy().astype(str)
    cells = table.columns[0].to_numpy().astype(str)
    return cells[1:] if str(cells[0]).strip().lower() in LABEL_NAMES else cells


def _label_column(table: TextTable, wanted: str | None) -> int:
    header = table.header or []
    if wanted is not None:
        if header.count(wanted) != 1:
            raise InputError(
                f"{table.source}: there {'is no column' if wanted not in header else 'are several columns'} "
                f"named {wanted!r}; the columns are {', '.join(header[:10])}."
            )
        return header.index(wanted)
    found = label_place(header, table.source)
    return len(header) - 1 if found is None else found
