"""The memory that an untrusted file may take on this machine."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from jaxaudit.errors import InputError

UNKNOWN_MEMORY = 8 * 2**30
SHARE = 4
"""A file may need only this share of the memory, because arrays are copied (types, order, scale)."""
MOST_COLUMNS = 32_768
"""Of a table."""

SPARE, RATIO = 1 << 28, 1000
"""A table may unpack to so many bytes, or to so many times the bytes of its file if that is more."""


def memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or its control group's (a container's, a job's) if that is less; both in bytes."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has none of these
        machine = UNKNOWN_MEMORY
    return min([machine if machine > 0 else UNKNOWN_MEMORY, *(limit for limit, _ in _groups(root))])


def free_memory_bytes() -> int:
    """The bytes that this process may still take, within its control group; or half of `memory_bytes`."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, LookupError, StopIteration):
        return memory_bytes() // 2
    return max(0, min([free, *(limit - used for limit, used in _groups(Path("/")))]))


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limits of this process's control groups, and their use without the cache that the kernel can drop at once."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for group in groups:
        number, _, rest = group.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0":
            top, most, now = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, most, now = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = Path(group.lstrip("/"))
        for folder in (inner, *inner.parents):
            limit = _number(root / top / folder / most)
            if limit is not None:  # else it is "max"
                used = _number(root / top / folder / now) or 0
                yield limit, max(0, used - _droppable(root / top / folder / "memory.stat"))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except (OSError, ValueError):
        return None
    return int(text) if re.fullmatch(r"\d+", text) else None


def _droppable(path: Path) -> int:
    try:
        entries = dict(line.split(" ", 1) for line in path.read_text().splitlines())
        return int(entries["inactive_file"])
    except (OSError, ValueError, LookupError):
        return 0


MAX_BYTES = memory_bytes() // SHARE
"""The most bytes that are unpacked or allocated for a file."""


def refuse_larger(source: str | Path, size: int, most: int, advice: str = "split it into smaller files") -> None:
    """Rejects what takes more than `most` bytes, before they are read or allocated."""
    if size > most:
        # What is counted as it is read is hardly larger yet, however much there is.
        takes = f"{_amount(size)}, " if size > 1.1 * most else ""
        raise InputError(f"{source}: takes {takes}more than the allowed {_amount(most)}; {advice}.")


def _amount(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
