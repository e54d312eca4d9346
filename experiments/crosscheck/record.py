"""What a cross-check says, and where it is kept."""

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"
ALWAYS = ("jaxaudit", "jax", "numpy")


class Check(NamedTuple):
    """One number of ours against another tool's.

    Attributes:
        ours: the function of jaxaudit.
        theirs: the other tool's.
        what: what was compared on what, and, where the definitions are not the same, how they were made so.
        difference: the largest, in the unit that `what` names.
        tolerance: what it may be, and
        because: why so much.
    """

    ours: str
    theirs: str
    what: str
    difference: float
    tolerance: float
    because: str

    @property
    def holds(self) -> bool:
        return bool(self.difference <= self.tolerance)


def run(name: str, check: Callable[[], list[Check]], packages: tuple[str, ...], directory: Path = RESULTS) -> None:
    """Checks, prints, and writes `NAME.json`; the exit status is 1 where a difference is above its tolerance."""
    started = time.time()
    checks = check()
    record = {
        "crosscheck": name,
        "versions": {package: version(package) for package in (*ALWAYS, *packages)},
        "python": platform.python_version(),
        "seconds": round(time.time() - started, 1),
        "checks": [
            {
                **one._asdict(),
                "difference": float(one.difference),
                "tolerance": float(one.tolerance),
                "holds": one.holds,
            }
            for one in checks
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    for one in checks:
        print(f"{'ok ' if one.holds else 'NOT'} {one.difference:.2g} (at most {one.tolerance:.2g}): {one.what}")
    sys.exit(0 if all(one.holds for one in checks) else 1)
