"""A run on disk: written completely or not at all, never over another run, and read as what anybody may have written.

    result.json and others    the finished run; result.json is written last
    table.txt                 the output of the command
    unfinished/               the work of a run that is not finished

A run shows which records are at risk, so only its owner may read it; a report of one file is made to be shared. Class
names may come from untrusted data, so tables of records have cells of `as_cell`.
"""

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from jaxaudit.data.bank.bank import ARRAYS as BANK_ARRAYS
from jaxaudit.data.bank.description import DESCRIPTION
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.parsing import refuse_repeated_keys
from jaxaudit.data.paths import DRAFT, exists, open_regular, refuse_irregular, whole_file
from jaxaudit.errors import InputError, refuse_wrong, visible, writing
from jaxaudit.json_types import from_builtins
from jaxaudit.report.kinds import ARRAYS, FIRST_LINES, NAMES, VERSION, Run, RunKind, part_of, run_kind
from jaxaudit.runs.unfinished import NAME, is_unfinished, keep_private, make_directories, refuse_in_use, remove_empty
from jaxaudit.version import __version__

RESULT, TABLE = "result.json", "table.txt"
OTHERS = {TABLE, "confidences.npz", "records.csv", "outputs.npz", "forget.npz", "scores.npz"}
OTHERS |= {*BANK_ARRAYS, DESCRIPTION}
"""Names of the other files that a run may have beside `result.json`."""
WEIGHTS = ".safetensors"
"""The suffix of files of weights, which a run may have under any name."""


Writer = Callable[[IO[bytes]], None]
"""Writes the content of a file into an open file."""


def claim(directory: Path) -> None:
    """Rejects a directory that could not be written, before any work is done; an unfinished run is accepted."""
    refuse_taken(directory)
    refuse_in_use(directory / NAME)


