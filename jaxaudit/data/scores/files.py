"""Tables of scores as files: read from CSV or Parquet, and written as either.

No message shows a cell. A table tells which record is in which set. So it is written whole or not at all, never over a
file or link that is there, and only its owner may read it, whatever the umask is.
"""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxaudit.data.files import TABLES
from jaxaudit.data.labels import MISSING
from jaxaudit.data.outputs.form import titles_of
from jaxaudit.data.paths import whole_file
from jaxaudit.data.scores.columns import OWN, is_number
from jaxaudit.data.scores.table import ScoreTable, score_table
from jaxaudit.errors import InputError


def load_scores(
    path: Path | str,
    *,
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
) -> ScoreTable:
    """A table of scores from a file: see `score_table` for its columns.

    Args:
        path: a `.csv` with a header line, or a `.parquet`. Empty cells and null mean that a model was not asked; true
            and false are 1 and 0.
        lower, higher: as for `score_table`.

    Raises:
        InputError: the file cannot be read or is too large, or names a column twice; or as `score_table`.
    """
    path = Path(path)
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path.name}: is no table of scores, which is a {' or '.join(TABLES)} file; write it as one, such as by "
            "`table.to_csv('scores.csv', index=False)` of pandas."
        )
    columns, notes = _of_table(path)
    return replace(score_table(columns, name=path.name, lower=lower, higher=higher), notes=notes)


def is_score_table(path: Path) -> bool:
    """Whether the file is a table with a column `set`."""
    return path.suffix.lower() in TABLES and "set" in titles_of(path)


def target_on(path: Path, of: str, log_likelihood: bool, direction: int) -> np.ndarray | None:
    """`float64[n]`: the score of the only target in a table on the records of the set `of`; None if the file is no
    table with a column `set`. It is the target's `log_likelihood`, or its `loss` with the other sign, or else (without
    `log_likelihood`) its one score of this direction.
    """
    if not is_score_table(path):
        return None
    table = load_scores(path)
    targets, rows = table.of("target"), table.rows(of)
    scores = dict(targets[0].scores) if len(targets) == 1 else {}
    signs = {"log_likelihood": 1, "loss": -1} if log_likelihood else dict.fromkeys(list(scores)[: len(scores) == 1], 1)
    name = next((name for name in signs if name in scores), None)
    if name is None or signs[name] * table.directions.get(name, 0) == -direction:
        needed_words = "`log_likelihood` or `loss`" if log_likelihood else "score"
        raise InputError(
            f"{path.name}: has {len(targets)} targets with {len(scores)} scores; name a table of one target with one "
            f"{needed_words} that is {'higher' if direction > 0 else 'lower'} for records that were used, as the "
            "bank's are, or files of one column for each set."
        )
    return signs[name] * scores[name][rows]


def _is_used(column: str) -> bool:
    """Whether a column of a file is read; of others only the names are."""
    return column in OWN or is_number(column)


def _of_table(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa
    import pyarrow.compute as pc

    from jaxaudit.data.formats.parquet_file import read_text_table
    from jaxaudit.data.formats.text_table import trimmed

    table = read_text_table(path, _is_used)
    header = table.header
    if len(set(header)) < len(header) or not header:
        raise InputError(f"{path.name}: has no columns, or two of the same name; give each its own.")
    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        if not _is_used(name):
            columns[name] = range(table.rows)
            continue
        cells = trimmed(table.columns[index])
        if not is_number(name):
            columns[name] = np.asarray(cells.to_pylist(), object)
            continue
        lower = pc.call_function("utf8_lower", [cells])
        empty = pc.call_function("is_in", [lower], pc.SetLookupOptions(pa.array(MISSING)))
        values = pc.call_function("if_else", [empty, pa.scalar("nan"), cells])
        table.columns[index] = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        columns[name] = table.numbers(index, "leave it empty if the model was not asked")
    return columns, (f"it is read as {table.note}",) if table.note else ()


def claim_scores(path: Path) -> None:
    """Rejects a file that `write_scores` could not write, before any work is done."""
    for trouble, wrong in (
        (f"must be a .csv or a .parquet file, such as {path.stem or 'scores'}.csv", path.suffix.lower() not in TABLES),
        ("already exists; name a new file (nothing was changed)", os.path.lexists(path)),
        (
            f"cannot be written: {path.parent} is no directory, or not writable; create it, or name another file",
            not (path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)),
        ),
    ):
        if wrong:
            raise InputError(f"`out` {path} {trouble}.")


def write_scores(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Writes a table of scores, by the suffix of `path` as CSV or Parquet. A number reads back bit for bit, as a 64-bit
    float if it is no integer; None and NaN become empty cells.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> write_scores(path, {"set": ["query", "holdout"], "target.loss": [0.1, None]})
    >>> print(path.read_text().strip())
    set,target.loss
    query,0.1
    holdout,
    """
    claim_scores(path)
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError("`columns` must have a cell a record, all equally many.")
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({name: _cells(values) for name, values in columns.items()})
    try:
        with whole_file(path) as file:
            (_write_csv if path.suffix.lower() == ".csv" else parquet.write_table)(table, file)
    except OSError as error:
        raise InputError(
            f"`out` {path} cannot be written ({error.strerror or error}); free space there, or name another file."
        ) from error


def _cells(values: Sequence[Any] | np.ndarray) -> Any:
    import pyarrow as pa

    cells = pa.array(values, from_pandas=True)
    return cells.cast(pa.float64()) if pa.types.is_floating(cells.type) else cells


def _write_csv(table: Any, file: IO[bytes]) -> None:
    """Each number with as many digits as it needs, as Python writes it; pyarrow would quote every text."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(table.column_names)
    rows.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    # Flushed, and the file left open for its owner.
    text.detach()
