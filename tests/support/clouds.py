"""Clouds of records that overlap, a network that learns them by heart, and files of what such models say."""

from functools import partial

import jax
import numpy as np
import optax
from scipy import special

from jaxaudit import FileTarget, Sets
from jaxaudit.data import Examples, Outputs
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.models import MLP
from support.cli_runs import RECORDS, records
from support.tiny_learners import compiled_fit

NAMES = ("a", "b", "c")
LEARNER = network(partial(MLP, hidden=(32,)), (12,), 3, optimizer=optax.adam(0.02, b1=0.5), epochs=25, batch_size=50)


def examples(seed: int, shift: float, name: str, count: int = RECORDS) -> Examples:
    return Examples(*records(seed, shift, count), NAMES, name)


QUERY, HOLDOUT, CALIBRATION = examples(2, 0.0, "query"), examples(5, 0.0, "holdout"), examples(3, 0.5, "calibration")
DEALT = (examples(2, 0.0, "query", 150), examples(5, 0.0, "holdout", 150), examples(7, 0.0, "members", 150))
"""Query set, holdout and known members, where nothing is trained but what the records teach."""


def probabilities(values: np.ndarray, name: str) -> Outputs:
    """A file of these probabilities."""
    return Outputs(values.astype(np.float32), "probabilities", None, "float32", name)


def with_log_odds(odds: np.ndarray, of: Examples, name: str) -> Outputs:
    """A file with these log-odds of each record's class."""
    own = special.expit(odds)
    values = np.repeat((1 - own)[:, None] / 2, 3, axis=1)
    values[np.arange(len(own)), of.labels] = own
    return probabilities(values, name)


def replaced(target: FileTarget, **on: Outputs | None) -> FileTarget:
    """The target with these outputs, or none, on the sets of these names."""
    return target._replace(on=Sets(**{**{str(role): file for role, file in target.on.items()}, **on}))


def trained_outputs(
    learner: NetworkLearner, seed: int, trained_on: list[Examples], asked: list[Examples], name: str
) -> list[Outputs]:
    """What one model says of several sets, a file each."""
    inputs = np.concatenate([each.inputs for each in trained_on])
    labels = np.concatenate([each.labels for each in trained_on])
    params = compiled_fit(learner)(jax.random.key(seed), inputs, labels, np.ones(len(labels), np.float32))
    said = (learner.log_probs(params, jax.numpy.asarray(each.inputs)) for each in asked)
    return [probabilities(np.exp(np.asarray(each)), name) for each in said]
