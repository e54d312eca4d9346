"""How long a run takes, in words: by counted operations, which decide nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxaudit.cli.groups import ShadowRecipe
from jaxaudit.cli.progress import duration, say
from jaxaudit.data import Examples
from jaxaudit.ensemble import StepCost, measure_step
from jaxaudit.ensemble.execution import EQUATIONS_A_SECOND, OPERATIONS_A_SECOND
from jaxaudit.learners import SteppedLearner

FIXED_SECONDS = 10.0
"""Seconds for reading, judging, and compiling what is small."""
TIMED_FROM = 120.0
"""A run of so many seconds, by what is usual for two cores of a CPU, is timed before it begins."""


class OperationsPace(NamedTuple):
    """How long operations take, and where that is so.

    Attributes:
        operations: how many counted operations take a second.
        compiling: seconds in which the program of training is compiled.
        where: which machine this is, in words.
    """

    operations: float = OPERATIONS_A_SECOND
    compiling: float = 0.0
    where: str = "on two cores of a CPU"

    def seconds(self, operations: float) -> float:
        return round(operations / self.operations + self.compiling + FIXED_SECONDS, 1)

    def words(self, operations: float) -> str:
        """The time in words.

        >>> OperationsPace(1e9).words(6e11)
        'about 10 min on two cores of a CPU'
        """
        return f"about {duration(self.seconds(operations))} {self.where}"


class PlannedTraining(NamedTuple):
    """What is trained: a learner on records, so many models at a time."""

    learner: SteppedLearner
    examples: Examples
    cost: StepCost
    models_per_batch: int

    @property
    def usual_pace(self) -> OperationsPace:
        """That of two cores of a CPU: a function of shapes, as what is recorded of a plan must be."""
        return OperationsPace(compiling=self.cost.equations / EQUATIONS_A_SECOND)


def pace_of(recipe: ShadowRecipe, training: PlannedTraining, operations: float) -> OperationsPace:
    """The pace of this machine, measured on some steps, for a dry run or a long one; else that of two cores.

    Args:
        recipe: the options of training.
        training: what is timed, if it is this process that trains.
        operations: of the whole run.
    """
    usual = training.usual_pace
    if recipe.workers is not None or not (recipe.dry_run or usual.seconds(operations) > TIMED_FROM):
        return usual
    say("timing a few steps")
    learner, examples, cost, number = training
    step, compiling = measure_step(examples.inputs, examples.labels, learner, cost, number)
    return OperationsPace(cost.step / step, compiling, "on this machine")


class PlannedSize(NamedTuple):
    """What an effort takes, what it leaves out, and by how much the minimum detectable fraction is then larger."""

    operations: float
    reduced: Sequence[str]
    effect: float = 1.0


def lines_of_effort(reached: PlannedSize, in_full: float, pace: OperationsPace) -> list[str]:
    """Lines of a printed plan: what it leaves out, and how long a run takes that leaves nothing out.

    Args:
        reached: the size of the run.
        in_full: the operations of the full effort.
        pace: converts operations to time.
    """
    if not reached.reduced:
        return []
    lines = [f"  reduced: {'; '.join(reached.reduced)}"]
    if reached.effect > 1.01:
        lines.append(f"  effect: the minimum detectable fraction is about {reached.effect:.1f} times as large")
    return [*lines, f"  --effort full: {pace.words(in_full)}; nothing reduced"]


def numbers_of_effort(effort: str, reached: PlannedSize, in_full: float, pace: OperationsPace) -> dict[str, object]:
    """The same as `lines_of_effort`, as fields for `--json`; `effort` is the name of the run's effort."""
    return {
        "effort": effort,
        "operations": reached.operations,
        "seconds": pace.seconds(reached.operations),
        "reduced": list(reached.reduced),
        "seconds_in_full": pace.seconds(in_full),
    }
