"""Reads a run from disk. It may be untrusted, so it is checked before it is used."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError, visible
from jaxaudit.json_types import from_builtins
from jaxaudit.report.kinds import NAMES, RunKind, run_kind
from jaxaudit.report.record import VERSION, Run
from jaxaudit.runs.directory import RESULT, TABLE
from jaxaudit.runs.files import read_archive, read_columns, read_printed_table, read_result
from jaxaudit.runs.unfinished import NAME as UNFINISHED
from jaxaudit.version import __version__


def read_run(path: Path) -> Run[msgspec.Struct]:
    """The run in a directory written by `--out`, or in a file with the output of `--json`.

    Raises:
        InputError: it does not exist, is not a run, is unfinished, is of an unknown command, damaged, or too large.
    """
    file, shown = _result_file(path), _short(path)
    try:
        result = read_result(file)
    except OSError as error:
        raise InputError(f"{shown}: {_short(file.name)} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        why = "" if isinstance(error, UnicodeDecodeError | json.JSONDecodeError) else f" ({error})"
        raise InputError(f"{shown}: {_short(file.name)} is damaged{why}; make the run again.") from error
    kind = _kind_of(result, shown)
    try:
        record = from_builtins(kind.record, result)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half a character is text to JSON alone
        provenance = result.get("provenance")
        version_named = provenance.get("jaxaudit") if isinstance(provenance, Mapping) else None
        writer = (
            f"jaxaudit {_short(version_named)}" if isinstance(version_named, str) else "a version that it does not name"
        )
        raise InputError(
            f"{shown}: its result does not have the format of this version, jaxaudit {__version__} "
            f"({visible(str(error))[:200]}). It was written by {writer}: make the run again, or show it with the "
            "version that wrote it."
        ) from error
    try:
        arrays, stored = {}, kind.stored(record) if path.is_dir() else None
        if stored is not None and stored.rows:
            arrays = read_columns(path / stored.file, list(stored.names), stored.rows)
        elif stored is not None:
            arrays = read_archive(path / stored.file, list(stored.names))
        kind.check(record, arrays)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from error
    except (ValueError, OSError, KeyError) as error:
        raise InputError(
            f"{shown}: its files do not match or are damaged ({visible(str(error))[:200]}); make the run again."
        ) from error
    return Run(os.path.basename(os.path.realpath(path)) or str(path), kind.name, record, arrays)


def read_printed(path: Path) -> str:
    """The table that the command of a run printed, safe to show.

    Raises:
        InputError: it is not a run, or a run without a table.
    """
    _result_file(path)
    shown = _short(path)
    if not path.is_dir():
        raise InputError(f"{shown} is a file, but the table is only in the directory of the run; give the directory.")
    try:
        text = read_printed_table(path / TABLE)
    except FileNotFoundError as error:
        raise InputError(
            f"{shown} has no {TABLE}, which older versions did not write; leave out `text` for a page of the run."
        ) from error
    except OSError as error:
        raise InputError(f"{shown}: {TABLE} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise InputError(f"{shown}: {TABLE} is damaged; leave out `text` for a page of the run.") from error
    return "\n".join(visible(line) for line in text.split("\n"))


def _result_file(path: Path) -> Path:
    """The path of a run's result."""
    shown = _short(path)
    if not exists(path):
        raise InputError(f"{shown} does not exist; give the directory that an audit wrote.")
    if not path.is_dir():
        return path
    if os.path.lexists(path / RESULT):
        if path.joinpath(RESULT).is_symlink():
            raise InputError(
                f"{shown}: its {RESULT} is a link, which jaxaudit never writes; the run may have been tampered with."
            )
        return path / RESULT
    if (path / UNFINISHED).is_dir():
        raise InputError(f"{shown} contains an unfinished run; repeat its command to finish it.")
    raise InputError(f"{shown} has no {RESULT}, so it is not a run; give the directory that an audit wrote.")


def _short(name: object) -> str:
    """A name or path for a message: printable, with the middle of a long one left out."""
    text = visible(str(name))
    return text if len(text) <= 120 else f"{text[:58]}...{text[-58:]}"


def _kind_of(result: Mapping[str, Any], path: str) -> RunKind:
    schema = result.get("schema")
    if not isinstance(schema, str) or not schema.startswith("jaxaudit."):
        raise InputError(f"{path}: its result was not written by jaxaudit; give the directory that an audit wrote.")
    name, _, version = schema.removeprefix("jaxaudit.").partition("/")
    if version in ("1", "2"):
        raise InputError(
            f"{path}: it was written by an older version of jaxaudit (schema {visible(schema[:60])}); make the run "
            "again, or show it with that version."
        )
    if name not in NAMES or version != str(VERSION):
        raise InputError(
            f"{path}: this version cannot show a {visible(schema[:60])!r} result; it shows {', '.join(NAMES)}, "
            f"version {VERSION}. Is a newer jaxaudit needed?"
        )
    return run_kind(name)
