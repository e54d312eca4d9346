"""How models are trained, apart from which: the one value that passes from an audit down to `fit_many`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

from jaxaudit.errors import InputError

Progress = Callable[[int, int], None]
"""`progress(done, total)`: how much of the work is finished, and of how much; the unit is the caller's.

`fit_many` counts model-steps (whole models, for a learner without steps). Copies that fill a last chunk up count like
models. Work that is divided counts in `WHOLE`ths: see `Execution.split`.
"""

WHOLE = 1_000_000
"""What `Execution.split` calls the whole of the work."""


@dataclass(frozen=True)
class Execution:
    """How models are trained. It decides time, memory and what is kept on disk, and no result but by rounding.

    Attributes:
        models_per_batch: models trained side by side in one program, a chunk; None has it chosen by measurement. Models
            trained in chunks of another size differ by rounding, which training amplifies: pass the number that a
            result reports to repeat it bit for bit.
        progress: called as work is done, one call at a time but not always from the calling thread; None tells nobody.
        checkpoints: a directory to keep finished chunks and training states in, made where there is none, from which
            a later call with the same arguments goes on; None keeps nothing. The number of models a batch of what is
            kept there wins over `models_per_batch`.

    >>> Execution(models_per_batch=8)
    Execution(models_per_batch=8, progress=None, checkpoints=None)
    """

    models_per_batch: int | None = None
    progress: Progress | None = None
    checkpoints: Path | None = None

    def at(self, models_per_batch: int | None) -> "Execution":
        """The same with this number of models trained side by side; None has it measured.

        >>> Execution(models_per_batch=8).at(2).models_per_batch
        2
        """
        return replace(self, models_per_batch=models_per_batch)

    def split(self, *weights: int | float) -> "tuple[Execution, ...]":
        """One execution for each part of the work, whose progress reports the part's share of one whole.

        What is reported is always of `WHOLE` (1,000,000) and never less than before. Parts may be taken up in any
        order, again, or at the same time: each counts for its own weight. Once every part with a weight above 0 has
        reported its end, `WHOLE` is reported; so whoever leaves a part out ends it, with `progress(1, 1)`. A part of
        nothing (`progress(0, 0)`) is at its end. What is split may be split again.

        Args:
            weights: how much work each part is, in any one unit. 0 is allowed, but not for all of them.

        Returns:
            As many executions as weights, in their order. They differ from this one by their progress alone, and not at
            all where there is none.

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
                f"the parts of some work weigh {', '.join(f'{weight:g}' for weight in weights)}: give finite numbers "
                "of at least 0, not all of them 0."
            )
        if self.progress is None:
            return (self,) * len(weights)
        whole = _Whole(self.progress, weights)
        return tuple(replace(self, progress=partial(whole.report, part)) for part in range(len(weights)))


DEFAULT_EXECUTION = Execution()
"""The number of models a batch is measured, nobody is told, nothing is kept."""


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
