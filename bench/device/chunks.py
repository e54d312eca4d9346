"""Chunks of models that `fit_many` trains, as many at a time as the library itself chooses."""

import time
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax

from bench.device.measuring import Contender
from bench.training import Job
from jaxaudit.ensemble import Execution, fit_many, form_of, suitable_models_per_batch
from jaxaudit.ensemble.concurrency import concurrent_chunks


class Choice(NamedTuple):
    """What was chosen for a job.

    Attributes:
        number: models a batch.
        form: of convolutions; None without any, and on a CPU.
    """

    number: int
    form: str | None

    @property
    def execution(self) -> Execution:
        return Execution(models_per_batch=self.number)

    def formed(self, job: Job) -> Job:
        """The job with its network's convolutions in the chosen form."""
        return job if self.form is None else replace(job, learner=job.learner.with_form(self.form))

    def __str__(self) -> str:
        return f"{self.number} models a batch{f', {self.form}' if self.form else ''}"


def choose(job: Job) -> Choice:
    """The library's choice for these models."""
    number = suitable_models_per_batch(job.keys, job.membership, job.inputs, job.labels, job.learner)
    return Choice(number, form_of(job.learner))


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
    epoch = choice.formed(job.first(models, 1))
    train(epoch, choice.execution)  # compiles
    start = time.perf_counter()
    train(epoch, choice.execution)
    chunk = job.first(models, max(1, min(job.learner.epochs, round(seconds / (time.perf_counter() - start)))))
    return Contender(partial(train, choice.formed(chunk), choice.execution), chunk.model_steps)
