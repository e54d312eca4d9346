"""The cost of a `ks` audit, and the largest one within a time budget. Numbers in, numbers out: no clock is read.

A budget is a plan made of measured speeds. `ks` on a CPU has ten minutes unless told otherwise. What it then does is a
function of the speeds that this machine remembers, the sizes and the options (`audits/ks/plan.py` looks at no clock):
replicates of rho go first, then shadow models, records, the design, epochs; what was given by hand stands. The plan is
printed before the work with what was reduced and what that costs, it is in the result, and the command that repeats the
run spells it out. Records that are left out are drawn at random by the seed alone, outputs in step.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import special

from jaxaudit.audits.ks.tests import KSTest
from jaxaudit.ensemble import Speed
from jaxaudit.ensemble.plan import chunk_places
from jaxaudit.metrics.effect import POWER
from jaxaudit.metrics.shadow import SHARE

FEWEST = 1_000
"""Query records below which a smaller model, and then fewer epochs, are preferred to fewer records."""
LEAST_RECORDS = 200
"""The smallest number of records that a plan chooses."""
LEAST_STEPS = 600
"""If records are reduced, epochs are added until the smallest training set gives this many minibatches: a network that
fits its records badly remembers little of them."""
LEAST_EPOCHS = 5
ROUND = 100
"""Records are rounded to hundreds, so that small changes of a measured speed rarely change a plan."""


class Work(NamedTuple):
    """The models of an audit, as far as they affect its time.

    Attributes:
        query, calibration, holdout, reference: records of each set; of a reference only if it is a set of its own.
        targets: training records of each simulated target, for `whole` query records.
        tests: the tests, including rho.
        epochs, batch_size: the recipe.
        design_cost: the time that a model of a test takes on average, in that of the guessed design.
    """

    query: int
    calibration: int
    holdout: int
    targets: tuple[int, ...]
    whole: int
    tests: tuple[KSTest, ...]
    epochs: int
    batch_size: int
    design_cost: float = 1.0
    reference: int = 0

    @property
    def records(self) -> tuple[int, int, int, int]:
        return self.query, self.calibration, self.holdout, self.reference


class Free(NamedTuple):
    """What a plan may reduce: options that were not given."""

    records: bool
    epochs: bool
    replicates: bool
    shadows: bool


class Plan(NamedTuple):
    """An audit that fits the budget: the index of the model that it trains, and its estimated time at this speed."""

    design: int
    work: Work
    seconds: float
    speed: Speed


def members(work: Work) -> Int[np.ndarray, " models"]:
    """The number of training records of each model."""
    scale = work.query / work.whole
    # A design that takes twice as long counts as twice as many records.
    parts = [
        (models, size if test.of_guess else round(work.design_cost * size))
        for test, sizes in sizes_of(work.tests, work.query, work.calibration, work.reference)
        for models, size in sizes
    ]
    parts += [(1, round(scale * target)) for target in work.targets]
    return np.concatenate([np.full(models, max(1, size)) for models, size in parts])


def sizes_of(
    tests: Iterable[KSTest], query: int, calibration: int, reference: int
) -> Iterator[tuple[KSTest, tuple[tuple[int, int], ...]]]:
    """Each test with the numbers of models and of their training records; models that two tests share count once."""
    sizes_before = []
    for test in tests:
        sizes = test.training_sizes(query, calibration, reference)
        # With a reference of its own, the reference test trains other models than the shadow test.
        shared = test.shares_models and sizes in sizes_before
        yield test, () if shared else sizes
        sizes_before += [sizes] if test.shares_models else []


def seconds_of(work: Work, speed: Speed) -> float:
    """The time to train all models and to evaluate them on all records."""
    steps = np.sort(-(-members(work) // work.batch_size))[::-1]
    # As `fit_many` trains them: in chunks of one size, each as long as its longest model.
    chunks = [int(steps[indices[0]]) * len(indices) for indices in chunk_places(len(steps), speed.models_per_batch)]
    return work.epochs * sum(chunks) * speed.step + len(steps) * sum(work.records) * speed.record


def memory_of(work: Work, speed: Speed, record_bytes: int) -> int:
    """Bytes of the pool (as read, joined, on the device), of models in training, and of outputs of finished ones."""
    models, records = len(members(work)), sum(work.records)
    return 3 * records * record_bytes + speed.step_bytes + models * records * 24


def cost_of(full: Work, plan: Work) -> float:
    """The approximate factor by which the minimum detectable fraction grows from the full work to the plan's.

    The square root of the ratio of records, times the ratio of quantiles for fewer shadow models.
    """

    def quantile(work: Work) -> float:
        models = next((test.references for test in work.tests if test.references), 0)
        return float(special.stdtrit(models - 1, POWER)) if models > 1 else 1.0

    return math.sqrt(full.query / plan.query) * quantile(plan) / quantile(full)


def choose(full: Work, designs: Iterable[Callable[[], Speed]], budget: float, free: Free) -> Plan | None:
    """The plan within `budget` seconds that reduces least; None if nothing fits.

    In this order: the full work; fewer replicates of rho; the fewest shadow models for a p-value of 0.05; fewer
    records, down to `FEWEST`; the same with the next model, whose speed is only then measured; fewer epochs, and even
    fewer records.
    """
    for index, measure in enumerate(designs):
        speed = measure()
        for work in _lighter(full, free):
            if seconds_of(work, speed) <= budget:
                return Plan(index, work, seconds_of(work, speed), speed)
        fewer = _fewer_records(work, speed, budget, free, min(FEWEST, full.query))
        if fewer is not None:
            return Plan(index, fewer, seconds_of(fewer, speed), speed)
    epochs = min(work.epochs, LEAST_EPOCHS) if free.epochs else work.epochs
    short = _fewer_records(work._replace(epochs=epochs), speed, budget, free._replace(epochs=False), LEAST_RECORDS)
    return None if short is None else Plan(index, short, seconds_of(short, speed), speed)


def least(full: Work, speed: Speed, free: Free) -> Work:
    """The smallest work that `choose` tries with the last model."""
    *_, work = _lighter(full, free)
    if free.epochs:
        work = work._replace(epochs=min(work.epochs, LEAST_EPOCHS))
    return _of_records(work, min(LEAST_RECORDS, work.query), False) if free.records else work


def _lighter(full: Work, free: Free) -> Iterator[Work]:
    yield full
    work = full
    for of_guess, may in ((True, free.replicates), (False, free.shadows)):
        tests = tuple(test.lighter() if test.of_guess == of_guess else test for test in work.tests)
        if may and tests != work.tests:
            work = work._replace(tests=tests)
            yield work


def _fewer_records(work: Work, speed: Speed, budget: float, free: Free, fewest: int) -> Work | None:
    """The work with the most records that fits, at least `fewest` of them."""
    if not free.records:
        return work if seconds_of(work, speed) <= budget else None
    sizes = sorted(
        {fewest, *range(ROUND * -(-fewest // ROUND), max(work.query, work.calibration, work.reference) + 1, ROUND)}
    )
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if seconds_of(_of_records(work, sizes[middle], free.epochs), speed) <= budget:
            low = middle + 1
        else:
            high = middle
    return _of_records(work, sizes[low - 1], free.epochs) if low else None


def _of_records(work: Work, records: int, more_epochs: bool) -> Work:
    """The work with at most this many records of each set, and enough epochs to learn them."""
    query, calibration, holdout, reference = (min(size, records) for size in work.records)
    fewer = work._replace(query=query, calibration=calibration, holdout=holdout, reference=reference)
    if more_epochs and fewer != work:
        steps = -(-min(query, round(SHARE * calibration)) // work.batch_size)
        fewer = fewer._replace(epochs=max(work.epochs, -(-LEAST_STEPS // steps)))
    return fewer
