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
