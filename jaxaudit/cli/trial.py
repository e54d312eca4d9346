"""`--dry-run`: times the beginning of a run, and estimates the time of the whole run."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

from jaxaudit.cli.job import Job, Summary
from jaxaudit.cli.progress import duration, progress_on_stderr, say
from jaxaudit.cli.workers import Crew, crew

if TYPE_CHECKING:
    from jaxaudit.cli.groups import Machines

SECONDS = 15.0
"""Seconds of training that are timed, after the first step or chunk."""
CHUNKS = 2
"""The least number of timed chunks per worker, on average, since workers start one after another."""


class _TrialOver(KeyboardInterrupt):
    """Ends a run that was started only to be timed, in the way in which Ctrl-C ends a run."""


class Trial:
    """Progress that ends a run once its pace is known."""

    def __init__(self, crew: Crew) -> None:
        self.crew, self.started = crew, time.monotonic()
        self.first: tuple[float, int] | None = None
        self.last, self.total = (self.started, 0), 1

    def __call__(self, done: int, total: int) -> None:
        now, self.total = time.monotonic(), total
        if done <= self.last[1]:
            return
        self.first, self.last = self.first or (now, done), (now, done)
        waited = self.crew.answered >= CHUNKS * self.crew.workers
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
    with crew(machines) as who, progress_on_stderr("timing") as show:
        trial = Trial(who)

        def progress(done: int, total: int) -> None:
            show(done, total)
            trial(done, total)

        say("training begins, to be timed; nothing of it is kept")
        with contextlib.suppress(_TrialOver):
            job.audit(who.execution(models_per_batch, progress, None))
    models = job.models(models_per_batch or 1) if job.models is not None else 0
    numbers, lines = _estimate(name, models, trial)
    return Summary(lines, {"models": models, "models_per_batch": models_per_batch, "workers": who.workers, **numbers})


def _estimate(name: str, models: int, trial: Trial) -> tuple[dict[str, float], tuple[str, ...]]:
    workers = trial.crew.workers
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
