"""Long work: its progress on stderr, reliable Ctrl-C and SIGTERM meanwhile, and what is stored of it to go on from.

The same command resumes it:

    with lasting_work(out) as begin:
        checkpoints = begin(run_identity(...), models, "training ...")      # once its data are read
        ... fit_many(..., execution=Execution(checkpoints=checkpoints)) ...
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from jaxaudit.errors import InputError, visible

if TYPE_CHECKING:
    from jaxaudit.runs.unfinished import Identity, Unfinished


LOG_SECONDS = 30
LEAST_SECONDS = 3.0
"""Seconds of timed steps before the remaining time is estimated."""
USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that are handled, and their default handlers in Python."""

COMPARING = "comparing"
Show = Callable[[int, int, float | None], None]
"""`show(done, total, seconds left)`; None until there is an estimate."""


@contextmanager
def progress_on_stderr(
    label: str, after: str = "", pace: Callable[[], str] = str
) -> Iterator[Callable[[int, int], None]]:
    """A bar with the remaining time on a terminal; a line every half minute in a file. `pace` says more of the work.
    Once all is done, `after` is said, and what is done then is shown as comparing.
    """
    display = _bar if sys.stderr.isatty() else _log
    with ExitStack() as shown, lasting_interrupt() as check:
        show = shown.enter_context(display(label, pace))
        began, before, ended = 0.0, 0, not after

        def show_and_check(done: int, total: int) -> None:
            nonlocal show, began, before, ended
            check()
            now = time.monotonic()
            if not before:
                began, before = now, done
            # The remaining time is estimated by the progress since the end of the first step.
            timed = done > before and now - began >= LEAST_SECONDS
            left = (now - began) * (total - done) / (done - before) if timed else None
            show(min(done, total), total, left)
            if not ended and done >= total:
                began, before, ended = 0.0, 0, True
                shown.close()
                say(after)
                show = shown.enter_context(display(COMPARING, str))

        yield show_and_check


@contextmanager
def _bar(label: str, more: Callable[[], str]) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, left="compiling")

        def show(done: int, total: int, left: float | None) -> None:
            bar.update(task, completed=done, total=total, left=", ".join(filter(None, (_left(done, left), more()))))

        yield show


@contextmanager
def _log(label: str, more: Callable[[], str]) -> Iterator[Show]:
    started = last = time.monotonic()

    def show(done: int, total: int, left: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            rest = _left(done, left) if done < total else ""
            words = (f"{label}: {done / total:.0%} after {duration(now - started)}", rest, more())
            say(", ".join(filter(None, words)))

    yield show


def _left(done: int, seconds: float | None) -> str:
    if seconds is None:
        return "compiling" if done == 0 else "timing the first steps"
    return f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """A duration in a suitable unit.

    >>> duration(45.0), duration(3000.0), duration(2e4), duration(1e6)
    ('45 s', '50 min', '5.6 h', '12 days')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def say(message: str) -> None:
    """Prints a line on stderr; stdout is for the result only."""
    print(visible(message), file=sys.stderr, flush=True)


@contextmanager
def lasting_interrupt() -> Iterator[Callable[[], None]]:
    """Within this context, Ctrl-C raises `KeyboardInterrupt` at once, and again at each call of the yielded function.

    SIGTERM, with which schedulers end a process, does the same. Python drops an exception raised in a callback of the
    garbage collector, and JAX has one; a compiled program that calls back to the host turns it into another error.
    """
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    hook = sys.unraisablehook

    def report(dropped: Any) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            hook(dropped)

    # Only the main thread may set handlers, and a process told to ignore Ctrl-C (nohup, &) goes on ignoring it.
    main = threading.current_thread() is threading.main_thread()
    ours = {number: usual for number, usual in USUAL.items() if main and signal.getsignal(number) == usual}
    for number in ours:
        signal.signal(number, note)
    if ours:
        sys.unraisablehook = report
    try:
        yield check
        check()
    except Exception:
        check()
        raise
    finally:
        for number, usual in ours.items():
            signal.signal(number, usual)
        if ours:
            sys.unraisablehook = hook


INTERRUPTED = 130
RESULT = "result.json"
Begin = Callable[["Identity", int, str], Path | None]
"""`begin(identity, models, line)` prints the line and what was found; returns the folder of stored models, if any."""


class Interrupted(SystemExit):
    """Ctrl-C, already reported to the user."""


@contextmanager
def lasting_work(out: Path | None, elsewhere: Callable[[], str] | None = None) -> Iterator[Begin]:
    """The context of a command's work; stored work is removed when the work is done.

    Work is stored in `out/unfinished`. If the command ends early, it stays there if any model was stored. A command
    that stores its work itself describes it in words by `elsewhere`.
    """
    if out is not None:
        from jaxaudit.runs.directory import claim

        claim(out)
    work: Unfinished | None = None
    total = 0

    def begin(identity: "Identity", models: int, line: str) -> Path | None:
        nonlocal work, total
        total = models
        work = None if out is None else _open_at(out, identity)
        if work is not None and work.lock is None:
            say("this file system has no locks: do not start the same run there twice at the same time")
        say(line)
        if kept_work := _in_words(work, models):
            say(f"Resuming: {kept_work}.")
        return work and work.checkpoints

    try:
        yield begin
    except BaseException as error:
        kept = _in_words(work, total) if elsewhere is None else elsewhere()
        # Written last of all files of a run: there is nothing to go on with.
        is_written = out is not None and os.path.lexists(out / RESULT)
        if work is not None:
            work.keep() if kept and not is_written else work.remove()
        if not isinstance(error, KeyboardInterrupt) or is_written:
            raise
        goes_on = "continues from there" if kept else "starts again (with --out, it would continue)"
        say(f"Interrupted: {kept or 'nothing was kept'}; the same command {goes_on}.")
        raise Interrupted(INTERRUPTED) from error
    if work is not None:
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


def _in_words(work: "Unfinished | None", total: int) -> str:
    """What was stored, in words; empty if nothing was."""
    if work is None:
        return ""
    from jaxaudit.ensemble import kept_models

    models = kept_models(work.checkpoints)
    return f"{models} of {total} models are trained" if models else ""
