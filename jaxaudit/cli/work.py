"""Runs that Ctrl-C or a kill may interrupt, and that the same command resumes from stored work.

A command needs four lines:

    with lasting_work(out) as begin:
        checkpoints = begin(run_identity(...), models, "training ...")      # once its data are read
        ... fit_many(..., execution=Execution(checkpoints=checkpoints)) ...
        ... its result is written and shown ...
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jaxaudit.cli.progress import say
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.runs.unfinished import Identity, Unfinished

INTERRUPTED = 130
MARKS = ("result.json", "deal.json", "bank.json")
"""The file of a directory that stands only beside all others: of a run, a deal, a bank."""
STANDS = ("is written, and whole", "are written, and whole")

Begin = Callable[["Identity", int, str], Path | None]
"""`begin(identity, models, line)` prints the line and what was found; returns the folder of stored models, if any."""


class Interrupted(SystemExit):
    """Ctrl-C, already reported to the user."""


@contextmanager
def told_what_stands(*places: Path | None) -> Iterator[None]:
    """The context of a command that writes these files and directories: Ctrl-C is answered with what stands of them.

    Each is written whole or not at all, so what is there after an interruption and was not there before, or was another
    file, is whole: writing is not undone.

    Raises:
        Interrupted: for a KeyboardInterrupt, after a line about what was written.
    """
    contents_before = [(place, _content(place)) for place in places if place is not None]
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as error:
        whole = [str(place) for place, before in contents_before if _content(place) - before]
        is_reported = isinstance(error, Interrupted)
        if whole:
            say(f"{'' if is_reported else 'Interrupted: '}{' and '.join(whole)} {STANDS[len(whole) > 1]}.")
        elif not is_reported:
            say(f"Interrupted{': nothing was written' if contents_before else ''}.")
        raise Interrupted(INTERRUPTED) from error


def _content(place: Path) -> set[tuple[str, int, int]]:
    """What marks a file, or a directory that a command writes, as complete: its file that is written last."""
    marks = set[tuple[str, int, int]]()
    for path in (place / mark for mark in MARKS) if os.path.isdir(place) else (place,):
        with suppress(OSError, ValueError):
            status = path.stat()
            marks.add((path.name, status.st_ino, status.st_mtime_ns))
    return marks


def _marked(out: Path | None) -> bool:
    return out is not None and bool(_content(out))


@contextmanager
def lasting_work(out: Path | None, elsewhere: Callable[[], str] | None = None) -> Iterator[Begin]:
    """The context of a command's work; stored work is removed when the work is done.

    Work is stored in `out/unfinished`, else in the cache folder under the run's identity. If the command ends early, it
    stays there if any model was stored, finished or in training. A command that stores its work itself describes it in
    words by `elsewhere`.

    Raises:
        InputError: `out` exists, is in use, cannot be written, or contains the unfinished work of another run.
        Interrupted: for a KeyboardInterrupt, after a line about what was kept.
    """
    if out is not None:
        from jaxaudit.runs.directory import claim

        claim(out)
    works: list[Unfinished] = []
    total = 0

    def begin(identity: "Identity", models: int, line: str) -> Path | None:
        nonlocal total
        total = models
        work = _open_cached(identity) if out is None else _open_at(out, identity)
        if work is not None:
            works.append(work)
            if work.lock is None:
                say("this file system has no locks: do not start the same run there twice at the same time")
        say(line)
        if kept_work := _in_words(works, models):
            say(f"Resuming: {kept_work}.")
        return work and work.checkpoints

    try:
        yield begin
    except BaseException as error:
        kept = _in_words(works, total) if elsewhere is None else elsewhere()
        for work in works:
            work.keep() if kept and not _marked(out) else work.remove()
        # Whoever called says that the result stands.
        if not isinstance(error, KeyboardInterrupt) or _marked(out):
            raise
        goes_on = "continues from there" if kept else "starts again"
        say(f"Interrupted: {kept or 'nothing was kept'}; the same command {goes_on}.")
        raise Interrupted(INTERRUPTED) from error
    for work in works:
        work.remove()


def _open_at(out: Path, identity: "Identity") -> "Unfinished":
    from jaxaudit.runs.directory import refuse_taken
    from jaxaudit.runs.unfinished import NAME, keep_private, open_unfinished

    try:
        work = open_unfinished(out / NAME, identity)
        keep_private(out)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}; name another directory.") from error
    try:
        # Another process may have finished in this directory while this one read its data.
        refuse_taken(out)
    except InputError:
        work.remove()
        raise
    return work


def _open_cached(identity: "Identity") -> "Unfinished | None":
    """Opens the work in the cache folder; failing to store work there is not an error."""
    from jaxaudit.data.cache import cache_dir
    from jaxaudit.runs.lock import InUseError
    from jaxaudit.runs.unfinished import NAME, drop_leftovers, identity_hash, open_unfinished

    directory = cache_dir() / NAME / identity_hash(identity)
    drop_leftovers(directory.parent)
    try:
        try:
            return open_unfinished(directory, identity)
        except InUseError:
            say("another process is running the same command; this one cannot be resumed")
        except InputError:  # its name is the identity's, so what it holds is damaged
            shutil.rmtree(directory)
            return open_unfinished(directory, identity)
    except OSError:
        pass
    return None


def _in_words(works: "list[Unfinished]", total: int) -> str:
    """What was stored, in words; empty if nothing was."""
    if not works:
        return ""
    from jaxaudit.ensemble import kept_models, kept_states

    models = sum(kept_models(work.checkpoints) for work in works)
    states = [state for work in works for state in kept_states(work.checkpoints)]
    begun = sum(state.models for state in states)
    trained = f"{models} of {total} models are trained"
    if not begun:
        return trained if models else ""
    epochs, of = sorted({state.epoch for state in states}), states[0].epochs
    where = f"in epoch {epochs[0]} of {of}" if len(epochs) == 1 else f"in epochs {epochs[0]} to {epochs[-1]} of {of}"
    return f"{trained}, {begun} more {'is' if begun == 1 else 'are'} {where}"
