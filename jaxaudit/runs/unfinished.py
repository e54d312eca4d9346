"""The work of an unfinished run: its identity, its finished chunks, and its lock.

unfinished/identity.json    the identity of the run (see `identity`)
unfinished/chunks/          finished chunks (see `fit_many`)
unfinished/lock, owner      locked while a process works here (see `lock`)

Only its owner may read it, because it shows which records are at risk. No link in it is followed.
"""

import json
import os
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import BaseFileLock

from jaxaudit.data.paths import DRAFT, open_regular, whole_file
from jaxaudit.errors import InputError
from jaxaudit.runs.identity import Identity, differences
from jaxaudit.runs.lock import LOCK, OWNER, InUseError, hold, refuse_in_use, sign

NAME = "unfinished"
IDENTITY, CHUNKS = "identity.json", "chunks"
LARGEST_IDENTITY = 1 << 20
LEFTOVER_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class Unfinished:
    """A folder of unfinished work, locked for this process until `keep` or `remove`.

    Attributes:
        directory: the folder.
        made: the folders that were created for it, innermost first.
        lock: the lock of the folder; None on a file system without locks.
        checkpoints: where `fit_many` keeps its chunks.
    """

    directory: Path
    made: tuple[Path, ...]
    lock: BaseFileLock | None

    @property
    def checkpoints(self) -> Path:
        return self.directory / CHUNKS

    def keep(self) -> None:
        """Leaves the work to a later run."""
        if self.lock is not None:
            self.lock.release()

    def remove(self) -> None:
        """Removes the work, and the folders that were created for it if they are empty."""
        shutil.rmtree(self.directory, ignore_errors=True)
        remove_empty(self.made)
        self.keep()
        if os.name == "nt":  # where a file that is open stays
            with suppress(OSError):
                (self.directory / LOCK).unlink()
                self.directory.rmdir()
                remove_empty(self.made)


def open_unfinished(directory: Path, identity: Identity) -> Unfinished:
    """Resumes the work in `directory`, or starts new work there.

    Raises:
        InUseError: another process is using it.
        InputError: it belongs to another run; the message names the differences.
        OSError: it cannot be written.
    """
    made = make_directories(directory)
    try:
        work = Unfinished(directory, made, _held(directory))
        try:
            _take(work, identity)
        except BaseException:
            work.keep()
            raise
    except BaseException:
        remove_empty(made)
        raise
    return work


def make_directories(directory: Path) -> tuple[Path, ...]:
    """Creates `directory` and its parents, also behind links, for their owner alone; those created, innermost first."""
    directory = Path(os.path.realpath(directory))
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return tuple(missing)


def remove_empty(directories: tuple[Path, ...]) -> None:
    """Removes these directories, in turn, as far as they are empty."""
    for path in directories:
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def is_unfinished(directory: Path) -> bool:
    """Whether this is a folder that holds only unfinished work, and no link."""
    if directory.is_symlink() or not directory.is_dir():
        return False
    return all(_is_ours(path) for path in directory.iterdir())


def _is_ours(path: Path) -> bool:
    mode = path.lstat().st_mode
    if path.name == CHUNKS:
        return stat.S_ISDIR(mode)
    return (path.name in (IDENTITY, LOCK, OWNER) or path.name.startswith(DRAFT)) and stat.S_ISREG(mode)


def drop_leftovers(parent: Path) -> None:
    """Removes folders of unfinished work in `parent` that have not changed for 30 days."""
    for directory in parent.glob("*/"):
        try:
            newest = max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
            if time.time() - newest > LEFTOVER_SECONDS and is_unfinished(directory):
                refuse_in_use(directory)
                shutil.rmtree(directory)
        except (OSError, InUseError):
            continue


def _held(directory: Path) -> BaseFileLock | None:
    while True:
        try:
            return hold(directory)
        except FileNotFoundError:
            # Its last owner finished and removed the folder in the meantime.
            make_directories(directory)


def _take(work: Unfinished, identity: Identity) -> None:
    """Checks that the work belongs to this run, then signs the lock."""
    path = work.directory / IDENTITY
    try:
        with open_regular(path, links=False) as file:
            there = json.loads(file.read(LARGEST_IDENTITY))
    except FileNotFoundError:
        shutil.rmtree(work.checkpoints, ignore_errors=True)
        with whole_file(path) as file:
            file.write(f"{json.dumps(identity, indent=1)}\n".encode())
        there = identity
    except (ValueError, RecursionError):
        there = None
    if not isinstance(there, dict):
        raise InputError(
            f"`directory` {work.directory.parent} contains an unfinished run with a damaged {IDENTITY}; delete "
            "the directory to start again."
        )
    found = differences(there, identity)
    if found is not None:
        raise InputError(
            f"`directory` {work.directory.parent} contains an unfinished run with {found}; repeat its own command to "
            "continue it, name another directory, or delete it to start again (nothing was changed)."
        )
    if work.lock is not None:
        sign(work.directory)
