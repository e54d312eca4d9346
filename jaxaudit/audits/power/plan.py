"""The time of a `power` measurement, and the largest one within a budget. Numbers in, numbers out."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from jaxaudit.audits.ks.plan import LEAST_EPOCHS, LEAST_RECORDS, ROUND
from jaxaudit.audits.power.finding import ENOUGH_MODELS
from jaxaudit.ensemble import Speed
from jaxaudit.metrics.shadow import SHARE


class PowerWork(NamedTuple):
    """The models to train, each on half of the query records and a share of the calibration records."""

    query: int
    calibration: int
    models: int
    epochs: int


class TrainingPace(NamedTuple):
    """How long training takes.

    Attributes:
        designs: number of designs that take turns; models of each design are trained separately.
        cost: the mean time of a model, relative to the guessed design, whose `speed` was measured.
    """

    speed: Speed
    batch_size: int
    designs: int = 1
    cost: float = 1.0


class PowerReducible(NamedTuple):
    """What a plan may reduce: the options that the user did not give."""

    models: bool
    records: bool
    epochs: bool


def power_seconds(work: PowerWork, pace: TrainingPace) -> float:
    """The time to train all models and to evaluate them on all records.

    >>> power_seconds(PowerWork(100, 150, 20, 15), TrainingPace(Speed(8, 0.01, 0.0, 1), 50, designs=2))
    14.4
    """
    trained = math.ceil(work.query / 2) + round(SHARE * work.calibration)
    steps = work.epochs * math.ceil(trained / pace.batch_size)
    # A partly filled chunk takes as long as a full one.
    size = pace.speed.models_per_batch
    models = pace.designs * size * math.ceil(math.ceil(work.models / pace.designs) / size)
    return (
        models * steps * pace.cost * pace.speed.step + work.models * (work.query + work.calibration) * pace.speed.record
    )


def choose_power_work(full: PowerWork, pace: TrainingPace, budget: float, free: PowerReducible) -> PowerWork | None:
    """The work within `budget` seconds that reduces least; None if nothing fits.

    In this order: fewer models, down to 19; fewer records, down to 200 of each set; fewer epochs, down to 5. Models are
    added back as long as the work still fits.

    >>> full, pace = PowerWork(10_000, 8_000, 40, 15), TrainingPace(Speed(8, 0.01, 0.0, 1), 64)
    >>> choose_power_work(full, pace, 2000.0, PowerReducible(True, True, True)) == full
    True
    >>> choose_power_work(full, pace, 300.0, PowerReducible(False, True, True))
    PowerWork(query=2700, calibration=2700, models=40, epochs=15)
    """
    fitting = next((work for work in _lighter(full, free) if power_seconds(work, pace) <= budget), None)
    if fitting is None or not free.models:
        return fitting
    more = (fitting._replace(models=models) for models in range(full.models, fitting.models, -1))
    return next((work for work in more if power_seconds(work, pace) <= budget), fitting)


def least_power_work(full: PowerWork, free: PowerReducible) -> PowerWork:
    """The smallest work that `choose_power_work` tries."""
    return [*_lighter(full, free)][-1]


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
