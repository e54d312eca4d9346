"""`jaxaudit report`: runs on disk as one page for people."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.progress import say
from jaxaudit.errors import InputError


class Format(enum.StrEnum):
    """What `--figures` writes."""

    svg = "svg"
    png = "png"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Directories that --out wrote, or files of what --json printed."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Also write every chart as a file into this directory.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Of those files.")] = Format.svg,
    text: Annotated[
        bool, typer.Option("--text", help="Print the tables again that the commands printed, and write no page.")
    ] = False,
) -> None:
    """What runs found, as one HTML file for people who have not read the papers

    It opens offline, holds its charts and tables, and prints well. Several runs are shown side by side: before and
    after unlearning, or methods against one another. The commands' own --report writes the same of one run.

    Examples:

    `jaxaudit ks --out run` and then `jaxaudit report run`

    `jaxaudit report before after --out compared.html --figures charts --format png`

    `jaxaudit report run --text`
    """
    if text:
        if figures is not None:
            raise InputError("--text prints tables, and --figures writes charts; give one of them.")
        _print(runs)
        return
    from jaxaudit.runs.report_file import claim_report, write_report
    from jaxaudit.runs.saved import read_run

    claim_report(out)
    if figures is not None and figures.absolute() == out.absolute():
        raise InputError(f"--figures {figures} is the page that --out names; give the charts a directory of their own.")
    if figures is not None:
        _make(figures)
    read = [read_run(path) for path in runs]
    write_report(out, read)
    say(f"written: {out}")
    if figures is not None:
        from jaxaudit.report.html.render import write_pictures

        try:
            count = len(write_pictures(read, figures, form.value))
        except OSError as error:
            raise _cannot(figures, error) from error
        say(f"written: {count} charts into {figures}")


def _make(figures: Path) -> None:
    try:
        figures.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(figures, error) from error


def _cannot(figures: Path, error: OSError) -> InputError:
    return InputError(f"--figures {figures} cannot be written ({error.strerror}); name another.")


def _print(runs: list[Path]) -> None:
    """The tables of these runs, each below its run's name where there are several."""
    from jaxaudit.cli.show import show_text
    from jaxaudit.errors import visible
    from jaxaudit.runs.saved import read_printed

    tables = [read_printed(path) for path in runs]
    for path, table in zip(runs, tables, strict=True):
        if len(runs) > 1:
            show_text(f"{visible(str(path))}:\n")
        show_text(table)
