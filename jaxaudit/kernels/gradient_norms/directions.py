"""The mean gradient of some examples, the similarity of each one's gradient to it, and the true Fisher information.

The true Fisher information is exact in as many passes as the network has outputs, since a likelihood says which scores
and weights it is a sum of (`kernels/likelihoods.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import check_ranges
from jaxaudit.kernels.gradient_norms.norms import LogProb, Records, SquaredGradNorms, squared_grad_norms
from jaxaudit.kernels.likelihoods import CATEGORICAL, Likelihood

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


Outputs = Callable[[Any, Any], Array]


@dataclass(frozen=True)
class _Score:
    """A score function of an example, with the score's index in place of the label; equal ones share a program."""

    outputs: Outputs
    likelihood: Likelihood

    def __call__(self, params: Any, inputs: Any, k: Any) -> Array:
        return self.likelihood.score(self.outputs(params, inputs), k)


def expected_squared_grad_norms(
    outputs: Outputs,
    params: Any,
    inputs: Records,
    *,
    likelihood: Likelihood = CATEGORICAL,
    chunk: int | None = None,
) -> SquaredGradNorms:
    """The exact expectation over y ~ p(y | x) of |gradient of log p(y | x)|^2, for every example and leaf.

    Its mean over the examples is the trace of the true Fisher information, which does not depend on the labels. With
    the actual labels in place of y it would be the empirical one (Kunstner, Balles & Hennig 2019, "Limitations of the
    empirical Fisher approximation for natural gradient descent", section 2). It is a sum over the K outputs of the
    network: of p_k |gradient of log p_k|^2 for classes, p_k (1 - p_k) |gradient of z_k|^2 for independent labels, and
    |gradient of mu_k|^2 / sigma^2 for Gaussian outputs.

    It costs K times as much as `squared_grad_norms`, and is as exact; arguments and errors are those of that function,
    but `outputs` is `(params, inputs) -> [n, K]`, and `likelihood` the distribution of their labels.

    >>> import numpy as np
    >>> found = expected_squared_grad_norms(lambda p, x: x @ p, jnp.zeros((2, 2)), np.eye(2, dtype=np.float32))
    >>> found.total.tolist()
    [0.5, 0.5]
    """
    n = len(jax.tree.leaves(inputs)[0])
    check_ranges("[1, inf)", examples=n)
    weights = _weights(outputs, likelihood, params, inputs, n, chunk or CHUNK)
    total, norms = None, None
    for k in range(weights.shape[1]):
        labels = np.full(n, k, np.int32)
        norms = squared_grad_norms(_Score(outputs, likelihood), params, inputs, labels, chunk=chunk)
        # A class of probability 0 may have a gradient of any size, but has weight 0.
        part = jax.tree.map(lambda leaf, w=weights[:, k]: jnp.where(w > 0, w * leaf, 0), norms.leaves)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    assert norms is not None
    return SquaredGradNorms(total, norms.paths_of_leaves)


def _weights(
    outputs: Outputs, likelihood: Likelihood, params: Any, inputs: Records, n: int, chunk: int
) -> Float[Array, "n k"]:
    parts = []
    with jax.default_matmul_precision("highest"):
        for start in range(0, n, chunk):
            some = jax.tree.map(lambda array, s=start: jnp.asarray(array[s : s + chunk]), inputs)
            parts.append(np.asarray(_weights_of(outputs, likelihood, params, some)))
    return jnp.asarray(np.concatenate(parts))


@partial(jax.jit, static_argnums=(0, 1))
def _weights_of(outputs: Outputs, likelihood: Likelihood, params: Any, inputs: Any) -> Array:
    return likelihood.weight(outputs(params, inputs))
