"""The training jobs that `bench.fit_many` and `bench.models_per_batch` time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxaudit.learners import NetworkLearner, network
from jaxaudit.membership import leave_one_out_masks, random_subset
from jaxaudit.models import MLP, LiuCNN

CLASSES = 10


@dataclass(frozen=True)
class Job:
    """Models to train: everything `fit_many` needs."""

    name: str
    learner: NetworkLearner
    inputs: np.ndarray
    labels: np.ndarray
    keys: Array
    membership: np.ndarray

    @property
    def model_steps(self) -> int:
        """Minibatches of all models together."""
        steps = -(-self.membership.sum(axis=1) // self.learner.batch_size)
        return int(self.learner.epochs * steps.sum())

    def first(self, models: int, epochs: int) -> "Job":
        """The same job for its first models and this many epochs."""
        learner = replace(self.learner, epochs=epochs)
        return replace(self, learner=learner, keys=self.keys[:models], membership=self.membership[:models])


def liu_cnn(models: int = 2, epochs: int = 1) -> Job:
    """Liu's network, 6.4M parameters: convolutions, batch normalisation, Adam, batch size 64."""
    learner = network(LiuCNN, (28, 28, 1), CLASSES, optimizer=optax.adam(1e-3, b1=0.5), epochs=epochs, batch_size=64)
    return Job("CNN, batch 64", learner, *_records(800, (28, 28, 1)), _own_keys(models), _shares(models, 800))


def mlp(models: int = 8, epochs: int = 2, examples: int = 1600) -> Job:
    """784-512-256-128-10, ReLU, Adam, batch size 32; every model on its own four fifths of the records."""
    learner = network(MLP, (28, 28, 1), CLASSES, optimizer=optax.adam(1e-3), epochs=epochs, batch_size=32)
    return Job("MLP, batch 32", learner, *_records(examples, (28, 28, 1)), _own_keys(models), _shares(models, examples))


def leaving_one_out(batch_size: int, models: int, epochs: int = 2) -> Job:
    """836-64-10, tanh, plain gradient descent; every model on 999 of 1,000 records, all with one key."""
    factory: Callable[..., MLP] = partial(MLP, hidden=(64,), activation=jnp.tanh)
    learner = network(factory, (836,), CLASSES, optimizer=optax.sgd(0.01), epochs=epochs, batch_size=batch_size)
    keys = jnp.repeat(jax.random.key(1)[None], models)
    membership = leave_one_out_masks(np.arange(models), 1000)
    return Job(f"leave one out, batch {batch_size}", learner, *_records(1000, (836,)), keys, membership)


def _own_keys(models: int) -> Array:
    return jax.random.split(jax.random.key(1), models)


def _shares(models: int, examples: int) -> np.ndarray:
    random = np.random.default_rng(2)
    rows = [random_subset(random, np.arange(examples), 0.8, examples) for _ in range(models)]
    return np.concatenate(rows)


def _records(examples: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of one pattern a class: enough structure that training gets somewhere."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, examples).astype(np.int32)
    patterns = random.random((CLASSES, *shape), dtype=np.float32)
    return 0.2 * patterns[labels] + 0.8 * random.random((examples, *shape), dtype=np.float32), labels
