"""The function that a worker runs: trains one chunk, and caches the learner and the pool for the next."""

import pickle
from threading import Lock
from typing import Any, NamedTuple

import cloudpickle
import jax
from jaxtyping import Array

from jaxaudit.ensemble.chunk import Chunk, train_chunk
from jaxaudit.ensemble.concurrency import Machine, this_machine
from jaxaudit.ensemble.parts import ArraySource, unpack_value
from jaxaudit.ensemble.program import place_pool
from jaxaudit.ensemble.results import Summarize, summarized
from jaxaudit.ensemble.training_state import StateKeeper
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner

PROGRAMS = 8
"""The number of learners, with their compiled programs, that a worker caches."""


class Task(NamedTuple):
    """The training of one chunk, as it is sent to a worker.

    Attributes:
        chunk: the models to train.
        learner, rest: the pickled learner; and `summarize`, inputs and labels, pickled without it.
        source: loads the large arrays of both.
        machine: the facts that the worker's machine must match; None: any machine is accepted.
    """

    chunk: Chunk
    learner: bytes
    rest: bytes
    source: ArraySource
    machine: Machine | None


class Other(NamedTuple):
    """The answer of a worker that would round differently."""

    machine: Machine


class Failed(NamedTuple):
    """The answer of a worker if the learner or `summarize` raised an error; the chunk is not tried again."""

    error: Exception


class Trained(NamedTuple):
    """A trained chunk: its row numbers without copies, the pickled results, and the machine that trained it."""

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
    """Trains a task's chunk in this process. An exception outside the training counts as the worker's failure."""
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
        params = train_chunk(work.learner, task.chunk, work.pool, lambda _: None, keeper)
        rows, tree = summarized(work.summarize, params, task.chunk.rows)
        # cloudpickle sends classes of a script by value, since the receiver cannot import them.
        return Trained(rows, cloudpickle.dumps(tree, protocol=5), machine)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        return Failed(_portable(error))


def _work_of(task: Task) -> _Work:
    """Unpickles a task's learner and pool once, so that programs are compiled, and the pool placed, only once."""
    key = task.learner, task.rest
    if key not in _work:
        _work.clear()
        if task.learner not in _learners:
            if len(_learners) == PROGRAMS:
                _learners.clear()
                jax.clear_caches()
            _learners[task.learner] = unpack_value(task.learner, task.source)
        learner = _learners[task.learner]
        summarize, *pool = unpack_value(task.rest, task.source, learner)
        _work[key] = _Work(learner, summarize, place_pool(tuple(pool)))
    return _work[key]


def _portable(error: Exception) -> Exception:
    """The error, if it can be pickled; otherwise a RuntimeError with the same message."""
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")
