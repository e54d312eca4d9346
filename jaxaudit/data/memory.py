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


def memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or its control group's (a container's, a job's) if that is less; both in bytes."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has none of these
        machine = UNKNOWN_MEMORY
    return min([machine if machine > 0 else UNKNOWN_MEMORY, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control group and its ancestors, for both versions of control groups."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for group in groups:
        number, _, rest = group.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0":
            top, file = "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(group.lstrip("/"))
        for folder in (inner, *inner.parents):
            try:
                text = (root / top / folder / file).read_text().strip()
            except (OSError, ValueError):
                continue
            if re.fullmatch(r"\d+", text):  # else it is "max"
                yield int(text)


MAX_BYTES = memory_bytes() // SHARE
"""The most bytes that are unpacked or allocated for a file."""


def refuse_larger(source: str | Path, size: int, most: int | None, advice: str = "split it into smaller files") -> None:
    """Rejects what takes more than `most` bytes, before they are read or allocated; None is no limit."""
    if most is not None and size > most:
        # What is counted as it is read is hardly larger yet, however much there is.
        takes = f"{_amount(size)}, " if size > 1.1 * most else ""
        raise InputError(f"{source}: takes {takes}more than the allowed {_amount(most)}; {advice}.")


def _amount(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
