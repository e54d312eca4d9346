"""Detects banks whose files claim far more numbers than the disk holds, so that reading them stays bounded."""

import os
from pathlib import Path

from jaxaudit.data.bank.outputs import FOLDER
from jaxaudit.errors import InputError

SMALL, SHRUNK = 1 << 28, 100
"""Bytes that are always accepted, and the largest ratio of claimed to stored bytes."""
BLOCK = 512
"""Bytes of the unit in which a file system counts blocks, whatever its own block size."""


def refuse_holes(directory: Path) -> None:
    """Refuses a bank whose files claim far more than the disk holds of them.

    Even a compressing file system needs more space for a bank, since membership masks are random. A file system that
    does not report allocated space, as some network file systems do not, is trusted.

    Raises:
        InputError: the files are far larger than their space on disk.
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
