"""The command that repeats a run, from its options as they were settled."""

from pathlib import Path
from typing import Any

from jaxaudit.places import without_folders

Options = dict[str, Any]

WITH_OPPOSITE = {"gray": "color"}
"""Switches that are on by default, and what turns them off."""


def plain(options: Options) -> Options:
    """The options as JSON can hold them and as they may be handed on: without the folders above the one at hand."""

    def one(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [one(each) for each in value]
        return without_folders(str(value)) if isinstance(value, Path | str) else value

    return {name: one(value) for name, value in options.items()}


def command_line(command: str, options: Options) -> list[str]:
    """The words that repeat this run from the same folder, where its files lie in that folder.

    >>> command_line("ks", {"query": "mnist", "gray": False, "target": [Path("a.csv")], "width": None})
    ['jaxaudit', 'ks', '--query', 'mnist', '--color', '--target', 'a.csv']
    """
    words = ["jaxaudit", command]
    for name, value in plain(options).items():
        flag = f"--{name.replace('_', '-')}"
        if name in WITH_OPPOSITE:
            words.append(flag if value else f"--{WITH_OPPOSITE[name]}")
        elif value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for each in value for word in (flag, str(each))]
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
