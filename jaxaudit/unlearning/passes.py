"""Passes over the forget set or the remaining records, in minibatches whose shapes do not depend on the set.

Methods that train further are jitted and vmapped over forget sets, so no array may have the size of a set. A pass has
as many steps as all records would need; the loop ends after those of the set. Padding has weight 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import check_ranges
from jaxaudit.learners.learner import Inputs, Labels, traced_batches
from jaxaudit.unlearning.method import Chosen, LogProbs, of_label

EPOCHS, LEARNING_RATE, BATCH_SIZE = 10, 0.01, 64
ADAMW_RATE = 2e-4
"""The learning rate of methods whose optimiser is AdamW."""
Rule = Callable[[float], optax.GradientTransformation]
"""An optimiser, as a function of its learning rate."""
adamw = partial(optax.adamw, weight_decay=0.01)
"""AdamW as in the papers on language models."""


class Minibatch(NamedTuple):
    """The indices of a minibatch's records in the training set, and their weights: 0 for padding."""

    records: Int[Array, " batch"]
    weights: Float[Array, " batch"]


class Pass(NamedTuple):
    """One pass over a set of records in random order: its first `steps` minibatches; the others have weight 0."""

    minibatches: Minibatch
    steps: Int[Array, ""]

    def __getitem__(self, step: Any) -> Minibatch:
        """The minibatch of this step; steps after the last one start again from the first."""
        place = step % jnp.maximum(self.steps, 1)
        return Minibatch(*(array[place] for array in self.minibatches))


def one_pass(key: Key[Array, ""], epoch: int | Int[Array, ""], chosen: Chosen, batch_size: int) -> Pass:
    """A pass over every chosen record, in a random order that key and epoch determine."""
    bits = jax.random.bits(jax.random.fold_in(key, epoch), chosen.shape, jnp.uint32)
    # As networks take minibatches whose records touch one another: of members alone.
    minibatches = traced_batches(bits, chosen, batch_size, batch_coupled=True)
    return Pass(Minibatch(*minibatches), -(-jnp.sum(chosen) // batch_size))


def each_step(over: Pass, step: Callable[[Int[Array, ""], Minibatch, Any], Any], state: Any) -> Any:
    """The state after `step(number, minibatch, state)` for every minibatch of a pass."""
    return lax.fori_loop(0, over.steps, lambda number, now: step(number, over[number], now), state)


def tokens(inputs: Inputs) -> Float[Array, " n"]:
    """How many tokens of each record its log-likelihood is the mean of (`jaxaudit.data.sequences`); 1 for a class."""
    if not jnp.issubdtype(inputs.dtype, jnp.integer):
        return jnp.ones(len(inputs))
    return jnp.sum(inputs[:, 1:] >= 0, axis=1).astype(jnp.float32)


def cross_entropy(log_probs: LogProbs, inputs: Inputs, labels: Labels) -> Callable[[Any, Minibatch], Float[Array, ""]]:
    """`(params, minibatch) -> mean of -log p(label)`, in nats."""

    def loss(params: Any, minibatch: Minibatch) -> Float[Array, ""]:
        records = minibatch.records
        return -weighted_mean(of_label(log_probs)(params, inputs[records], labels[records]), minibatch)

    return loss


def weighted_mean(values: Float[Array, " batch"], minibatch: Minibatch) -> Float[Array, ""]:
    """The weighted mean over a minibatch, which leaves out padding."""
    return jnp.sum(minibatch.weights * values) / jnp.maximum(jnp.sum(minibatch.weights), 1)


def descended(params: Any, gradient: Any, learning_rate: float | Float[Array, ""]) -> Any:
    """The parameters after a step of plain gradient descent."""
    return jax.tree.map(lambda leaf, slope: leaf - (learning_rate * slope).astype(leaf.dtype), params, gradient)


def check_numbers(epochs: int, learning_rate: float, batch_size: int) -> None:
    """Refuses a recipe with numbers that are out of range."""
    check_ranges("[1, inf)", epochs=epochs, batch_size=batch_size)
    check_ranges("(0, inf)", learning_rate=learning_rate)
