"""What every bench does the same way: time side by side, take ratios with their spread, print, write JSON.

Contenders are timed in turn within a round, and the order turns from round to round, so that a slow spell of
the machine falls on all of them. A claim is about the ratio of two contenders in the same round; its spread is the
smallest and the largest ratio of any round.
"""

import json
import os
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Spread:
    """The middle and the extremes of repeated measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Timings:
    """Seconds of each contender in each round of one case."""

    case: str
    seconds: dict[str, list[float]]

    def ratio(self, numerator: str, denominator: str) -> Spread:
        """Time of one contender over that of another, round by round: above 1, the second is faster."""
        pairs = zip(self.seconds[numerator], self.seconds[denominator], strict=True)
        return Spread.of([above / below for above, below in pairs])


@dataclass(frozen=True)
class Claim:
    """A ratio that has been promised: at least `bound` where `at_least`, else at most."""

    text: str
    ratio: Spread
    bound: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """Whether the median keeps the promise."""
        return self.ratio.median >= self.bound if self.at_least else self.ratio.median <= self.bound


@dataclass(frozen=True)
class Bench:
    """Everything one bench found; `notes` say what the numbers do not."""

    name: str
    timings: list[Timings]
    claims: list[Claim]
    notes: list[str] = field(default_factory=list)


def interleave(
    case: str, contenders: Mapping[str, Callable[[], Any]], rounds: int, *, untimed_before: bool = False
) -> Timings:
    """Run every contender once to warm up (compilation is not timed), then once in each round, in turn.

    With `untimed_before` an untimed call comes right before every timed one: for calls of some milliseconds on virtual
    machines that take away memory which was idle for a tenth of a second, and take long to give it back.
    """
    for contend in contenders.values():
        jax.block_until_ready(contend())
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if untimed_before:
                jax.block_until_ready(contenders[name]())
            start = time.perf_counter()
            jax.block_until_ready(contenders[name]())
            seconds[name].append(time.perf_counter() - start)
    return Timings(case, seconds)


def peak_mebibytes() -> float:
    """The largest resident set of this process; not of the one it was forked from, as `getrusage` has it on Linux."""
    return _resident("VmHWM")


def resident_mebibytes() -> float:
    """The resident set of this process now; on systems other than Linux, the largest so far."""
    return _resident("VmRSS")


def _resident(kind: str) -> float:
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith(kind))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """What the numbers depend on: processor, cores, accelerator, versions, and how busy the machine was."""
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "devices": jax.device_count(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in packages},
    }


def report(bench: Bench, packages: Sequence[str], path: Path | None = None) -> Path:
    """Print the tables and write JSON, by default `results/<bench>-<device>.json`; with `cpu` or the GPU's kind."""
    about = machine(packages)
    print(f"{bench.name}: {about['cpu']}, {about['cores']} cores, {about['device']}, load {about['load']}")
    print(" ".join(f"{name} {number}" for name, number in about["versions"].items()), end="\n\n")
    print_bench(bench)
    return write_json(content(bench, about), path or RESULTS / f"{bench.name}-{device_slug()}.json")


def print_bench(bench: Bench) -> None:
    """The tables of times and claims, and the notes."""
    rows = [
        [timings.case, name, *(_milliseconds(part) for part in _parts(Spread.of(seconds))), str(len(seconds))]
        for timings in bench.timings
        for name, seconds in timings.seconds.items()
    ]
    print_table(["case", "contender", "median ms", "low", "high", "rounds"], rows)
    rows = [
        [
            claim.text,
            *(f"{part:.2f}" for part in _parts(claim.ratio)),
            f"{'>=' if claim.at_least else '<='} {claim.bound:g}",
            "yes" if claim.holds else "NO",
        ]
        for claim in bench.claims
    ]
    print_table(["claim", "ratio", "low", "high", "promised", "holds"], rows)
    print(*bench.notes, sep="\n", flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table: names flush left, numbers flush right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if column == 0 or cell[:1].isalpha() else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print()


def content(bench: Bench, about: dict[str, Any]) -> dict[str, Any]:
    """What is written of a bench."""
    return {
        "bench": bench.name,
        "machine": about,
        "timings": [
            {"case": timings.case, "contender": name, "seconds": asdict(Spread.of(seconds)), "rounds": len(seconds)}
            for timings in bench.timings
            for name, seconds in timings.seconds.items()
        ],
        "claims": [
            {
                "claim": claim.text,
                "ratio": asdict(claim.ratio),
                "promised": f"{'at least' if claim.at_least else 'at most'} {claim.bound:g}",
                "holds": claim.holds,
            }
            for claim in bench.claims
        ],
        "notes": bench.notes,
    }


def write_json(value: dict[str, Any], path: Path) -> Path:
    """Writes a result, its numbers rounded, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(_rounded(value), indent=2) + "\n")
    return part.replace(path)


def device_slug() -> str:
    """`cpu`, or the kind of the accelerator, as names of files spell it."""
    if jax.default_backend() == "cpu":
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", jax.devices()[0].device_kind.lower()).strip("-")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _parts(spread: Spread) -> tuple[float, float, float]:
    return spread.median, spread.low, spread.high


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


def _rounded(value: Any) -> Any:
    """Four significant digits: more would be noise in every diff."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
