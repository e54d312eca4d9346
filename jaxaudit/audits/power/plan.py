"""The size of a `power` measurement: a function of its sets' shapes and of its options. Numbers in, numbers out."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from jaxaudit.audits.ks.plan import EFFORTS, LEAST_EPOCHS, LEAST_RECORDS, ROUND
from jaxaudit.audits.power.finding import ENOUGH_MODELS
from jaxaudit.ensemble import StepCost
from jaxaudit.metrics.shadow import SHARE


class PowerWork(NamedTuple):
    """The models to train, each on half of the query records and a share of the calibration records.

    `design_cost` is the mean cost of a model in that of the guessed design.
    """

    query: int
    calibration: int
    models: int
    epochs: int
    batch_size: int = 64
    design_cost: float = 1.0


class PowerReducible(NamedTuple):
    """What a plan may reduce: the options that the user did not give."""

    models: bool
    records: bool
    epochs: bool


def power_operations(work: PowerWork, cost: StepCost) -> float:
    """The counted operations to train all models and to evaluate them on all records.

    >>> power_operations(PowerWork(100, 150, 20, 15, 50), StepCost(1e6, 10.0, 1))
    900050000.0
    """
    trained = math.ceil(work.query / 2) + round(SHARE * work.calibration)
    steps = work.epochs * math.ceil(trained / work.batch_size)
    return work.models * (steps * work.design_cost * cost.step + (work.query + work.calibration) * cost.record)


def choose_power_work(full: PowerWork, cost: StepCost, effort: str, free: PowerReducible) -> PowerWork:
    """The work of an effort that reduces least; the smallest of all if none is within it.

    In this order: fewer models, down to 19; fewer records, down to 200 of each set; fewer epochs, down to 5. Models are
    added back as long as the work is within the effort.

    >>> full, cost = PowerWork(10_000, 8_000, 40, 15), StepCost(1e9, 0.0, 1)
    >>> choose_power_work(full, cost, "standard", PowerReducible(True, True, True)) == full
    True
    >>> choose_power_work(full, cost, "quick", PowerReducible(False, True, True))[:4]
    (5400, 5400, 40, 15)
    """
    most, works = EFFORTS[effort], [*_lighter(full, free)]
    within = next((work for work in works if power_operations(work, cost) <= most), works[-1])
    more = (within._replace(models=models) for models in range(full.models if free.models else 0, within.models, -1))
    return next((work for work in more if power_operations(work, cost) <= most), within)


def reduced(full: PowerWork, work: PowerWork) -> tuple[str, ...]:
    """What was reduced, in words.

    >>> reduced(PowerWork(2000, 300, 40, 15), PowerWork(500, 300, 19, 15))
    ('models 40 to 19', 'query records 2,000 to 500')
    """
    names = {"models": "models", "query": "query records", "calibration": "calibration records", "epochs": "epochs"}
    sizes = ((words, getattr(full, name), getattr(work, name)) for name, words in names.items())
    return tuple(f"{words} {before:,} to {now:,}" for words, before, now in sizes if now < before)


def _lighter(full: PowerWork, free: PowerReducible) -> Iterator[PowerWork]:
    """The work with fewer and fewer models, then records, then epochs."""
    yield full
    work = full
    for models in range(full.models - 1, ENOUGH_MODELS - 1, -1) if free.models else ():
        work = work._replace(models=models)
        yield work
    most = max(full.query, full.calibration)
    for records in range(ROUND * ((most - 1) // ROUND), LEAST_RECORDS - 1, -ROUND) if free.records else ():
        work = work._replace(query=min(full.query, records), calibration=min(full.calibration, records))
        yield work
    for epochs in range(full.epochs - 1, LEAST_EPOCHS - 1, -1) if free.epochs else ():
        work = work._replace(epochs=epochs)
        yield work
