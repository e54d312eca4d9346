"""How long counted operations take, in words: estimates, which decide nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxaudit.audits.ks.plan import EFFORTS
from jaxaudit.cli.groups import RecipeFlags
from jaxaudit.cli.progress import duration, say
from jaxaudit.data import Examples
from jaxaudit.ensemble import measure_rate
from jaxaudit.ensemble.step_cost import OPERATIONS_A_SECOND
from jaxaudit.learners import SteppedLearner

FIXED_SECONDS = 15.0
"""Seconds for reading, compiling and judging."""


class OperationsPace(NamedTuple):
    """Counted operations a second, and where that is so."""

    operations: float = OPERATIONS_A_SECOND
    where: str = "on two cores of a CPU"

    def seconds(self, operations: float) -> float:
        return round(operations / self.operations + FIXED_SECONDS, 1)

    def words(self, operations: float) -> str:
        """The time in words.

        >>> OperationsPace(1e9).words(6e11)
        'about 10 min on two cores of a CPU'
        """
        return f"about {duration(self.seconds(operations))} {self.where}"


def pace_of(recipe: RecipeFlags, learner: SteppedLearner, examples: Examples, models_per_batch: int) -> OperationsPace:
    """The pace of this machine, measured on some steps, in a dry run that trains here; else that of two cores.

    Args:
        recipe: the options of training.
        learner, examples, models_per_batch: what is timed.
    """
    if not recipe.dry_run or recipe.spread:
        return OperationsPace()
    say("timing a few steps")
    return OperationsPace(measure_rate(examples.inputs, examples.labels, learner, models_per_batch), "on this machine")


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
