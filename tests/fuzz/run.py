"""From options to cases, and from outcomes to a table and a status."""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fuzz.readers import Reader, all_readers, turns
from fuzz.watch import Outcome
from fuzz.workers import Job, make_corpus, run

CANARY = "import pathlib\n\npathlib.Path(__file__).with_name('ran').touch()\nThing = None\n"


def main(words: Sequence[str]) -> int:
    """Runs the cases that the words ask for; 1 where there is a finding."""
    options = parsed(words)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place)
        for name in ("modules", "corpus"):
            (folder / name).mkdir()
        (folder / "modules" / "fuzz_canary.py").write_text(CANARY)
        sys.path.insert(0, str(folder / "modules"))
        readers = chosen(all_readers(options.planted), options.reader)
        if not readers:
            print(f"no reader is called {options.reader}")
            return 2
        began, name = time.monotonic(), next(iter(readers))
        corpus = make_corpus(readers, folder / "corpus", not options.planted)
        findings = {(each.kind, each.where): (Job(name, -1), each, []) for name, each in corpus.broken.items()}
        counts: dict[str, Counter[str]] = {name: Counter() for name in readers}
        jobs = shared(options.cases, readers) if options.case is None else iter([Job(name, options.case)])
        for job, outcome, said in run(jobs, corpus, readers, options.seed, folder, options.processes):
            counts[job.reader][outcome.kind] += 1
            if not outcome.good:
                findings.setdefault((outcome.kind, outcome.where), (job, outcome, said))
            elif options.case is not None:
                print(f"{outcome.kind}: {outcome.said}\n  {said}")
        seconds = time.monotonic() - began
    for name, count in counts.items():
        print(name, *(f"{times} {kind}" for kind, times in sorted(count.items())))
    for finding in findings.values():
        print(f"\n{shown(*finding, options.seed)}")
    total = sum(count.total() for count in counts.values())
    print(f"\n{total:,} cases of {len(readers)} readers in {seconds:.0f} s: {len(findings)} different findings.")
    return 1 if findings else 0


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m fuzz", description="Fuzzes everything that reads strangers' files.")
    parser.add_argument("--cases", type=int, default=1000, help="how many, over all readers (1000)")
    parser.add_argument("--seed", type=int, default=7, help="other cases for another number (7)")
    parser.add_argument("--reader", default="", help="those whose names hold one of these words, between commas")
    parser.add_argument("--case", type=int, help="one case of one reader again, and what was done to its files")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at the same time (one a core)")
    parser.add_argument("--planted", action="store_true", help="readers that do all that none may, instead")
    return parser.parse_args(words)


def chosen(readers: dict[str, Reader], words: str) -> dict[str, Reader]:
    if words in readers:
        return {words: readers[words]}
    return {name: each for name, each in readers.items() if any(word in name for word in words.split(","))}


def shared(cases: int, readers: dict[str, Reader]) -> Iterator[Job]:
    """The readers in turn, each with numbers of its own from 0."""
    numbers = {name: itertools.count() for name in readers}
    for name in itertools.islice(itertools.cycle(turns(readers)), cases):
        yield Job(name, next(numbers[name]))


def shown(job: Job, outcome: Outcome, said: list[str], seed: int) -> str:
    """A finding, with the command that repeats it."""
    again = f"python -m fuzz --seed {seed} --reader {job.reader} --case {job.index}"
    text = [f"| {line[:300]}" for line in outcome.said.splitlines()[-14:]]
    lines = [f"{outcome.kind}: {outcome.where}", again, *(line[:200] for line in said), *text]
    return "\n    ".join(lines).encode("utf-8", "backslashreplace").decode()
