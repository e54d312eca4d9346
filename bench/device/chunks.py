"""Chunks of models that `fit_many` trains, as many at a time as the library itself chooses."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax

from bench.device.measuring import Contender
from bench.training import Job
from jaxaudit.ensemble import Execution, fit_many, measure_models_per_batch
from jaxaudit.ensemble.concurrency import concurrent_chunks


class Choice(NamedTuple):
    """What was chosen for a job.

    Attributes:
        number: models a batch.
        form: of convolutions; None without any, and on a CPU.
        seconds: a model-step by the number of models, where it was measured.
    """

    number: int
    form: str | None
    seconds: dict[str, float]

    @property
    def execution(self) -> Execution:
        return Execution(models_per_batch=self.number)

    def formed(self, job: Job) -> Job:
        """The job with its network's convolutions in the chosen form."""
        return job if self.form is None else replace(job, learner=job.learner.in_form(self.form))

    def __str__(self) -> str:
        tried = ", ".join(f"{number}: {1e6 * seconds:.3g}" for number, seconds in self.seconds.items())
        form = f", {self.form}" if self.form else ""
        return f"{self.number} models a batch{form}; microseconds a model-step when choosing: {tried or '-'}"


def choose(job: Job) -> Choice:
    """The library's choice for these models."""
    choice = measure_models_per_batch(job.keys, job.membership, job.inputs, job.labels, job.learner)
    seconds = {str(number): seconds for number, seconds in choice.seconds.items()}
    return Choice(choice.models_per_batch, choice.form, seconds)


def train(job: Job, execution: Execution, times: int = 1) -> None:
    """`fit_many` as it is called; of each model one number is kept."""
    for _ in range(times):
        fit_many(
            *(job.keys, job.membership, job.inputs, job.labels, job.learner),
            execution=execution,
            summarize=lambda params, rows: jax.tree.leaves(params)[0].reshape(len(rows), -1)[:, :1],
        )


def contender(job: Job, choice: Choice, seconds: float) -> Contender:
    """A chunk for each that is trained at the same time, for so many epochs of the job's as take so long, about."""
    models = min(len(job.keys), choice.number * concurrent_chunks())
    epoch = job.first(models, 1)
    expected = epoch.model_steps * min(choice.seconds.values(), default=seconds)
    chunk = job.first(models, max(1, min(job.learner.epochs, round(seconds / expected))))
    return Contender(partial(train, choice.formed(chunk), choice.execution), chunk.model_steps)
