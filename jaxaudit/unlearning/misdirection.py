"""RMU (representation misdirection for unlearning): moves what a layer says of the forget set to a random direction.

Li et al. (2024), "The WMDP benchmark: measuring and reducing malicious use with unlearning", section 4. With h the
activations of one layer of the model, h_q those of the original, u a direction whose numbers are drawn uniformly from 0
to 1 and then scaled to length 1, and the means over a record's tokens that count and over the width of h, every step of
an optimiser, by default AdamW, minimises

    gamma * mean over a minibatch of the forget set of (h - c u)^2  +  alpha * mean over retained records of (h - h_q)^2

An epoch is a pass over the forget set. The mean over the width is that of the code of the authors and of
`locuslab/open-unlearning` (Dorna et al. 2025), where the paper has the sum; of several records the latter divides each
record's sum by every record's number of tokens. All parameters up to the layer are trained, as there; the authors
trained three layers' matrices.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.models.module import HiddenStates
from jaxaudit.randomness import stream
from jaxaudit.unlearning import passes
from jaxaudit.unlearning.method import LogProbs, cites


@cites("Li et al. 2024")
def rmu(
    key: Key[Array, ""],
    log_probs: LogProbs,
    params: Any,
    inputs: Real[Array, "n length"],
    labels: Int[Array, " n"],
    forget: Bool[Array, " n"],
    *,
    hidden: HiddenStates,
    coefficient: float = 2.0,
    gamma: float = 1.0,
    alpha: float = 1.0,
    epochs: int = passes.EPOCHS,
    learning_rate: float = passes.ADAMW_RATE,
    batch_size: int = passes.BATCH_SIZE,
    optimizer: passes.Rule = passes.adamw,
) -> Any:
    """Steers a layer's activations on the forget set to a random direction, and keeps them on retained records.

    Nothing behind the layer changes but by the optimiser's weight decay. Pure; can be jitted, and vmapped over keys,
    models and sets.

    Args:
        key: random key of the direction, and of the order of minibatches.
        log_probs: not used.
        params, labels, forget: as for `Unlearn`.
        inputs: records of tokens, as `jaxaudit.data.sequences`.
        hidden: the activations of the layer, by parameters and records, such as `hidden_states(learner.net)`.
        coefficient: c, the length of the vector that activations are moved to; useful values follow those of the layer.
        gamma, alpha, epochs, learning_rate, batch_size, optimizer: as for `gradient_difference`.

    Raises:
        InputError: a number is out of range, or records are not of tokens.
    """
    passes.check_recipe(epochs, learning_rate, batch_size)
    passes.check_weights(gamma, alpha)
    if not 0 <= coefficient < float("inf"):
        raise InputError(f"`coefficient` must be at least 0, got {coefficient:g}.")
    if not jnp.issubdtype(inputs.dtype, jnp.integer):
        raise InputError("RMU moves what a layer says of each token, and these records have none: use another method.")
    width = jax.eval_shape(hidden, params, inputs[:1]).shape[-1]
    direction = jax.random.uniform(stream(key, "direction"), (width,))
    target = coefficient * direction / jnp.linalg.norm(direction)

    def away(said: Any, wanted: Any, minibatch: passes.Minibatch) -> Float[Array, ""]:
        counts = inputs[minibatch.records] >= 0
        of_token = jnp.mean((said - wanted) ** 2, axis=-1)
        each = jnp.sum(jnp.where(counts, of_token, 0), axis=1) / jnp.maximum(jnp.sum(counts, axis=1), 1)
        return passes.weighted_mean(each, minibatch)

    def aim(now: Any, forgotten: passes.Minibatch, remaining: passes.Minibatch, begun: Any) -> Float[Array, ""]:
        moved = away(hidden(now, inputs[forgotten.records]), target, forgotten)
        records = inputs[remaining.records]
        kept = away(hidden(now, records), jax.lax.stop_gradient(hidden(params, records)), remaining)
        # At the start the retained loss and its gradient are 0 up to rounding, which AdamW would scale to a full step.
        return gamma * moved + jnp.where(begun, alpha, 0) * kept

    return passes.descend_on_both(key, aim, params, forget, epochs, batch_size, optimizer(learning_rate))
