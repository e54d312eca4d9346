"""Clouds of records that overlap, and a network that learns them by heart."""

from functools import partial

import optax

from jaxaudit.data import Examples
from jaxaudit.learners import network
from jaxaudit.models import MLP
from support.cli_runs import records

NAMES = ("a", "b", "c")
LEARNER = network(partial(MLP, hidden=(32,)), (12,), 3, optimizer=optax.adam(0.02, b1=0.5), epochs=25, batch_size=50)


def examples(seed: int, shift: float, name: str) -> Examples:
    return Examples(*records(seed, shift), NAMES, name)


QUERY, HOLDOUT, CALIBRATION = examples(2, 0.0, "query"), examples(5, 0.0, "holdout"), examples(3, 0.5, "calibration")
