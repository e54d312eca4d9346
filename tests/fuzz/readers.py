"""What is fuzzed: for every reader a small valid input, made by code, and the call that reads it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SECRET = "secret735173517"
"""Stands in the cells of tables, which no message may show."""
SECRET_NUMBER = 735173517


class Reader(NamedTuple):
    """A way into the package.

    Attributes:
        name: what it is called on the command line.
        make: writes a valid input into an empty folder.
        read: reads what lies in that folder; the random numbers choose its options.
        share: how often its turn comes, in comparison with the others'.
        writes: whether it may change its folder: it works there, rather than reads.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path, random.Random], object]
    share: int = 2
    writes: bool = False


def only(folder: Path, *beginnings: str) -> Path:
    """The file that is read alone: the first whose name begins so, else the first there is."""
    entries = sorted(folder.iterdir(), key=lambda path: (not path.name.startswith(beginnings), path.name))
    return entries[0] if entries else folder / "nothing"


def all_readers(planted: bool = False) -> dict[str, Reader]:
    """Every reader by its name; those that were made to be found, instead."""
    # Imported here because they import what they fuzz, and that takes seconds.
    if planted:
        from fuzz import planted as made_to_be_found

        return {reader.name: reader for reader in made_to_be_found.READERS}
    from fuzz import banks, language_models, results, runs, sets, tables

    modules = (sets, results, language_models, runs, banks, tables)
    return {reader.name: reader for module in modules for reader in module.READERS}


def turns(readers: dict[str, Reader]) -> list[str]:
    most = max(reader.share for reader in readers.values())
    return [name for turn in range(most) for name, reader in readers.items() if turn < reader.share]
