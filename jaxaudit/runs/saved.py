"""Reads a run from disk, which may be untrusted: types are fixed, sizes are checked first. Writes tables of records.

Class names of these tables may come from untrusted data, so the CSV file has cells of `as_cell`. The Parquet file and
`result.json` have unchanged names.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.parsing import refuse_repeated_keys
from jaxaudit.data.paths import exists, open_regular
from jaxaudit.errors import InputError, visible
from jaxaudit.json_types import from_builtins
from jaxaudit.report.build import part_of
from jaxaudit.report.kinds import ARRAYS, NAMES, RunKind, run_kind
from jaxaudit.report.record import VERSION, Run
from jaxaudit.runs.directory import RESULT
from jaxaudit.runs.unfinished import NAME as UNFINISHED
from jaxaudit.version import __version__

LARGEST_RESULT = 64 << 20
"""The most bytes of a result: twice the size of one with 100,000 records, the most that a result lists."""
MOST_VALUES = 3_000_000
MOST_GROUPS = 500_000
"""The most lists and objects of a result, which take memory and time out of proportion to its length."""
LARGEST_ARRAYS = 512 << 20


def read_result(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file; `ValueError` if there is none, or it is larger than results are."""
    with open_regular(path) as file:
        text = file.read(LARGEST_RESULT + 1)
    if len(text) > LARGEST_RESULT:
        raise ValueError(f"it is larger than {LARGEST_RESULT >> 20} MiB")
    if text.count(b"[") + text.count(b"{") > MOST_GROUPS or text.count(b",") > MOST_VALUES:
        raise ValueError("it has more values than jaxaudit writes")
    try:
        refuse_repeated_keys(text)
        result = msgspec.json.decode(text)
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError, msgspec.MsgspecError):
        result = None
    if not isinstance(result, dict):
        raise ValueError("it is not a JSON object, or nested too deeply")
    return result


def read_archive(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The requested arrays that a .npz holds; empty without the file, `InputError` if one is damaged or too large."""
    if not os.path.lexists(path):
        return {}
    with open_regular(path, links=False) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_ARRAYS:
            raise ValueError(f"{path.name} is larger than {LARGEST_ARRAYS >> 20} MiB")
    archive = NpzArrays(path, LARGEST_ARRAYS)
    return {name: archive.read(name) for name in names if name in archive.sizes}


Columns = Mapping[str, np.ndarray]
_FORMULA = re.compile(r"(^|[;,|])(\s*)(?=[=+\-@])")
_NUMBER = re.compile(r"[+\-]?\d+([.,]\d+)?([eE][+\-]?\d+)?")


def record_files(columns: Columns) -> dict[str, Callable[[IO[bytes]], None]]:
    """Writers of `records.csv` and `records.parquet`, in full precision; NaN becomes an empty cell."""

    def table(columns: Columns) -> Any:
        import pyarrow

        return pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})

    def safe(values: np.ndarray) -> np.ndarray:
        return np.array([as_cell(text) for text in values.tolist()], object) if values.dtype.kind == "U" else values

    def write_csv(file: IO[bytes]) -> None:
        import pyarrow.csv

        pyarrow.csv.write_csv(table({as_cell(name): safe(values) for name, values in columns.items()}), file)

    def write_parquet(file: IO[bytes]) -> None:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table(columns), file)

    return {"records.csv": write_csv, "records.parquet": write_parquet}


def as_cell(text: str) -> str:
    r"""Text as a cell that no spreadsheet treats as a formula: an apostrophe before `=`, `+`, `-` or `@` marks text.

    >>> print(as_cell("=cmd|' /C calc'!A0"), as_cell("-1.5"), as_cell("a\x1b[31m"), as_cell("a;=b"))
    '=cmd|' /C calc'!A0 -1.5 a\x1b[31m a;'=b
    """
    seen = visible(text)
    return seen if _NUMBER.fullmatch(seen) else _FORMULA.sub(r"\1\2'", seen)


def read_run(path: Path) -> Run[msgspec.Struct]:
    """The run in a directory written by `--out`, or in a file with the output of `--json`; else an `InputError`."""
    file, shown = _result_file(path), _short(path)
    try:
        result = read_result(file)
    except OSError as error:
        raise InputError(f"{shown}: {_short(file.name)} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise InputError(f"{shown}: {_short(file.name)} is damaged ({error}); make the run again.") from error
    kind = _kind_of(result, shown)
    try:
        record = from_builtins(kind.record, result)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half a character is text to JSON alone
        provenance = result.get("provenance")
        version_named = provenance.get("jaxaudit") if isinstance(provenance, Mapping) else "unknown"
        raise InputError(
            f"{shown}: its result does not have the format of this version, jaxaudit {__version__} "
            f"({visible(str(error))[:200]}). It was written by jaxaudit {_short(version_named)}: make the run again, "
            "or show it with the version that wrote it."
        ) from error
    try:
        names = kind.stored(record) if path.is_dir() else ()
        arrays = read_archive(path / ARRAYS, names) if names else {}
        kind.check(record, arrays)
        run = Run(os.path.basename(os.path.realpath(path)) or str(path), kind.name, record, arrays)
        part_of(run, 1)
    except Exception as error:  # numbers that do not belong together cannot be shown, whatever the reason
        raise InputError(
            f"{shown}: its files do not match or are damaged, so make the run again: {visible(str(error))[:400]}"
        ) from error
    return run


def _result_file(path: Path) -> Path:
    """The path of a run's result."""
    shown = _short(path)
    if exists(path) and not path.is_dir():
        return path
    has_result = os.path.lexists(path / RESULT)
    if exists(path) and not has_result and (path / UNFINISHED).is_dir():
        raise InputError(f"{shown} contains an unfinished run; repeat its command to finish it.")
    if not has_result or path.joinpath(RESULT).is_symlink():
        raise InputError(
            f"{shown} does not exist, or is no run: it has no {RESULT} of its own, which is never a link; give the "
            "directory that an audit wrote."
        )
    return path / RESULT


def _short(name: object) -> str:
    """A name or path for a message: printable, with the middle of a long one left out."""
    text = visible(str(name))
    return text if len(text) <= 120 else f"{text[:58]}...{text[-58:]}"


def _kind_of(result: Mapping[str, Any], path: str) -> RunKind:
    schema = result.get("schema")
    name = str(schema).removeprefix("jaxaudit.").partition("/")[0]
    if schema != f"jaxaudit.{name}/{VERSION}" or name not in NAMES:
        raise InputError(
            f"{path}: its schema is {visible(str(schema)[:60])!r}, and this version shows {', '.join(NAMES)}, version "
            f"{VERSION}. Was it written by an older version of jaxaudit, by a newer one, or by no audit? Give the "
            "directory that an audit wrote, or show it with the version that wrote it."
        )
    return run_kind(name)
