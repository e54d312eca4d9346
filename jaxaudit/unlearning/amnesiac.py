"""Amnesiac unlearning: undoes every update whose minibatch contained a record to forget (Becker & Liebig 2022, eq. 2).

Storing all updates takes the model's size times the number of steps. If the forget sets are known before training, one
sum per set is enough. With b(t) = 1 if the minibatch of step t contains a record of the set, and b(-1) = 0, summation
by parts gives

    sum over t < T of b(t) (theta(t+1) - theta(t))  =  b(T-1) theta(T) + sum over t < T of (b(t-1) - b(t)) theta(t)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.ensemble.chunk import Summarize
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.learners.learner import Inputs, Labels, TrainState, Weights
from jaxaudit.learners.stepped import TrainsAsAnother
from jaxaudit.unlearning.method import cites


class Recorded(NamedTuple):
    """The parameters of models, and of the same models without the updates that involved records of a forget set.

    `original` has a leading axis of models, `amnesiac` leading axes of models and forget sets.
    """

    original: Any
    amnesiac: Any


@cites("Graves, Nagisetty & Ganesh 2021; Becker & Liebig 2022")
def train_and_record(
    keys: Key[Array, " models"],
    forget: Bool[np.ndarray, "sets n"],
    inputs: Real[Array | np.ndarray, "n ..."],
    labels: Int[Array | np.ndarray, " n"],
    learner: SteppedLearner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
) -> Any:
    """Trains models on all records, and for each forget set undoes every update that involved one of its records.

    Graves, Nagisetty & Ganesh (2021). The originals are those that `fit_many` trains with these keys, up to rounding.
    Memory is that of `fit_many`, with one more copy of the parameters per set in the training state. Updates of
    parameters are undone; other state (running statistics) is not. `execution` and `summarize`, which gets a
    `Recorded`, are as for `fit_many`.

    Raises:
        InputError: the learner keeps running statistics of minibatches, there are more forget sets than bits to mark
            them (31 minus those of a label), and what `fit_many` raises.
    """
    sets, largest = len(forget), int(np.max(labels, initial=0))
    if learner.batch_coupled:
        raise InputError(
            "amnesiac unlearning undoes updates of parameters, but this network also has running statistics (batch "
            "normalisation), which would keep the forgotten records; use a network without them, or another method."
        )
    if sets + largest.bit_length() > 31:
        raise InputError(
            f"{sets} sets to forget cannot be recorded at once with labels up to {largest}: at most "
            f"{31 - largest.bit_length()}; train again for the others."
        )
    bits = (forget.T.astype(np.int64) << np.arange(sets)).sum(axis=1)
    marked = ((np.asarray(labels, np.int64) << sets) | bits).astype(np.int32)
    everyone = np.ones((len(keys), len(marked)), bool)
    recording = Recording(learner, sets)
    return fit_many(keys, everyone, inputs, marked, recording, execution=execution, summarize=summarize)


class Running(NamedTuple):
    """The state of `Recording`: the network's module state, the sum for each forget set so far, and b(t-1)."""

    module: Any
    sums: Any
    touched: Float[Array, " sets"]


@dataclass(frozen=True)
class Recording(TrainsAsAnother):
    """A learner that trains like `learner` and adds up the updates to undo for each forget set.

    The low bits of a record's label mark the forget sets that contain the record; the class is in the bits above.
    """

    sets: int

    def init(self, key: Key[Array, ""]) -> TrainState:
        start = self.learner.init(key)
        sums = jax.tree.map(lambda leaf: jnp.zeros((self.sets, *leaf.shape), leaf.dtype), start.params)
        return start._replace(state=Running(start.state, sums, jnp.zeros(self.sets, jnp.float32)))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        """The learner's gradient at a minibatch, and the module state with this step's terms of the formula."""
        held = (labels[:, None] >> jnp.arange(self.sets)) & 1
        touched = jnp.any((held > 0) & (weights > 0)[:, None], axis=0).astype(jnp.float32)
        sums = _add(state.state.sums, state.state.touched - touched, state.params)
        inner = state._replace(state=state.state.module)
        gradient, module = self.learner.gradient(inner, inputs, labels >> self.sets, weights)
        return gradient, Running(module, sums, touched)

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        new = self.learner.update(state._replace(state=None), gradient, None)
        return TrainState(new.params, module_state, new.optimizer)

    def finish(self, state: TrainState) -> Recorded:
        def finished(params: Any) -> Any:
            return self.learner.finish(TrainState(params, state.state.module, state.optimizer))

        sums = _add(state.state.sums, state.state.touched, state.params)
        taken_back = jax.tree.map(lambda now, total: now - total, state.params, sums)
        return Recorded(finished(state.params), jax.vmap(finished)(taken_back))

    def log_probs(self, params: Recorded, inputs: Real[Array, "n ..."]) -> Float[Array, "n classes"]:
        """The log-probabilities of the original model."""
        return self.learner.log_probs(params.original, inputs)


def _add(sums: Any, factors: Float[Array, " sets"], params: Any) -> Any:
    def add(total: Array, leaf: Array) -> Array:
        return total + factors.astype(leaf.dtype).reshape(-1, *[1] * leaf.ndim) * leaf

    return jax.tree.map(add, sums, params)
