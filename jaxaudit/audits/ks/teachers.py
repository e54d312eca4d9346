"""The small models that records teach, and what they say of each record without what they learned from it.

A dense network learns any record, and of images a convolutional one beside it, whose images are shifted at random. Each
is trained for several numbers of epochs: what is difficult early on, and what late, tells of different targets.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from jaxaudit.audits.ks.taught import BATCH, CONVOLUTIONAL_EPOCHS, DENSE_EPOCHS, HIDDEN, RATE, SHIFT
from jaxaudit.ensemble import Execution, Progress, fit_many, log_probs_many
from jaxaudit.learners import NetworkLearner, network
from jaxaudit.metrics.scores import cut, log_odds
from jaxaudit.metrics.taught import odds_without, taught_rows
from jaxaudit.models import MLP
from jaxaudit.models.small import SmallCNN
from jaxaudit.randomness import generator_of, several, stream

DENSE_AT_ONCE, CONVOLUTIONS_TAKE = 3, 20
"""Dense models in one program; and about how many times as long as theirs a step of a convolutional one takes."""


def teach_difficulty(
    key: Key[Array, ""],
    inputs: Float[np.ndarray, "n ..."],
    labels: Int[np.ndarray, " n"],
    units: Int[np.ndarray, " n"],
    progress: Progress | None,
) -> Float[np.ndarray, "teachings n"]:
    """What the models say of each record, for each network and number of epochs."""
    rows = taught_rows(generator_of(stream(key, "rows")), units)
    teaches = rows.any(axis=0)
    odds, learners = [], learners_of(inputs.shape[1:], int(labels.max()) + 1)
    weights = [learner.epochs * (CONVOLUTIONS_TAKE if learner.convolves else 1) for learner in learners.values()]
    parts = Execution(models_per_batch=DENSE_AT_ONCE, progress=progress).split(*weights)
    for (name, learner), execution in zip(learners.items(), parts, strict=True):

        def judged(params: Any, _: Any, learner: NetworkLearner = learner) -> Float[np.ndarray, "some n"]:
            return cut(log_odds(log_probs_many(learner, params, inputs), labels)).astype(np.float32)

        of_models = fit_many(
            several(stream(key, name), len(rows)),
            rows[:, teaches],
            inputs[teaches],
            labels[teaches],
            learner,
            execution=execution,
            summarize=judged,
            members_only=True,
        )
        odds.append(odds_without(of_models, rows))
    return np.stack(odds)


@lru_cache(maxsize=8)
def learners_of(shape: tuple[int, ...], classes: int) -> dict[str, NetworkLearner]:
    """The small models of records of this shape, by name; equal arguments give the same objects, compiled once."""

    def dense(shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> MLP:
        return MLP(shape, classes, rngs=rngs, hidden=(HIDDEN,))

    def learner(factory: Any, epochs: int, **options: Any) -> NetworkLearner:
        return network(factory, shape, classes, optimizer=optax.adam(RATE), epochs=epochs, batch_size=BATCH, **options)

    learners = {f"dense {epochs}": learner(dense, epochs) for epochs in DENSE_EPOCHS}
    if len(shape) == 3:
        learners |= {
            f"convolutional {epochs}": learner(SmallCNN, epochs, augment=(shifted,)) for epochs in CONVOLUTIONAL_EPOCHS
        }
    return learners


def shifted(key: Key[Array, ""], inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """Moves each image by up to `SHIFT` pixels in each direction, at random; what comes in is 0."""
    padded = jnp.pad(inputs, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    corners = jax.random.randint(key, (len(inputs), 2), 0, 2 * SHIFT + 1)

    def window(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), inputs.shape[1:])

    return jax.vmap(window)(padded, corners)
