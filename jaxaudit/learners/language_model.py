"""A causal language model trained by Optax, as a learner: its number of a record is a mean log-likelihood."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxaudit.learners.network import FLOAT32, NetworkLearner, NetworkParams, convolves, refuse_recipe
from jaxaudit.models.bridge import ModuleFactory, pure_module

AT_ONCE = 8
"""Records whose logits are in memory at a time in evaluation, for each model."""


def mean_log_likelihood(logits: Float[Array, "n length tokens"], inputs: Int[Array, "n length"]) -> Float[Array, " n"]:
    """The mean log-likelihood (nats) of each record's tokens that count, given those before them; at most 0.

    Args:
        logits: at each position of the next token.
        inputs: as `jaxaudit.data.sequences`: negative numbers do not count, nor does the first token.

    >>> float(mean_log_likelihood(jnp.zeros((1, 3, 4)), jnp.array([[-4, 1, 3]]))[0])
    -1.3862...
    """
    # The last position has no next token; a roll in place of a slice copies no logits.
    following = jnp.roll(inputs, -1, axis=1).at[:, -1].set(-1)
    # A mask in place of an index: the gradient of an index scatters, one token after another.
    own = jnp.arange(logits.shape[-1]) == following[..., None]
    found = jnp.sum(jnp.where(own, logits, 0), axis=-1) - jax.nn.logsumexp(logits, axis=-1)
    counts = following >= 0
    return jnp.minimum(jnp.sum(jnp.where(counts, found, 0), axis=1) / jnp.maximum(jnp.sum(counts, axis=1), 1), 0)


@dataclass(frozen=True)
class LanguageModelLearner(NetworkLearner):
    """A `SteppedLearner` of records of tokens, which have no class; made by `language_model`.

    Training minimises the mean over a minibatch's records of each one's mean negative log-likelihood.
    """

    def _outputs(self, params: Any, state: Any, inputs: Int[Array, "n length"], training: bool) -> tuple[Any, Any]:
        return self.net.apply(params, state, jnp.where(inputs < 0, ~inputs, inputs), training)

    def _losses(
        self, logits: Float[Array, "batch length tokens"], inputs: Int[Array, "batch length"], labels: Any
    ) -> Float[Array, " batch"]:
        return -mean_log_likelihood(logits, inputs)

    def log_probs(self, params: NetworkParams, inputs: Int[Array, "n length"]) -> Float[Array, "n 1"]:
        """The mean log-likelihood of each record, in nats."""

        def one(record: Int[Array, " length"]) -> Float[Array, " 1"]:
            logits, _ = self._outputs(params.params, params.state, record[None], False)
            return mean_log_likelihood(logits, record[None])

        return jax.lax.map(one, inputs, batch_size=AT_ONCE)


def language_model(
    factory: ModuleFactory,
    length: int,
    vocabulary: int,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
    precision: str = FLOAT32,
) -> LanguageModelLearner:
    """The learner that trains `factory((length,), vocabulary, rngs=...)` on records of tokens with `optimizer`.

    Many are trained side by side by `fit_many`, on the inputs of `sequences` and labels of 0. `log_probs` has one
    column, a record's mean log-likelihood.

    Args:
        factory: an NNX module class or a function that builds one, such as `jaxaudit.models.GPT`, mapping tokens
            `[n, length]` to logits `[n, length, vocabulary]`, at each position of the next token.
        length: tokens of a record, `inputs.shape[1]`.
        vocabulary: the number of tokens, `Tokenizer.vocabulary`.
        optimizer, epochs, batch_size, precision: as for `network`.

    Raises:
        InputError: as `network`.

    >>> from jaxaudit.models import GPT
    >>> learner = language_model(GPT, 16, 257, optimizer=optax.adamw(1e-3), epochs=1, batch_size=2)
    >>> params = learner.fit(jax.random.key(1), jnp.full((2, 16), 97), jnp.zeros(2, int), jnp.ones(2))
    >>> learner.log_probs(params, jnp.full((3, 16), 97)).shape
    (3, 1)
    """
    refuse_recipe(epochs, batch_size, precision)
    net = pure_module(factory, (length,), vocabulary, of_tokens=True)
    return LanguageModelLearner(
        net, optimizer, epochs, batch_size, convolves=convolves(net, (length,), jnp.int32), precision=precision
    )
