"""Forked processes that read cases under watch; each is over with its first finding, and its death is one."""

import contextlib
import faulthandler
import gc
import importlib
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from support.memory import resident_at_most

from fuzz import odd
from fuzz.cases import Reader, Tree, lay_out, load_tree, make_case, state
from jaxaudit.errors import InputError

CPU_SECONDS = 5
PATIENCE = 30
"""Seconds of a clock after which what has not used its CPU seconds hangs."""
MOST_GROWTH = 2**30
BACKSTOP = 2**33
LONGEST_MESSAGE = 1600
LONGEST_BATCH = 25
KEPT = ("input", "outside", "tmp", "home", "made")
FORK = multiprocessing.get_context("fork")


class Batch(NamedTuple):
    """Cases of one reader, which one process reads: it compiles once."""

    reader: str
    cases: range


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


class Plain(random.Random):
    """Chooses the first of everything."""

    def choice(self, seq):
        return seq[0]


def make_corpus(readers: dict[str, Reader], folder: Path, read: bool) -> dict[str, Tree]:
    """Makes and reads every valid input in a process of its own, then imports what that process had to import."""
    (folder / "fuzz_canary.py").write_text("Thing = Model = Net = None\n")
    sys.path.insert(0, str(folder))
    child = FORK.Process(target=_make, args=(readers, folder, read))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"the corpus cannot be made (status {child.exitcode})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in json.loads((folder / "modules.json").read_text()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    trees = {name: load_tree(folder / "corpus" / name) for name in readers}
    gc.collect()
    gc.freeze()
    return trees


def _make(readers: dict[str, Reader], folder: Path, read: bool) -> None:
    os.environ["JAXAUDIT_CACHE"] = str(folder / "own")
    for name, reader in readers.items():
        place = folder / "corpus" / name
        place.mkdir(parents=True)
        reader.make(place)
        if read:
            (folder / name / "made").mkdir(parents=True)
            given = shutil.copytree(place, folder / name / "input")
            os.environ["JAXAUDIT_DATA"] = str(given)
            outcome = called(lambda reader=reader, given=given: reader.read(given, Plain()))
            if outcome.kind != "read":
                raise RuntimeError(f"{name} cannot read its valid input: {outcome}")
    (folder / "modules.json").write_text(json.dumps([name for name in sys.modules if not name.startswith("__")]))


def run(
    batches: list[Batch], corpus: dict[str, Tree], readers: dict[str, Reader], seed: int, folder: Path, processes: int
) -> Iterator[tuple[str, int, list[str], Outcome]]:
    """Reader and index of every case, what was done to its files, and what came of it."""
    waiting = [
        Batch(name, cases[start : start + LONGEST_BATCH])
        for name, cases in reversed(batches)
        for start in range(0, len(cases), LONGEST_BATCH)
    ]
    running, numbers = {}, itertools.count()
    while waiting or running:
        while waiting and len(running) < processes:
            batch, room = waiting.pop(), folder / f"room{next(numbers)}"
            room.mkdir()
            args = (batch, readers[batch.reader].read, corpus[batch.reader], seed, room)
            child = FORK.Process(target=_serve, args=args, daemon=True)
            child.start()
            running[child.sentinel] = child, batch, room
        for sentinel in wait(list(running)):
            child, batch, room = running.pop(sentinel)
            child.join()
            done = outcomes(child.exitcode, room)
            yield from ((batch.reader, index, *each) for index, each in zip(batch.cases, done, strict=False))
            if rest := batch.cases[len(done) :]:
                waiting.append(batch._replace(cases=rest))
            shutil.rmtree(room)


def outcomes(status: int, room: Path) -> list[tuple[list[str], Outcome]]:
    """What a process noted of its cases; of the last one, where it died, what is known of its death."""
    notes = [json.loads(line) for line in (room / "notes").read_text().splitlines()]
    done = [(said, Outcome(*outcome)) for said, outcome in zip(notes[::2], notes[1::2], strict=False)]
    if status:
        text = "".join((room / name).read_text("utf-8", "replace") for name in ("faults", "output"))
        # The innermost line of the package.
        found = re.search(r'File ".*?/jaxaudit/([^"]+)", line (\d+)', text)
        kind = "hang" if "Timeout (" in text else "cpu" if status == -signal.SIGXCPU else "crash"
        where = f"{found[1]}:{found[2]}" if found else f"status {status}"
        done.append((notes[-1] if len(notes) % 2 else [], Outcome(kind, where, text[:3000])))
    return done


