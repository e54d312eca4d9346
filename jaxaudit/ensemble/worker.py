"""What a worker runs: one chunk, with a learner and a pool that it keeps from one chunk to the next."""

import pickle
from threading import Lock
from typing import Any, NamedTuple

import cloudpickle
import jax
from jaxtyping import Array

from jaxaudit.ensemble.chunk import Chunk, train_chunk
from jaxaudit.ensemble.devices import place_pool
from jaxaudit.ensemble.machine import Machine, this_machine
from jaxaudit.ensemble.parts import Source, unpacked
from jaxaudit.ensemble.results import Summarize, summarized
from jaxaudit.ensemble.training_state import StateKeeper
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner

PROGRAMS = 8
"""Learners that a worker keeps, each with its compiled programs."""


class Task(NamedTuple):
    """A chunk, and what it is trained with.

    Attributes:
        chunk: the models.
        learner: packed; `rest`: `summarize`, inputs and labels, packed beside it.
        source: where their large arrays are.
        machine: what the worker must be; None: it may be anything.
    """

    chunk: Chunk
    learner: bytes
    rest: bytes
    source: Source
    machine: Machine | None


class Other(NamedTuple):
    """The answer of a worker that would round differently."""

    machine: Machine


class Failed(NamedTuple):
    """The answer of a worker where the learner or `summarize` raised an error. Sent again it would be raised again."""

    error: Exception


class Trained(NamedTuple):
    """A chunk's rows, without copies, and what `summarize` made of their models, packed; and who trained them."""

    rows: Any
    tree: bytes
    machine: Machine


Answer = Trained | Other | Failed


class _Work(NamedTuple):
    learner: Learner
    summarize: Summarize | None
    pool: tuple[Array, Array]


_learners: dict[bytes, Learner] = {}
_work: dict[tuple[bytes, bytes], _Work] = {}
_lock = Lock()


def train_there(task: Task) -> Answer:
    """Trains a task's chunk in this process. What is raised by anything but the training is the worker's own end."""
    machine = this_machine()
    if task.machine is not None and machine != task.machine:
        return Other(machine)
    try:
        with _lock:
            work = _work_of(task)
        return _trained(work, task, machine)
    except ModuleNotFoundError as error:
        return Failed(
            InputError(f"a worker has no module {error.name!r}: install it there, or put its folder in PYTHONPATH.")
        )


def _trained(work: _Work, task: Task, machine: Machine) -> Trained | Failed:
    try:
        keeper = StateKeeper(None, task.chunk.rows, 0, 0)
        params = train_chunk(work.learner, task.chunk, work.pool, _silent, keeper)
        rows, tree = summarized(work.summarize, params, task.chunk.rows)
        # By value, as the learner came: a class of a script has its name in this process alone.
        return Trained(rows, cloudpickle.dumps(tree, protocol=5), machine)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        return Failed(_portable(error))


def _work_of(task: Task) -> _Work:
    """Unpacked once: programs are compiled for a learner, and a pool is put on the devices once."""
    key = task.learner, task.rest
    if key not in _work:
        _work.clear()
        if task.learner not in _learners:
            if len(_learners) == PROGRAMS:
                _learners.clear()
                jax.clear_caches()
            _learners[task.learner] = unpacked(task.learner, task.source)
        learner = _learners[task.learner]
        summarize, *pool = unpacked(task.rest, task.source, learner)
        _work[key] = _Work(learner, summarize, place_pool(tuple(pool)))
    return _work[key]


def _portable(error: Exception) -> Exception:
    """The error, if it can travel; else one of the same words."""
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")


def _silent(model_steps: int) -> None:
    pass
