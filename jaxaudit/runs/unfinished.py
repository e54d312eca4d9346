"""The work of an unfinished run; only its owner may read it, because it shows which records are at risk.

    unfinished/identity.json    the identity of the run: only a run with the same identity may use its work
    unfinished/chunks/          finished chunks (see `fit_many`)
    unfinished/lock             locked while a process works here; the kernel releases it when the process ends

No link is followed, and no pipe waited for.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

import jaxaudit
from jaxaudit.data.paths import DRAFT, open_regular, refuse_irregular, whole_file
from jaxaudit.errors import InputError, writing
from jaxaudit.json_types import hash_of
from jaxaudit.report.numbers import text
from jaxaudit.version import __version__

LOCK = "lock"
# Another process may be checking the lock, which takes it a moment.
PATIENCE = 0.2
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


def hold(directory: Path, subject: str = "") -> BaseFileLock | None:
    """The lock of `directory`, held until `release`; None on a file system, or a system, without locks.

    `InputError`: another process holds it. `OSError`: it is a link or a pipe, or cannot be written.
    """
    path = directory / LOCK
    if os.path.lexists(path):
        refuse_irregular(path.lstat(), path)
    if FileLock is SoftFileLock:
        return None
    # A marker file would outlive a killed process. The lock file stays on release: another process may wait for it.
    lock = FileLock(path, PATIENCE, 0o600, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
    try:
        lock.acquire(poll_interval=PATIENCE / 10)
    except Timeout:
        subject = subject or f"`directory` {directory.parent}"
        raise InputError(
            f"{subject} is in use by another process; wait for it to end, or name another directory."
        ) from None
    except NotImplementedError:
        return None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return lock


def refuse_in_use(directory: Path) -> None:
    """Rejects a folder that another process is using, by an `InputError`."""
    try:
        # Checking creates no lock file.
        lock = hold(directory) if (directory / LOCK).exists() else None
    except OSError:
        return
    if lock is not None:
        lock.release()


@contextmanager
def working_in(directory: Path, subject: str = "") -> Iterator[None]:
    """Holds the lock of a folder while the block runs, and removes its file afterwards (see `hold`)."""
    with writing(directory, "may you write there?"):
        lock = hold(directory, subject or str(directory))
    try:
        yield
    finally:
        if lock is not None:
            # A process that waits for a removed lock file creates a new one.
            with suppress(OSError):
                (directory / LOCK).unlink()
            lock.release()


Identity = dict[str, dict[str, Any]]
"""Facts by section; messages name the sections that differ."""

SECTIONS = {
    "command": "another command",
    "options": "other options",
    "data": "other data",
    "code": "another version of the code",
    "machine": "another machine or other libraries",
}
LONGEST = 200
"""The most characters of one section's differences in a message."""


def run_identity(
    command: str, options: Mapping[str, Any], data: Mapping[str, str], code: Mapping[str, str | None]
) -> Identity:
    """Everything that affects a run's numbers: two runs with equal identities give equal results.

    `data` and `code` have the content hash of each data set by role, and of each piece of your own code by name.
    """
    identity = {
        "command": {"command": command},
        "options": options,
        "data": data,
        "code": {"jaxaudit": __version__, "sources": sources_hash(), **code},
        "machine": machine_facts(),
    }
    # As read back from a file: tuples as lists, paths as text.
    return json.loads(json.dumps(identity, default=str))


def identity_differences(kept_identity: Mapping[str, Any], identity: Identity) -> str | None:
    """The differences between an identity from a file and `identity`, in words; None if there are none."""
    differences_found = []
    for section, words in SECTIONS.items():
        kept, new = kept_identity.get(section), identity[section]
        old = kept if isinstance(kept, dict) else {}
        names = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
        if names:
            facts = "; ".join(f"{name}: {text(old.get(name))} there, {text(new.get(name))} here" for name in names)
            differences_found.append(f"{words} ({facts if len(facts) <= LONGEST else facts[: LONGEST - 3] + '...'})")
    return " and ".join(differences_found) or None


