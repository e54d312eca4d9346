"""Processes that read cases, and the one that watches them: a killed or hanging worker is a finding, not the end."""

import contextlib
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.cases import Case
from fuzz.places import Tree, load_tree
from fuzz.readers import Reader
from fuzz.watch import MOST_GROWTH, Outcome, Room, called, memory, text_of, watched

STILL_SECONDS = 10.0
"""A process that uses no time for so long, and is not waiting for the processor, hangs."""
PATIENCE = 200.0
LATE = ("attr", "rich.markdown", "tensorflow_datasets", "tracemalloc")
"""Imported where a name is unknown, for help, and by warnings: valid inputs need none of them."""
BACKSTOP = 4 * MOST_GROWTH
FORK = multiprocessing.get_context("fork")


class Job(NamedTuple):
    reader: str
    index: int


class Corpus(NamedTuple):
    """The valid input of every reader, and which of them cannot be read as they are."""

    trees: dict[str, Tree]
    broken: dict[str, Outcome]


def make_corpus(readers: dict[str, Reader], folder: Path, read: bool = True) -> Corpus:
    """Makes and reads every valid input in a process of its own, then imports what that process had to import."""
    child = FORK.Process(target=_make, args=(readers, folder, read))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"the corpus cannot be made (status {child.exitcode})")
    said = json.loads((folder / "said.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in said["modules"]:
            if name not in sys.modules and not name.startswith("__"):
                with contextlib.suppress(Exception):
                    __import__(name)
    trees = {name: load_tree(folder / name) for name in readers}
    gc.collect()
    gc.freeze()
    return Corpus(trees, {name: Outcome(*outcome) for name, outcome in said["broken"].items()})


def _make(readers: dict[str, Reader], folder: Path, read: bool) -> None:
    broken = {}
    os.environ["JAXAUDIT_CACHE"] = str(folder / "cache")
    for name, reader in readers.items():
        (folder / name).mkdir()
        reader.make(folder / name)
    for name, reader in readers.items() if read else ():
        copy = folder / "copies" / name
        shutil.copytree(folder / name, copy)
        os.environ["JAXAUDIT_DATA"] = str(copy)
        outcome = called(lambda reader=reader, copy=copy: reader.read(copy, Plain()))
        if outcome.kind != "read":
            broken[name] = outcome
    for module in LATE if read else ():
        importlib.import_module(module)
    modules = [name for name, module in sys.modules.items() if module is not None]
    (folder / "said.json").write_text(json.dumps({"broken": broken, "modules": modules}))


class Plain(random.Random):
    """Chooses the first of everything."""

    def choice(self, seq):
        return seq[0]


class Worker:
    """A process that reads one case after another."""

    def __init__(self, corpus: Corpus, readers: dict[str, Reader], seed: int, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.line, theirs = FORK.Pipe()
        self.process = FORK.Process(target=_serve, args=(corpus, readers, seed, folder, self.line, theirs))
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.began = self.moved = time.monotonic()
        self.used = -1

    def give(self, job: Job) -> None:
        self.job, self.used = job, -1
        self.began = self.moved = time.monotonic()
        self.line.send(job)

    def answer(self) -> tuple[Outcome, list[str]]:
        """What came of its case, once there is something to read; the death of the process is an outcome, too."""
        try:
            return self.line.recv()
        except (EOFError, OSError):
            return self.end()

    def end(self, why: str = "") -> tuple[Outcome, list[str]]:
        """Ends the process, if it has not ended; why it did, and what it was reading."""
        if why and self.process.pid:
            os.kill(self.process.pid, signal.SIGUSR1)  # says where it is
            time.sleep(0.3)
        if why or self.job is None:
            self.process.kill()
        self.process.join()
        self.line.close()
        text = self._told("faults")
        text = text[max(0, text.find("Current thread")) :]  # another's, where it is the code of a library that waits
        said = self._told("said").splitlines()
        shutil.rmtree(self.folder, ignore_errors=True)
        number = max(0, -(self.process.exitcode or 0))
        kind = why or ("cpu" if number == signal.SIGXCPU else "crash")
        where = f"{stopped_at(text)}{'' if why or kind == 'cpu' else f' (signal {number})'}"
        return Outcome(kind, where, "\n".join(text.splitlines()[:10])), said

    def _told(self, name: str) -> str:
        path = self.folder / name
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def hangs(self) -> bool:
        """Whether it has stood still, or been at its case, for too long."""
        now = time.monotonic()
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        used = int(fields[11]) + int(fields[12])
        if used != self.used or fields[0] in "RD":
            self.used, self.moved = used, now
        return now - self.moved > STILL_SECONDS or now - self.began > PATIENCE


def stopped_at(text: str) -> str:
    """The innermost line of the package in what `faulthandler` wrote of the main thread."""
    found = re.search(r'File ".*?/jaxaudit/([^"]+)", line (\d+) in (\S+)', text)
    return f"{found[1]}:{found[2]} {found[3]}" if found else "?"


def _serve(corpus: Corpus, readers: dict[str, Reader], seed: int, folder: Path, theirs: Any, line: Any) -> None:
    theirs.close()
    faults = (folder / "faults").open("w")
    faulthandler.enable(faults)
    faulthandler.register(signal.SIGXCPU, faults, chain=True)
    faulthandler.register(signal.SIGUSR1, faults)
    output = folder / "output"
    descriptor = os.open(output, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    own = os.dup(2)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + BACKSTOP, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
    warnings.simplefilter("always", append=True)  # not only once a line, behind what is never shown
    for category in quiet:
        warnings.simplefilter("ignore", category)
    room = Room(folder / "room", output)
    try:
        while True:
            name, index = line.recv()
            reader = readers[name]
            said = [f"case {index} could not be made"]
            (folder / "said").write_text(said[0])
            try:
                case = Case(seed, name, index, corpus.trees[name], reader.writes)
                room.lay_out(case.tree)
            except Exception as error:
                outcome = Outcome("fuzzer", repr(error), text_of(error))
            else:
                said = case.said
                (folder / "said").write_text("\n".join(said), "utf-8", "backslashreplace")
                del case.tree
                outcome = watched(room, lambda r=reader, c=case: r.read(room.input, c.options), reader)
            line.send((outcome, said))
    except EOFError:
        pass  # the process that watches has gone
    except BaseException:
        os.dup2(own, 2)
        raise


def run(
    jobs: Iterator[Job], corpus: Corpus, readers: dict[str, Reader], seed: int, folder: Path, processes: int
) -> Iterator[tuple[Job, Outcome, list[str]]]:
    """What comes of every case, in the order in which they end."""
    started = 0
    workers: list[Worker] = []
    waiting: Job | None = next(jobs, None)
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                started += 1
                workers.append(Worker(corpus, readers, seed, folder / f"worker{started}"))
                workers[-1].give(waiting)
                waiting = next(jobs, None)
            ready = wait([worker.line for worker in workers], 0.25)
            for worker in list(workers):
                if worker.line in ready:
                    job, (outcome, said) = worker.job, worker.answer()
                elif worker.hangs():
                    job, (outcome, said) = worker.job, worker.end("hang")
                else:
                    continue
                assert job is not None
                gone = outcome.kind in ("hang", "cpu", "crash")
                if not gone and (outcome.kind == "memory" or waiting is None):
                    worker.job = None
                    worker.end()
                    gone = True
                if gone:
                    workers.remove(worker)
                elif waiting:
                    worker.give(waiting)
                    waiting = next(jobs, None)
                yield job, outcome, said
    finally:
        for worker in workers:
            worker.job = None
            worker.end()
