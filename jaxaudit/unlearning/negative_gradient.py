"""Unlearning by further training: fine-tuning, gradient ascent, and both together (NegGrad+).

With L the mean cross-entropy of a minibatch, every step of plain gradient descent minimises

    fine-tuning                  L_remain                              an epoch is a pass over the remaining records
    gradient ascent              -L_forget                             an epoch is a pass over the forget set
    negative gradient (NegGrad+) beta L_remain - (1 - beta) L_forget   an epoch is a pass over the remaining records

Kurmanji, Triantafillou, Hayes & Triantafillou (2023), "Towards unbounded machine unlearning", NeurIPS, section 4 (their
baselines, and NegGrad+); gradient ascent after Golatkar, Achille & Soatto (2020). All are cheap, but have no stopping
rule: too few steps forget nothing, and too many steps of ascent ruin the model. The network is in evaluation mode: no
dropout, no augmentation, fixed running statistics. On a CPU, XLA is slow for convolutional networks in these loops.
"""

from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.randomness import stream
from jaxaudit.unlearning import passes
from jaxaudit.unlearning.method import LogProbs, cites

BETA = 0.95
"""The weight beta in the authors' code."""
ASCENT_RATE = 0.003
"""Learning rate of gradient ascent; smaller than that of the other methods, since its loss has no bound."""


@cites("Kurmanji et al. 2023")
def fine_tune(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.LEARNING_RATE,
    batch_size: int = passes.BATCH_SIZE,
) -> Any:
    """Fine-tuning: trains on the remaining records only, theta <- theta - rate * grad L_remain.

    Pure; can be jitted, and vmapped over keys, models and sets.

    Args:
        key: random key of the order of minibatches.
        log_probs, params, inputs, labels, forget: as for `Unlearn`.
        epochs: passes over the remaining records.
        learning_rate: the learning rate of plain gradient descent.
        batch_size: records per step.

    Raises:
        InputError: a number of the recipe is out of range.
    """
    return _trained_on(key, log_probs, params, inputs, labels, ~forget, 1.0, epochs, learning_rate, batch_size)


@cites("Golatkar, Achille & Soatto 2020; Kurmanji et al. 2023")
def gradient_ascent(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    epochs: int = passes.EPOCHS,
    learning_rate: float = ASCENT_RATE,
    batch_size: int = passes.BATCH_SIZE,
) -> Any:
    """Gradient ascent on the loss of the forget set: theta <- theta + rate * grad L_forget.

    That loss has no bound, so a large rate leads to NaN. Nothing preserves the accuracy on other records. Pure, like
    `fine_tune`.

    Args:
        key, log_probs, params, inputs, labels, forget, learning_rate, batch_size: as for `fine_tune`.
        epochs: passes over the forget set.

    Raises:
        InputError: a number of the recipe is out of range.
    """
    return _trained_on(key, log_probs, params, inputs, labels, forget, -1.0, epochs, learning_rate, batch_size)


@cites("Kurmanji et al. 2023")
def negative_gradient(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    beta: float = BETA,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.LEARNING_RATE,
    batch_size: int = passes.BATCH_SIZE,
) -> Any:
    """NegGrad+: theta <- theta - rate * grad (beta L_remain - (1 - beta) L_forget).

    A step has a minibatch of remaining records and one of the forget set. An epoch is a pass over the remaining
    records; the forget set is repeated as often as needed. With `beta` 1 it is `fine_tune`. Pure, like `fine_tune`.

    Args:
        key, log_probs, params, inputs, labels, forget, epochs, learning_rate: as for `fine_tune`.
        beta: the weight of the remaining records, from 0 to 1.
        batch_size: records per step of each of the two minibatches.

    Raises:
        InputError: `beta` or a number of the recipe is out of range.
    """
    passes.check_numbers(epochs, learning_rate, batch_size)
    if not 0 <= beta <= 1:
        raise InputError(f"beta is the share of the loss that is of the remaining records: 0 to 1, got {beta:g}.")
    loss = passes.cross_entropy(log_probs, inputs, labels)

    def weighed(params: Any, remaining: passes.Minibatch, forgotten: passes.Minibatch) -> Float[Array, ""]:
        return beta * loss(params, remaining) - (1 - beta) * loss(params, forgotten)

    def epoch(number: Any, params: Any) -> Any:
        forgotten = passes.one_pass(stream(key, "forget"), number, forget, batch_size)

        def step(place: Any, remaining: passes.Minibatch, params: Any) -> Any:
            return passes.descended(params, jax.grad(weighed)(params, remaining, forgotten[place]), learning_rate)

        return passes.each_step(passes.one_pass(stream(key, "pass"), number, ~forget, batch_size), step, params)

    return lax.fori_loop(0, epochs, epoch, params)


def _trained_on(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    chosen: Bool[Array, " n"],
    sign: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
) -> Any:
    """Parameters after some epochs over the chosen records; sign 1 minimises their loss, -1 maximises it."""
    passes.check_numbers(epochs, learning_rate, batch_size)
    gradient = jax.grad(passes.cross_entropy(log_probs, inputs, labels))

    def step(place: Any, minibatch: passes.Minibatch, params: Any) -> Any:
        return passes.descended(params, gradient(params, minibatch), sign * learning_rate)

    def epoch(number: Any, params: Any) -> Any:
        return passes.each_step(passes.one_pass(stream(key, "pass"), number, chosen, batch_size), step, params)

    return lax.fori_loop(0, epochs, epoch, params)
