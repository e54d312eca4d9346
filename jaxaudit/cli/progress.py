"""How far training is, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxaudit.cli.interrupt import lasting_interrupt
from jaxaudit.report.visible import visible

LOG_SECONDS = 30


@contextmanager
def progress_on_stderr(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal; a line every half minute where stderr is a file."""
    with lasting_interrupt() as check, _bar(label) if sys.stderr.isatty() else _log(label) as show:

        def show_and_check(done: int, total: int) -> None:
            check()
            show(min(done, total), total)

        yield show_and_check


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _log(label: str) -> Iterator[Callable[[int, int], None]]:
    started = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            left = f", about {duration((now - started) * (total - done) / done)} left" if 0 < done < total else ""
            print(f"{label}: {done / total:.0%} after {now - started:.0f} s{left}", file=sys.stderr, flush=True)

    yield show


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it.

    >>> duration(45.0), duration(3000.0), duration(2e4), duration(1e6)
    ('45 s', '50 min', '5.6 h', '12 days')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def say(message: str) -> None:
    """A line for the person at the terminal; never on stdout, which belongs to the result."""
    print(visible(message), file=sys.stderr, flush=True)
