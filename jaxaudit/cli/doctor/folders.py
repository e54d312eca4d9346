"""Folders of data, caches and compiled programs, with their sizes. No folder is created."""

import os
from pathlib import Path
from typing import NamedTuple

from jaxaudit.cli.programs import FOLDER
from jaxaudit.data.cache import NOWHERE, cache_dir
from jaxaudit.data.tfds.tfds import data_folder, set_folders

MOST_FILES = 50_000
"""The most files that are counted in a folder; the size of a larger folder is a lower limit."""


class Folder(NamedTuple):
    """A folder.

    Attributes:
        name: what it holds.
        path: the folder; None if there is none.
        chosen_by: the environment variable that names it; empty for the default.
        there: whether it exists.
        writable: whether it, or the folder in which it would be created, is writable.
        size: bytes of its files; links are not followed.
        files: number of files counted.
        complete: whether all files were counted.
    """

    name: str
    path: Path | None
    chosen_by: str
    there: bool
    writable: bool
    size: int
    files: int
    complete: bool


def list_folders() -> tuple[Folder, ...]:
    """Every folder that is read or written although no command line names it."""
    data, prepared, cache = data_folder(None), set_folders(None), cache_dir()
    compiled = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    programs = Path(compiled) if compiled else cache / FOLDER
    found = [_folder("data", data, "JAXAUDIT_DATA" if data else "")]
    of_sets = "TFDS_DATA_DIR" if os.environ.get("TFDS_DATA_DIR") else ""
    found += [_folder("prepared sets", path, of_sets) for path in prepared if path != data]
    found.append(_folder("cache", cache, "JAXAUDIT_CACHE" if os.environ.get("JAXAUDIT_CACHE") else ""))
    return (*found, _folder("compiled programs", programs, "JAX_COMPILATION_CACHE_DIR" if compiled else ""))


def measured(folder: Path, most: int = MOST_FILES) -> tuple[int, int, bool]:
    """Bytes and number of the files below a folder, and whether all were counted."""
    size = files = 0
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        if files == most:
                            return size, files, False
                        size, files = size + entry.stat(follow_symlinks=False).st_size, files + 1
        except OSError:  # not ours to read, or gone meanwhile
            continue
    return size, files, True


def _folder(name: str, path: Path | None, chosen_by: str) -> Folder:
    if path is None:
        return Folder(name, None, chosen_by, False, False, 0, 0, True)
    there = path.is_dir()
    above = next((each for each in (path, *path.parents) if each.exists()), path)
    writable = path != NOWHERE and above.is_dir() and os.access(above, os.W_OK)
    return Folder(name, path, chosen_by, there, writable, *(measured(path) if there else (0, 0, True)))
