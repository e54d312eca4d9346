"""`--report`, the same for every command."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html", help="Also write one page for people, which opens offline.", rich_help_panel="Output"
    ),
]


def claim(report: Path | None, out: Path | None) -> None:
    """Refuses, before any work is done, a `--report` that could not be written in the end."""
    if report is not None:
        from jaxaudit.report.html.file import claim_report

        claim_report(report, out)


def write(
    report: Path | None, out: Path | None, result: Mapping[str, Any], arrays: "Mapping[str, np.ndarray] | None" = None
) -> None:
    """Writes the page of this run, if it was asked for."""
    if report is None:
        return
    from jaxaudit.cli.progress import say
    from jaxaudit.report.html.file import write_report
    from jaxaudit.report.run import Run

    say("drawing the report")
    kind = result["schema"].removeprefix("jaxaudit.").partition("/")[0]
    write_report(report, [Run(out.resolve().name if out else kind, kind, result, arrays or {})])
    say(f"written: {report}")
