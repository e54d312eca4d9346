"""Files that change while they are read: between two openings, and between opening and mapping."""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fuzz import lines, names
from fuzz.damage import damaged

MAPPING = "mmap.__new__"
EVENTS = ("open", "os.listdir", "os.scandir", MAPPING)
WORDS = (names.SUFFIX, lines.SUFFIX)
_armed: "Meddler | None" = None
_hooked = False


class Meddler:
    """Changes one of the files of an input when it is looked at for the n-th time.

    Attributes:
        said: what was done; empty as long as nothing was.
    """

    def __init__(self, folder: Path, choose: random.Random) -> None:
        self.folder, self.choose = str(folder), choose
        self.left = choose.choice((1, 2, 2, 3, 4, 5, 8, 13, 30))
        self.said = ""
        files = (path for path in sorted(folder.rglob("*")) if path.suffix not in WORDS)
        self.files = [path for path in files if path.is_file() and not path.is_symlink()]
        self._mapped: set[int] = set()

    def hear(self, looked: str) -> None:
        """Python is about to look at a file or folder, or to map the one that it has opened."""
        path = os.path.abspath(looked)
        if not path.startswith(self.folder):
            return
        self.left -= 1
        if self.left == 0 and self.files:
            same = [each for each in self.files if str(each) == path]
            with suppress(OSError):
                self._change(self.choose.choice(same or self.files))

    def mapped(self, descriptor: int) -> None:
        self._mapped.add(os.fstat(descriptor).st_ino)

    def _change(self, path: Path) -> None:
        way = self.choose.randrange(7)
        words = ("replaced", "removed", "made a pipe", "made a folder", "made a link", "cut short", "lengthened")
        self.said = f"{path.name}: {words[way]} meanwhile"
        # What is mapped cannot be cut short without a signal to those that read it, here as anywhere.
        if way == 0 or path.stat().st_ino in self._mapped:
            with path.open("rb") as file:
                content, _ = damaged(file.read(2**20), self.choose)
            draft = path.with_name(f"{path.name}.new")
            draft.write_bytes(content)
            os.replace(draft, path)
        elif way == 5:
            os.truncate(path, path.stat().st_size // 2)
        elif way == 6:
            os.truncate(path, path.stat().st_size + 5000)
        else:
            path.unlink()
            if way == 2:
                os.mkfifo(path)
            elif way == 3:
                path.mkdir()
            elif way == 4:
                path.symlink_to("/dev/zero")


@contextmanager
def changing(meddler: Meddler | None) -> Iterator[None]:
    """In this context the files change."""
    global _armed, _hooked
    if meddler is not None and not _hooked:
        sys.addaudithook(_hear)
        _hooked = True
    _armed = meddler
    try:
        yield
    finally:
        _armed = None


def _hear(event: str, args: tuple[Any, ...]) -> None:
    global _armed
    if event not in EVENTS or (meddler := _armed) is None:
        return
    # What the change itself opens is not heard.
    _armed = None
    try:
        looked = args[0] if args else None
        if event == MAPPING and isinstance(looked, int) and looked >= 0:
            meddler.hear(os.readlink(f"/proc/self/fd/{looked}"))
            meddler.mapped(looked)
        elif event != MAPPING and isinstance(looked, str | os.PathLike):
            meddler.hear(os.fspath(looked))
    finally:
        _armed = None if meddler.said else meddler
