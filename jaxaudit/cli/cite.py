"""`jaxaudit cite`: the papers that saved runs rest on."""

from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.options import at_home
from jaxaudit.cli.progress import say


def cite(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Directories written by --out, or files with the output of --json."),
    ],
) -> None:
    """Prints the papers that the numbers of saved runs rest on, as BibTeX, and how to cite this program.

    Each test, attack, method and metric of a run names its own. The result has the same (`papers`).

    Examples:

    `jaxaudit cite run > run.bib`

    `jaxaudit cite before after`
    """
    from jaxaudit.cli.show import show_text
    from jaxaudit.errors import visible
    from jaxaudit.report.build import part_of
    from jaxaudit.report.papers import as_bibtex, cited, entry_of
    from jaxaudit.runs.saved import read_run

    read = [read_run(at_home(path)) for path in runs]
    papers = []
    for run in read:
        of_run = run.result.papers
        if of_run is None:
            said = f"{visible(run.name)} was written by a version that did not note papers"
            say(f"{said}; these are of the terms that its page explains.")
            of_run = [paper for paper in cited(term.source for term in part_of(run).terms) if paper.key]
        papers += of_run
    for source in dict.fromkeys(paper.source for paper in papers if entry_of(paper) is None):
        say(f"no entry is known for: {visible(source)}")
    show_text(as_bibtex(papers, read[-1].result.provenance.jaxaudit))
