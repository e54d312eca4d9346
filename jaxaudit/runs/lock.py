"""One process at a time in a folder: a lock that the kernel releases when its process ends.

lock     locked while a process works in the folder; always empty
owner    the number of the last process that worked there, for messages; not every system can read it from the lock

Links are not followed, and pipes not waited for.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from jaxaudit.data.paths import open_regular, refuse_irregular, whole_file
from jaxaudit.errors import InputError

LOCK, OWNER = "lock", "owner"
# Another process may be checking the lock, which takes it a moment.
PATIENCE = 0.2
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class InUseError(InputError):
    """Another process is using this directory."""


@contextmanager
def writing(subject: object, advice: str) -> Iterator[None]:
    """Within this context an `OSError` becomes an `InputError`: `subject` cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{subject} cannot be written ({error.strerror or error}); {advice}") from error


def hold(directory: Path, subject: str = "") -> BaseFileLock | None:
    """The lock of `directory`, held until `release`; None on a file system, or a system, without locks.

    Args:
        directory: the folder.
        subject: its name in messages; by default the option that names its parent folder.

    Raises:
        InUseError: another process holds the lock; the message names the process.
        FileNotFoundError: the folder does not exist.
        OSError: the lock is a link or a pipe, or cannot be written.
    """
    path = directory / LOCK
    if os.path.lexists(path):
        refuse_irregular(path.lstat(), path)
    if FileLock is SoftFileLock:
        return None
    # A marker file would outlive a killed process. The lock file is not removed on release: another process may be
    # waiting for it.
    lock = FileLock(path, PATIENCE, 0o600, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
    try:
        lock.acquire(poll_interval=PATIENCE / 10)
    except Timeout:
        raise InUseError(_in_use(directory, subject or f"`directory` {directory.parent}")) from None
    except NotImplementedError:
        return None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return lock


def sign(directory: Path) -> None:
    """Writes this process's number beside the lock that it holds; raises an `OSError` where that fails."""
    with whole_file(directory / OWNER) as file:
        file.write(f"{os.getpid()}\n".encode())


def refuse_in_use(directory: Path) -> None:
    """Rejects a folder that another process is using, by an `InUseError`."""
    try:
        # Checking creates no lock file.
        lock = hold(directory) if (directory / LOCK).exists() else None
    except OSError:
        return
    if lock is not None:
        lock.release()


@contextmanager
def working_in(directory: Path) -> Iterator[None]:
    """Holds the lock of a folder, signed, while the block runs; removes the lock's files afterwards.

    Raises:
        InUseError: another process works there.
        InputError: the lock is a link or a pipe, or cannot be written.
    """
    lock = None
    try:
        with writing(directory, "may you write there?"):
            lock = hold(directory, str(directory))
            if lock is not None:
                sign(directory)
        yield
    finally:
        if lock is not None:
            # A process that waits for a removed lock file creates a new one.
            for name in (OWNER, LOCK):
                with suppress(OSError):
                    (directory / name).unlink()
            lock.release()


def _in_use(directory: Path, subject: str) -> str:
    try:
        with open_regular(directory / OWNER, links=False) as file:
            owner = file.read(20).decode("ascii", "replace").strip()
    except OSError:
        owner = ""
    who = f"another process (pid {owner})" if owner.isdecimal() else "another process"
    return f"{subject} is in use by {who}; wait for it to end, or name another directory."
