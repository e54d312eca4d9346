"""Readers that do what no reader may, each called after the finding that it must become."""

import ctypes
import importlib
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fuzz.cases import Reader
from fuzz.odd import SECRET
from fuzz.printed import check_bibliography, check_page
from jaxaudit.errors import InputError
from jaxaudit.report import as_bibtex


def refuse(message: str) -> Callable[[Path], object]:
    """Raises an `InputError` with this very message, past what makes messages short and visible."""

    def read(folder: Path) -> object:
        error = InputError(message)
        error.args = (message,)
        raise error

    return read


PLANTED: dict[str, Callable[[Path], object]] = {
    "read": lambda folder: None,
    "refused": refuse("a.csv: cannot be read; is it there?"),
    "exception": lambda folder: {}["no such key"],
    "noise": lambda folder: print("a word", file=sys.stderr, flush=True),
    "hang": lambda folder: (os.mkfifo(folder / "pipe"), (folder / "pipe").read_bytes()),
    "cpu": lambda folder: sum(itertools.repeat(0)),
    "memory": lambda folder: b"\1" * (1100 << 20),
    "crash": lambda folder: ctypes.string_at(0),
    "leftover": lambda folder: tempfile.mkstemp(),
    "leftover-input": lambda folder: (folder / "more").write_bytes(b""),
    "import": lambda folder: importlib.import_module("fuzz_canary"),
    "message": refuse("two\nlines"),
    "message-long": refuse("long" * 1000),
    "exception-entry": lambda folder: check_bibliography(f"{as_bibtex((), '1')}% @misc{{x, title = {{x}}}}"),
    "exception-script": lambda folder: check_page("<p onclick='x()'></p>"),
    "cell": refuse(f"row 3 holds {SECRET}"),
}
READERS = [
    Reader(f"planted-{kind}", lambda folder: (folder / "x").touch(), lambda folder, _, read=read: read(folder))
    for kind, read in PLANTED.items()
]