def sources_hash() -> str:
    """`blake2b:...` of the package's own Python files, by name and content."""
    root = Path(jaxaudit.__file__).parent
    contents = list[bytes]()
    for path in sorted(root.rglob("*.py")):
        contents += [f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode(), path.read_bytes()]
    return hash_of(contents)


def machine_facts() -> dict[str, Any]:
    """Facts on which the rounding of a number depends: devices, libraries, and JAX's settings."""
    from jaxaudit.ensemble.concurrency import device_facts

    facts = device_facts() | {name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")}
    # Cache folders of compiled programs change no number.
    settings = {name for name in os.environ if name.startswith("JAX_") and "CACHE" not in name}
    return facts | {name: os.environ[name] for name in sorted(settings | ({"XLA_FLAGS"} & set(os.environ)))}


NAME = "unfinished"
IDENTITY, CHUNKS = "identity.json", "chunks"
LARGEST_IDENTITY = 1 << 20


@dataclass(frozen=True)
class Unfinished:
    """A folder of unfinished work, locked for this process until `keep` or `remove`.

    `created` are the folders that were created for it, innermost first.
    """

    directory: Path
    created: tuple[Path, ...]
    lock: BaseFileLock | None

    @property
    def checkpoints(self) -> Path:
        """Where `fit_many` keeps its chunks."""
        return self.directory / CHUNKS

    def keep(self) -> None:
        """Leaves the work to a later run."""
        if self.lock is not None:
            self.lock.release()

    def remove(self) -> None:
        """Removes the work, and the folders that were created for it if they are empty."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.keep()
        if os.name == "nt":  # where a file that is open stays
            with suppress(OSError):
                (self.directory / LOCK).unlink()
                self.directory.rmdir()
        remove_empty(self.created)


def open_unfinished(directory: Path, identity: Identity) -> Unfinished:
    """Resumes the work in `directory`, or starts new work there.

    `InputError`: another process is using it. `InputError`: it belongs to a run that differs, as the message says.
    """
    with ExitStack() as undo:
        folders_made = make_directories(directory)
        undo.callback(remove_empty, folders_made)
        work = Unfinished(directory, folders_made, _held(directory))
        undo.callback(work.keep)
        _refuse_other(work, identity)
        undo.pop_all()
    return work


def make_directories(directory: Path) -> tuple[Path, ...]:
    """Creates `directory` and its parents, also behind links, for their owner alone; those created, innermost first."""
    directory = Path(os.path.realpath(directory))
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return tuple(missing)


def keep_private(directory: Path) -> None:
    """Takes all rights on an existing directory from others than its owner, whoever made it; else an `OSError`."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        directory.chmod(mode & 0o700)


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
    modes = [(path.name, path.lstat().st_mode) for path in directory.iterdir()]
    return all(
        stat.S_ISDIR(mode)
        if name == CHUNKS
        else (name in (IDENTITY, LOCK) or name.startswith(DRAFT)) and stat.S_ISREG(mode)
        for name, mode in modes
    )


def _held(directory: Path) -> BaseFileLock | None:
    while True:
        try:
            return hold(directory)
        except FileNotFoundError:
            # Its last owner finished and removed the folder in the meantime.
            make_directories(directory)


def _refuse_other(work: Unfinished, identity: Identity) -> None:
    """Checks that the work belongs to this run; new work then does."""
    path = work.directory / IDENTITY
    try:
        with open_regular(path, links=False) as file:
            kept_identity = json.loads(file.read(LARGEST_IDENTITY))
    except FileNotFoundError:
        shutil.rmtree(work.checkpoints, ignore_errors=True)
        with whole_file(path) as file:
            file.write(f"{json.dumps(identity, indent=1)}\n".encode())
        kept_identity = identity
    except (ValueError, RecursionError):
        kept_identity = None
    is_damaged = not isinstance(kept_identity, dict)
    difference = f"a damaged {IDENTITY}" if is_damaged else identity_differences(kept_identity, identity)
    if difference is not None:
        raise InputError(
            f"`directory` {work.directory.parent} contains an unfinished run with {difference}; repeat its own "
            "command to continue it, name another directory, or delete it to start again (nothing was changed)."
        )
