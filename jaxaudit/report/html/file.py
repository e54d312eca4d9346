"""The report's place on disk: whole or not there, and never over anything but a report."""

import os
from collections.abc import Sequence
from pathlib import Path

from jaxaudit.errors import InputError
from jaxaudit.report.html.render import FIRST_LINES, report_html
from jaxaudit.report.run import Run


def claim_report(path: Path, out: Path | None = None) -> None:
    """Refuses, before any work is done, a file that could not be written in the end.

    Args:
        path: the file to be.
        out: the run directory that will be made before it is written.

    Raises:
        InputError: it holds something else than a report, or cannot be written.
    """
    try:
        if path.is_dir():
            raise InputError(f"the report {path} is a directory; name a file, such as {path / 'report.html'}.")
        if path.exists() and not _is_report(path):
            raise InputError(f"the report {path} would overwrite a file that is no report of jaxaudit; name another.")
        place = path.resolve().parent
        if out is not None and place == out.resolve():
            return
        if not place.is_dir():
            raise InputError(f"the report {path} cannot be written: there is no directory {place}; make it first.")
        writable = path if path.exists() else place
        if not os.access(writable, os.W_OK) or not os.stat(writable).st_mode & 0o222:
            raise InputError(f"the report {path} cannot be written: {writable} is not writable; name another place.")
    except OSError as error:
        raise InputError(f"the report {path} cannot be written ({error.strerror}); name another file.") from error


def write_report(path: Path, runs: Sequence[Run]) -> None:
    """Writes the report of these runs, at once.

    Raises:
        InputError: as for `claim_report` and `report_html`.
    """
    html = report_html(runs)
    claim_report(path)
    draft = path.with_name(f".writing-{path.name}")
    try:
        draft.write_text(html, encoding="utf-8", newline="\n")
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"the report {path} cannot be written ({error.strerror}); name another file.") from error


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.read(len(FIRST_LINES))
    return first in (b"", FIRST_LINES.encode())
