"""Commands of the package, run in this process."""

import json
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from jaxaudit.cli import main
from jaxaudit.errors import InputError


class Ran(NamedTuple):
    """How a command ended that was not refused: its status, and what it printed."""

    status: Any
    out: str
    err: str


def command(folder: Path, words: Sequence[str]) -> Ran:
    """Runs `jaxaudit WORDS` in a folder.

    Raises:
        InputError: it ended with status 2, with its last line.
        AssertionError: it ended in another way than commands do, or printed what none may print.
    """
    out, err = StringIO(), StringIO()
    # The program's own arguments cannot hold these.
    words = [word.replace("\0", "") for word in words]
    with (
        mock.patch.object(sys, "argv", ["jaxaudit", *words]),
        mock.patch.dict("os.environ", JAXAUDIT_DEBUG="1"),
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(folder),
    ):
        try:
            main()
            status: Any = 0
        except SystemExit as stop:
            status = stop.code or 0
    ran = Ran(status, out.getvalue(), err.getvalue())
    last = ran.err.rstrip("\n").rpartition("\n")[2]
    if status == 2 and last.startswith("Error: "):
        raise InputError(last)
    if "Traceback" in ran.err or status not in (0, 2, 3):
        raise AssertionError(f"status {status}: {ran.err[-500:]}")
    if status != 2:  # where options are wrong their words are shown as they were typed
        _check_text(ran.out + ran.err)
    if "--json" in words and not {"-h", "--help"} & set(words) and status in (0, 3):
        json.loads(ran.out, parse_constant=_refuse)
    return ran


@contextmanager
def swept(folder: Path) -> Iterator[None]:
    """Removes what a command writes that succeeds in this context; one that is refused must leave nothing."""
    places = [place for place in (folder, folder.parent / "home") if place.exists()]
    before = {path for place in places for path in place.rglob("*")}
    yield
    for path in sorted((path for place in places for path in place.rglob("*")), reverse=True):
        if path not in before:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _check_text(text: str) -> None:
    """Refuses what would move a terminal's cursor or turn its text round."""
    kinds = {each: unicodedata.category(each) for each in set(text) - {"\n"}}
    if wrong := [each for each, kind in kinds.items() if kind in ("Cc", "Cs") or each in "\u202e\u2028\u2029"]:
        raise AssertionError(f"printed {wrong!r}: {text[-300:]!r}")


def _refuse(constant: str) -> Any:
    raise AssertionError(f"printed {constant}, which is no JSON")
