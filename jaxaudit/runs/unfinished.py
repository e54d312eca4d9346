"""The work of a run that is not finished: whose it is, what it has so far, and who is at it.

unfinished/identity.json    what the run is (see `identity`)
unfinished/chunks/          finished chunks (see `fit_many`)
unfinished/lock             locked while a process works here; the kernel lets go of it when that process dies

All of it is its owner's alone: it says whose records are at risk. No link in it is followed.
"""

import json
import os
import shutil
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jaxaudit.data.regular_files import DRAFT, open_regular, whole_file
from jaxaudit.errors import InputError
from jaxaudit.runs.identity import Identity, differences

NAME = "unfinished"
IDENTITY, CHUNKS, LOCK = "identity.json", "chunks", "lock"
LARGEST_IDENTITY = 1 << 20
LEFTOVER_SECONDS = 30 * 24 * 3600
PATIENCE = 0.2


class InUseError(InputError):
    """Another process is at work here."""


@dataclass(frozen=True)
class Unfinished:
    """A folder of unfinished work that is ours until `keep` or `remove`.

    Attributes:
        directory: the folder.
        checkpoints: where `fit_many` keeps its chunks.
    """

    directory: Path
    made: tuple[Path, ...]
    lock: IO[str] | None

    @property
    def checkpoints(self) -> Path:
        return self.directory / CHUNKS

    def keep(self) -> None:
        """Leaves the work to the next run."""
        if self.lock is not None:
            self.lock.close()

    def remove(self) -> None:
        """Removes the work, and the folders that were made for it where nothing else is in them."""
        shutil.rmtree(self.directory, ignore_errors=True)
        remove_empty(self.made)
        self.keep()


def open_unfinished(directory: Path, identity: Identity) -> Unfinished:
    """Takes the work in `directory` up, or begins there.

    Raises:
        InUseError: where another process is at it.
        InputError: where it is another run's; the message names what differs.
        OSError: where it cannot be written.
    """
    made = make_directories(directory)
    try:
        work = Unfinished(directory, made, _locked(directory))
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
    """Makes `directory` with its parents, behind links, too, for their owner alone; those made, innermost first."""
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
    """Whether this is a folder of unfinished work and holds nothing else, no link either."""
    if directory.is_symlink() or not directory.is_dir():
        return False
    return all(_is_ours(path) for path in directory.iterdir())


def _is_ours(path: Path) -> bool:
    mode = path.lstat().st_mode
    if path.name == CHUNKS:
        return stat.S_ISDIR(mode)
    return (path.name in (IDENTITY, LOCK) or path.name.startswith(DRAFT)) and stat.S_ISREG(mode)


def refuse_in_use(directory: Path) -> None:
    """Refuses unfinished work that another process is at.

    Raises:
        InUseError: where one is.
    """
    try:
        file = _open_lock(directory, "r+")
    except OSError:
        return
    with file:
        _lock(file, directory)


def drop_leftovers(parent: Path) -> None:
    """Removes the folders of unfinished work in `parent` that nobody has touched for 30 days."""
    for directory in parent.glob("*/"):
        try:
            newest = max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
            if time.time() - newest > LEFTOVER_SECONDS and is_unfinished(directory):
                refuse_in_use(directory)
                shutil.rmtree(directory)
        except (OSError, InUseError):
            continue


def _locked(directory: Path) -> IO[str] | None:
    """The lock of `directory`, held; None where there are no locks."""
    while True:
        file = _open_lock(directory, "a+")
        try:
            held = _lock(file, directory)
        except BaseException:
            file.close()
            raise
        if held and _is_file(file, directory / LOCK):
            return file
        file.close()
        if not held:
            return None
        # Its last owner finished, and removed it between our opening and locking it.
        make_directories(directory)


def _open_lock(directory: Path, mode: str) -> IO[str]:
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(
        directory / LOCK, mode, encoding="utf-8", opener=lambda name, usual: os.open(name, usual | flags, 0o600)
    )


def _lock(file: IO[str], directory: Path) -> bool:
    """Whether the file is now locked by us; False where the file system, or the platform, has no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            # Another process may be looking, which takes it no time.
            if time.monotonic() > deadline:
                raise InUseError(_in_use(file, directory)) from None
            time.sleep(PATIENCE / 10)
        except OSError:
            return False


def _in_use(file: IO[str], directory: Path) -> str:
    file.seek(0)
    owner = file.read(20).strip()
    who = f"another process (pid {owner})" if owner.isdecimal() else "another process"
    return f"--out {directory.parent} is in use by {who}; wait for it to end, or name another directory."


def _is_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _take(work: Unfinished, identity: Identity) -> None:
    """Makes sure that the work is this run's, then signs it."""
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
            f"--out {work.directory.parent} holds an unfinished run whose {IDENTITY} is damaged; delete the directory "
            "to start anew."
        )
    found = differences(there, identity)
    if found is not None:
        raise InputError(
            f"--out {work.directory.parent} holds an unfinished run made with {found}; repeat its own command to go "
            "on, name another directory, or delete it to start anew (nothing was changed)."
        )
    if work.lock is not None:
        work.lock.truncate(0)
        work.lock.write(f"{os.getpid()}\n")
        work.lock.flush()
