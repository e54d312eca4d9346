"""Amnesiac unlearning: undoes every update whose minibatch contained a record to forget (Becker & Liebig 2022, eq. 2).

Storing all updates takes the model's size times the number of steps. If the forget set is known before training, one
sum is enough. With b(t) = 1 if step t's minibatch has a record of the set, and b(-1) = 0, summation by parts gives

    sum over t < T of b(t) (theta(t+1) - theta(t))  =  b(T-1) theta(T) + sum over t < T of (b(t-1) - b(t)) theta(t)
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.ensemble.chunk import Summarize
from jaxaudit.errors import InputError
from jaxaudit.kernels.convolutions import Convolution
from jaxaudit.learners import SteppedLearner
from jaxaudit.learners.learner import AnyInputs, Inputs, Labels, TrainsBySteps, TrainState, Weights
from jaxaudit.metrics.arrays import AnyIntegers, Mask, OneKey
from jaxaudit.randomness import ModelKeys
from jaxaudit.unlearning.method import cites


class Recorded(NamedTuple):
    """The parameters of models, and of the same models without the updates that involved records of the forget set."""

    original: Any
    amnesiac: Any


@cites("Graves, Nagisetty & Ganesh 2021; Becker & Liebig 2022")
def train_and_record(
    keys: ModelKeys,
    forget: Mask,
    inputs: AnyInputs,
    labels: AnyIntegers,
    learner: SteppedLearner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
) -> Any:
    """Trains models on all records, and undoes every update that involved a record to forget; leading axes are models.

    Graves, Nagisetty & Ganesh (2021). The originals are those that `fit_many` trains with these keys, up to rounding.
    Memory is that of `fit_many`, with one more copy of the parameters in the training state. Updates of parameters are
    undone; other state (running statistics) is not. The rest is as for `fit_many`; `summarize` gets a `Recorded`.

    Raises:
        InputError: the learner keeps running statistics of minibatches, and what `fit_many` raises.
    """
    if learner.batch_coupled:
        raise InputError(
            "amnesiac unlearning undoes updates of parameters, but this network also has running statistics (batch "
            "normalisation), which would keep the forgotten records; use a network without them, or another method."
        )
    marked = ((np.asarray(labels, np.int64) << 1) | forget).astype(np.int32)
    everyone = np.ones((len(keys), len(marked)), bool)
    return fit_many(keys, everyone, inputs, marked, Recording(learner), execution=execution, summarize=summarize)


class Running(NamedTuple):
    """The state of `Recording`: the network's module state, the sum so far, and b(t-1)."""

    module: Any
    total: Any
    touched: Float[Array, ""]


@dataclass(frozen=True)
class Recording(TrainsBySteps):
    """A learner that trains like `learner` and adds up the updates to undo.

    The lowest bit of a record's label marks a record to forget; the class is in the bits above.
    """

    learner: SteppedLearner

    @property
    def epochs(self) -> int:
        return self.learner.epochs

    @property
    def batch_size(self) -> int:
        return self.learner.batch_size

    @property
    def batch_coupled(self) -> bool:
        return self.learner.batch_coupled

    @property
    def convolves(self) -> bool:
        return self.learner.convolves

    @property
    def form(self) -> str | None:
        return getattr(self.learner, "form", None)

    def convolutions(self) -> list[Convolution]:
        return self.learner.convolutions() if isinstance(self.learner, TrainsBySteps) else []

    def with_form(self, form: str | None) -> "Recording":
        return replace(self, learner=self.learner.with_form(form)) if isinstance(self.learner, TrainsBySteps) else self

    def in_one_piece(self) -> "Recording":
        return replace(self, learner=self.learner.in_one_piece()) if isinstance(self.learner, TrainsBySteps) else self

    @property
    def shared(self) -> Any:
        return getattr(self.learner, "shared", None)

    def having(self, shared: Any) -> "Recording":
        learner: Any = self.learner
        return replace(self, learner=learner.having(shared))

    def init(self, key: OneKey) -> TrainState:
        start = self.learner.init(key)
        total = jax.tree.map(jnp.zeros_like, start.params)
        return start._replace(state=Running(start.state, total, jnp.zeros((), jnp.float32)))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        """The learner's gradient at a minibatch, and the module state with this step's terms of the formula."""
        touched = jnp.any(((labels & 1) > 0) & (weights > 0)).astype(jnp.float32)
        total = _add(state.state.total, state.state.touched - touched, state.params)
        inner = state._replace(state=state.state.module)
        gradient, module = self.learner.gradient(inner, inputs, labels >> 1, weights)
        return gradient, Running(module, total, touched)

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        new = self.learner.update(state._replace(state=None), gradient, None)
        return TrainState(new.params, module_state, new.optimizer)

    def finish(self, state: TrainState) -> Recorded:
        def finished(params: Any) -> Any:
            return self.learner.finish(TrainState(params, state.state.module, state.optimizer))

        total = _add(state.state.total, state.state.touched, state.params)
        return Recorded(finished(state.params), finished(jax.tree.map(jnp.subtract, state.params, total)))

    def log_probs(self, params: Recorded, inputs: Real[Array, "n ..."]) -> Float[Array, "n classes"]:
        """The log-probabilities of the original model."""
        return self.learner.log_probs(params.original, inputs)


def _add(total: Any, factor: Float[Array, ""], params: Any) -> Any:
    return jax.tree.map(lambda so_far, leaf: so_far + factor.astype(leaf.dtype) * leaf, total, params)
