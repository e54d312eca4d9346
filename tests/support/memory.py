"""What Python and NumPy allocate, and what a process holds."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def peak(call: Callable[[], object]) -> int:
    """The most bytes at once during a call, those of other threads of the process included."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Never more than so many bytes at once in this context."""
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < size


@contextmanager
def resident_at_most(size: int) -> Iterator[None]:
    """Never more than so many bytes more in this process, Arrow's among them; unchecked where Linux does not tell.

    Threads of Arrow may still free what they read, and `tracemalloc.stop` beside them ends the process (CPython issue
    128679).
    """
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        yield
        return
    reset.write_text("5")
    before = _bytes_of(status, "VmRSS")
    yield
    assert _bytes_of(status, "VmHWM") - before < size


def _bytes_of(status: Path, name: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10
