"""The true Fisher information: squared gradient norms in expectation over labels that the model itself predicts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms.norms import Records, SquaredGradNorms, squared_grad_norms
from jaxaudit.kernels.likelihoods import CATEGORICAL, Likelihood

Outputs = Callable[[Any, Any], Array]
CHUNK = 256


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

    It costs K times as much as `squared_grad_norms`, and is as exact.

    Args:
        outputs: `(params, inputs) -> [n, K]`, the outputs of the network.
        params, inputs, chunk: as in `squared_grad_norms`.
        likelihood: the distribution of labels that the outputs describe.

    Raises:
        InputError: as `squared_grad_norms`.

    >>> import numpy as np
    >>> found = expected_squared_grad_norms(lambda p, x: x @ p, jnp.zeros((2, 2)), np.eye(2, dtype=np.float32))
    >>> found.total.tolist()
    [0.5, 0.5]
    """
    n = len(jax.tree.leaves(inputs)[0])
    if not n:
        raise InputError("there are no examples, so there is no information; is the set to forget empty?")
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