def _serve(batch: Batch, read: Callable[..., object], base: Tree, seed: int, room: Path) -> None:
    """Reads the cases, each in a folder beside which there is everything that a reader might touch."""
    notes, faults, output = ((room / name).open("a") for name in ("notes", "faults", "output"))
    faulthandler.enable(faults)
    faulthandler.register(signal.SIGXCPU, faults, chain=True)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    resource.setrlimit(resource.RLIMIT_DATA, (BACKSTOP, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("always", append=True)  # not only once a line, behind what is never shown
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    for name in ("outside", "home", "tmp"):
        (room / name).mkdir()
    (room / "outside" / "kept").write_bytes(b"kept")
    tempfile.tempdir = str(room / "tmp")
    places = {"HOME": "home", "TMPDIR": "tmp", "JAXAUDIT_CACHE": "cache", "JAXAUDIT_DATA": "input"}
    os.environ.update({name: str(room / place) for name, place in places.items()})
    os.chdir(room / "outside")
    for index in batch.cases:
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=faults)
        tree, said, options = make_case(seed, batch.reader, index, base)
        print(json.dumps(said), file=notes, flush=True)
        for name in ("input", "cache", "made"):
            shutil.rmtree(room / name, ignore_errors=True)
            (room / name).mkdir()
        lay_out(tree, room / "input")
        del tree
        outcome = watched(room, lambda options=options: read(room / "input", options))
        print(json.dumps(outcome), file=notes, flush=True)
        if not outcome.good:
            break
    os._exit(0)


def watched(room: Path, read: Callable[[], object]) -> Outcome:
    """Reads the case that lies in the room: what came of it, and whether it left everything as it was."""
    before = {name: state(room / name) for name in KEPT}
    gc.collect()
    limit_cpu(CPU_SECONDS)
    outcome = Outcome("read")
    try:
        with resident_at_most(MOST_GROWTH):
            outcome = called(read)
    except AssertionError:
        outcome = outcome if not outcome.good else Outcome("memory", outcome.kind, f"more, then {outcome.said}")
    limit_cpu(60)
    gc.collect()  # what is only said when an object goes belongs to this case
    if not outcome.good:
        return outcome
    if "fuzz_canary" in sys.modules:
        return Outcome("import", "fuzz_canary", "code of the input ran")
    # What a command makes of what it read it may keep where it was told to.
    changed = [name for name in (KEPT if outcome.kind == "refused" else KEPT[:3]) if state(room / name) != before[name]]
    changed += [str(path) for path in (room / "cache").rglob(".writing*")]
    if changed:
        return Outcome("leftover", changed[0], f"not as it was: {changed}")
    printed = (room / "output").read_text("utf-8", "replace")
    return Outcome("noise", "", printed[:2000]) if printed else outcome


def called(read: Callable[[], object]) -> Outcome:
    try:
        read()
    except InputError as error:
        return judged(str(error), place(error))
    except Exception as error:
        kind = "memory" if isinstance(error, MemoryError) else "exception"
        text = "".join(traceback.format_exception(error, limit=-6))
        return Outcome(kind, f"{type(error).__name__} at {place(error)}", text[-3000:])
    return Outcome("read")


def judged(message: str, where: str) -> Outcome:
    """A refusal, where it is one line for a person, and shows nobody's record."""
    if len(message) > LONGEST_MESSAGE:
        return Outcome("message", f"{len(message) // 1000 * 1000} characters at {where}", message[:300])
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in message):
        return Outcome("message", f"control characters at {where}", repr(message))
    if any(secret in message for secret in (odd.SECRET, str(odd.SECRET_NUMBER), f"{float(odd.SECRET_NUMBER):g}")):
        return Outcome("cell", where, f"shows a cell: {message}")
    return Outcome("refused", where, message)


def place(error: BaseException) -> str:
    """The innermost line of the package that it passed; an `InputError`'s cause says no more."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/jaxaudit/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/jaxaudit/')[2]}:{frames[-1].lineno}" if frames else "?"


def limit_cpu(seconds: int) -> None:
    """So much more CPU time until the system ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    now = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(now) + 1 + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
