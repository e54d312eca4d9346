"""What a terminal shows of a run."""

from io import StringIO
from typing import Any

from rich.console import Console

from jaxaudit.report import Run, as_terminal, part_of


def shown(run: Run[Any], width: int = 100, hint: str = "") -> str:
    """The lines of a terminal of this width, without blanks at their ends."""
    out = StringIO()
    Console(file=out, width=width).print(as_terminal(part_of(run), hint))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def said(run: Run[Any], width: int = 100) -> str:
    """The same as one line of words."""
    return " ".join(shown(run, width).split())
