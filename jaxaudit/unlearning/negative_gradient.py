"""Training on: down the loss of the records that remain, up that of the records to forget, or both.

With L the mean cross-entropy of a minibatch, every step of plain gradient descent lowers

    fine-tuning                  L_remain                              one pass over what remains an epoch
    gradient ascent              -L_forget                             one pass over the records to forget an epoch
    negative gradient (NegGrad+) beta L_remain - (1 - beta) L_forget   one pass over what remains an epoch

Kurmanji, Triantafillou, Hayes & Triantafillou (2023), "Towards unbounded machine unlearning", NeurIPS, section 4 (their
baselines, and NegGrad+); gradient ascent after Golatkar, Achille & Soatto (2020). All are cheap, and none says when to
stop: too few steps forget nothing, too many steps up ruin the model. The network is in evaluation mode: no dropout,
no augmentation, running statistics as they are. On a CPU, XLA is slow at networks that convolve in these loops.
"""

from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.randomness import stream
from jaxaudit.unlearning.method import LogProbs, cites
from jaxaudit.unlearning.passes import (
    BATCH_SIZE,
    EPOCHS,
    LEARNING_RATE,
    Minibatch,
    check_recipe,
    cross_entropy,
    descended,
    each_step,
    one_pass,
)

BETA = 0.95
"""That of the authors' code."""
ASCENT_RATE = 0.003
"""Smaller than the others': what nothing bounds may end as infinity."""


@cites("Kurmanji et al. 2023")
def fine_tune(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Float[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """Trains on with the records that remain: theta <- theta - rate * grad L_remain. It forgets by neglect.

    Pure; can be jitted, and vmapped over keys, models and sets.

    Args:
        key: random key of the order of minibatches.
        log_probs: the model, in evaluation mode.
        params: its trained parameters, a pytree of floating-point arrays.
        inputs: the training set, `labels` their classes.
        forget: the records to forget; all others remain.
        epochs: passes over the records that remain.
        learning_rate: of plain gradient descent.
        batch_size: records a step.

    Raises:
        InputError: a number of the recipe is out of range.
    """
    return _trained_on(key, log_probs, params, inputs, labels, ~forget, 1.0, epochs, learning_rate, batch_size)


@cites("Golatkar, Achille & Soatto 2020; Kurmanji et al. 2023")
def gradient_ascent(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Float[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    epochs: int = EPOCHS,
    learning_rate: float = ASCENT_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """Climbs the loss of the records to forget: theta <- theta + rate * grad L_forget.

    Nothing bounds that loss, so a large rate ends in NaN, and nothing holds on to the other records. Pure, as
    `fine_tune`.

    Args:
        key, log_probs, params, inputs, labels, forget: as for `fine_tune`.
        epochs: passes over the records to forget.
        learning_rate: of plain gradient ascent.
        batch_size: records a step.

    Raises:
        InputError: a number of the recipe is out of range.
    """
    return _trained_on(key, log_probs, params, inputs, labels, forget, -1.0, epochs, learning_rate, batch_size)


@cites("Kurmanji et al. 2023")
def negative_gradient(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Float[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    beta: float = BETA,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Any:
    """NegGrad+: theta <- theta - rate * grad (beta L_remain - (1 - beta) L_forget).

    A step has a minibatch of each side. An epoch is a pass over what remains; the minibatches of the records to forget
    begin again as often as needed. With `beta` 1 it is `fine_tune`. Pure, as `fine_tune`.

    Args:
        key, log_probs, params, inputs, labels, forget: as for `fine_tune`.
        beta: the weight of the records that remain, from 0 to 1.
        epochs: passes over the records that remain.
        learning_rate: of plain gradient descent.
        batch_size: records of each side a step.

    Raises:
        InputError: `beta` or a number of the recipe is out of range.
    """
    check_recipe(epochs, learning_rate, batch_size)
    if not 0 <= beta <= 1:
        raise InputError(f"beta is the share of the loss that is of the remaining records: 0 to 1, got {beta:g}.")
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
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Float[Array, "n ..."],
    labels: Int[Array, " n"],
    chosen: Bool[Array, " n"],
    sign: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
) -> Any:
    """Parameters after some passes over the chosen records; down their loss with sign 1, up with -1."""
    check_recipe(epochs, learning_rate, batch_size)
    gradient = jax.grad(cross_entropy(log_probs, inputs, labels))

    def step(place: Any, minibatch: Minibatch, params: Any) -> Any:
        return descended(params, gradient(params, minibatch), sign * learning_rate)

    def epoch(number: Any, params: Any) -> Any:
        return each_step(one_pass(stream(key, "pass"), number, chosen, batch_size), step, params)

    return lax.fori_loop(0, epochs, epoch, params)
