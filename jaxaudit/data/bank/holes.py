"""Banks whose files claim numbers that are not there: what is read of a bank is bounded by what the disk holds."""

import os
from pathlib import Path

from jaxaudit.data.bank.outputs import FOLDER
from jaxaudit.errors import InputError

SMALL, SHRUNK = 1 << 28, 100
"""Bytes that are read in any case, and how many times as many as there are on the disk."""
BLOCK = 512
"""Bytes of what a file system counts, whatever the size of its own blocks."""


def refuse_holes(directory: Path) -> None:
    """Refuses a bank whose files claim far more than the disk holds of them.

    A file system that compresses holds no bank in so little: training sets are random. One that does not tell what it
    holds, as some that are mounted from elsewhere, is believed.

    Raises:
        InputError: they have holes in place of numbers.
    """
    try:
        folders = [each for each in (directory, directory / FOLDER) if each.is_dir()]
        found = [entry.stat(follow_symlinks=False) for folder in folders for entry in os.scandir(folder)]
    except OSError:
        return  # whoever reads it says what is wrong
    held = sum(BLOCK * getattr(each, "st_blocks", 0) for each in found)
    claimed = sum(each.st_size for each in found)
    if held and claimed > max(SMALL, SHRUNK * held):
        raise InputError(
            f"{directory}: its files claim {claimed / 2**30:.1f} GiB, of which {held / 2**20:.1f} MiB are on the disk, "
            "so they have holes in place of numbers; was the bank copied whole?"
        )
