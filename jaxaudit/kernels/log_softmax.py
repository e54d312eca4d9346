"""Log-softmax that is precise for probabilities near 1."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def precise_log_softmax(logits: Float[Array, "n classes"]) -> Float[Array, "n classes"]:
    """Log-softmax, in nats, that keeps its relative precision for probabilities near 1.

    `jax.nn.log_softmax` adds the largest term, 1, to the other terms before the logarithm, so in float32 a confidence
    is either 1 or at least 6e-8 below it. Here the other terms are summed separately: -log1p(1e-12) is -1e-12. The
    derivative of the class's log-probability by its own logit, 1 - p, is equally precise.

    >>> precise_log_softmax(jnp.array([[0.0, 30.0]]))[0, 1] < 0
    Array(True, dtype=bool)
    """
    largest = jnp.argmax(logits, axis=-1, keepdims=True)
    is_largest = jnp.arange(logits.shape[-1]) == largest
    # 0 and not a difference: its derivatives, 1 - 1, would leave their rounding in the sum of all others.
    shifted = jnp.where(is_largest, 0.0, logits - jnp.take_along_axis(logits, largest, axis=-1))
    others = jnp.sum(jnp.where(is_largest, 0.0, jnp.exp(shifted)), axis=-1, keepdims=True)
    return shifted - jnp.log1p(others)