def refuse_taken(directory: Path) -> None:
    """As `claim`, but does not check whether another process uses the directory."""
    try:
        taken = directory.exists()
        folder = Path(os.path.realpath(directory))
        folder = next(path for path in (folder, *folder.parents) if path.exists())
        is_folder, content_words = folder.is_dir(), "another run" if (directory / RESULT).exists() else "other files"
        refuse_wrong(
            f"`directory` {directory} ",
            (f"cannot be written: {folder} is a file; name another directory.", not is_folder),
            (
                f"already contains {content_words}; name a new directory (nothing was changed).",
                is_folder and taken and not _is_free(directory),
            ),
            # Who owns a directory may replace what is in it.
            (
                "belongs to another user; name a directory that does not exist yet.",
                taken and hasattr(os, "getuid") and directory.stat().st_uid != os.getuid(),
            ),
        )
        _refuse_unwritable(f"`directory` {directory}", folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise InputError(f"`directory` {directory} cannot be a directory: {error.strerror}; name another.") from error


def is_of_a_run(name: str) -> bool:
    """Whether a run may use this file name in its directory, also on file systems that ignore case."""
    name = name.lower()
    return name in (RESULT, NAME, *OTHERS) or name.endswith(WEIGHTS)


def write(directory: Path, result: Mapping[str, Any], files: Mapping[str, Writer], table: str | None = None) -> None:
    """Writes `result.json` and the other files into a directory that `claim` accepted, and removes the unfinished work.

    If that fails, only the unfinished work remains. `table` is for `table.txt`.
    """
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    texts = {RESULT: text} if table is None else {TABLE: table, RESULT: text}
    saves = {**files, **{name: partial(_write_text, text) for name, text in texts.items()}}
    write_files(directory, saves, " and repeat the command, which continues from kept work")


def write_files(directory: Path, files: Mapping[str, Writer], advice: str = ", or name another directory") -> None:
    """Writes these files into a new directory that `claim` accepted, in this order; if that fails, nothing is left.

    Earlier files are in their final place when a writer is called. `advice` says what to do once there is space.
    """
    refuse_taken(directory)
    directory, stated_directory = Path(os.path.realpath(directory)), directory
    work, last = directory / NAME, list(files)[-1]
    with writing(f"`directory` {stated_directory}", f"free space there{advice}."):
        folders_made = make_directories(work)
        keep_private(directory)
        folders = tuple({(directory / name).parent for name in files} - {directory})
        try:
            for folder in folders:
                folder.mkdir(mode=0o700)
            for name, save in files.items():
                with whole_file(directory / name, drafts=work) as file:
                    save(file)
        except BaseException:
            # The last file marks the others as complete.
            for name in () if (directory / last).exists() else files:
                (directory / name).unlink(missing_ok=True)
            remove_empty((*folders, *folders_made))
            raise
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A folder to write files into, which appears at `directory` when the block ends; if that fails, nothing is left.

    A process that is killed leaves one beside it, whose name begins with `DRAFT`.
    """
    refuse_taken(directory)
    place = Path(os.path.realpath(directory))
    draft = place.with_name(f"{DRAFT}{secrets.token_hex(8)}")
    try:
        yield draft
        with writing(f"`directory` {directory}", "name another directory."):
            if place.exists():
                place.rmdir()
            draft.rename(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write_text(text: str, file: IO[bytes]) -> None:
    file.write(text.encode())


def arrays(arrays_by_name: Mapping[str, np.ndarray]) -> Writer:
    """Writes arrays as a compressed .npz."""
    return lambda file: np.savez_compressed(file, allow_pickle=False, **arrays_by_name)


def _is_free(directory: Path) -> bool:
    """Whether it is empty or holds only unfinished work, or other files of a run killed at its very end."""
    names = {path.name for path in directory.iterdir()}
    further_names = names - {NAME}
    left = all(
        (name in OTHERS or name.endswith(WEIGHTS)) and stat.S_ISREG((directory / name).lstat().st_mode)
        for name in further_names
    )
    return not names or (left and NAME in names and is_unfinished(directory / NAME))


def _refuse_unwritable(subject: str, path: Path, rights: int) -> None:
    if not os.access(path, rights) or not os.stat(path).st_mode & 0o222:
        raise InputError(f"{subject} cannot be written: {path} is not writable; name another.")


def claim_report(path: Path, out: Path | None = None) -> None:
    """Rejects, before any work is done, a path that is neither free, nor a report, nor an empty file."""
    with writing(f"the report {path}", "name another file."):
        if path.is_dir() and not path.is_symlink():
            raise InputError(f"the report {path} is a directory; name a file, such as {path / 'report.html'}.")
        exists = os.path.lexists(path)
        if exists:
            refuse_irregular(os.lstat(path), path)
            with open_regular(path, links=False) as file:
                first = file.read(len(FIRST_LINES))
            if first not in (b"", FIRST_LINES.encode()):
                raise InputError(
                    f"the report {path} would overwrite a file that is not a report of jaxaudit; name another file."
                )
        folder = Path(os.path.realpath(path.parent))
        if out is not None and _is_in_run(folder / path.name, Path(os.path.realpath(out))):
            return
        if not folder.is_dir():
            raise InputError(f"the report {path} cannot be written: there is no directory {folder}; create it first.")
        _refuse_unwritable(f"the report {path}", path if exists else folder, os.W_OK)


def write_report(path: Path, run: Run[Any]) -> None:
    """Writes the report of a run, completely or not at all."""
    # Imported here because `claim_report` needs no drawing.
    from jaxaudit.report.html import report_html

    claim_report(path)
    html = report_html(run)
    claim_report(path)
    with writing(f"the report {path}", "name another file."), whole_file(path, private=False) as file:
        file.write(html.encode())


def _is_in_run(path: Path, out: Path) -> bool:
    """Whether the page will be in the run directory, beside the run's own files."""
    if (
        path == out
        or path in out.parents
        or out in path.parent.parents
        or (path.parent == out and is_of_a_run(path.name))
    ):
        raise InputError(
            f"the report {path.name} and the run of `out` {out.name} would have the same path; name another file."
        )
    return path.parent == out


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


def record_files(columns: Columns) -> dict[str, Writer]:
    """The writer of `records.csv`, in full precision; NaN becomes an empty cell."""

    def write_csv(file: IO[bytes]) -> None:
        import pyarrow.csv

        cells = {
            as_cell(name): [as_cell(text) for text in values.tolist()] if values.dtype.kind == "U" else values
            for name, values in columns.items()
        }
        arrays = {name: pyarrow.array(values, from_pandas=True) for name, values in cells.items()}
        pyarrow.csv.write_csv(pyarrow.table(arrays), file)

    return {"records.csv": write_csv}


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
        raise InputError(
            f"{shown}: its result does not have the format of this version, jaxaudit {__version__} "
            f"({visible(str(error))[:200]}): make the run again, or show it with the version that wrote it."
        ) from error
    try:
        names = kind.stored(record) if path.is_dir() else ()
        arrays = read_archive(path / ARRAYS, names) if names else {}
        kind.check(record)
        if arrays:
            kind.check_arrays(record, arrays)
        run = Run(os.path.basename(os.path.realpath(path)) or str(path), kind.name, record, arrays)
        part_of(run)
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
    if has_result and not path.joinpath(RESULT).is_symlink():
        return path / RESULT
    trouble = (
        f"does not exist, or is no run: it has no {RESULT} of its own, which is never a link; give the directory that "
        "an audit wrote"
    )
    if exists(path) and not has_result and (path / NAME).is_dir():
        trouble = "contains an unfinished run; repeat its command to finish it"
    raise InputError(f"{shown} {trouble}.")


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
            f"{VERSION}. Give the directory that an audit wrote, or show it with the version that wrote it."
        )
    return run_kind(name)
