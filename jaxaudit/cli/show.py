"""What a command answers on stdout: a table for a person, or one object of JSON; everything else goes to stderr."""

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, TextIO

from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jaxaudit.cli.harness import Planned
    from jaxaudit.report.record import Record

WIDTH = 80
"""Columns of a plain terminal, for which tables are laid out."""
PLAIN = {"█": "#", "─": "-", "…": "..."}
"""What our tables draw with, where only ASCII can be shown."""
ERRORS = "jaxaudit.plain"


def show(table: "RenderableType", result: "Record | None" = None) -> None:
    """Prints the table, or the result as JSON where it is given.

    Raises:
        InputError: stdout is closed or full.
        BrokenPipeError: its reader left, which is no error of anybody's.
    """
    from rich.console import Console

    with _stdout() as out:
        if result is None:
            Console(file=out).print(table)
        else:
            from jaxaudit.report.record import to_json

            out.write(f"{json.dumps(to_json(result), allow_nan=False)}\n")


def show_planned(plan: "Planned", as_json: bool) -> None:
    """Prints what would be done; raises as `show`."""
    show_text(f"{json.dumps(dict(plan.numbers)) if as_json else chr(10).join(plan.lines)}\n")


def show_text(text: str) -> None:
    """Prints the text as it is; raises as `show`."""
    with _stdout() as out:
        out.write(text)


@contextlib.contextmanager
def _stdout() -> Iterator[TextIO]:
    if sys.stdout is None:
        raise InputError(_unseen("it is closed"))
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _abandon_stdout()
        raise InputError(_unseen(error.strerror or "it failed")) from error


def as_text(table: "RenderableType") -> str:
    """What `show` prints of it on a plain terminal of 80 columns."""
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False).print(table)
    return text.getvalue()


def accept_any_text() -> None:
    """Lets stdout print what its encoding lacks: as ASCII that looks alike, else spelled out; never an error."""
    codecs.register_error(ERRORS, _plainly)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=ERRORS)


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    spelled = (PLAIN.get(each) or each.encode("unicode_escape").decode() for each in lacking)
    return "".join(spelled), error.end


def _unseen(why: str) -> str:
    return f"the answer could not be printed: stdout cannot be written ({why}); send it elsewhere, or give --out."


def _abandon_stdout() -> None:
    """Nobody tries in vain to print what is left when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
