"""Selective synaptic dampening (SSD): shrinks parameters that are important mainly for the forget set.

Foster, Schoepf & Brintrup (2024), "Fast machine unlearning without retraining through selective synaptic dampening",
AAAI, equations 6 to 8. With F_D and F_f the diagonals of the Fisher information of all records and of those to forget,

    theta <- theta * min(lambda F_D / F_f, 1)   where F_f > alpha F_D;   theta otherwise

It trains nothing. F is the mean over records of the squared gradient of log p(label), exactly; the authors' code
squares mean gradients of minibatches, which are smaller.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms import fisher_diagonal
from jaxaudit.unlearning.method import LogProbs, cites, of_label

SELECTION, STRENGTH = 10.0, 1.0
"""alpha and lambda of the paper's experiments."""


@cites("Foster, Schoepf & Brintrup 2024")
def selective_dampening(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    selection: float = SELECTION,
    strength: float = STRENGTH,
) -> Any:
    """Multiplies the parameters that are specific to the forget set by lambda F_D / F_f.

    Pure and not random; can be jitted, and vmapped over models and sets. No parameter grows or changes its sign. F_f is
    at most F_D times the ratio of all records to those of the forget set, so nothing changes unless `selection` is
    below that ratio. With the default of 10, a forget set of half of the records changes nothing.

    Args:
        key: not used.
        log_probs, params, inputs, labels, forget: as for `Unlearn`.
        selection: alpha; the smaller, the more parameters are dampened.
        strength: lambda; the smaller, the more each of them is dampened.

    Raises:
        InputError: `selection` or `strength` is negative.
    """
    if not (selection >= 0 and strength >= 0):
        raise InputError(f"selection and strength must be at least 0, got {selection:g} and {strength:g}.")

    def fisher(weights: Any) -> Any:
        return fisher_diagonal(of_label(log_probs), params, inputs, labels, weights=weights)

    of_all, of_forgotten = fisher(jnp.ones(len(labels))), fisher(forget.astype(jnp.float32))

    def dampened(leaf: Any, everyone: Any, forgotten: Any) -> Any:
        chosen = forgotten > selection * everyone
        factor = jnp.minimum(strength * everyone / jnp.where(chosen, forgotten, 1), 1)
        return jnp.where(chosen, leaf * factor.astype(leaf.dtype), leaf)

    return jax.tree.map(dampened, params, of_all, of_forgotten)
