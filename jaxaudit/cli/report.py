"""`jaxaudit report`, `cite` and `doctor`: a saved run as a page, the papers of runs, and what is ready here."""

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxaudit.cli.options import at_home
from jaxaudit.cli.progress import say

if TYPE_CHECKING:
    from jaxaudit.report.kinds import Run

RUN = "directory written by --out, or file with the output of --json."


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=f"A {RUN}")],
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.")] = Path("report.html"),
) -> None:
    """Shows a saved run as one HTML page, for readers who have not read the papers.

    The page works offline, contains its charts and tables, and can be printed. The option --report of each command
    writes the same page.

    Examples:

    `jaxaudit ks --out run` and then `jaxaudit report run`
    """
    from jaxaudit.runs.directory import claim_report, read_run

    out = at_home(out)
    claim_report(out)
    save_page(out, read_run(at_home(run)))


def save_page(out: Path, run: "Run[Any]") -> None:
    """Writes the page of a run, and says where."""
    from jaxaudit.runs.directory import write_report

    verb = "replaced" if out.exists() else "written"
    write_report(out, run)
    say(f"{verb}: {out}")


def cite(runs: Annotated[list[Path], typer.Argument(metavar="RUN", help=f"Each a {RUN}")]) -> None:
    """Prints the papers that the numbers of saved runs rest on, as BibTeX, and how to cite this program.

    Each test, attack, method and metric of a run names its own. The result has the same (`papers`).

    Examples:

    `jaxaudit cite run > run.bib`
    """
    from jaxaudit.cli.show import show_text
    from jaxaudit.errors import visible
    from jaxaudit.report.sources import as_bibtex, entry_of
    from jaxaudit.runs.directory import read_run

    read = [read_run(at_home(path)) for path in runs]
    papers = [paper for run in read for paper in run.papers]
    for source in dict.fromkeys(paper.source for paper in papers if entry_of(paper) is None):
        say(f"no entry is known for: {visible(source)}")
    show_text(as_bibtex(papers, read[-1].provenance.jaxaudit))


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Shows versions, the device, the folders of data and cache, and extras.

    Exit status 1 if something is missing that every command needs.

    Examples:

    `jaxaudit doctor`
    """
    from jaxaudit.cli.show import Summary, show_summary
    from jaxaudit.data.cache import NOWHERE, cache_dir
    from jaxaudit.data.tfds import data_folder
    from jaxaudit.ensemble.concurrency import this_machine

    extras = metadata.metadata("jaxaudit").get_all("Provides-Extra", [])
    facts = {"jaxaudit": metadata.version("jaxaudit"), "python": platform.python_version(), **this_machine()}
    facts |= {"data": str(data_folder() or "none (JAXAUDIT_DATA is not set)"), "cache": str(cache_dir())}
    facts |= {f"extra {extra}": _lacking("jaxaudit", extra) or "ready" for extra in extras}
    problems = [f"jaxaudit {lacking}: install it anew" for lacking in [_lacking("jaxaudit", "")] if lacking]
    problems += ["no cache: set JAXAUDIT_CACHE to a folder in which only you may write"] * (cache_dir() == NOWHERE)
    lines = (*(f"{name:<26}{value or 'none'}" for name, value in facts.items()), *problems)
    show_summary(Summary(lines, {**facts, "problems": problems}), as_json)
    raise typer.Exit(bool(problems))


def _lacking(package: str, extra: str) -> str:
    """What is missing of the requirements of a package with an extra, or of another version, in words."""
    from packaging.requirements import Requirement

    missing = list[str]()
    for need in map(Requirement, metadata.requires(package) or ()):
        if not need.marker or need.marker.evaluate({"extra": extra}):
            fits = [need.specifier.contains(one.version, True) for one in metadata.distributions(name=need.name)]
            if fits[:1] != [True] or any(_lacking(need.name, further) for further in need.extras):
                missing.append(str(need).partition(";")[0])
    return f"lacks {', '.join(missing)}" if missing else ""
