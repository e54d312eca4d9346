"""Trains chunks by an executor's workers; a chunk whose worker ended is submitted again.

A worker is anything that `submit`s. A chunk is a function of keys, rows and the pool, so whoever has `submit(fn, *args)
-> future` can train it (`Execution(executor=)`): the driver plans, fixes the models per batch, hands over, and keeps
what comes back in the same files. What a worker raises in training comes back as a value and is raised; any exception
of the future is the end of a worker, and its chunk is handed over again, at most four times. Learners travel by
cloudpickle (a network as its factory, made again there: `PureModule.arguments`), large arrays beside them, once: as
memory-mapped files, or in an executor's own store (`ensemble/parts.py`). Bytes of code go only to workers that this
process started or was given, and are never read from a file. `LocalWorkers` and `RayWorkers` are threads that each hold
a process and pull (`ensemble/pull.py`), so that one that waits for a machine holds up nothing. The driver's death
closes a local worker's pipe, which ends it. XLA on a CPU cuts large products by the number of its threads, so workers
have the driver's number of threads (`NPROC`), whatever share of the cores they may use; a worker says what it is
(`ensemble/concurrency.py`) with each chunk, and one that would round differently is refused.
"""

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.ensemble.chunk import Chunk
from jaxaudit.ensemble.concurrency import Machine, this_machine, unlike
from jaxaudit.ensemble.execution import Executor
from jaxaudit.ensemble.parts import packed, shared, unpack_value
from jaxaudit.ensemble.results import Summarize
from jaxaudit.ensemble.worker import Answer, Failed, Other, Task, Trained, train_there
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner

ATTEMPTS = 4
"""How often a chunk is submitted before workers that end are an error."""
MOST_ENDED = 500
"""If so many workers end in a row without a trained chunk, it is an error."""
AHEAD_BYTES, LEAST_AHEAD, MOST_AHEAD = 1 << 28, 64, 4096
"""The number of chunks submitted at a time: membership masks of this many bytes, within bounds on the number."""
HEARTBEAT = 1.0
"""Longest wait for a finished chunk, in seconds, before progress and interrupts are handled."""


class MixedDevicesWarning(RuntimeWarning):
    """Some chunks are trained by a worker whose machine rounds differently."""


class ChunkCall(NamedTuple):
    """The arguments that all chunks of a call share.

    Attributes:
        learner: model and training recipe.
        summarize: computes the results to keep from trained parameters.
        pool: inputs and labels, on the host.
        folder: an existing folder that all workers can read; None if workers are on this machine.
        mixed_devices: whether workers may round differently from this process.
    """

    learner: Learner
    summarize: Summarize | None
    pool: tuple[np.ndarray, np.ndarray]
    folder: Path | None
    mixed_devices: bool


