"""How models are trained: one value that an audit passes down to `fit_many`."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from jaxaudit.errors import InputError

Progress = Callable[[int, int], None]
"""`progress(done, total)`: work done, and in total; the caller chooses the unit.

`fit_many` counts model-steps (whole models, for a learner without steps). Padding of the last chunk counts, too.
Divided work counts in units of 1 / `WHOLE`: see `Execution.split`.
"""

WHOLE = 1_000_000
"""The total that `Execution.split` reports."""


@runtime_checkable
class Executor(Protocol):
    """What hands work to workers: a `concurrent.futures.Executor`, or anything with its `submit`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of `fn(*args, **kwargs)` in a worker."""
        ...


@dataclass(frozen=True)
class Execution:
    """How models are trained. It affects time, memory and what is kept on disk; results only by rounding.

    Attributes:
        models_per_batch: models trained at the same time in one program (a chunk); None: chosen by measurement. Models
            trained in chunks of another size differ by rounding, which training amplifies. To repeat a result bit for
            bit, pass the number that it reports.
        progress: called as work is done, one call at a time but not always from the calling thread; None: not called.
        checkpoints: a directory for finished chunks and training states, created if missing; a later call with the same
            arguments resumes from them. None keeps nothing. The models per batch of kept chunks take precedence over
            `models_per_batch`.
        executor: trains the chunks, such as `ensemble.LocalWorkers`, a `ProcessPoolExecutor` of spawned processes,
            Dask's `get_executor()`, executorlib's, or `ensemble.RayWorkers`. This process plans, and keeps what is
            finished; a worker that ended costs the chunk that it trained, which is then trained again. The learner and
            `summarize` go to workers by cloudpickle: what they import must be importable there. None: this process.
        mixed_devices: let workers of other devices, or with other versions of JAX, train chunks too. They round
            differently, so a chunk's numbers then depend on who trained it. By default they are refused.

    >>> Execution(models_per_batch=8)
    Execution(models_per_batch=8, progress=None, checkpoints=None, executor=None, mixed_devices=False)
    """

    models_per_batch: int | None = None
    progress: Progress | None = None
    checkpoints: Path | None = None
    executor: Executor | None = None
    mixed_devices: bool = False

    def at(self, models_per_batch: int | None) -> "Execution":
        """The same with this number of models per batch; None: measured.

        >>> Execution(models_per_batch=8).at(2).models_per_batch
        2
        """
        return replace(self, models_per_batch=models_per_batch)

    def split(self, *weights: int | float) -> "tuple[Execution, ...]":
        """One execution for each part of the work; progress is reported for the whole.

        The total is always `WHOLE` (1,000,000), and progress never decreases. Parts may run in any order, repeatedly,
        or at the same time: each counts by its weight. `WHOLE` is reported once every part with a weight above 0 has
        reported its end; to skip a part, report its end with `progress(1, 1)`. `progress(0, 0)` is also an end. Parts
        may be split again.

        Args:
            weights: the amount of work of each part, in any unit. 0 is allowed, but not for all parts.

        Returns:
            One execution per weight, in the same order. They differ from this one only by their progress; without
            progress they are equal to it.

        Raises:
            InputError: a weight is negative or not finite, or all are 0.

        >>> seen = []
        >>> train, judge = Execution(progress=lambda done, total: seen.append((done, total))).split(3, 1)
        >>> train.progress(5, 10); judge.progress(2, 2); train.progress(10, 10)
        >>> seen
        [(375000, 1000000), (625000, 1000000), (1000000, 1000000)]
        """
        # Not so for no weight at all: work without parts has nothing to report.
        if weights and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
            raise InputError(
                f"weights of parts are {', '.join(f'{weight:g}' for weight in weights)}: give finite numbers of at "
                "least 0, not all 0."
            )
        if self.progress is None:
            return (self,) * len(weights)
        whole = _Whole(self.progress, weights)
        return tuple(replace(self, progress=partial(whole.report, part)) for part in range(len(weights)))


DEFAULT_EXECUTION = Execution()
"""The default: models per batch are measured, no progress is reported, nothing is kept."""


class _Whole:
    """One count of progress over parts of some weight."""

    def __init__(self, progress: Progress, weights: Sequence[int | float]) -> None:
        total = sum(weights)
        self.progress, self.lock = progress, Lock()
        self.shares = [weight / total for weight in weights]
        self.reached, self.done = [0.0] * len(weights), 0.0

    def report(self, part: int, done: int, total: int) -> None:
        reached = done / total if done < total else 1.0
        # Held while others are told, so that they are told in order.
        with self.lock:
            self.done += self.shares[part] * max(0.0, reached - self.reached[part])
            self.reached[part] = max(self.reached[part], reached)
            self.progress(min(round(WHOLE * self.done), WHOLE), WHOLE)
