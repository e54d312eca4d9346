"""The mean gradient of some examples, and the similarity of each one's gradient to it."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import check_ranges
from jaxaudit.kernels.gradient_norms.norms import LogProb, Records

CHUNK = 256


class Similarity(NamedTuple):
    """The similarity of each example's gradient to a direction; larger if a step along it helps the example more.

    Attributes:
        along: the component of the gradient along the direction, g . v / |v|: the first-order change of the example's
            log-probability, in nats per unit of step.
        cosine: `along` / |g|, in [-1, 1]; NaN where the gradient or the direction is 0.
    """

    along: Float[np.ndarray, " n"]
    cosine: Float[np.ndarray, " n"]


def mean_gradient(
    log_prob: LogProb,
    params: Any,
    inputs: Records,
    labels: Records,
    *,
    constants: tuple[Any, ...] = (),
    chunk: int | None = None,
) -> Any:
    """The mean over examples of the gradient of the log-probability; a pytree like `params` of NumPy arrays in float64.

    It costs one ordinary gradient. Chunks (256 examples by default) are differentiated in the precision of the
    parameters and added in float64. The arguments are those of `squared_grad_norms`, but `log_prob` gets the examples
    of a chunk together, so none may depend on the others.

    >>> def log_prob(params, inputs, labels):
    ...     return inputs @ params
    >>> mean_gradient(log_prob, jnp.zeros(2), jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros(2))
    array([2., 1.])
    """
    leaves, tree = jax.tree.flatten(params)
    total = [np.zeros(leaf.shape) for leaf in leaves]
    with jax.default_matmul_precision("highest"):
        for some in _chunks(inputs, labels, chunk):
            gradient = _summed_gradient(log_prob, params, *some, constants)
            chunk_leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(gradient)]
            total = [a + b for a, b in zip(total, chunk_leaves, strict=True)]
    return jax.tree.unflatten(tree, [leaf_sum / _count(inputs, labels) for leaf_sum in total])


def gradient_similarity(
    log_prob: LogProb,
    params: Any,
    inputs: Records,
    labels: Records,
    *,
    direction: Any,
    squared_norms: Float[Array | np.ndarray, " n"],
    constants: tuple[Any, ...] = (),
    chunk: int | None = None,
) -> Similarity:
    """The cosine of every example's gradient with a direction, such as the mean gradient of these examples.

    g_i . v is the derivative of log p_i along v: one forward-mode pass gives it for all examples, without computing any
    per-example gradient. Functions without forward mode are differentiated in reverse mode twice. The similarity is
    that of Charpiat, Girard, Felardos & Tarabalka (2019), "Input similarity from the neural network perspective".

    Guarantees: if the direction is the mean gradient, the mean of `along` over the examples is its norm. The cosine
    does not depend on the direction's length.

    Args:
        log_prob, params, inputs, labels, constants, chunk: as in `mean_gradient`.
        direction: a pytree like the parameters.
        squared_norms: the squared gradient norms of the examples.

    >>> def log_prob(params, inputs, labels):
    ...     return inputs @ params
    >>> from jaxaudit.kernels import squared_grad_norms
    >>> model = log_prob, jnp.zeros(2), jnp.array([[3.0, 0.0], [0.0, 3.0]]), jnp.zeros(2)
    >>> mean, norms = mean_gradient(*model), squared_grad_norms(*model).total
    >>> found = gradient_similarity(*model, direction=mean, squared_norms=norms)
    >>> found.along.round(4).tolist(), found.cosine.round(4).tolist()
    ([2.1213, 2.1213], [0.7071, 0.7071])
    """
    length = np.sqrt(sum(float(np.sum(np.square(np.asarray(leaf, np.float64)))) for leaf in jax.tree.leaves(direction)))
    unit = jax.tree.map(
        lambda leaf, of: jnp.asarray(np.asarray(of, np.float64) / (length or 1), leaf.dtype), params, direction
    )
    with jax.default_matmul_precision("highest"):
        parts = [_along(log_prob, params, unit, *some, constants) for some in _chunks(inputs, labels, chunk)]
    along, norms = np.concatenate(parts), np.sqrt(np.asarray(squared_norms, np.float64))
    defined = (norms > 0) & (length > 0)
    cosine = np.divide(along, norms, out=np.full(len(along), np.nan), where=defined)
    return Similarity(along, np.clip(cosine, -1, 1))


def _count(inputs: Records, labels: Records) -> int:
    return len(jax.tree.leaves((inputs, labels))[0])


def _chunks(inputs: Records, labels: Records, chunk: int | None) -> Iterator[tuple[Any, Any]]:
    check_ranges("[1, inf)", examples=_count(inputs, labels))
    size = chunk or CHUNK
    for start in range(0, _count(inputs, labels), size):
        part = slice(start, start + size)
        yield jax.tree.map(lambda array, part=part: jnp.asarray(array[part]), (inputs, labels))


@partial(jax.jit, static_argnums=0)
def _summed_gradient(log_prob: LogProb, params: Any, inputs: Any, labels: Any, constants: tuple[Any, ...]) -> Any:
    return jax.grad(lambda params: jnp.sum(log_prob(params, inputs, labels, *constants)))(params)


def _along(
    log_prob: LogProb, params: Any, direction: Any, inputs: Any, labels: Any, constants: tuple[Any, ...]
) -> Float[np.ndarray, " n"]:
    """The derivative of every example's value along the direction."""
    try:
        derivative = _forwards(log_prob, params, direction, inputs, labels, constants)
    except TypeError:  # a function with a derivative of its own has the backward mode only
        derivative = _backwards_twice(log_prob, params, direction, inputs, labels, constants)
    return np.asarray(derivative, np.float64)


@partial(jax.jit, static_argnums=0)
def _forwards(
    log_prob: LogProb, params: Any, direction: Any, inputs: Any, labels: Any, constants: tuple[Any, ...]
) -> Array:
    return jax.jvp(lambda params: log_prob(params, inputs, labels, *constants), (params,), (direction,))[1]


@partial(jax.jit, static_argnums=0)
def _backwards_twice(
    log_prob: LogProb, params: Any, direction: Any, inputs: Any, labels: Any, constants: tuple[Any, ...]
) -> Array:
    """The same by reverse mode twice: the vector-Jacobian product is linear, and its own one is the forward mode."""
    log_probs, pull = jax.vjp(lambda params: log_prob(params, inputs, labels, *constants), params)
    _, push = jax.vjp(lambda weights: pull(weights)[0], jnp.zeros_like(log_probs))
    return push(direction)[0]
