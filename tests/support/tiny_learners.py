"""Small learners and data for the tests of training, each learner compiled once for all of them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxaudit.learners import NetworkLearner, network
from jaxaudit.models import MLP

CLASSES = 3
EPSILON = 1e-2
"""Adam's: large, so that an update is at most `rate / EPSILON` times as far off as its gradient."""


def records(count: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs, and labels that follow from them."""
    random = np.random.default_rng(count)
    inputs = random.normal(size=(count, *shape)).astype(np.float32)
    scores = inputs.reshape(count, -1) @ random.normal(size=(int(np.prod(shape)), CLASSES))
    return inputs, scores.argmax(axis=1).astype(np.int32)


def softmax_regression(input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> MLP:
    return MLP(input_shape, classes, rngs=rngs, hidden=())


def small_mlp(input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> MLP:
    return MLP(input_shape, classes, rngs=rngs, hidden=(5,), activation=jnp.tanh)


class Normed(nnx.Module):
    """With batch normalisation."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, momentum=0.9, rngs=rngs)
        self.output = nnx.Linear(5, classes, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.output(jnp.tanh(self.norm(self.dense(inputs))))


class Dropped(nnx.Module):
    """With dropout."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], 8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.output = nnx.Linear(8, classes, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.output(self.drop(jnp.tanh(self.dense(inputs))))


class Convolved(nnx.Module):
    """With a convolution."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(input_shape[2], 2, (3, 3), padding="VALID", rngs=rngs)
        self.output = nnx.Linear((input_shape[0] - 2) * (input_shape[1] - 2) * 2, classes, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.output(jnp.tanh(self.conv(inputs)).reshape(len(inputs), -1))


class ConvolvedNormed(Convolved):
    """With a convolution and batch normalisation."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(input_shape, classes, rngs=rngs)
        self.norm = nnx.BatchNorm(2, momentum=0.9, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.output(jnp.tanh(self.norm(self.conv(inputs))).reshape(len(inputs), -1))


def adam() -> optax.GradientTransformation:
    return optax.adam(0.05, eps=EPSILON)


def averaging(rate: float) -> optax.GradientTransformation:
    """Gradient descent towards the running mean of the parameters, which is its state."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        mean = jax.tree.map(lambda m, p: 0.8 * m + 0.2 * p, state, params)
        return jax.tree.map(lambda g, m, p: -rate * g + 0.1 * (m - p), updates, mean, params), mean

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


OPTIMIZERS = {
    "adam": adam(),
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.05, momentum=0.9),
    "averaging": averaging(0.1),
}


@lru_cache
def learner(
    module: Any = small_mlp,
    shape: tuple[int, ...] = (4,),
    optimizer: str = "adam",
    epochs: int = 2,
    batch_size: int = 4,
) -> NetworkLearner:
    return network(module, shape, CLASSES, optimizer=OPTIMIZERS[optimizer], epochs=epochs, batch_size=batch_size)


def diverging() -> NetworkLearner:
    """Of which every number is NaN after the first step."""
    return network(small_mlp, (4,), CLASSES, optimizer=optax.scale(np.nan), epochs=1, batch_size=20)


def jitter(key: Any, inputs: Any) -> Any:
    """An augmentation."""
    return inputs + 0.3 * jax.random.normal(key, inputs.shape)


@lru_cache
def compiled_fit(learner: Any) -> Any:
    return jax.jit(learner.fit)


@dataclass(frozen=True)
class NearestCentroid:
    """A learner without steps: the mean of every class."""

    classes: int = CLASSES

    def fit(self, key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        member = weights[:, None] * jax.nn.one_hot(labels, self.classes)
        return member.T @ inputs / jnp.maximum(member.sum(axis=0), 1)[:, None]

    def log_probs(self, params: Any, inputs: Any) -> Any:
        return jax.nn.log_softmax(-jnp.sum((inputs[:, None] - params) ** 2, axis=2))


class Diverged(NearestCentroid):
    """No output is a number, as after a training that diverged."""

    def log_probs(self, params: Any, inputs: Any) -> Any:
        return jnp.nan * super().log_probs(params, inputs)


def numbers(params: Any) -> list[np.ndarray]:
    """The leaves in NumPy, where an index is no program; random keys as their words."""
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(params)
    ]
    return [np.asarray(leaf, np.float64) for leaf in leaves]


def flat(params: Any) -> np.ndarray:
    """All numbers of one model's parameters and state in one row."""
    return np.concatenate([np.zeros(0), *map(np.ravel, numbers(params))])


def flat_rows(params: Any, models: int) -> np.ndarray:
    """The same for parameters with a leading models axis: a row a model."""
    rows = [leaf[:models].reshape(models, -1) for leaf in numbers(params)]
    return np.concatenate([np.zeros((models, 0)), *rows], axis=1)
