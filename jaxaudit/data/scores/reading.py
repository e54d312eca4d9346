"""Reads tables of scores: CSV, Parquet, .npz, JSON lines or one JSON array. No message shows a cell."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jaxaudit.data.files import TABLES
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.parsing import begins_array, json_array, json_lines, refuse_repeated_keys
from jaxaudit.data.group_values import MISSING
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS, most_unpacked, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.data.scores.columns import check_lengths
from jaxaudit.data.scores.names import OWN, is_number, plain_column
from jaxaudit.data.scores.table import ScoreTable, score_table
from jaxaudit.errors import InputError

LONGEST_LINE = 2**20
CELL = 64
"""Bytes that Python takes for a cell."""
SHARE = 4
"""Cells take several times the bytes of their lines, which may unpack to 1 / `SHARE` of what an array may."""
_NO_JSON = re.compile(rb"[\s:,\[]-?(?:NaN|Infinity)(?=[\s,\]}])")
JSON_LINES = (".jsonl", ".ndjson", ".json")


def load_scores(
    path: Path | str,
    *,
    rename: Mapping[str, str] = {},
    lower: Sequence[str] = (),
    higher: Sequence[str] = (),
) -> ScoreTable:
    """A table of scores from a file: see `score_table` for its columns.

    Args:
        path: a `.csv` with a header line, a `.parquet`, a `.npz` with one array a column, or JSON lines (`.jsonl`) or
            a JSON array (`.json`) with one object a record. Empty cells and null mean that a model was not asked; true
            and false are 1 and 0.
        rename: by the name of a column in the file, its name here.
        lower, higher: as for `score_table`.

    Raises:
        InputError: the file cannot be read or is too large, names a column twice or lacks one of `rename`; or as
            `score_table`.
    """
    path, notes = Path(path), tuple[str, ...]()
    if path.suffix.lower() in JSON_LINES:
        columns = _of_lines(path, rename)
    elif path.suffix.lower() == ".npz":
        columns = _of_archive(path, rename)
    else:
        columns, notes = _of_table(path, rename)
    if not columns:
        raise InputError(f"{path.name}: has no records; was the file written to its end?")
    missing = [old_name for old_name in rename if old_name not in columns]
    if missing:
        raise InputError(f"{path.name}: has no column {missing[0]!r} to rename (`rename`); is the name right?")
    renamed = [_name(column, rename) for column in columns]
    twice = sorted({column for column in renamed if renamed.count(column) > 1})
    if twice:
        raise InputError(f"{path.name}: has several columns {twice[0][:100]!r}; give each its own name.")
    renamed_columns = dict(zip(renamed, columns.values(), strict=True))
    table = score_table(renamed_columns, name=path.name, lower=lower, higher=higher)
    return replace(table, notes=notes, above=_lines_above(path, len(table.sets)))


def _lines_above(path: Path, records: int) -> int | None:
    """How many lines of a file are above the first of so many records, if each of them is one line; else None.

    A cell may have line breaks, and a file blank lines: then the number of lines is another.
    """
    suffix, lines, last = path.suffix.lower(), 0, b"\n"
    with open_data(path) as stream:
        if suffix == ".npz" or stream.peek(4).startswith(b"PAR1"):
            return None
        for block in iter(lambda: stream.read(LONGEST_LINE), b""):
            lines, last = lines + block.count(b"\n"), block[-1:]
    above = lines + (last != b"\n") - records
    return above if above == (suffix not in JSON_LINES) else None


def is_score_table(path: Path) -> bool:
    """Whether the file is a table with a column `set`; of a CSV file, its first line tells."""
    if path.suffix.lower() not in TABLES:
        return False
    with open_data(path) as stream:
        first = stream.read(LONGEST_LINE)
    if first.startswith(b"PAR1"):
        from jaxaudit.data.formats.parquet_file import parquet_names

        return "set" in map(plain_column, parquet_names(path))
    names = re.split(rb"[,;\t]", first.partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf"))
    return b"set" in [name.strip(b' \r"').lower() for name in names]


def target_on(path: Path, of: str, log_likelihood: bool, direction: int) -> np.ndarray | None:
    """`float64[n]`: the score of the target in a table on the records of the set `of`, in the table's order; None if
    the file is no table with a column `set`.

    That is the target's `log_likelihood`, or its `loss` with the other sign, or else (without `log_likelihood`) its one
    score as it is. The table must have one target, with such a score of this direction, as in `ScoreTable.directions`.
    """
    if not is_score_table(path):
        return None
    table = load_scores(path)
    targets, rows = table.of("target"), table.rows(of)
    scores = dict(targets[0].scores) if len(targets) == 1 else {}
    signs = {"log_likelihood": 1, "loss": -1} if log_likelihood else dict.fromkeys(list(scores)[: len(scores) == 1], 1)
    for name, sign in signs.items():
        if name in scores:
            if sign * table.directions.get(name, 0) == -direction:
                raise InputError(
                    f"{path.name}: {name} is {'lower' if direction > 0 else 'higher'} for records that were used, and "
                    "the bank's scores are the other way; give the score that its models gave."
                )
            return sign * scores[name][rows]
    needed_words = "`log_likelihood` or `loss`" if log_likelihood else "score"
    raise InputError(
        f"{path.name}: has {len(targets)} targets with {len(scores)} scores; name a table of one target with one "
        f"{needed_words}, or files of one column for each set."
    )


def _is_used(column: str, rename: Mapping[str, str]) -> bool:
    """Whether a column of a file is read; of others only the names are."""
    name = _name(column, rename)
    return name in OWN or is_number(name)


def _name(column: str, rename: Mapping[str, str]) -> str:
    return plain_column(rename.get(column, column))


def _of_archive(path: Path, rename: Mapping[str, str]) -> dict[str, Any]:
    archive = NpzArrays(path)
    # Of others only the names are read, whatever they hold.
    shapes = {name: archive.shape(name) for name in archive.names if _is_used(name, rename)}
    named_shapes = {_name(name, rename): shape for name, shape in shapes.items()}
    if "set" in named_shapes:
        check_lengths(named_shapes, path.name)
    records = max((shape[0] for shape in shapes.values() if shape), default=0)
    size = max(sum(archive.sizes.values()), CELL * records * len(archive.names))
    with open_data(path) as file:
        refuse_larger(path.name, size, most_unpacked(file_size(file), MAX_BYTES))
    return {name: archive.read(name) if name in shapes else range(records) for name in archive.names}


def _of_table(path: Path, rename: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa
    import pyarrow.compute as pc

    from jaxaudit.data.formats.text_table import trimmed
    from jaxaudit.data.tables.reading import read_text_table

    # pandas' index may hold the set, the groups or the scores.
    table, notes = read_text_table(path, index=True, only=lambda name: _is_used(name, rename))
    header = table.header
    if len(set(header)) < len(header):
        raise InputError(f"{path.name}: two columns have the same name; give each its own.")
    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        if not _is_used(name, rename):
            columns[name] = range(table.rows)
            continue
        cells = trimmed(table.columns[index])
        if not is_number(_name(name, rename)):
            columns[name] = np.asarray(cells.to_pylist(), object)
            continue
        lower = pc.call_function("utf8_lower", [cells])
        empty = pc.call_function("is_in", [lower], pc.SetLookupOptions(pa.array(MISSING)))
        values = pc.call_function("if_else", [empty, pa.scalar("nan"), cells])
        table.columns[index] = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        columns[name] = table.numbers(index, "leave it empty if the model was not asked")
    return columns, notes


def _of_lines(path: Path, rename: Mapping[str, str]) -> dict[str, Any]:
    decoder, cells = msgspec.json.Decoder(dict[str, msgspec.Raw]), msgspec.json.Decoder(bool | int | float | str | None)
    columns: dict[str, list[Any]] = {}
    left_out_names: dict[str, None] = {}
    records = 0
    read, of = (json_array, "record") if begins_array(path) else (json_lines, "line")
    for number, line in read(path, LONGEST_LINE, MAX_BYTES // SHARE):
        try:
            raw = decoder.decode(line)
            refuse_repeated_keys(line)
            record = {name: cells.decode(cell) for name, cell in raw.items() if _is_used(name, rename)}
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise InputError(f"{path.name}: {of} {number} {_wrong_with(line)}.") from error
        except ValueError as error:
            raise InputError(f"{path.name}: {of} {number}: {error}.") from error
        columns, records = columns or {name: [] for name in record}, records + 1
        left_out_names |= dict.fromkeys(name for name in raw if name not in record)
        if record.keys() != columns.keys() or len(columns) + len(left_out_names) > MOST_COLUMNS:
            raise InputError(f"{path.name}: {of} {number} has other names than the first; give each record the same.")
        for name, value in record.items():
            columns[name].append(value)
    return {**columns, **{name: range(records) for name in left_out_names}}


def _wrong_with(line: bytes) -> str:
    """Why a line is no record, and what to do."""
    if _NO_JSON.search(line):
        return "has NaN or Infinity, which JSON has not: write null where a model was not asked"
    return "is not an object of numbers and texts, in UTF-8: write one object a line, with one number or text a column"
