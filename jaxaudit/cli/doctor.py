"""`jaxaudit doctor`: what is installed and ready here, a line each."""

import platform
from importlib import metadata
from typing import Annotated

import typer


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
