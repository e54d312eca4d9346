"""`jaxaudit report` and `jaxaudit cite`: saved runs as one HTML page, and the papers that they rest on."""

from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.parameters import at_home
from jaxaudit.cli.progress import say

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Directories written by --out, or files with the output of --json.")
]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.")] = Path("report.html"),
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the findings as Markdown, and write no page.")
    ] = False,
) -> None:
    """Shows saved runs as one HTML page, for readers who have not read the papers.

    The page works offline, contains its charts and tables, and can be printed. Several runs are shown side by side:
    before and after unlearning, or one method against another. The option --report of each command writes the same page
    for one run.

    Examples:

    `jaxaudit ks --out run` and then `jaxaudit report run`

    `jaxaudit report before after --out compared.html`

    `jaxaudit report run --markdown` (for a ticket, a wiki or a model card)
    """
    from jaxaudit.runs.directory import claim_report, write_report
    from jaxaudit.runs.saved import read_run

    runs, out = [at_home(run) for run in runs], at_home(out)
    if markdown:
        from jaxaudit.cli.show import show_text
        from jaxaudit.report.build import part_of
        from jaxaudit.report.markdown import as_markdown

        return show_text("".join(as_markdown(part_of(read_run(path))) for path in runs))
    claim_report(out)
    verb = "replaced" if out.exists() else "written"
    write_report(out, [read_run(path) for path in runs])
    say(f"{verb}: {out}")


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
    papers = [paper for run in read for paper in run.papers]
    for source in dict.fromkeys(paper.source for paper in papers if entry_of(paper) is None):
        say(f"no entry is known for: {visible(source)}")
    show_text(as_bibtex(papers, read[-1].provenance.jaxaudit))
