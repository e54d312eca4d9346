"""One case, read under watch: what came of it, and whether it left anything as it was."""

import gc
import io
import os
import resource
import shutil
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fuzz.places import Tree, lay_out, state
from fuzz.readers import SECRET, SECRET_NUMBER, Reader
from jaxaudit.errors import InputError

CPU_SECONDS = 5
MOST_GROWTH = 2**30
LONGEST_MESSAGE = 1600
SECRETS = (SECRET, str(SECRET_NUMBER), f"{float(SECRET_NUMBER):g}")


class Outcome(NamedTuple):
    """What came of a case.

    Attributes:
        kind: `read`, `refused`, or what is wrong.
        where: of a finding, what tells it from others: the exception and its place in the package, or the like.
        said: the exception's message, or what was printed or left.
    """

    kind: str
    where: str = ""
    said: str = ""

    @property
    def good(self) -> bool:
        return self.kind in ("read", "refused")


class Room:
    """A folder in which cases are laid out, with everything beside it that a reader might touch."""

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self.output = folder, output
        self.input, self.outside, self.home = folder / "input", folder / "outside", folder / "home"
        self.temporary, self.cache = folder / "tmp", folder / "cache"
        for path in (self.outside / "folder", self.home, self.temporary, self.cache, folder / "here"):
            path.mkdir(parents=True)
        (self.outside / "kept").write_bytes(b"kept")
        os.chdir(folder / "here")
        settings = {
            "HOME": self.home,
            "TMPDIR": self.temporary,
            "JAXAUDIT_CACHE": self.cache,
            "JAXAUDIT_DATA": self.input,
        }
        os.environ.update({name: str(path) for name, path in settings.items()})
        tempfile.tempdir = str(self.temporary)
        os.environ.pop("TFDS_DATA_DIR", None)

    def lay_out(self, tree: Tree) -> None:
        shutil.rmtree(self.input, ignore_errors=True)
        shutil.rmtree(self.cache, ignore_errors=True)
        self.input.mkdir()
        self.cache.mkdir()
        lay_out(tree, self.input, self.outside)

    def state(self, writes: bool) -> dict[str, object]:
        """What must be the same afterwards: all but the cache, and the input of those that work there."""
        parts = (self.outside, self.home, self.temporary, self.folder / "here", *(() if writes else (self.input,)))
        return {f"{part.name}/{name}": found for part in parts for name, found in state(part).items()}

    def drafts(self) -> list[str]:
        found = [path for part in (self.input, self.cache) for path in part.rglob(".writing*")]
        return [str(path.relative_to(self.folder)) for path in found]


def watched(room: Room, read: Callable[[], object], reader: Reader) -> Outcome:
    """Reads the case that lies in the room."""
    before, modules = room.state(reader.writes), set(sys.modules)
    given = room.drafts()
    gc.collect()
    forget_peak()
    start = memory("VmRSS")
    limit_cpu(CPU_SECONDS)
    try:
        outcome = called(read)
    finally:
        growth = memory("VmHWM") - start
        limit_cpu(60)
    gc.collect()  # what is only said when an object goes belongs to this case
    printed = room.output.read_bytes()
    os.truncate(room.output, 0)
    if not outcome.good:
        return outcome
    if growth > MOST_GROWTH:
        return Outcome("memory", outcome.kind, f"{growth >> 20} MiB above the start, then {outcome.said or 'read'}")
    new = {name.partition(".")[0] for name in set(sys.modules) - modules} - {n.partition(".")[0] for n in modules}
    if new:
        return Outcome("import", ", ".join(sorted(new)), "imported while reading")
    after = room.state(reader.writes)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if names:
        return Outcome("leftover", names[0].partition("/")[0], f"changed or left: {names[:5]}")
    if drafts := [name for name in room.drafts() if name not in given]:
        return Outcome("leftover", "draft", f"left: {drafts[:5]}")
    return Outcome("noise", "", printed.decode("utf-8", "replace")[:2000]) if printed else outcome


def called(read: Callable[[], object]) -> Outcome:
    try:
        read()
    except InputError as error:
        return judged(str(error), place(error))
    except MemoryError as error:
        return Outcome("memory", f"MemoryError at {place(error)}", text_of(error))
    except Exception as error:
        return Outcome("exception", f"{type(error).__name__} at {place(error)}", text_of(error))
    return Outcome("read")


def judged(message: str, where: str) -> Outcome:
    """A refusal, where it is one line for a person, and shows nobody's record."""
    if len(message) > LONGEST_MESSAGE:
        return Outcome("message", f"{len(message) // 1000 * 1000} characters at {where}", message[:300])
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in message):
        return Outcome("message", f"control characters at {where}", repr(message))
    if any(secret in message for secret in SECRETS):
        return Outcome("cell", where, f"shows a cell: {message}")
    return Outcome("refused", where, message)


def text_of(error: BaseException) -> str:
    file = io.StringIO()
    traceback.print_exception(error, limit=-6, file=file)
    return file.getvalue()[-3000:]


def place(error: BaseException) -> str:
    """The innermost line of the package that it passed; an `InputError`'s cause says no more."""
    found = "?"
    for frame in traceback.extract_tb(error.__traceback__):
        if "/jaxaudit/" in frame.filename:
            found = f"{frame.filename.rpartition('/jaxaudit/')[2]}:{frame.lineno} {frame.name}"
    return found


def memory(field: str) -> int:
    """This process's memory in bytes: what it has (`VmRSS`), or the most it had (`VmHWM`)."""
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(f"{field}:".encode()):
                return int(line.split()[1]) << 10
    return 0


def forget_peak() -> None:
    """From now on `VmHWM` counts anew."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def limit_cpu(seconds: int) -> None:
    """So much more CPU time until the system ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    now = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(now) + 1 + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
