"""Unlearning of language models by losses of the forget set and of retained records.

With F and R a record's losses, every step of AdamW minimises gamma * mean over a minibatch of the forget set of F +
alpha * mean over retained records of R. An epoch is a pass over the forget set. Losses are those of
`src/trainer/unlearn` of `locuslab/open-unlearning` (Dorna et al. 2025), but each record has one weight. A record with a
class is one token.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Real

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.learners.learner import Inputs, Labels
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.models.module import HiddenStates
from jaxaudit.randomness import stream
from jaxaudit.unlearning import gradients
from jaxaudit.unlearning.gradients import Minibatch
from jaxaudit.unlearning.method import Chosen, LogProbs, cites, of_label

OfForgotten = Callable[[Float[Array, " batch"], Float[Array, " batch"], Float[Array, " batch"]], Float[Array, " batch"]]
"""F of each record, from its mean log-likelihoods under the model and under the original, and its number of tokens."""


class Recipe(NamedTuple):
    """How a method of language models descends.

    Attributes:
        alpha: the weight of retained records; that of the forget set, gamma, is each method's own.
        learning_rate: of AdamW. The papers' 1e-5 is for billions of parameters.
        batch_size: records per step of each of the two minibatches.
    """

    alpha: float = 1.0
    epochs: int = gradients.EPOCHS
    learning_rate: float = gradients.ADAMW_RATE
    batch_size: int = gradients.BATCH_SIZE


_USUAL = Recipe()


@cites("Liu, Liu & Stone 2022; Maini, Feng et al. 2024")
def gradient_difference(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    gamma: float = 1.0,
    recipe: Recipe = _USUAL,
) -> Any:
    """Gradient ascent on the forget set with descent on as many retained records.

    F = l / |y| and R = -l / |y|, with l the log-likelihood of a record's tokens that count (nats) and |y| their number:
    Maini, Feng et al. (2024), after Liu, Liu & Stone (2022). NegGrad+ (`negative_gradient`) has the same loss, passes
    over the remaining records, and plain descent. Pure; can be jitted, and vmapped over keys, models and sets.

    Args:
        gamma: the weight of F; that of R is `recipe.alpha`.
        recipe: how the method descends.
    """

    def of_forgotten(likelihoods: Array, original: Array, tokens: Array) -> Array:
        return likelihoods

    return _moved(of_forgotten, gamma, recipe, key, log_probs, params, inputs, labels, forget)


@cites("Zhang, Lin, Bai & Mei 2024")
def npo(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    beta: float = 0.1,
    gamma: float = 1.0,
    recipe: Recipe = _USUAL,
) -> Any:
    """Negative preference optimisation (NPO): makes the forget set less likely than under the original, `params`.

    F = -2 / beta log sigmoid(-beta (l_p - l_q)), with p the model and q the original, and R and other arguments as for
    `gradient_difference`: Zhang, Lin, Bai & Mei, "Negative preference optimization" (2024), with their retain term. The
    loss is bounded below: the pull on a record ends once it is much less likely than it was, the sooner the larger
    `beta` (inverse temperature). For beta near 0 it is gradient ascent on the records' log-likelihoods.
    """
    check_ranges("(0, inf)", beta=beta)

    def of_forgotten(likelihoods: Array, original: Array, tokens: Array) -> Array:
        return -2 / beta * jax.nn.log_sigmoid(-beta * tokens * (likelihoods - original))

    return _moved(of_forgotten, gamma, recipe, key, log_probs, params, inputs, labels, forget)


@cites("Fan et al. 2024")
def sim_npo(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
    *,
    beta: float = 4.5,
    delta: float = 0.0,
    gamma: float = 0.125,
    recipe: Recipe = _USUAL,
) -> Any:
    """SimNPO: makes records of the forget set unlikely for each of their tokens, whatever the original says of them.

    F = -2 / beta log sigmoid(-beta (l / |y| + delta)), and R and other arguments as for `gradient_difference`: Fan et
    al. (2024), "Simplicity prevails", whose margin is beta delta. `delta` is the loss of a token, in nats, above which
    the pull on a record fades. The defaults are those of the authors' code for TOFU's forget10.
    """
    check_ranges("(0, inf)", beta=beta)

    def of_forgotten(likelihoods: Array, original: Array, tokens: Array) -> Array:
        return -2 / beta * jax.nn.log_sigmoid(-beta * (likelihoods + delta))

    return _moved(of_forgotten, gamma, recipe, key, log_probs, params, inputs, labels, forget)


@cites("Li et al. 2024")
def rmu(
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n length"],
    labels: Labels,
    forget: Chosen,
    *,
    hidden: HiddenStates,
    coefficient: float = 2.0,
    gamma: float = 1.0,
    recipe: Recipe = _USUAL,
) -> Any:
    """Steers a layer's activations on the forget set to a random direction, and keeps them on retained records.

    F = (h - c u)^2 and R = (h - h_q)^2: Li et al. (2024), "The WMDP benchmark: measuring and reducing malicious use
    with unlearning", section 4. h are the activations of one layer, h_q those of the original, u a direction whose
    numbers are drawn uniformly from 0 to 1 and then scaled to length 1. F and R are means over a record's tokens that
    count and over the width of h, as in the authors' code, where the paper has the sum. All parameters up to the layer
    are trained; the authors trained three layers' matrices.

    Args:
        inputs: records of tokens, as `jaxaudit.data.sequences`; an `InputError` for others.
        hidden: the activations of the layer, by parameters and records, such as `hidden_states(learner.net)`.
        coefficient: c, the length of the vector that activations are moved to; useful values follow those of the layer.
        gamma, recipe: as for `gradient_difference`.
    """
    check_ranges("[0, inf)", coefficient=coefficient)
    if not jnp.issubdtype(inputs.dtype, jnp.integer):
        raise InputError("RMU moves what a layer says of each token, and these records have none: use another method.")
    width = jax.eval_shape(hidden, params, inputs[:1]).shape[-1]
    direction = jax.random.uniform(stream(key, "direction"), (width,))
    target = coefficient * direction / jnp.linalg.norm(direction)

    def away(activations: Any, directions: Any, minibatch: Minibatch) -> Float[Array, ""]:
        counts = inputs[minibatch.records] >= 0
        of_token = jnp.mean((activations - directions) ** 2, axis=-1)
        of_record = jnp.sum(jnp.where(counts, of_token, 0), axis=1) / jnp.maximum(jnp.sum(counts, axis=1), 1)
        return gradients.weighted_mean(of_record, minibatch)

    def aim(now: Any, forgotten: Minibatch, remaining: Minibatch, begun: Any) -> Float[Array, ""]:
        moved = away(hidden(now, inputs[forgotten.records]), target, forgotten)
        records = inputs[remaining.records]
        kept = away(hidden(now, records), jax.lax.stop_gradient(hidden(params, records)), remaining)
        # At the start the retained loss and its gradient are 0 up to rounding, which AdamW would scale to a full step.
        return gamma * moved + jnp.where(begun, recipe.alpha, 0) * kept

    return _descend(key, aim, params, forget, gamma, recipe)


def _moved(
    of_forgotten: OfForgotten,
    gamma: float,
    recipe: Recipe,
    key: OneKey,
    log_probs: LogProbs,
    params: Any,
    inputs: Inputs,
    labels: Labels,
    forget: Chosen,
) -> Any:
    """The parameters after these epochs of descent on gamma F - alpha l / |y|."""
    retained, number = gradients.cross_entropy(log_probs, inputs, labels), gradients.tokens(inputs)

    def likelihood(at: Any, records: Any) -> Float[Array, " batch"]:
        return of_label(log_probs)(at, inputs[records], labels[records])

    def aim(now: Any, forgotten: Minibatch, remaining: Minibatch, begun: Any) -> Float[Array, ""]:
        records = forgotten.records
        original = lax.stop_gradient(likelihood(params, records))
        of_record = of_forgotten(likelihood(now, records), original, number[records])
        return gamma * gradients.weighted_mean(of_record, forgotten) + recipe.alpha * retained(now, remaining)

    return _descend(key, aim, params, forget, gamma, recipe)


def _descend(
    key: OneKey,
    aim: Callable[[Any, Minibatch, Minibatch, Any], Float[Array, ""]],
    params: Any,
    forget: Chosen,
    gamma: float,
    recipe: Recipe,
) -> Any:
    """The parameters after passes over the forget set that minimise `aim(params, forgotten, remaining, begun)`."""
    gradients.check_numbers(recipe.epochs, recipe.learning_rate, recipe.batch_size)
    check_ranges("[0, inf)", gamma=gamma, alpha=recipe.alpha)
    optimizer, batch_size = gradients.adamw(recipe.learning_rate), recipe.batch_size

    def epoch(number: Any, state: Any) -> Any:
        remaining = gradients.one_pass(stream(key, "pass"), number, ~forget, batch_size)

        def step(place: Any, forgotten: Minibatch, state: Any) -> Any:
            now, moments = state
            gradient = jax.grad(aim)(now, forgotten, remaining[place], (number > 0) | (place > 0))
            updates, moments = optimizer.update(gradient, moments, now)
            return optax.apply_updates(now, updates), moments

        return gradients.each_step(gradients.one_pass(stream(key, "forget"), number, forget, batch_size), step, state)

    return lax.fori_loop(0, recipe.epochs, epoch, (params, optimizer.init(params)))[0]
