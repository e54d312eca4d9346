"""Unlearning by further training: fine-tuning, gradient ascent, both together (NegGrad+), and SCRUB.

Kurmanji, Triantafillou, Hayes & Triantafillou (2023), "Towards unbounded machine unlearning", NeurIPS, section 4. None
but SCRUB has a stopping rule, which needs a validation set and is not implemented: too few steps forget nothing, and
too many of ascent ruin the model. The network is in evaluation mode: no dropout, no augmentation, fixed running
statistics. On a CPU, XLA is slow for convolutions in these loops. Methods are vmapped over forget sets, so no array has
the size of a set: a pass has as many steps as all records would need, and its loop ends after those of the set.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from jaxaudit.errors import check_ranges
from jaxaudit.kernels.convolutions import loop_body
from jaxaudit.learners.learner import Inputs, Labels, traced_batches
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.randomness import stream
from jaxaudit.unlearning.method import Chosen, LogProbs, cites, of_label, refuse_without_classes

EPOCHS, LEARNING_RATE, BATCH_SIZE = 10, 0.01, 64
ADAMW_RATE = 2e-4
"""The learning rate of methods whose optimiser is AdamW."""
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


def one_pass(key: OneKey, epoch: int | Int[Array, ""], chosen: Chosen, batch_size: int) -> Pass:
    """A pass over every chosen record, in a random order that key and epoch determine."""
    bits = jax.random.bits(jax.random.fold_in(key, epoch), chosen.shape, jnp.uint32)
    # As networks take minibatches whose records touch one another: of members alone.
    minibatches = traced_batches(bits, chosen, batch_size, batch_coupled=True)
    return Pass(Minibatch(*minibatches), -(-jnp.sum(chosen) // batch_size))


def each_step(over: Pass, step: Callable[[Int[Array, ""], Minibatch, Any], Any], state: Any) -> Any:
    """The state after `step(number, minibatch, state)` for every minibatch of a pass."""
    return lax.fori_loop(0, over.steps, loop_body(lambda number, now: step(number, over[number], now)), state)


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


BETA = 0.95
"""The weight beta in the authors' code."""
ASCENT_RATE = 0.003
"""Learning rate of gradient ascent; smaller than that of the other methods, since its loss has no bound."""


