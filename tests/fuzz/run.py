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

from fuzz.cases import Case
from fuzz.places import lay_out
from fuzz.readers import Reader, all_readers, turns
from fuzz.watch import Outcome
from fuzz.workers import Job, make_corpus, run

CANARY = "import pathlib\n\npathlib.Path(__file__).with_name('ran').touch()\nThing = None\n"


def main(words: Sequence[str]) -> int:
    """Runs the cases that the words ask for; 1 where there is a finding."""
    options = parsed(words)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place)
        (folder / "modules").mkdir()
        (folder / "modules" / "fuzz_canary.py").write_text(CANARY)
        sys.path.insert(0, str(folder / "modules"))
        readers = chosen(all_readers(options.planted), options.reader)
        if not readers:
            print(f"no reader is called {options.reader}")
            return 2
        (folder / "corpus").mkdir()
        began = time.monotonic()
        corpus = make_corpus(readers, folder / "corpus", not options.planted)
        findings = [(Job(name, -1), each, ["the valid input"]) for name, each in corpus.broken.items()]
        counts: dict[str, Counter[str]] = {name: Counter() for name in readers}
        if options.case is not None and options.keep:
            name, reader = next(iter(readers.items()))
            case = Case(options.seed, name, options.case, corpus.trees[name], reader.writes)
            Path(options.keep).mkdir(parents=True)
            lay_out(case.tree, Path(options.keep), folder / "outside")
        jobs = (
            iter([Job(next(iter(readers)), options.case)])
            if options.case is not None
            else shared(options.cases, readers)
        )
        for job, outcome, said in run(jobs, corpus, readers, options.seed, folder, options.processes):
            counts[job.reader][outcome.kind] += 1
            if options.planted:
                print(f"{job.reader} {outcome.kind}")
            if not outcome.good:
                findings.append((job, outcome, said))
                if options.say or options.case is not None:
                    print(shown(job, outcome, said, options.seed), flush=True)
            elif options.case is not None:
                print(f"{outcome.kind}: {outcome.said}\n  {said}")
        seconds = time.monotonic() - began
    if options.case is None:
        print(table(counts))
        print("".join(f"\n{shown(*first, options.seed, times)}\n" for first, times in distinct(findings)), end="")
        total = sum(count.total() for count in counts.values())
        good = sum(count["read"] + count["refused"] for count in counts.values())
        print(
            f"\n{total:,} cases of {len(readers)} readers, seed {options.seed}, in {seconds:.0f} s: {good:,} read or "
            f"refused as they should be, {len(findings)} findings ({len(distinct(findings))} different)."
        )
    return 1 if findings else 0


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser("python -m fuzz", description="Fuzzes everything that reads strangers' files.")
    parser.add_argument("--cases", type=int, default=1000, help="how many, over all readers (1000)")
    parser.add_argument("--seed", type=int, default=7, help="other cases for another number (7)")
    parser.add_argument("--reader", default="", help="those whose names hold one of these words, between commas")
    parser.add_argument("--case", type=int, help="one case of one reader again, and what was done to its files")
    parser.add_argument("--keep", help="a folder to be made, for the files of that case")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at the same time (one a core)")
    parser.add_argument("--say", action="store_true", help="every finding at once, not only at the end")
    parser.add_argument("--planted", action="store_true", help="readers that do all that none may, instead")
    return parser.parse_args(words)


def chosen(readers: dict[str, Reader], words: str) -> dict[str, Reader]:
    """The readers called so, or whose names hold one of the words, between commas."""
    if words in readers:
        return {words: readers[words]}
    return {name: each for name, each in readers.items() if any(word in name for word in words.split(","))}


def shared(cases: int, readers: dict[str, Reader]) -> Iterator[Job]:
    """The readers in turn, each with numbers of its own from 0."""
    numbers = {name: itertools.count() for name in readers}
    for name in itertools.islice(itertools.cycle(turns(readers)), cases):
        yield Job(name, next(numbers[name]))


def distinct(findings: list[tuple[Job, Outcome, list[str]]]) -> list[tuple[tuple[Job, Outcome, list[str]], int]]:
    """The first finding of each kind and place, and how often it was found; the commonest first."""
    first: dict[tuple[str, str], tuple[Job, Outcome, list[str]]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for job, outcome, said in findings:
        key = (outcome.kind, outcome.where if outcome.kind != "memory" else f"{job.reader} {outcome.where}")
        first.setdefault(key, (job, outcome, said))
        times[key] += 1
    return [(first[key], count) for key, count in times.most_common()]


def shown(job: Job, outcome: Outcome, said: list[str], seed: int, times: int = 1) -> str:
    """A finding, with the command that repeats it."""
    changes = "".join(f"\n    {line[:200]}" for line in said)
    text = "".join(f"\n    | {line[:300]}" for line in outcome.said.splitlines()[-14:])
    again = f"python -m fuzz --seed {seed} --reader {job.reader} --case {job.index}"
    found = f"{outcome.kind}: {outcome.where} ({times} times)\n    {again}{changes}{text}"
    return found.encode("utf-8", "backslashreplace").decode()


def table(counts: dict[str, Counter[str]]) -> str:
    """Outcomes by reader, as text."""
    kinds = sorted(
        {kind for count in counts.values() for kind in count}, key=lambda kind: (kind not in ("read", "refused"), kind)
    )
    width = max(map(len, counts), default=0)
    lines = [f"{'':{width}}" + "".join(f"{kind:>12}" for kind in kinds)]
    lines += [
        f"{name:{width}}" + "".join(f"{count[kind] or '':>12}" for kind in kinds) for name, count in counts.items()
    ]
    return "\n".join(lines)
