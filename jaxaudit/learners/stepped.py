"""Training one model by a learner's own steps, as one function of its key and its records."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jaxaudit.learners.batch_order import epoch_bits, init_key, traced_batches
from jaxaudit.learners.learner import SteppedLearner, TrainState


def train_by_steps(
    learner: SteppedLearner,
    key: Key[Array, ""],
    inputs: Float[Array, "n ..."],
    labels: Int[Array, " n"],
    weights: Float[Array, " n"],
) -> TrainState:
    """The training state after all epochs, in the batch order that key and members alone decide; can be traced."""

    def epoch(index: Array, state: TrainState) -> TrainState:
        bits = epoch_bits(key, index, len(labels))
        batches = traced_batches(bits, weights > 0, learner.batch_size, learner.batch_coupled)

        def take(state: TrainState, batch: tuple[Array, Array]) -> tuple[TrainState, None]:
            chosen, weight = batch
            new = learner.step(state, inputs[chosen], labels[chosen], weight)
            return jax.tree.map(lambda old, now: jnp.where(jnp.any(weight > 0), now, old), state, new), None

        return jax.lax.scan(take, state, batches)[0]

    return jax.lax.fori_loop(0, learner.epochs, epoch, learner.init(init_key(key)))
