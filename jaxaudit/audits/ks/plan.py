"""The size of a `ks` audit: a function of its sets' shapes and of its options. Numbers in, numbers out.

An effort is a number of counted operations (`ensemble/execution.py`), the same on every machine. An audit that would
take more is reduced; what was given by hand stands. No set is refused: where nothing is within the effort, the smallest
audit is made. Records that are left out are drawn at random by the seed alone, outputs in step.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import special

from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.data.examples import Sets
from jaxaudit.ensemble import StepCost
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import POWER

EFFORTS = {"quick": 6e13, "full": math.inf}
"""Counted operations of each effort: on two cores of a CPU, `quick` takes about ten minutes with reading, compiling and
judging."""
FEWEST = 1_000
"""Query records below which a smaller model, and then fewer epochs, are preferred to fewer records."""
LEAST_RECORDS = 200
"""The smallest number of records that a plan chooses."""
LEAST_STEPS = 600
"""If records are reduced, epochs are added until the smallest training set gives this many minibatches: a network that
fits its records badly remembers little of them."""
LEAST_EPOCHS = 5
ROUND = 100
"""Records are rounded to hundreds."""


class Work(NamedTuple):
    """The models of an audit, as far as they affect its cost: records of each set, training records of each simulated
    target for `whole` query records, the tests with rho, and each with the fewest models that the options allow
    (`lightest`).
    """

    query: int
    calibration: int
    holdout: int
    targets: tuple[int, ...]
    whole: int
    tests: tuple[KSTest, ...]
    epochs: int
    batch_size: int
    members: int = 0
    lightest: tuple[KSTest, ...] = ()

    @property
    def sizes(self) -> Sets[int]:
        """The records of each set."""
        return Sets(query=self.query, calibration=self.calibration, holdout=self.holdout, members=self.members)

    @property
    def records(self) -> tuple[int, int, int, int]:
        return self.query, self.calibration, self.holdout, self.members


class Free(NamedTuple):
    """What a plan may reduce beside the models of tests: options that were not given."""

    records: bool
    epochs: bool


class Plan(NamedTuple):
    """An audit of some effort: the index of the model that it trains, that model's cost, and all counted operations."""

    network: int
    work: Work
    cost: StepCost
    operations: float


def members(work: Work) -> Int[np.ndarray, " models"]:
    """The number of training records of each model."""
    scale = work.query / work.whole
    parts = [(models, size) for _, sizes in sizes_of(work.tests, work.sizes) for models, size in sizes]
    parts += [(1, round(scale * target)) for target in work.targets]
    return np.concatenate([np.full(models, max(1, size)) for models, size in parts])


def sizes_of(tests: Iterable[KSTest], set_sizes: Sets[int]) -> Iterator[tuple[KSTest, tuple[tuple[int, int], ...]]]:
    """Each test with the numbers of models and of their training records; models that two tests share count once."""
    kinds_before = set[str]()
    for test in tests:
        kinds = set(test.kinds())
        shared = bool(kinds) and kinds <= kinds_before
        yield test, () if shared else test.training_sizes(set_sizes)
        kinds_before |= kinds


def plan_of(network: int, work: Work, cost: StepCost) -> Plan:
    """The plan of a work: with the operations to train all models, and to evaluate them on all records."""
    sizes = members(work)
    steps = work.epochs * int((-(-sizes // work.batch_size)).sum())
    return Plan(network, work, cost, steps * cost.step + len(sizes) * sum(work.records) * cost.record)


def cost_of(full: Work, plan: Work) -> float:
    """The approximate factor by which the minimum detectable fraction grows from the full work to the plan's: the
    square root of the ratio of records, times the ratio of quantiles for fewer shadow models.
    """

    def quantile(work: Work) -> float:
        models = next((test.references for test in work.tests if test.references), 0)
        return float(special.stdtrit(models - 1, POWER)) if models > 1 else 1.0

    return math.sqrt(full.query / plan.query) * quantile(plan) / quantile(full)


def choose(full: Work, costs: Iterable[StepCost], effort: str, free: Free) -> Plan:
    """The plan of an effort that reduces least; the smallest of all if none is within it.

    In this order: the full work; fewer replicates of rho; the fewest shadow models for a p-value of 0.05; fewer
    records, down to `FEWEST`; the same with the next model, whose cost is only then asked for; fewer epochs, and even
    fewer records.
    """
    most, fewest = EFFORTS[effort], min(FEWEST, full.query)
    for network, cost in enumerate(costs):
        for work in _lighter(full):
            plan = plan_of(network, work, cost)
            if plan.operations <= most:
                return plan
        fewer = _fewer_records(plan, most, free, fewest)
        if fewer.operations <= most:
            return fewer
    epochs = min(work.epochs, LEAST_EPOCHS) if free.epochs else work.epochs
    short = plan._replace(work=work._replace(epochs=epochs))
    return _fewer_records(short, most, free._replace(epochs=False), LEAST_RECORDS)


def _lighter(full: Work) -> Iterator[Work]:
    yield full
    work = full
    for of_guess in (True, False):
        pairs = zip(work.tests, full.lightest, strict=True)
        tests = tuple(light if test.of_guess == of_guess else test for test, light in pairs)
        if tests != work.tests:
            work = work._replace(tests=tests)
            yield work


def _fewer_records(plan: Plan, most: float, free: Free, fewest: int) -> Plan:
    """The plan with the most records that takes at most so many operations, or with the `fewest` records."""
    largest = max(plan.work.records)
    sizes = [fewest, *range(ROUND * (fewest // ROUND + 1), largest + 1, ROUND)] if free.records else [largest]
    low, high = 0, len(sizes)

    def of_size(index: int) -> Plan:
        return plan_of(plan.network, _of_records(plan.work, sizes[index], free.epochs), plan.cost)

    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if of_size(middle).operations <= most else (low, middle)
    return of_size(max(0, low - 1))


def _of_records(work: Work, records: int, more_epochs: bool) -> Work:
    """The work with at most this many records of each set, and enough epochs to learn them."""
    query, calibration, holdout, members = (min(size, records) for size in work.records)
    fewer = work._replace(query=query, calibration=calibration, holdout=holdout, members=members)
    if more_epochs and fewer != work:
        steps = -(-min(query, round(SHARE * calibration)) // work.batch_size)
        fewer = fewer._replace(epochs=max(work.epochs, -(-LEAST_STEPS // steps)))
    return fewer
