"""A small network to unlearn of, and its gradients one record at a time."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaudit.learners.learner import own_batches

KEY = jax.random.key(3)
COUNT = 17
_RANDOM = np.random.default_rng(4)
INPUTS = _RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
LABELS = _RANDOM.integers(0, 3, COUNT).astype(np.int32)
FORGET = np.isin(np.arange(COUNT), [1, 4, 5, 11, 16])
PARAMS = {
    "hidden": {"kernel": _RANDOM.normal(size=(4, 6)).astype(np.float32), "bias": np.zeros(6, np.float32)},
    "output": {"kernel": _RANDOM.normal(size=(6, 3)).astype(np.float32), "bias": np.zeros(3, np.float32)},
}


def log_probs(params: Any, inputs: Any) -> Any:
    hidden = jnp.tanh(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return jax.nn.log_softmax(hidden @ params["output"]["kernel"] + params["output"]["bias"])


def cross_entropy(params: Any, x: Any, y: Any) -> Any:
    return -log_probs(params, x[None])[0, y]


def asked(set_: np.ndarray = FORGET) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs, labels and a set of records."""
    return jnp.asarray(INPUTS), jnp.asarray(LABELS), jnp.asarray(set_)


@cache
def _compiled_gradient(loss: Any) -> Any:
    return jax.jit(jax.grad(loss))


def gradient_of(loss: Any, params: Any, record: int, label: int | None = None) -> Any:
    """Of one record, as if it had this label or with its own."""
    y = LABELS[record] if label is None else np.int32(label)
    return jax.tree.map(np.asarray, _compiled_gradient(loss)(params, INPUTS[record], y))


def passed(key: Any, epoch: int, rows: Any, batch_size: int) -> list[np.ndarray]:
    """The records of every step of a pass over these rows, as a network would take them."""
    members = np.flatnonzero(rows)
    bits = np.asarray(jax.random.bits(jax.random.fold_in(key, epoch), (len(rows),)))[: len(members)]
    records, real = own_batches(bits, members, batch_size)
    return [batch[weights > 0] for batch, weights in zip(records, real, strict=True)]


def assert_close(found: Any, expected: Any, rtol: float = 2e-4) -> None:
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=2e-6)


def combined(weights: tuple[float, ...], *trees: Any) -> Any:
    """The sum of these, weighted."""
    return jax.tree.map(
        lambda *leaves: sum(np.float32(w) * leaf for w, leaf in zip(weights, leaves, strict=True)), *trees
    )


class Adam:
    """Loshchilov & Hutter (2019), algorithm 2; without decay, Kingma & Ba (2015), algorithm 1."""

    def __init__(self, params: Any, decay: float = 0.0) -> None:
        self.first = self.second = jax.tree.map(np.zeros_like, params)
        self.count, self.decay = 0, decay

    def step(self, params: Any, gradient: Any, rate: float) -> Any:
        self.count += 1
        self.first = combined((0.9, 0.1), self.first, gradient)
        self.second = combined((0.999, 0.001), self.second, jax.tree.map(np.square, gradient))

        def moved(leaf: Any, m: Any, s: Any) -> Any:
            step = (m / (1 - 0.9**self.count)) / (np.sqrt(s / (1 - 0.999**self.count)) + 1e-8)
            return leaf - np.float32(rate) * (step + self.decay * leaf)

        return jax.tree.map(moved, params, self.first, self.second)