@cites("Kurmanji et al. 2023")
def fine_tune(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """Fine-tuning: trains on the remaining records only, theta <- theta - rate * grad L_remain.

    L is the mean cross-entropy of a minibatch; the network is in evaluation mode. Pure; can be jitted, and vmapped over
    keys, models and sets. `epochs` are passes over the remaining records; other arguments are as for `Unlearn`.
    """
    check_numbers(epochs, learning_rate, batch_size)
    loss = cross_entropy(log_probs, inputs, labels)
    return _trained_on(key, loss, params, ~forget, epochs, learning_rate, batch_size)


@cites("Golatkar, Achille & Soatto 2020; Kurmanji et al. 2023")
def gradient_ascent(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    epochs: int = EPOCHS,
    learning_rate: float = ASCENT_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """Gradient ascent on the loss of the forget set: theta <- theta + rate * grad L_forget.

    Golatkar, Achille & Soatto (2020). That loss has no bound, so a large rate leads to NaN. Nothing preserves the
    accuracy on other records. As `fine_tune`, but `epochs` are passes over the forget set.
    """
    check_numbers(epochs, learning_rate, batch_size)
    loss = cross_entropy(log_probs, inputs, labels)
    return _trained_on(key, loss, params, forget, epochs, -learning_rate, batch_size)


@cites("Kurmanji et al. 2023")
def negative_gradient(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    beta: float = BETA,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """NegGrad+: theta <- theta - rate * grad (beta L_remain - (1 - beta) L_forget).

    A step has a minibatch of remaining records and one of the forget set, of `batch_size` records each. An epoch is a
    pass over the remaining records; the forget set is repeated as often as needed. With `beta` 1 it is `fine_tune`.
    """
    check_numbers(epochs, learning_rate, batch_size)
    check_ranges("[0, 1]", beta=beta)
    loss = cross_entropy(log_probs, inputs, labels)

    def weighed(params: Any, remaining: Minibatch, forgotten: Minibatch) -> Float[Array, ""]:
        return beta * loss(params, remaining) - (1 - beta) * loss(params, forgotten)

    def epoch(number: Any, params: Any) -> Any:
        forgotten = one_pass(stream(key, "forget"), number, forget, batch_size)

        def step(place: Any, remaining: Minibatch, params: Any) -> Any:
            return descended(params, jax.grad(weighed)(params, remaining, forgotten[place]), learning_rate)

        return each_step(one_pass(stream(key, "pass"), number, ~forget, batch_size), step, params)

    return lax.fori_loop(0, epochs, epoch, params)


def _trained_on(
    key: OneKey,
    loss: Callable[[Any, Minibatch], Float[Array, ""]],
    params: Any,
    chosen: Chosen,
    epochs: int,
    learning_rate: float,
    batch_size: int,
) -> Any:
    """Parameters after some epochs over the chosen records; a negative rate maximises their loss."""
    gradient = jax.grad(loss)

    def step(place: Any, minibatch: Minibatch, params: Any) -> Any:
        return descended(params, gradient(params, minibatch), learning_rate)

    def epoch(number: Any, params: Any) -> Any:
        return each_step(one_pass(stream(key, "pass"), number, chosen, batch_size), step, params)

    return lax.fori_loop(0, epochs, epoch, params)


SCRUB_RATE = 5e-4
DECAYS = (0.5, 0.8, 0.9)
"""After each of these shares of the epochs the learning rate is divided by 10."""


@cites("Kurmanji et al. 2023")
def scrub(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    epochs: int = EPOCHS,
    max_epochs: int = 3,
    learning_rate: float = SCRUB_RATE,
    alpha: float = 0.5,
    gamma: float = 1.0,
    temperature: float = 2.0,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """Moves outputs away from the original's on the forget set, and keeps them close to it on other records.

    Kurmanji, Triantafillou, Hayes & Triantafillou (2023), "Towards unbounded machine unlearning", NeurIPS, equation 3
    and algorithm 1. With D = T^2 KL(p || q), p the original's outputs and q the student's at temperature T, an epoch is
    a pass over the forget set that maximises D (in the first `max_epochs` only) and then a pass over the remaining
    records that minimises alpha D + gamma L, where L is the cross-entropy.

    The defaults are those of the authors' code for small sets, without its weight decay. The optimiser is Adam; its
    rate is a tenth after half of the epochs, a hundredth after 80%, a thousandth after 90%. In the first pass student
    and teacher are equal and the gradient of D is 0, so a single epoch does not actively forget. Pure; can be jitted,
    and vmapped over keys, models and sets. The network is in evaluation mode; on a CPU, XLA is slow for convolutional
    networks in these loops. Records need classes. Other arguments are as for `Unlearn`.
    """
    check_numbers(epochs, learning_rate, batch_size)
    refuse_without_classes("SCRUB", jax.eval_shape(log_probs, params, inputs))
    loss, adam = cross_entropy(log_probs, inputs, labels), optax.scale_by_adam()

    def cooled(params: Any, minibatch: Minibatch) -> Float[Array, "batch classes"]:
        return jax.nn.log_softmax(log_probs(params, inputs[minibatch.records]) / temperature)

    def distance(student: Any, minibatch: Minibatch) -> Float[Array, ""]:
        teacher, student_log_probs = lax.stop_gradient(cooled(params, minibatch)), cooled(student, minibatch)
        of_record = jnp.sum(jnp.exp(teacher) * (teacher - student_log_probs), axis=1)
        return temperature**2 * weighted_mean(of_record, minibatch)

    def obeyed(student: Any, minibatch: Minibatch) -> Float[Array, ""]:
        return alpha * distance(student, minibatch) + gamma * loss(student, minibatch)

    def disobeyed(student: Any, minibatch: Minibatch) -> Float[Array, ""]:
        return -distance(student, minibatch)

    def epoch(number: Any, state: Any) -> Any:
        rate = learning_rate * 0.1 ** jnp.sum(number >= epochs * jnp.array(DECAYS))

        def along(aim: Any, has_slope: Any = True) -> Any:
            def step(place: Any, minibatch: Minibatch, state: Any) -> Any:
                student, moments = state
                gradient = jax.grad(aim)(student, minibatch)
                gradient = jax.tree.map(lambda leaf: jnp.where(has_slope, leaf, 0), gradient)
                direction, moments = adam.update(gradient, moments)
                return descended(student, direction, rate), moments

            return step

        forgotten = one_pass(stream(key, "forget"), number, forget, batch_size)
        forgotten = forgotten._replace(steps=jnp.where(number < max_epochs, forgotten.steps, 0))
        # At the start the gradient of D is 0 up to rounding, which Adam would scale up to a full step.
        state = each_step(forgotten, along(disobeyed, number > 0), state)
        return each_step(one_pass(stream(key, "pass"), number, ~forget, batch_size), along(obeyed), state)

    student, _ = lax.fori_loop(0, epochs, epoch, (params, adam.init(params)))
    return student
