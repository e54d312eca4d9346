"""What is on this machine: packages, beside requirements, and folders with their sizes. Imports nothing heavy."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from jaxaudit.cli.programs import FOLDER
from jaxaudit.data.cache import NOWHERE, cache_dir
from jaxaudit.data.tfds.tfds import data_folder, set_folders

NAME = "jaxaudit"


class Package(NamedTuple):
    """A required package: the versions that are accepted, the one that is installed, and whether it is accepted."""

    name: str
    needs: str
    version: str | None
    fits: bool


def packages() -> tuple[Package, ...]:
    """The requirements of a plain installation; empty if this package itself is not installed."""
    return tuple(
        _found(requirement)
        for requirement in _requirements()
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    )


def extras() -> dict[str, tuple[Package, ...]]:
    """The packages that each extra adds on this system, by its name."""
    with suppress(PackageNotFoundError):
        requirements = list(_requirements())
        names = metadata(NAME).get_all("Provides-Extra") or []
        return {name: tuple(map(_found, _added_by(name, requirements))) for name in names}
    return {}


def _requirements(name: str = NAME) -> Iterator[Requirement]:
    with suppress(PackageNotFoundError):
        yield from map(Requirement, requires(name) or [])


def _found(requirement: Requirement) -> Package:
    try:
        installed_version = version(requirement.name)
    except PackageNotFoundError:
        installed_version = None
    fits = installed_version is not None and requirement.specifier.contains(installed_version, prereleases=True)
    package_name = requirement.name + (f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else "")
    # A requirement may add packages by extras of its own.
    added = (further for extra in requirement.extras for further in _added_by(extra, _requirements(requirement.name)))
    fits = fits and all(_found(further).version is not None for further in added)
    return Package(package_name, str(requirement.specifier), installed_version, fits)


def _added_by(extra: str, requirements: Iterable[Requirement]) -> Iterator[Requirement]:
    """The requirements of an extra beyond a plain installation, on this system."""
    for requirement in requirements:
        added = requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
        if added and not (requirement.marker and requirement.marker.evaluate({"extra": ""})):
            yield requirement


MOST_FILES = 50_000
"""The most files that are counted in a folder; the size of a larger folder is a lower limit."""


class Folder(NamedTuple):
    """A folder: the environment variable that names it (empty: the default), its bytes and files, without links.

    `path` is None if no folder is set. `writable` is of the folder in which it would be created, if it is not there;
    `complete` says whether all of its files were counted.
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
    folders = [_folder("data", data, "JAXAUDIT_DATA" if data else "")]
    of_sets = "TFDS_DATA_DIR" if os.environ.get("TFDS_DATA_DIR") else ""
    folders += [_folder("prepared sets", path, of_sets) for path in prepared if path != data]
    folders.append(_folder("cache", cache, "JAXAUDIT_CACHE" if os.environ.get("JAXAUDIT_CACHE") else ""))
    return (*folders, _folder("compiled programs", programs, "JAX_COMPILATION_CACHE_DIR" if compiled else ""))


def folder_size(folder: Path, most: int = MOST_FILES) -> tuple[int, int, bool]:
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
    exists = path.is_dir()
    above = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    writable = path != NOWHERE and above.is_dir() and os.access(above, os.W_OK)
    return Folder(name, path, chosen_by, exists, writable, *(folder_size(path) if exists else (0, 0, True)))
