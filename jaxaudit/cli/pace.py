"""How long a run takes, in words: by counted operations, which decide nothing, or for `--dry-run` by its beginning."""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxaudit.cli.groups import RecipeFlags
from jaxaudit.cli.progress import duration, progress_on_stderr, say
from jaxaudit.cli.show import Job, Summary
from jaxaudit.cli.workers import crew
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, StepCost, bytes_under_way, measure_step
from jaxaudit.ensemble.execution import EQUATIONS_A_SECOND, OPERATIONS_A_SECOND
from jaxaudit.ensemble.local_workers import Pulling
from jaxaudit.learners import SteppedLearner

if TYPE_CHECKING:
    from jaxaudit.cli.groups import Machines


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

    @property
    def bytes(self) -> int:
        """The memory that the process takes, but for the arrays of sets and outputs."""
        of_program = self.cost.equations * BYTES_OF_EQUATION
        return PROCESS_BYTES + of_program + bytes_under_way(self.cost, self.models_per_batch)


def pace_of(recipe: RecipeFlags, training: PlannedTraining, operations: float) -> OperationsPace:
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


SECONDS = 15.0
"""Seconds of training that are timed, after the first step or chunk."""
CHUNKS = 2
"""The least number of timed chunks per worker, on average, since workers start one after another."""


class _TrialOver(KeyboardInterrupt):
    """Ends a run that was started only to be timed, in the way in which Ctrl-C ends a run."""


class Trial:
    """Progress that ends a run once its pace is known."""

    def __init__(self, workers: Pulling | None) -> None:
        self.workers, self.started = workers, time.monotonic()
        self.first: tuple[float, int] | None = None
        self.last, self.total = (self.started, 0), 1

    def __call__(self, done: int, total: int) -> None:
        now, self.total = time.monotonic(), total
        if done <= self.last[1]:
            return
        self.first, self.last = self.first or (now, done), (now, done)
        waited = self.workers is None or self.workers.answered >= CHUNKS * self.workers.places
        if done >= total or (waited and now - self.first[0] >= SECONDS):
            raise _TrialOver

    def seconds(self) -> float:
        """Estimated seconds of the whole run; if it finished, the seconds that it took."""
        assert self.first is not None
        (began, before), (now, done) = self.first, self.last
        if done == before or done >= self.total:
            return now - self.started
        return began - self.started + (now - began) * (self.total - before) / (done - before)


def estimate_by_trial(name: str, job: Job[Any], models_per_batch: int | None, machines: "Machines") -> Summary:
    """Starts the work of a command, stops once its pace is known, and estimates the time of the whole. Nothing is kept.

    Args:
        name: the name of the command.
        job: its work.
        models_per_batch: models trained at the same time; None: chosen by the job.
        machines: the options that say which workers train.
    """
    with crew(machines) as workers, progress_on_stderr("timing") as show:
        trial = Trial(workers)

        def progress(done: int, total: int) -> None:
            show(done, total)
            trial(done, total)

        say("training begins, to be timed; nothing of it is kept")
        with contextlib.suppress(_TrialOver):
            job.audit(Execution(models_per_batch, progress, None, workers))
    models = job.models(models_per_batch or 1) if job.models is not None else 0
    count = 0 if workers is None else workers.places
    numbers, lines = _estimate(name, models, trial, count)
    return Summary(lines, {"models": models, "models_per_batch": models_per_batch, "workers": count, **numbers})


def _estimate(name: str, models: int, trial: Trial, workers: int) -> tuple[dict[str, float], tuple[str, ...]]:
    if trial.first is None:
        return {"seconds": 0.0}, (f"{name}: nothing is trained",)
    seconds, timed = trial.seconds(), trial.last[0] - trial.first[0]
    share, hours = trial.last[1] / trial.total, max(workers, 1) * seconds / 3600
    subject = f"{models:,} models, about" if models else "no models are trained; the measurement takes about"
    whom = " of training" if models or workers else ""
    whom += f" by {workers} worker{'' if workers == 1 else 's'}" if workers else ""
    lines = [
        f"{name}: {subject} {duration(seconds)}{whom}",
        f"timed: {share:.0%} of the work, {duration(timed)} after the first {'chunk' if workers else 'step'}; to begin "
        f"took {duration(trial.first[0] - trial.started)}",
    ]
    if workers:
        lines.append(f"that is {hours:.3g} hours of a worker: times the price of one hour, it is what the run costs")
    numbers = {"seconds": seconds, "worker_hours": hours, "timed_seconds": timed, "timed_share": share}
    return numbers, tuple(lines)
