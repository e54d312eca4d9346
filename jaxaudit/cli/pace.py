"""How long a run takes, by counted operations, and what an effort leaves out. Numbers in, words out."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxaudit.cli.progress import duration
from jaxaudit.ensemble import StepCost
from jaxaudit.ensemble.execution import EQUATIONS_A_SECOND, OPERATIONS_A_SECOND

FIXED_SECONDS = 10.0
"""Seconds for reading, judging, and compiling what is small."""


def seconds_of(operations: float, cost: StepCost) -> float:
    """How long a run of so many operations takes on two cores of a CPU, compilation included: a function of shapes."""
    return round(operations / OPERATIONS_A_SECOND + cost.equations / EQUATIONS_A_SECOND + FIXED_SECONDS, 1)


def time_of(operations: float, cost: StepCost) -> str:
    """As `seconds_of`, in words."""
    return f"about {duration(seconds_of(operations, cost))} on two cores of a CPU"


class PlannedSize(NamedTuple):
    """What an effort takes, what it leaves out, and by how much the minimum detectable fraction is then larger."""

    operations: float
    reduced: Sequence[str]
    effect: float = 1.0


def lines_of_effort(reached: PlannedSize, in_full: float, cost: StepCost) -> list[str]:
    """Lines of a printed plan: what it leaves out, and how long a run takes that leaves nothing out (`in_full`)."""
    if not reached.reduced:
        return []
    lines = [f"  reduced: {'; '.join(reached.reduced)}"]
    if reached.effect > 1.01:
        lines.append(f"  effect: the minimum detectable fraction is about {reached.effect:.1f} times as large")
    return [*lines, f"  --effort full: {time_of(in_full, cost)}; nothing reduced"]


def numbers_of_effort(effort: str, reached: PlannedSize, in_full: float, cost: StepCost) -> dict[str, object]:
    """The same as `lines_of_effort`, as fields for `--json`; `effort` is the name of the run's effort."""
    return {
        "effort": effort,
        "operations": reached.operations,
        "seconds": seconds_of(reached.operations, cost),
        "reduced": list(reached.reduced),
        "seconds_in_full": seconds_of(in_full, cost),
    }
