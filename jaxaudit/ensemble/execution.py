"""How models are trained is one frozen `Execution`, from an audit down to `fit_many`.

An audit of several trainings splits its execution: the progress of each part counts for its share of the whole.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from jaxaudit.errors import check_ranges
from jaxaudit.learners.learner import Progress

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
        models_per_batch: models trained at the same time in one program (a chunk); None: as many as suit the device, by
            the shapes of a step. Models trained in chunks of another size differ by rounding, which training amplifies.
            To repeat a result bit for bit, pass the number that it reports.
        progress: called as work is done, one call at a time but not always from the calling thread.
        checkpoints: a directory for finished chunks, created if missing; a later call with the same arguments resumes
            from them. The models per batch of kept chunks take precedence over `models_per_batch`.
        executor: trains the chunks, such as `ensemble.LocalWorkers`, `ensemble.RayWorkers`, a `ProcessPoolExecutor` of
            spawned processes, Dask's `get_executor()`, or executorlib's. Workers receive the learner and `summarize` by
            cloudpickle, and must be able to import what these import. None: chunks are trained in this process.

    >>> Execution(models_per_batch=8).models_per_batch
    8
    """

    models_per_batch: int | None = None
    progress: Progress | None = None
    checkpoints: Path | None = None
    executor: Executor | None = None

    def at(self, models_per_batch: int | None) -> "Execution":
        """A copy with this number of models per batch; None: the usual one."""
        return replace(self, models_per_batch=models_per_batch)

    def split(self, *weights: int | float) -> "tuple[Execution, ...]":
        """One execution for each part of the work, in order; their progress is reported as that of the whole.

        The total is always `WHOLE` (1,000,000), and progress never decreases. Parts may run in any order, repeatedly,
        or at the same time, and may be split again. `WHOLE` is reported once every part with a weight above 0 has
        reported its end; to skip a part, report its end with `progress(1, 1)`. `progress(0, 0)` is also an end.

        Args:
            weights: the amount of work of each part, in any unit. 0 is allowed, but not for all parts.

        >>> seen = []
        >>> train, judge = Execution(progress=lambda done, total: seen.append((done, total))).split(3, 1)
        >>> train.progress(5, 10); judge.progress(2, 2); train.progress(10, 10)
        >>> seen
        [(375000, 1000000), (625000, 1000000), (1000000, 1000000)]
        """
        # Giving no weights is allowed: work without parts reports nothing.
        check_ranges("[0, inf)", weights=weights)
        check_ranges("(0, inf)", sum_of_weights=sum(weights) if weights else None)
        if self.progress is None:
            return (self,) * len(weights)
        progress, lock, shares = self.progress, Lock(), [weight / sum(weights) for weight in weights]
        reached, done_of_all = [0.0] * len(weights), 0.0

        def report(part: int, done: int, total: int) -> None:
            nonlocal done_of_all
            now = done / total if done < total else 1.0
            # The lock is held during the report, so that reports are in order.
            with lock:
                done_of_all += shares[part] * max(0.0, now - reached[part])
                reached[part] = max(reached[part], now)
                progress(min(round(WHOLE * done_of_all), WHOLE), WHOLE)

        return tuple(replace(self, progress=partial(report, part)) for part in range(len(weights)))


DEFAULT_EXECUTION = Execution()
"""The default: models per batch follow from shapes, no progress is reported, nothing is kept."""
