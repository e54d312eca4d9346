"""How long counted operations take, in words: estimates, which decide nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxaudit.audits.ks.plan import EFFORTS
from jaxaudit.cli.groups import RecipeFlags
from jaxaudit.cli.progress import duration, say
from jaxaudit.data import Examples
from jaxaudit.ensemble import StepCost, bytes_under_way, measure_step
from jaxaudit.ensemble.step_cost import EQUATIONS_A_SECOND, OPERATIONS_A_SECOND
from jaxaudit.learners import SteppedLearner

FIXED_SECONDS = 10.0
"""Seconds for reading, judging, and compiling what is small."""
TIMED_FROM = 120.0
"""A run of so many seconds, by what is usual for two cores of a CPU, is timed before it begins."""
PROCESS_BYTES, BYTES_OF_EQUATION = 600 << 20, 128 << 10
"""Memory of Python, JAX, small programs and judging; and of a program of training, for each of its equations."""
COPIES = 3
"""Sets stay in memory as stored, as prepared, and while they are hashed or joined."""


class OperationsPace(NamedTuple):
    """How long operations take, and where that is so.

    Attributes:
        operations: how many counted operations take a second.
        compiling: seconds in which all programs of training are compiled.
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
    """What is trained: a learner on records, so many models at a time, and as how many different programs."""

    learner: SteppedLearner
    examples: Examples
    cost: StepCost
    models_per_batch: int
    programs: int

    @property
    def equations(self) -> int:
        """Of all programs."""
        return self.programs * self.cost.equations

    @property
    def usual_pace(self) -> OperationsPace:
        """That of two cores of a CPU: a function of shapes, as what is recorded of a plan must be."""
        return OperationsPace(compiling=self.equations / EQUATIONS_A_SECOND)

    @property
    def bytes(self) -> int:
        """The memory that the process takes, but for the arrays of sets and outputs."""
        of_programs = self.equations * BYTES_OF_EQUATION
        return PROCESS_BYTES + of_programs + bytes_under_way(self.cost, self.models_per_batch)


def pace_of(recipe: RecipeFlags, training: PlannedTraining, operations: float) -> OperationsPace:
    """The pace of this machine, measured on some steps, for a dry run or a long one; else that of two cores.

    Args:
        recipe: the options of training.
        training: what is timed, if it is this process that trains.
        operations: of the whole run.
    """
    usual = training.usual_pace
    if recipe.spread or not (recipe.dry_run or usual.seconds(operations) > TIMED_FROM):
        return usual
    say("timing a few steps")
    learner, examples, cost, number, programs = training
    step, compiling = measure_step(examples.inputs, examples.labels, learner, cost, number)
    return OperationsPace(cost.step / step, programs * compiling, "on this machine")


class PlannedSize(NamedTuple):
    """What an effort takes, what it leaves out, and by how much the minimum detectable fraction is then larger."""

    operations: float
    reduced: Sequence[str]
    effect: float = 1.0


def larger_efforts(effort: str, size_of: Callable[[str], PlannedSize]) -> dict[str, PlannedSize]:
    """The efforts above this one by name, up to the first that leaves nothing out."""
    sizes: dict[str, PlannedSize] = {}
    names, left_out = list(EFFORTS), size_of(effort).reduced
    for name in names[names.index(effort) + 1 :]:
        if left_out:
            sizes[name] = size_of(name)
            left_out = sizes[name].reduced
    return sizes


def lines_of_efforts(reached: PlannedSize, larger: Mapping[str, PlannedSize], pace: OperationsPace) -> list[str]:
    """Lines of a printed plan: what this effort leaves out; what larger efforts leave out, and how long they take.

    Args:
        reached: the effort of the run.
        larger: the efforts above it, by name, from `larger_efforts`.
        pace: converts operations to time.
    """

    def effect(factor: float) -> list[str]:
        return [f"the minimum detectable fraction is about {factor:.1f} times as large"] if factor > 1.01 else []

    lines = [f"  reduced: {'; '.join(reached.reduced)}"] if reached.reduced else []
    lines += [f"  effect: {text}" for text in effect(reached.effect)]
    for name, size in larger.items():
        without = "; ".join([*size.reduced, *effect(size.effect)]) or "nothing reduced"
        lines.append(f"  --effort {name}: {pace.words(size.operations)}; {without}")
    return lines


def numbers_of_efforts(
    effort: str, reached: PlannedSize, larger: Mapping[str, PlannedSize], pace: OperationsPace
) -> dict[str, object]:
    """The same as `lines_of_efforts`, as fields for `--json`; `effort` is the name of the run's effort."""
    return {
        "effort": effort,
        "operations": reached.operations,
        "seconds": pace.seconds(reached.operations),
        "reduced": list(reached.reduced),
        "larger": {
            name: {"seconds": pace.seconds(size.operations), "reduced": list(size.reduced)}
            for name, size in larger.items()
        },
    }
