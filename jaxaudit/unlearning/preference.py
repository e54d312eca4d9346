"""Unlearning of language models by losses of the forget set and of retained records: gradient difference, NPO, SimNPO.

With p the model and q the original, l the log-likelihood of a record's tokens that count (their sum, in nats) and |y|
their number, every step of an optimiser, by default AdamW, minimises

    gamma * mean over a minibatch of the forget set of F  -  alpha * mean over retained records of l_p / |y|

    gradient difference   F = l_p / |y|                                          -L_forget, as gradient ascent
    NPO                   F = -2 / beta log sigmoid(-beta (l_p - l_q))
    SimNPO                F = -2 / beta log sigmoid(-beta (l_p / |y| + delta))

An epoch is a pass over the forget set. Maini, Feng et al. (2024), after Liu, Liu & Stone (2022); Zhang, Lin, Bai & Mei
(2024), "Negative preference optimization", with their retain term; Fan et al. (2024), "Simplicity prevails", whose
margin is beta delta. The code read beside them is `src/trainer/unlearn` of `locuslab/open-unlearning` (Dorna et al.
2025), which averages retained losses over the tokens of a minibatch; here each record has one weight. As the sigmoid
saturates, the pull of NPO on a record ends once it is much less likely than it was, and that of SimNPO once it is
unlikely. A record with a class is one token.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.unlearning import passes
from jaxaudit.unlearning.method import LogProbs, cites, of_label

OfForgotten = Callable[[Float[Array, " batch"], Float[Array, " batch"], Float[Array, " batch"]], Float[Array, " batch"]]
"""F of each record, from its mean log-likelihoods under the model and under the original, and its number of tokens."""


@cites("Liu, Liu & Stone 2022; Maini, Feng et al. 2024")
def gradient_difference(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    gamma: float = 1.0,
    alpha: float = 1.0,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.ADAMW_RATE,
    batch_size: int = passes.BATCH_SIZE,
    optimizer: passes.Rule = passes.adamw,
) -> Any:
    """Gradient ascent on the forget set with descent on as many retained records: alpha L_retain - gamma L_forget.

    NegGrad+ (`negative_gradient`) has the same loss, passes over the remaining records, and plain descent. Pure; can be
    jitted, and vmapped over keys, models and sets.

    Args:
        key: random key of the order of minibatches.
        log_probs, params, inputs, labels, forget: as for `Unlearn`.
        gamma: the weight of the forget set.
        alpha: the weight of retained records.
        epochs: passes over the forget set.
        learning_rate: of the optimiser. The papers' 1e-5 is for billions of parameters.
        batch_size: records per step of each of the two minibatches.
        optimizer: a function of the learning rate that returns an Optax transformation.

    Raises:
        InputError: a number is out of range.
    """
    recipe = (gamma, alpha, epochs, learning_rate, batch_size, optimizer)
    return _moved(key, log_probs, params, inputs, labels, forget, lambda own, original, tokens: own, *recipe)


@cites("Zhang, Lin, Bai & Mei 2024")
def npo(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    beta: float = 0.1,
    gamma: float = 1.0,
    alpha: float = 1.0,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.ADAMW_RATE,
    batch_size: int = passes.BATCH_SIZE,
    optimizer: passes.Rule = passes.adamw,
) -> Any:
    """Negative preference optimisation (NPO): makes records of the forget set less likely than under the original.

    Its loss is bounded below. For beta near 0 its gradient is that of gradient ascent on the records' summed
    log-likelihoods. Pure, like `gradient_difference`.

    Args:
        key, log_probs, inputs, labels, forget: as for `Unlearn`.
        params: the parameters of the original, which stays the reference.
        beta: inverse temperature; the larger, the sooner the pull on a record ends.
        gamma, alpha, epochs, learning_rate, batch_size, optimizer: as for `gradient_difference`.

    Raises:
        InputError: a number is out of range.
    """
    _check_beta(beta)

    def of_forgotten(own: Array, original: Array, tokens: Array) -> Array:
        return -2 / beta * jax.nn.log_sigmoid(-beta * tokens * (own - original))

    recipe = (gamma, alpha, epochs, learning_rate, batch_size, optimizer)
    return _moved(key, log_probs, params, inputs, labels, forget, of_forgotten, *recipe)


@cites("Fan et al. 2024")
def sim_npo(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    beta: float = 4.5,
    delta: float = 0.0,
    gamma: float = 0.125,
    alpha: float = 1.0,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.ADAMW_RATE,
    batch_size: int = passes.BATCH_SIZE,
    optimizer: passes.Rule = passes.adamw,
) -> Any:
    """SimNPO: makes records of the forget set unlikely for each of their tokens, whatever the original says of them.

    The defaults are those of the authors' code for TOFU's forget10. Pure, like `gradient_difference`.

    Args:
        key, log_probs, params, inputs, labels, forget: as for `Unlearn`.
        beta: inverse temperature.
        delta: the loss of a token, in nats, above which the pull on a record fades.
        gamma, alpha, epochs, learning_rate, batch_size, optimizer: as for `gradient_difference`.

    Raises:
        InputError: a number is out of range.
    """
    _check_beta(beta)

    def of_forgotten(own: Array, original: Array, tokens: Array) -> Array:
        return -2 / beta * jax.nn.log_sigmoid(-beta * (own + delta))

    recipe = (gamma, alpha, epochs, learning_rate, batch_size, optimizer)
    return _moved(key, log_probs, params, inputs, labels, forget, of_forgotten, *recipe)


def _moved(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n ..."],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    of_forgotten: OfForgotten,
    gamma: float,
    alpha: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    optimizer: passes.Rule,
) -> Any:
    """The parameters after these epochs of descent on gamma F - alpha l / |y|."""
    passes.check_recipe(epochs, learning_rate, batch_size)
    passes.check_weights(gamma, alpha)
    retained, number = passes.cross_entropy(log_probs, inputs, labels), passes.tokens(inputs)

    def likelihood(at: Any, records: Any) -> Float[Array, " batch"]:
        return of_label(log_probs)(at, inputs[records], labels[records])

    def aim(now: Any, forgotten: passes.Minibatch, remaining: passes.Minibatch, begun: Any) -> Float[Array, ""]:
        records = forgotten.records
        original = lax.stop_gradient(likelihood(params, records))
        each = of_forgotten(likelihood(now, records), original, number[records])
        return gamma * passes.weighted_mean(each, forgotten) + alpha * retained(now, remaining)

    return passes.descend_on_both(key, aim, params, forget, epochs, batch_size, optimizer(learning_rate))


def _check_beta(beta: float) -> None:
    if not 0 < beta < float("inf"):
        raise InputError(f"`beta` must be above 0, got {beta:g}.")
