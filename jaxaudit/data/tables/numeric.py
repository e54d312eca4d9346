"""Reads your own CSV or Parquet file of numbers with one column of labels."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.csv_file import DETECTED, CsvOptions, read_csv
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
    path: Path, *, keep: Collection[str] = (), drop: Collection[str] = (), options: CsvOptions = DETECTED
) -> tuple[TextTable, tuple[str, ...]]:
    """The cells of a CSV file with a header line, or of a Parquet file; and notes on its format.

    Args:
        path: the file; its first bytes show which format it has.
        keep, drop: as for `read_parquet`.
        options: the format of a CSV file, as far as it should not be detected.
    """
    with open_data(path) as stream:
        parquet = stream.read(len(MAGIC)) == MAGIC
    if parquet:
        if options != DETECTED:
            raise InputError(f"{path}: is Parquet; `delimiter`, `encoding` and `decimal` are for CSV.")
        return read_parquet(path, keep=keep, drop=drop)
    table = read_csv(path, options=options)
    check_header(table, path)
    return table, (f"it is read as {table.note}",) if table.note else ()


def load_columns(path: Path, drop: Sequence[str] = ()) -> Examples:
    """The records of a CSV file with a header line or of a Parquet file, as `float32[n, features]`.

    The label column is the one named label, labels, class, target or y (in any case), else the last. A first column
    without a name, or named index or id, that counts the rows is not a feature; nor are the columns that pandas kept
    its index in, nor those of `drop`, unless their name is that of a label.
    """
    table, _ = read_text_table(path, drop=drop)
    if table.rows == 0:
        raise InputError(f"{path}: there are no rows below the header line. Is the file empty?")
    table = table.without([name for name in drop if name.lower() not in LABEL_NAMES])
    if not table.columns:
        raise InputError(f"{path}: there is no column other than those left out; add inputs and labels.")
    header = table.header or []
    found = label_place(header, table.source)
    label = len(header) - 1 if found is None else found
    features = [index for index in range(len(header)) if index != label and not (index == 0 and counts_rows(table))]
    cells = trimmed(table.columns[label]).to_numpy().astype(str)
    empty = np.flatnonzero(cells == "")
    if len(empty):
        raise InputError(f"{path}: row {empty[0] + 1} has no label ({table.title(label)} is empty).")
    codes, class_names = encode_labels(cells, None, f"{path.name}, {table.title(label)}")
    if not features:
        raise InputError(f"{path}: there is no column other than the label; is it comma-separated?")
    inputs = np.empty((table.rows, len(features)), np.float32)
    for index, feature in enumerate(features):
        with np.errstate(over="ignore"):
            inputs[:, index] = table.numbers(feature)
    return Examples(inputs, codes, class_names, path.name)
