"""Chunks handed to an executor: each until it is trained, however many workers end on the way."""

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
from jaxaudit.ensemble.execution import Executor
from jaxaudit.ensemble.machine import Machine, this_machine, unlike
from jaxaudit.ensemble.parts import packed, shared, unpacked
from jaxaudit.ensemble.results import Summarize
from jaxaudit.ensemble.worker import Answer, Failed, Other, Task, Trained, train_there
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner

ATTEMPTS = 4
"""How often a chunk is handed to a worker before one that ends is no accident."""
MOST_ENDED = 500
"""So many workers that end one after another, none of them with a chunk, are no accident either."""
AHEAD_BYTES, LEAST_AHEAD, MOST_AHEAD = 1 << 28, 64, 4096
"""Chunks that are handed over at a time: as many as have this much membership, within bounds."""
HEARTBEAT = 1.0
"""Seconds between two looks at progress, and at an interrupt, while no chunk is finished."""


class MixedDevicesWarning(RuntimeWarning):
    """A worker that rounds differently trains chunks."""


class Call(NamedTuple):
    """What all chunks of a call have in common.

    Attributes:
        learner: what is trained; `summarize`: what is kept of it.
        pool: inputs and labels, on the host.
        folder: an existing one that workers see; None: they are on this machine.
        mixed_devices: whether any worker will do.
    """

    learner: Learner
    summarize: Summarize | None
    pool: tuple[np.ndarray, np.ndarray]
    folder: Path | None
    mixed_devices: bool


def distribute(
    executor: Executor,
    call: Call,
    parts: Sequence[Any],
    chunk_of: Callable[[Any], Chunk],
    collect: Callable[[Any, np.ndarray, Any], None],
    heartbeat: Callable[[], None],
) -> None:
    """`collect(part, rows, tree)` for what an executor's workers make of each part's chunk, in the calling thread.

    A chunk whose worker ended is handed over again, with a RuntimeWarning.

    Args:
        executor: hands chunks to workers.
        call: what they are trained with.
        parts: of the call; `chunk_of(part)` cuts its chunk out when it is its turn.
        collect: takes what is finished.
        heartbeat: called at least every second.

    Raises:
        InputError: a worker would round differently, a chunk's workers ended `ATTEMPTS` times, or the executor takes
            no more work.
        Exception: what the learner or `summarize` raised in a worker.
    """
    if not parts:
        return
    here, arrays = this_machine(), dict[str, np.ndarray]()
    learner = packed(call.learner, arrays)
    rest = packed((call.summarize, *call.pool), arrays, call.learner)
    waiting, running = deque(_Try(part, 1) for part in parts), dict[Future[Answer], _Try]()
    finished = SimpleQueue[Future[Answer]]()
    most = min(max(AHEAD_BYTES // max(chunk_of(parts[0]).membership.nbytes, 1), LEAST_AHEAD), MOST_AHEAD)
    others, ended = set[str](), 0
    with shared(executor, arrays, call.folder) as source:
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    now = waiting.popleft()
                    machine = None if call.mixed_devices else here
                    task = Task(chunk_of(now.part), learner, rest, source, machine)
                    future = _submitted(executor, task)
                    running[future] = now
                    future.add_done_callback(finished.put)
                done = _all_of(finished)
                heartbeat()
                # What is finished first: where all else is lost, it is kept.
                for future in sorted(done, key=lambda each: not isinstance(_answer(each), Trained)):
                    now, answer = running.pop(future), _answer(future)
                    if isinstance(answer, Trained):
                        ended = 0
                        collect(now.part, answer.rows, unpacked(answer.tree, source))
                        _tell_once(answer.machine, here, others)
                    else:
                        ended += 1
                        waiting.appendleft(_again(now, answer, here, ended))
        finally:
            for future in running:
                future.cancel()


class _Try(NamedTuple):
    """A part, and how often it was handed over."""

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
    """What is finished by now; waits for the first, not longer than a heartbeat."""
    found = list[Future[Answer]]()
    with suppress(Empty):
        found.append(finished.get(timeout=HEARTBEAT))
        while True:
            found.append(finished.get_nowait())
    return found


def _answer(future: Future[Answer]) -> Answer | Exception:
    """What a worker answered, or what is known of its end. An interrupt of its own ends this process's work, too."""
    try:
        return future.result()
    except (CancelledError, Exception) as error:
        return error


def _again(now: _Try, answer: Other | Failed | Exception, here: Machine, ended: int) -> _Try:
    """The next try of a chunk whose worker ended, as `ended` did since one trained a chunk.

    Raises:
        InputError: it was the last, workers only end, or the worker cannot take part.
        Exception: the learner's own.
    """
    if isinstance(answer, Failed):
        raise answer.error
    if isinstance(answer, Other):
        raise InputError(
            f"a worker would round differently ({unlike(answer.machine, here)}): use workers like this process, or "
            "start it on a machine like theirs, or accept other numbers with `mixed_devices`."
        )
    what = f"a worker ended with a chunk under way ({_first_line(answer)})"
    if now.attempt == ATTEMPTS:
        raise InputError(
            f"{what}, {ATTEMPTS} times with the same one: is memory short? Use fewer workers, or fewer models per "
            "batch; what is finished is kept where checkpoints are."
        ) from answer
    if ended == MOST_ENDED:
        raise InputError(
            f"{what}, as did the {ended - 1} before it, and none trained a chunk: try them with jaxaudit cluster "
            "check; what is finished is kept where checkpoints are."
        ) from answer
    warnings.warn(f"{what}: trained again, attempt {now.attempt + 1} of {ATTEMPTS}", RuntimeWarning, stacklevel=4)
    return _Try(now.part, now.attempt + 1)


def _tell_once(there: Machine, here: Machine, told: set[str]) -> None:
    """A RuntimeWarning for every kind of machine beside this one."""
    words = unlike(there, here)
    if words and words not in told:
        told.add(words)
        words = f"a worker that rounds differently trains models, too ({words})"
        warnings.warn(words, MixedDevicesWarning, stacklevel=4)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
