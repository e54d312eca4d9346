"""What a `ks` audit takes, and the largest one that a time budget has room for. Numbers in, numbers out.

The same speeds, sizes and budget give the same plan: nothing here looks at a clock.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import stats

from jaxaudit.audits.ks.tests import KSTest, RhoTest
from jaxaudit.ensemble import Speed
from jaxaudit.ensemble.plan import chunk_places
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import POWER

FEWEST = 1_000
"""Query records below which a smaller design is preferred to fewer records, and fewer epochs are."""
LEAST_RECORDS = 200
"""No plan has fewer records of its own accord."""
LEAST_STEPS = 600
"""Where records are taken away, epochs are added until the smallest training set makes so many minibatches: a
network that fits its records badly remembers little of them."""
LEAST_EPOCHS = 5
ROUND = 100
"""Records come in hundreds, so that a speed that is measured a little otherwise rarely changes a plan."""


class Work(NamedTuple):
    """The models of an audit, as far as they decide its time.

    Attributes:
        query, calibration, holdout: records of each set.
        targets: what each simulated target is trained on, in records where `query` and `calibration` are whole.
        whole: the query records that `targets` were counted at.
        tests: that are made, rho among them.
        epochs, batch_size: the recipe.
    """

    query: int
    calibration: int
    holdout: int
    targets: tuple[int, ...]
    whole: int
    tests: tuple[KSTest, ...]
    epochs: int
    batch_size: int


class Free(NamedTuple):
    """What a plan may reduce: what was not given by hand.

    Attributes:
        records, epochs, replicates, shadows: whether.
    """

    records: bool
    epochs: bool
    replicates: bool
    shadows: bool


class Plan(NamedTuple):
    """An audit that fits.

    Attributes:
        design: which of the designs it trains, by number.
        work: what is trained.
        seconds: what it will take.
        speed: what that was computed from.
    """

    design: int
    work: Work
    seconds: float
    speed: Speed


def members(work: Work) -> Int[np.ndarray, " models"]:
    """How many records each model is trained on."""
    scale = work.query / work.whole
    parts = [each for test in work.tests for each in test.training_sizes(work.query, work.calibration)]
    parts += [(1, round(scale * target)) for target in work.targets]
    return np.concatenate([np.full(models, max(1, size)) for models, size in parts])


def seconds_of(work: Work, speed: Speed) -> float:
    """What training all models, and asking them about all records, takes."""
    steps = np.sort(-(-members(work) // work.batch_size))[::-1]
    # As `fit_many` trains them: in chunks of one size, each as long as its longest model.
    chunks = [int(steps[places[0]]) * len(places) for places in chunk_places(len(steps), speed.models_per_batch)]
    asked = work.query + work.calibration + work.holdout
    return work.epochs * sum(chunks) * speed.step + len(steps) * asked * speed.record


def memory_of(work: Work, speed: Speed, record_bytes: int, concurrent_chunks: int) -> int:
    """Bytes of the pool (as read, as one, on the device), of models under way, and of what is kept of those done."""
    models, asked = len(members(work)), work.query + work.calibration + work.holdout
    under_way = concurrent_chunks * speed.models_per_batch * 2 * speed.state_bytes
    return 3 * asked * record_bytes + under_way + models * asked * 24


def cost_of(full: Work, plan: Work) -> float:
    """How many times the smallest share that would be noticed grows from the full work to the plan's, about.

    The square root of the records lost (a test's noise shrinks so), times the quantile of fewer shadow models.
    """

    def quantile(work: Work) -> float:
        models = next((test.references for test in work.tests if test.references), 0)
        return float(stats.t.ppf(POWER, models - 1)) if models > 1 else 1.0

    return math.sqrt(full.query / plan.query) * quantile(plan) / quantile(full)


def choose(full: Work, designs: Iterable[Callable[[], Speed]], budget: float, free: Free) -> Plan | None:
    """The plan that loses least within `budget` seconds; None where nothing fits.

    In this order: the full work; fewer replicates of rho; the fewest shadow models that a p-value of 0.05 takes; fewer
    records, down to `FEWEST`; the same with the next design; then fewer epochs, and fewer records still.

    Args:
        full: the work that is asked for.
        designs: measures each design, the wanted one first; called only for those that are looked at.
        budget: seconds.
        free: what may be reduced.
    """
    looked_at: list[tuple[int, Speed]] = []
    for index, measure in enumerate(designs):
        speed = measure()
        looked_at.append((index, speed))
        for work in _lighter(full, free):
            if seconds_of(work, speed) <= budget:
                return Plan(index, work, seconds_of(work, speed), speed)
        fewer = _fewer_records(work, speed, budget, free, min(FEWEST, full.query))
        if fewer is not None:
            return Plan(index, fewer, seconds_of(fewer, speed), speed)
    index, speed = looked_at[-1]
    *_, work = _lighter(full, free)
    epochs = min(work.epochs, LEAST_EPOCHS) if free.epochs else work.epochs
    short = _fewer_records(work._replace(epochs=epochs), speed, budget, free._replace(epochs=False), LEAST_RECORDS)
    return None if short is None else Plan(index, short, seconds_of(short, speed), speed)


def least(full: Work, speed: Speed, free: Free) -> Work:
    """The smallest work that `choose` would look at with the last design."""
    *_, work = _lighter(full, free)
    if free.epochs:
        work = work._replace(epochs=min(work.epochs, LEAST_EPOCHS))
    return _of_records(work, min(LEAST_RECORDS, work.query), False) if free.records else work


def _lighter(full: Work, free: Free) -> Iterator[Work]:
    """The work with ever fewer models."""
    yield full
    work = full
    for lighter, may in ((_fewer_replicates, free.replicates), (_fewer_shadows, free.shadows)):
        tests = tuple(map(lighter, work.tests))
        if may and tests != work.tests:
            work = work._replace(tests=tests)
            yield work


def _fewer_replicates(test: KSTest) -> KSTest:
    return test.lighter() if isinstance(test, RhoTest) else test


def _fewer_shadows(test: KSTest) -> KSTest:
    return test if isinstance(test, RhoTest) else test.lighter()


def _fewer_records(work: Work, speed: Speed, budget: float, free: Free, fewest: int) -> Work | None:
    """The work with the most records that fits, at least `fewest` of them."""
    if not free.records:
        return work if seconds_of(work, speed) <= budget else None
    sizes = sorted({fewest, *range(ROUND * -(-fewest // ROUND), max(work.query, work.calibration) + 1, ROUND)})
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if seconds_of(_of_records(work, sizes[middle], free.epochs), speed) <= budget:
            low = middle + 1
        else:
            high = middle
    return _of_records(work, sizes[low - 1], free.epochs) if low else None


def _of_records(work: Work, records: int, more_epochs: bool) -> Work:
    """The work with at most so many records of each set, and epochs enough to learn them."""
    query, calibration, holdout = (min(size, records) for size in (work.query, work.calibration, work.holdout))
    fewer = work._replace(query=query, calibration=calibration, holdout=holdout)
    if more_epochs and fewer != work:
        steps = -(-min(query, round(SHARE * calibration)) // work.batch_size)
        fewer = fewer._replace(epochs=max(work.epochs, -(-LEAST_STEPS // steps)))
    return fewer