def distribute(
    executor: Executor,
    call: ChunkCall,
    parts: Sequence[Any],
    chunk_of: Callable[[Any], Chunk],
    collect: Callable[[Any, np.ndarray, Any], None],
    heartbeat: Callable[[], None],
) -> None:
    """Trains each part's chunk in a worker and calls `collect(part, rows, results)` in the calling thread.

    A chunk whose worker ended is submitted again, with a RuntimeWarning.

    Args:
        executor: hands chunks to workers.
        call: the arguments that all chunks share.
        parts, chunk_of: the parts of the call, and a function that makes the chunk of a part when it is submitted.
        collect: receives the results of each finished chunk.
        heartbeat: called about every second.

    Raises:
        InputError: a worker would round differently, a chunk's workers ended `ATTEMPTS` times, or the executor takes
            no more work.
        Exception: what the learner or `summarize` raised in a worker.
    """
    if not parts:
        return
    own_machine, arrays = this_machine(), dict[str, np.ndarray]()
    learner = packed(call.learner, arrays)
    rest = packed((call.summarize, *call.pool), arrays, call.learner)
    waiting, running = deque(_Try(part, 1) for part in parts), dict[Future[Answer], _Try]()
    finished = SimpleQueue[Future[Answer]]()
    most = min(max(AHEAD_BYTES // max(chunk_of(parts[0]).membership.nbytes, 1), LEAST_AHEAD), MOST_AHEAD)
    warned_machines, ended = set[str](), 0
    with shared(executor, arrays, call.folder) as source:
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    now = waiting.popleft()
                    machine = None if call.mixed_devices else own_machine
                    task = Task(chunk_of(now.part), learner, rest, source, machine)
                    future = _submitted(executor, task)
                    running[future] = now
                    future.add_done_callback(finished.put)
                done = _all_of(finished)
                heartbeat()
                # Collect finished chunks first, so that an error below does not lose them.
                for future in sorted(done, key=lambda future: not isinstance(_answer(future), Trained)):
                    now, answer = running.pop(future), _answer(future)
                    if isinstance(answer, Trained):
                        ended = 0
                        collect(now.part, answer.rows, unpack_value(answer.tree, source))
                        _warn_once(answer.machine, own_machine, warned_machines)
                    else:
                        ended += 1
                        waiting.appendleft(_again(now, answer, own_machine, ended))
        finally:
            for future in running:
                future.cancel()


class _Try(NamedTuple):
    """A part, and the number of times that it was submitted."""

    part: Any
    attempt: int


def _submitted(executor: Executor, task: Task) -> Future[Answer]:
    try:
        return executor.submit(train_there, task)
    except RuntimeError as error:  # a BrokenExecutor is one
        raise InputError(
            f"the executor takes no more work ({_first_line(error)}): was one of its workers ended for want of memory? "
            "What is finished is kept where checkpoints are. ensemble.LocalWorkers starts another worker by itself."
        ) from error


def _all_of(finished: SimpleQueue[Future[Answer]]) -> list[Future[Answer]]:
    """All futures that are finished; waits for the first of them, at most `HEARTBEAT` seconds."""
    futures = list[Future[Answer]]()
    with suppress(Empty):
        futures.append(finished.get(timeout=HEARTBEAT))
        while True:
            futures.append(finished.get_nowait())
    return futures


def _answer(future: Future[Answer]) -> Answer | Exception:
    """A worker's answer, or the exception if it ended. (A KeyboardInterrupt from a worker is raised.)"""
    try:
        return future.result()
    except (CancelledError, Exception) as error:
        return error


def _again(now: _Try, answer: Other | Failed | Exception, own_machine: Machine, ended: int) -> _Try:
    """The next try of a chunk that was not trained; `ended` workers have ended since the last trained chunk.

    Raises:
        InputError: the chunk was tried `ATTEMPTS` times, `MOST_ENDED` workers ended, or the worker would round
            differently.
        Exception: what the learner or `summarize` raised.
    """
    if isinstance(answer, Failed):
        raise answer.error
    if isinstance(answer, Other):
        raise InputError(
            f"a worker would round differently ({unlike(answer.machine, own_machine)}): use workers like this "
            "process, or start it on a machine like theirs, or accept other numbers with `mixed_devices`."
        )
    complaint = f"a worker ended with a chunk under way ({_first_line(answer)})"
    if now.attempt == ATTEMPTS:
        raise InputError(
            f"{complaint}, {ATTEMPTS} times with the same one: is memory short? Use fewer workers, or fewer models per "
            "batch; what is finished is kept where checkpoints are."
        ) from answer
    if ended == MOST_ENDED:
        raise InputError(
            f"{complaint}, as did the {ended - 1} before it, and none trained a chunk: try them with jaxaudit cluster "
            "check; what is finished is kept where checkpoints are."
        ) from answer
    warnings.warn(f"{complaint}: trained again, attempt {now.attempt + 1} of {ATTEMPTS}", RuntimeWarning, stacklevel=4)
    return _Try(now.part, now.attempt + 1)


def _warn_once(other_machine: Machine, own_machine: Machine, warned: set[str]) -> None:
    """Warns once about each kind of worker that rounds differently from this process."""
    words = unlike(other_machine, own_machine)
    if words and words not in warned:
        warned.add(words)
        words = f"a worker that rounds differently trains models, too ({words})"
        warnings.warn(words, MixedDevicesWarning, stacklevel=4)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
