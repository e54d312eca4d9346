"""The command line: from options to cases, and from outcomes to a table and a status."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fuzz.cases import Reader
from fuzz.forks import Batch, make_corpus, run


def main(words: Sequence[str]) -> int:
    """Runs the cases that the words ask for; 1 where there is a finding."""
    parser = argparse.ArgumentParser("python -m fuzz", description="Fuzzes everything that reads strangers' files.")
    parser.add_argument("--cases", type=int, default=1000, help="how many, over all readers (1000)")
    parser.add_argument("--seed", type=int, default=7, help="other cases for another number (7)")
    parser.add_argument("--reader", default="", help="those whose names hold this")
    parser.add_argument("--case", type=int, help="one case of one reader again, and what was done to its files")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at the same time (one a core)")
    parser.add_argument("--planted", action="store_true", help="readers that do all that none may, instead")
    options = parser.parse_args(words)
    every = all_readers(options.planted)
    names = [name for name in every if options.reader in name]
    readers = {name: every[name] for name in ([options.reader] if options.reader in names else names)}
    if not readers:
        parser.error(f"no reader is called {options.reader}")
    cases = [range(len(range(place, options.cases, len(readers)))) for place in range(len(readers))]
    if options.case is not None:
        cases = [range(options.case, options.case + 1)]
    batches = [Batch(*each) for each in zip(readers, cases, strict=False)]
    began, findings, counts = time.monotonic(), {}, {name: Counter[str]() for name in readers}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        corpus = make_corpus(readers, Path(place), not options.planted)
        for name, index, said, outcome in run(batches, corpus, readers, options.seed, Path(place), options.processes):
            counts[name][outcome.kind] += 1
            if not outcome.good or options.case is not None:
                findings.setdefault((outcome.kind, outcome.where), (name, index, said, outcome))
    for name, count in counts.items():
        print(name, *(f"{times} {kind}" for kind, times in sorted(count.items())))
    for name, index, said, outcome in findings.values():
        again = f"python -m fuzz --seed {options.seed} --reader {name} --case {index}"
        text = [f"| {line[:300]}" for line in outcome.said.splitlines()[-14:]]
        lines = [f"\n{outcome.kind}: {outcome.where}", again, *(line[:200] for line in said), *text]
        print("\n    ".join(lines).encode("utf-8", "backslashreplace").decode())
    total, seconds = sum(count.total() for count in counts.values()), time.monotonic() - began
    found = sum(not outcome.good for *_, outcome in findings.values())
    print(f"\n{total:,} cases of {len(readers)} readers in {seconds:.0f} s: {found} different findings.")
    return 1 if found else 0


def all_readers(planted: bool) -> dict[str, Reader]:
    """Every reader by its name; those that were made to be found, instead."""
    # Imported here because they import what they fuzz, and that takes seconds.
    if planted:
        from fuzz.planted import READERS

        return {reader.name: reader for reader in READERS}
    from fuzz import banks, language_models, results, sets, tables

    modules = (sets, results, language_models, banks, tables)
    return {reader.name: reader for module in modules for reader in module.READERS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
