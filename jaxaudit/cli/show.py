"""What a command gives, and how it is shown: a table on stdout, or one JSON object; everything else goes to stderr."""

import codecs
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from jaxaudit.errors import InputError, visible

if TYPE_CHECKING:
    import msgspec
    import numpy as np
    from rich.console import Console, RenderableType

    from jaxaudit.ensemble import Execution
    from jaxaudit.json_types import StrictStruct
    from jaxaudit.runs.directory import Writer


Audit = TypeVar("Audit")


class Outcome(NamedTuple):
    """The result of a command, what its numbers rest on, arrays for charts, and further files of `--out`.

    `note` is printed when `--out` is written. `kind` is that of the run, if the command has several.
    """

    result: "StrictStruct"
    sources: Sequence[str]
    arrays: "Mapping[str, np.ndarray]" = MappingProxyType({})
    files: "Mapping[str, Writer]" = MappingProxyType({})
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Summary:
    """The output of a command without a result, a plan or what was done: for people, and for `--json`."""

    lines: tuple[str, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job(Generic[Audit]):
    """The work of a command after its data were read.

    Attributes:
        options: with defaults filled in; as a command line they repeat the run, but for a plan: then `repeats` do.
        data, extra: facts for the provenance. `hashes`: of further contents that affect a number.
        models: the number of models for a given number per batch, if finished models are stored; None stores nothing.
        kept: for an audit that stores finished models itself: a phrase with their number.
        line, label, after: printed before the work, on its progress bar, and when training is done.
    """

    options: Any
    audit: "Callable[[Execution], Audit]"
    outcome: "Callable[[Audit], Outcome | Summary]"
    data: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    models: Callable[[int], int] | None = None
    kept: Callable[[], str] | None = None
    line: str = ""
    label: str = "training"
    after: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    repeats: Any = None


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

    if result is None:
        return show_text(_printed(Console(), table))
    from jaxaudit.report.kinds import to_json

    show_text(f"{json.dumps(to_json(result), allow_nan=False)}\n")


def show_summary(summary: "Summary", as_json: bool) -> None:
    """Prints its lines, with control characters escaped, or its numbers as JSON; raises as `show`."""
    text = json.dumps(dict(summary.numbers), allow_nan=False) if as_json else "\n".join(map(visible, summary.lines))
    show_text(f"{text}\n")


def show_text(text: str) -> None:
    """Prints the text as it is; raises as `show`."""
    why = "it is closed"
    if sys.stdout is not None:
        try:
            sys.stdout.write(text)
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

    return _printed(Console(width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False), table)


def _printed(console: "Console", table: "RenderableType") -> str:
    """What the console prints, without blanks at the ends of lines."""
    with console.capture() as printed:
        console.print(table)
    return re.sub(r" +((\x1b\[[\d;]*m)*)$", r"\1", printed.get(), flags=re.MULTILINE)


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
