"""What the installed packages weigh: all that jaxaudit needs, the heaviest, and what leaving out each one would free.

Run as `python footprint.py [EXTRA ...]` in an environment where it is installed; with extras, what these add.
"""

import os
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

from packaging.requirements import Requirement

MIB = 2**20
Asked = tuple[str, tuple[str, ...]]
"""A package, and the extras asked of it."""


def plain(name: str) -> str:
    """A package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def weight(found: Distribution) -> float:
    """MiB of its files."""
    paths = (found.locate_file(file) for file in found.files or ())
    return sum(os.path.getsize(str(path)) for path in paths if os.path.isfile(str(path))) / MIB


def needs(found: Distribution, extras: tuple[str, ...]) -> set[Asked]:
    """What it asks for on this system."""
    asked = map(Requirement, found.requires or ())
    return {
        (plain(each.name), tuple(sorted(each.extras)))
        for each in asked
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
    }


def closure(start: Iterable[Asked], there: dict[str, Distribution]) -> set[str]:
    """Everything that these lead to."""
    seen: set[Asked] = set()
    waiting = list(start)
    while waiting:
        each = waiting.pop()
        if each not in seen and each[0] in there:
            seen.add(each)
            waiting += needs(there[each[0]], each[1])
    return {name for name, _ in seen}


def main(extras: tuple[str, ...]) -> None:
    """Prints a table."""
    there = {plain(each.metadata["Name"]): each for each in distributions()}
    weights = {name: weight(found) for name, found in there.items()}
    asked = needs(there["jaxaudit"], ())
    every = closure(asked, there)
    print(f"plain: {sum(weights[name] for name in every):,.0f} MiB in {len(every)} packages")
    if extras:
        added = closure(needs(there["jaxaudit"], extras), there) - every
        print(f"{', '.join(extras)}: {sum(weights[name] for name in added):,.0f} MiB more in {len(added)} packages")
        every = added
    for name in sorted(every, key=lambda name: -weights[name])[:12]:
        print(f"  {name:<24}{weights[name]:8.1f}")
    if not extras:
        print("freed by leaving one out:")
        for each in sorted(asked):
            freed = closure(asked, there) - closure(asked - {each}, there)
            if sum(weights[name] for name in freed) > 1:
                print(f"  {each[0]:<24}{sum(weights[name] for name in freed):8.1f}")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
