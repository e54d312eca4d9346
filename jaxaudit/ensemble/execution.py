"""How models are trained: one value that an audit passes down to `fit_many`.

Execution is a value. How models are trained (`models_per_batch`, who is told of progress, where finished chunks are
kept) is one frozen `Execution`, which passes from an audit down to `fit_many`. An audit of several trainings splits it:
each part gets an execution of its own, whose progress counts for its share of the one whole.
"""

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
"""`progress(done, total)`: how much work is done, and how much there is in total, in a unit of the reporter's choice.

`fit_many` counts model-steps (models, for a learner without steps), including the padding of the last chunk. After
`Execution.split`, work is counted in millionths (`WHOLE`).
"""

WHOLE = 1_000_000
"""The total that `Execution.split` reports."""


@runtime_checkable
class Executor(Protocol):
    """Any object with the `submit` method of `concurrent.futures.Executor`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of `fn(*args, **kwargs)` in a worker."""
        ...


@dataclass(frozen=True)
class Execution:
    """How models are trained: this affects time, memory and files on disk, and results only by rounding.

    Attributes:
        models_per_batch: models trained at the same time in one program (a chunk); None: chosen by measurement. Models
            trained in chunks of another size differ by rounding, which training amplifies. To repeat a result bit for
            bit, pass the number that it reports.
        progress: called as work is done, one call at a time but not always from the calling thread; None: not called.
        checkpoints: a directory for finished chunks and training states, created if missing; a later call with the same
            arguments resumes from them. None keeps nothing. The models per batch of kept chunks take precedence over
            `models_per_batch`.
        executor: trains the chunks, such as `ensemble.LocalWorkers`, `ensemble.RayWorkers`, a `ProcessPoolExecutor`
            of spawned processes, Dask's `get_executor()`, or executorlib's. This process plans and keeps the results.
            If a worker ends, only its chunk is trained again. The learner and `summarize` are sent by cloudpickle: the
            modules that they import must be importable in workers. None: chunks are trained in this process.
        mixed_devices: accept workers with other devices or other versions of JAX. They round differently, so a
            chunk's numbers then depend on which worker trained it. By default such workers are refused.

    >>> Execution(models_per_batch=8).models_per_batch
    8
    """

    models_per_batch: int | None = None
    progress: Progress | None = None
    checkpoints: Path | None = None
    executor: Executor | None = None
    mixed_devices: bool = False

    def at(self, models_per_batch: int | None) -> "Execution":
        """A copy with this number of models per batch; None: chosen by measurement.

        >>> Execution(models_per_batch=8).at(2).models_per_batch
        2
        """
        return replace(self, models_per_batch=models_per_batch)

    def split(self, *weights: int | float) -> "tuple[Execution, ...]":
        """One execution for each part of the work; their progress is reported as that of the whole.

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
        # Giving no weights is allowed: work without parts reports nothing.
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
    """Adds up the progress of weighted parts."""

    def __init__(self, progress: Progress, weights: Sequence[int | float]) -> None:
        total = sum(weights)
        self.progress, self.lock = progress, Lock()
        self.shares = [weight / total for weight in weights]
        self.reached, self.done = [0.0] * len(weights), 0.0

    def report(self, part: int, done: int, total: int) -> None:
        reached = done / total if done < total else 1.0
        # The lock is held during the report, so that reports are in order.
        with self.lock:
            self.done += self.shares[part] * max(0.0, reached - self.reached[part])
            self.reached[part] = max(self.reached[part], reached)
            self.progress(min(round(WHOLE * self.done), WHOLE), WHOLE)
