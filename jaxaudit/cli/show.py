"""The output of a command on stdout: a table, or one JSON object; everything else goes to stderr."""

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, TextIO

from jaxaudit.errors import InputError, visible

if TYPE_CHECKING:
    import msgspec
    from rich.console import RenderableType

    from jaxaudit.cli.job import Summary

WIDTH = 80
"""Columns of a plain terminal, the width of tables."""
PLAIN = {"█": "#", "─": "-", "…": "..."}
"""ASCII replacements for characters of tables."""
ERRORS = "jaxaudit.plain"


def show(table: "RenderableType", result: "msgspec.Struct | None" = None) -> None:
    """Prints the table, or the result as JSON if it is given.

    A `BrokenPipeError`, where the reader of stdout closed it, is not turned into an `InputError`: it is no error.
    """
    from rich.console import Console

    with _stdout() as out:
        if result is None:
            Console(file=out).print(table)
        else:
            from jaxaudit.report.record import to_json

            out.write(f"{json.dumps(to_json(result), allow_nan=False)}\n")


def show_summary(summary: "Summary", as_json: bool) -> None:
    """Prints its lines, with control characters escaped, or its numbers as JSON; raises as `show`."""
    text = json.dumps(dict(summary.numbers), allow_nan=False) if as_json else "\n".join(map(visible, summary.lines))
    show_text(f"{text}\n")


def show_text(text: str) -> None:
    """Prints the text as it is; raises as `show`."""
    with _stdout() as out:
        out.write(text)


@contextlib.contextmanager
def _stdout() -> Iterator[TextIO]:
    why = "it is closed"
    if sys.stdout is not None:
        try:
            yield sys.stdout
            return sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            why = error.strerror or "it failed"
        # Else the process would fail again when it flushes stdout at its end.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
    raise InputError(f"the result could not be printed: stdout cannot be written ({why}); redirect it, or give --out.")


def text_at_80_columns(table: "RenderableType") -> str:
    """The output of `show` on a plain terminal of 80 columns."""
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False).print(table)
    return text.getvalue()


def accept_any_text() -> None:
    """Replaces characters that stdout cannot encode by similar ASCII or an escape; never fails."""
    codecs.register_error(ERRORS, _plainly)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=ERRORS)


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    spelled = (PLAIN.get(character) or character.encode("unicode_escape").decode() for character in lacking)
    return "".join(spelled), error.end
