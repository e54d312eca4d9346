"""How far training is, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxaudit.report.visible import visible

LOG_SECONDS = 30


@contextmanager
def progress_on_stderr(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal; a line every half minute where stderr is a file."""
    if not sys.stderr.isatty():
        yield _log_lines(label)
        return
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
        yield lambda done, total: bar.update(task, completed=min(done, total), total=total)


def _log_lines(label: str) -> Callable[[int, int], None]:
    started = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            print(f"{label}: {min(done, total) / total:.0%} after {now - started:.0f} s", file=sys.stderr, flush=True)

    return show


def say(message: str) -> None:
    """A line for the person at the terminal; never on stdout, which belongs to the result."""
    print(visible(message), file=sys.stderr, flush=True)
