"""Likelihoods: distributions of labels that a network's outputs describe."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from jaxaudit.errors import check_ranges


@runtime_checkable
class Likelihood(Protocol):
    """A distribution of labels, given outputs `[n, K]`; equal objects are interchangeable."""

    @property
    def name(self) -> str: ...

    @property
    def statement(self) -> str:
        """The log-likelihood as a formula, in nats; z are the outputs and y is the label."""
        ...

    def log_prob(self, outputs: Float[Array, "n k"], labels: Num[Array, "n ..."]) -> Float[Array, " n"]:
        """log p(label | outputs), in nats."""
        ...


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
    """A label is one of K classes; outputs are logits, labels `int[n]`."""

    name = "categorical"
    statement = "log p(y) = z_y - log(sum_k exp z_k)"

    def log_prob(self, outputs: Float[Array, "n k"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
        """See `Likelihood`; precise where the class is nearly certain."""
        return jnp.take_along_axis(precise_log_softmax(outputs), labels[:, None], axis=1)[:, 0]


@dataclass(frozen=True)
class Bernoulli:
    """K independent labels, each 0 or 1; outputs are logits, labels `[n, K]`, or `[n]` if K is 1.

    >>> Bernoulli().log_prob(jnp.zeros((1, 2)), jnp.array([[1, 0]])).round(2).tolist()
    [-1.38...]
    """

    name = "bernoulli"
    statement = "log p(y) = sum_k y_k log s(z_k) + (1 - y_k) log s(-z_k), s(z) = 1 / (1 + exp(-z))"

    def log_prob(self, outputs: Float[Array, "n k"], labels: Num[Array, "n ..."]) -> Float[Array, " n"]:
        """See `Likelihood`."""
        signs = 2 * labels.reshape(outputs.shape).astype(outputs.dtype) - 1
        return jnp.sum(jax.nn.log_sigmoid(signs * outputs), axis=1)


@dataclass(frozen=True)
class Gaussian:
    """K real labels, normal around the outputs with one standard deviation; labels `[n, K]`, or `[n]` if K is 1.

    The Fisher information is proportional to 1 / sigma^2, so state sigma (positive) with it. With sigma 1, log p is
    minus half the squared error, plus a constant.

    >>> Gaussian(2.0).log_prob(jnp.array([[1.0]]), jnp.array([3.0])).round(2).tolist()
    [-2.1...]
    """

    sigma: float = 1.0
    name = "gaussian"

    def __post_init__(self) -> None:
        check_ranges("(0, inf)", sigma=self.sigma)

    @property
    def statement(self) -> str:
        """See `Likelihood`."""
        return f"log p(y) = -sum_k ((y_k - z_k)^2 / (2 s^2) + log(2 pi s^2) / 2), s = {self.sigma:g}"

    def log_prob(self, outputs: Float[Array, "n k"], labels: Num[Array, "n ..."]) -> Float[Array, " n"]:
        """See `Likelihood`."""
        off = (labels.reshape(outputs.shape).astype(outputs.dtype) - outputs) / self.sigma
        return -jnp.sum(0.5 * jnp.square(off) + 0.5 * math.log(2 * math.pi * self.sigma**2), axis=1)


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
