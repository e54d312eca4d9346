"""A folder of files as a value, and what may lie there in place of a file."""

import os
import random
import stat
from pathlib import Path
from typing import NamedTuple

from fuzz import names


class Link(NamedTuple):
    """A symbolic link; `{outside}` in it is the folder beside the input."""

    to: str


class Hole(NamedTuple):
    """A file of zeros of this size that takes no room."""

    beginning: bytes
    size: int


class Special(NamedTuple):
    """A pipe that nobody writes to, or an empty folder."""

    kind: str


Tree = dict[str, bytes | Link | Hole | Special]
"""Files by their paths; folders are made for them."""

READ_ONLY = (Link("/dev/zero"), Link("/dev/null"), Hole(b"", 2**20))
"""What is not given to those that write: a device that is replaced is gone for the whole machine."""
ODD = (
    Special("pipe"),
    Special("folder"),
    Link("nothing"),
    Link("."),
    Link("{outside}/kept"),
    Link("{outside}/folder"),
    b"",
    b"\0" * 4096,
    b"\x1f\x8b",
    b"\n",
    b"PK\5\6" + bytes(18),
    b"\x80\x02cfuzz_canary\nThing\nq\x00.",
)


def load_tree(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def lay_out(tree: Tree, folder: Path, outside: Path) -> None:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case bytes():
                path.write_bytes(content)
            case Link(to):
                path.symlink_to(path.name if to == "itself" else to.format(outside=outside))
            case Hole(beginning, size):
                path.write_bytes(beginning)
                os.truncate(path, size)
            case Special("pipe"):
                os.mkfifo(path)
            case Special():
                path.mkdir()


def displaced(tree: Tree, name: str, choose: random.Random, writes: bool) -> str:
    """Something else in place of one file, or the file in another place."""
    way = choose.randrange(8)
    suffix = Path(name).suffix
    parent = f"{Path(name).parent}/" if "/" in name else ""
    if way < 5:
        tree[name] = choose.choice((*ODD, Link("itself"), *(() if writes else READ_ONLY)))
        return f"{name}: replaced by {str(tree[name])[:60]}"
    if way == 5:
        del tree[name]
        return f"{name}: gone"
    other = parent + names.file_name(choose, suffix)
    if other in tree or len(other.encode("utf-8", "surrogateescape")) > 1000:
        return f"{name}: as it was"
    tree[other] = tree.pop(name) if way == 6 else choose.choice((tree[name], *ODD))
    return f"{name}: {'called' if way == 6 else 'joined by'} {other!r}"


def state(folder: Path) -> dict[str, tuple[int, int, str | int]]:
    found: dict[str, tuple[int, int, str | int]] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        content: str | int = status.st_mtime_ns
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and status.st_size < 2**22:
            content = hash(path.read_bytes())
        elif stat.S_ISDIR(status.st_mode):
            content = 0
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        found[str(path.relative_to(folder))] = (status.st_mode, size, content)
    return found
