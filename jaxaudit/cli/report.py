"""`jaxaudit report` and `jaxaudit cite`: saved runs as one HTML page, and the papers that they rest on."""

from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.parameters import at_home
from jaxaudit.cli.progress import say
from jaxaudit.errors import InputError

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Directories written by --out, or files with the output of --json.")
]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Also write each chart as SVG and PNG into this directory."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the findings as Markdown, and write no page.")
    ] = False,
    card: Annotated[
        bool,
        typer.Option(
            "--card", help="Print a section of a model card: model-index metadata and Markdown. Writes no page."
        ),
    ] = False,
) -> None:
    """Shows saved runs as one HTML page, for readers who have not read the papers.

    The page works offline, contains its charts and tables, and can be printed. Several runs are shown side by side:
    before and after unlearning, or one method against another. The option --report of each command writes the same page
    for one run.

    Examples:

    `jaxaudit ks --out run` and then `jaxaudit report run`

    `jaxaudit report before after --out compared.html --figures charts`

    `jaxaudit report run --markdown`

    `jaxaudit report run --card >> README.md` (metadata and text for a model card)
    """
    runs, out, figures = [at_home(run) for run in runs], at_home(out), figures and at_home(figures)
    if markdown or card:
        if markdown + card + (figures is not None) > 1:
            raise InputError("--markdown, --card and --figures exclude one another; give one of them.")
        return _print_markdown(runs, card)
    from jaxaudit.errors import writing
    from jaxaudit.runs.directory import claim_report, write_report
    from jaxaudit.runs.saved import read_run

    claim_report(out)
    if figures is not None and figures.absolute() == out.absolute():
        raise InputError(f"--figures {figures} is the page that --out names; name another directory for the charts.")
    read = [read_run(path) for path in runs]
    if figures is not None:
        with writing(f"--figures {figures}", "name another."):
            figures.mkdir(parents=True, exist_ok=True)
            if any(figures.iterdir()):
                raise InputError(f"--figures {figures} is not empty; name a new directory (nothing was changed).")
    write_report(out, read)
    say(f"written: {out}")
    if figures is not None:
        from jaxaudit.report.html.render import write_pictures

        with writing(f"--figures {figures}", "name another."):
            count = len(write_pictures(read, figures))
        say(f"written: {count} files of charts into {figures}")


def _print_markdown(runs: list[Path], card: bool) -> None:
    from jaxaudit.cli.show import show_text
    from jaxaudit.report.build import part_of
    from jaxaudit.report.markdown import as_card, as_markdown
    from jaxaudit.runs.saved import read_run

    parts = [part_of(read_run(path)) for path in runs]
    show_text(as_card(parts) if card else "".join(map(as_markdown, parts)))


def cite(
    runs: Runs,
) -> None:
    """Prints the papers that the numbers of saved runs rest on, as BibTeX, and how to cite this program.

    Each test, attack, method and metric of a run names its own. The result has the same (`papers`).

    Examples:

    `jaxaudit cite run > run.bib`

    `jaxaudit cite before after`
    """
    from jaxaudit.cli.show import show_text
    from jaxaudit.errors import visible
    from jaxaudit.report.sources import as_bibtex, entry_of
    from jaxaudit.runs.saved import read_run

    read = [read_run(at_home(path)) for path in runs]
    papers = [paper for run in read for paper in run.papers or ()]
    for source in dict.fromkeys(paper.source for paper in papers if entry_of(paper) is None):
        say(f"no entry is known for: {visible(source)}")
    show_text(as_bibtex(papers, read[-1].provenance.jaxaudit))
