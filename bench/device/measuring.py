"""What the pieces share: what was asked for, what came out, and contenders that take turns within bounds of time."""

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from statistics import median
from typing import Any, NamedTuple

import jax

from bench.harness import Bench, Claim, Spread, Timings

JAXAUDIT = "jaxaudit"
ABSENT = "not installed, or not importable"
UNIT = 1000
"""Model-steps that the times of training are for."""
RIVALS = ("eager", "graph", "ensemble", "ensemble graph", "compiled", "compiled graph", "ensemble compiled graph")
"""PyTorch's forms, those first that take the least time to prepare."""


@dataclass(frozen=True)
class Asked:
    """How a piece is to be measured.

    Attributes:
        reduced: in sizes that show only that it runs.
        rivals: the forms of PyTorch that are timed.
        deadline: of the piece, by `time.monotonic`; what has not begun by then is left out.
    """

    reduced: bool
    rivals: tuple[str, ...]
    deadline: float

    @property
    def gpu(self) -> bool:
        """Whether the device at hand is an accelerator."""
        return jax.default_backend() != "cpu"

    @property
    def rounds(self) -> int:
        """How often contenders take turns."""
        return 2 if self.reduced else 3

    @property
    def region(self) -> float:
        """Seconds that a contender is timed for in a round, about."""
        return 0.02 if self.reduced else 0.4

    def within(self, part: float) -> "Asked":
        """The same within this share of the time that is left."""
        now = time.monotonic()
        return replace(self, deadline=now + part * (self.deadline - now))

    @property
    def late(self) -> bool:
        """Whether nothing more should begin."""
        return time.monotonic() > self.deadline


@dataclass
class Outcome:
    """What a piece has come to so far.

    Attributes:
        left_out: what was not measured, with reasons.
        tables: further numbers, by title: a header and rows of text.
        chosen: the models a batch and the form, where they were chosen; kept for a later call.
    """

    piece: str
    timings: list[Timings] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    chosen: dict[str, Any] | None = None

    @property
    def bench(self) -> Bench:
        """As every bench reports."""
        return Bench(f"device: {self.piece}", self.timings, self.claims, self.notes)

    def say(self, text: str) -> None:
        """Prints at once."""
        print(f"{self.piece}: {text}", flush=True)

    def leave_out(self, name: str, reason: object) -> None:
        """Says what is not measured, and why."""
        words = f"{type(reason).__name__}: {str(reason).strip()[:160]}" if isinstance(reason, Exception) else reason
        self.left_out.append(f"{name}: {' '.join(str(words).split())}")
        self.say(f"without {self.left_out[-1]}")

    def promise(self, asked: Asked, text: str, ratio: Spread, bound: float) -> None:
        """A claim on a GPU; on a CPU, for which nothing is promised, and in reduced sizes, a note."""
        if asked.gpu and not asked.reduced:
            self.claims.append(Claim(text, ratio, bound))
        else:
            self.notes.append(f"{text}: {ratio.median:.3g} ({ratio.low:.3g} to {ratio.high:.3g})")


class Contender(NamedTuple):
    """`work(times)` does its work so many times and returns when it is done; `units` is how much each time."""

    work: Callable[[int], Any]
    units: float = 1.0


def library(name: str) -> Any:
    """The module, or None where it is not installed or cannot be imported."""
    try:
        return importlib.import_module(name)
    except Exception:  # a library of another version of PyTorch fails in its own ways
        return None


def in_turns(
    asked: Asked, outcome: Outcome, case: str, builders: Mapping[str, Callable[[], Contender]], *, unit: float = 1.0
) -> Timings:
    """Seconds for `unit` units of each contender that can be built here, in turns.

    Building, the first call and a second one, which says how many calls fill the timed region, are not timed. A
    contender that fails is left out, but for the first. When the piece is late, the others are left out, and there is
    one round.
    """
    ready: dict[str, tuple[Contender, int]] = {}
    for name, build in builders.items():
        if ready and asked.late:
            outcome.leave_out(f"{case}, {name}", "no time was left")
            continue
        began = time.perf_counter()
        try:
            contender = build()
            contender.work(1)
            once = _seconds(contender, 1)
        except Exception as error:  # no compiler, or no memory: the others still count
            if not ready:
                raise
            outcome.leave_out(f"{case}, {name}", error)
            continue
        ready[name] = contender, min(1000, max(1, ceil(asked.region / once)))
        took = time.perf_counter() - began
        outcome.say(f"{case}, {name}: {1e3 * unit * once / contender.units:,.4g} ms, ready after {took:.1f} s")
    names, seconds = list(ready), {name: list[float]() for name in ready}
    for turn in range(asked.rounds):
        if turn and asked.late:
            outcome.notes.append(f"{case}: {turn} of {asked.rounds} rounds, as no time was left")
            break
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            contender, times = ready[name]
            seconds[name].append(unit * _seconds(contender, times) / times / contender.units)
    timings = Timings(case, seconds)
    outcome.timings.append(timings)
    for name in names[1:]:
        outcome.say(f"{case}: {name} / {names[0]} {timings.ratio(name, names[0]).median:.3g}")
    return timings


def fastest(timings: Timings, among: Callable[[str], bool] = lambda name: not name.startswith(JAXAUDIT)) -> str | None:
    """The contender with the least median, of others than ours."""
    names = [name for name in timings.seconds if among(name)]
    return min(names, key=lambda name: median(timings.seconds[name]), default=None)


def compare(asked: Asked, outcome: Outcome, timings: Timings, name: str, bound: float | None) -> None:
    """The claim, or without a bound the note, about the fastest rival."""
    rival = fastest(timings)
    if rival is None:
        outcome.notes.append(f"{timings.case}: there is no rival to compare with")
    elif bound is None:
        ratio = timings.ratio(rival, name)
        outcome.notes.append(
            f"{timings.case}: {rival} / {name}: {ratio.median:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
        )
    else:
        outcome.promise(asked, f"{timings.case}: {rival} / {name}", timings.ratio(rival, name), bound)


def _seconds(contender: Contender, times: int) -> float:
    start = time.perf_counter()
    jax.block_until_ready(contender.work(times))
    return time.perf_counter() - start
