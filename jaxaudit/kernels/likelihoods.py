"""Likelihoods: distributions of labels that a network's outputs describe."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def precise_log_softmax(logits: Float[Array, "*n classes"]) -> Float[Array, "*n classes"]:
    """Log-softmax, in nats, that keeps its relative precision for probabilities near 1.

    `jax.nn.log_softmax` adds the largest term, 1, to the others before the logarithm, so in float32 a confidence is
    either 1 or at least 6e-8 below it. Here the other terms are summed separately: -log1p(1e-12) is -1e-12. The
    derivative of the class's log-probability by its own logit, 1 - p, is equally precise.

    >>> precise_log_softmax(jnp.array([[0.0, 30.0]]))[0, 1] < 0
    Array(True, dtype=bool)
    """
    largest = jnp.argmax(logits, axis=-1, keepdims=True)
    is_largest = jnp.arange(logits.shape[-1]) == largest
    # 0 and not a difference: its derivatives, 1 - 1, would leave their rounding in the sum of all others.
    shifted = jnp.where(is_largest, 0.0, logits - jnp.take_along_axis(logits, largest, axis=-1))
    of_smaller = jnp.sum(jnp.where(is_largest, 0.0, jnp.exp(shifted)), axis=-1, keepdims=True)
    return shifted - jnp.log1p(of_smaller)


@dataclass(frozen=True)
class Categorical:
    """A label is one of K classes; outputs are logits, labels `int[n]`. `statement`: as a formula, in nats."""

    name = "categorical"
    statement = "log p(y) = z_y - log(sum_k exp z_k)"

    def log_prob(self, outputs: Float[Array, "n k"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
        """log p(label | outputs), in nats; precise where the class is nearly certain."""
        return jnp.take_along_axis(precise_log_softmax(outputs), labels[:, None], axis=1)[:, 0]


@dataclass(frozen=True)
class SequenceLikelihood:
    """The tokens of a sequence, each given those before it; outputs are logits `[n, length, K]`, labels the tokens.

    As in `jaxaudit.data.sequences`, a token t that does not count is stored as ~t, and the first one never counts.

    >>> SEQUENCE.log_prob(jnp.zeros((1, 4, 2)), jnp.array([[~0, 1, 1, ~0]])).round(2).tolist()
    [-1.38...]
    """

    name = "sequence"
    statement = "log p(y) = sum of log p(y_t | y_1 ... y_t-1) over the tokens t that count"

    def log_prob(self, outputs: Float[Array, "n length k"], labels: Int[Array, "n length"]) -> Float[Array, " n"]:
        """The sum over the tokens that count, in nats; precise where they are nearly certain."""
        # The last position has no next token; a mask in place of an index: the gradient of an index scatters.
        following = jnp.roll(labels, -1, axis=1).at[:, -1].set(-1)
        is_following = jnp.arange(outputs.shape[-1]) == following[..., None]
        return jnp.sum(jnp.where(is_following, precise_log_softmax(outputs), 0), axis=(1, 2))


CATEGORICAL = Categorical()
SEQUENCE = SequenceLikelihood()
