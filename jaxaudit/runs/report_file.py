"""Writes the report: completely or not at all, and never over another kind of file.

A page is made to be shared, so the umask decides who may read it; a run directory is readable by its owner only.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxaudit.data.paths import open_regular, refuse_irregular, whole_file
from jaxaudit.errors import InputError
from jaxaudit.report.html import FIRST_LINES
from jaxaudit.report.record import Run
from jaxaudit.runs.directory import is_of_a_run


def claim_report(path: Path, out: Path | None = None) -> None:
    """Rejects, before any work is done, a file that could not be written at the end.

    The path must not exist, or be a report or an empty file; links, devices and pipes are rejected.

    Raises:
        InputError: the file is not a report, or cannot be written.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            raise InputError(f"the report {path} is a directory; name a file, such as {path / 'report.html'}.")
        there = os.path.lexists(path)
        if there:
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
        writable = path if there else folder
        if not os.access(writable, os.W_OK) or not os.stat(writable).st_mode & 0o222:
            raise InputError(f"the report {path} cannot be written: {writable} is not writable; name another file.")
    except OSError as error:
        raise _cannot(path, error) from error


def write_report(path: Path, runs: Sequence[Run[Any]]) -> None:
    """Writes the report of these runs, completely or not at all.

    Raises:
        InputError: as for `claim_report` and `report_html`.
    """
    # Imported here because `claim_report` needs no drawing.
    from jaxaudit.report.html.render import report_html

    claim_report(path)
    html = report_html(runs)
    claim_report(path)
    try:
        with whole_file(path, private=False) as file:
            file.write(html.encode())
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> InputError:
    return InputError(f"the report {path} cannot be written ({error.strerror}); name another file.")


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
