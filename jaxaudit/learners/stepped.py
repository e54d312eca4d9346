"""Trains one model by a learner's own steps, and base classes of such learners.

A step knows its moment, and keeps none of it. Whoever drives training tells each step its epoch and a random key, which
is a function of the model's key, the epoch and the step's number there (`Moment`, `step_key`). So random steps are the
same on every path and in every company, and after a stop, with nothing more to keep; a step without members moves no
other step's key, so leave-one-out models share their draws. Learning rates follow the epoch, as PyTorch's schedulers
that are stepped once an epoch: models of one chunk differ in their steps an epoch, and each still runs through its
whole schedule. (Dropout of a module draws from the module's own state, which NNX and Linen advance in each step taken.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.kernels.convolutions import Convolution
from jaxaudit.learners import batch_order
from jaxaudit.learners.learner import (
    FormedLearner,
    Inputs,
    Labels,
    Moment,
    SteppedLearner,
    TrainState,
    ValidatedLearner,
    Weights,
)


def compiled(*static: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`jax.jit` for a function of a `learner`, its first argument, which is static, and of arrays.

    The arrays that all models of a learner share (its attribute `shared`, see `Shared`) become arguments of the
    program. As constants they would be copied into every program. `static` names further static arguments, and
    `options` are those of `jax.jit`. As `jax.jit` does, the function has `lower`, with the same arguments.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        @partial(jax.jit, static_argnames=("learner", *static), **options)
        @wraps(function)
        def program(learner: Any, *args: Any, shared_arrays: Any = None, **keywords: Any) -> Any:
            return function(learner if shared_arrays is None else learner.having(shared_arrays), *args, **keywords)

        @wraps(function)
        def called(learner: Any, *args: Any, **keywords: Any) -> Any:
            return program(learner, *args, shared_arrays=getattr(learner, "shared", None), **keywords)

        def lower(learner: Any, *args: Any, **keywords: Any) -> Any:
            return program.lower(learner, *args, shared_arrays=getattr(learner, "shared", None), **keywords)

        cast(Any, called).lower = lower
        return called

    return decorated


def moment_of(key: Key[Array, ""], epoch: int | Int[Array, ""], step: int | Int[Array, ""]) -> Moment:
    """The `Moment` of a step of the model with this key; can be traced."""
    return Moment(jnp.asarray(epoch, jnp.int32), batch_order.step_key(key, epoch, step))


def take_step(
    learner: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights, moment: Moment
) -> TrainState:
    """The training state after one step of `learner` on this minibatch, at this moment (epoch and random key)."""
    return learner.step(state._replace(moment=moment), inputs, labels, weights)._replace(moment=None)


def train_by_steps(
    learner: SteppedLearner, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights
) -> TrainState:
    """The training state after all epochs, in the batch order that key and members determine; can be traced.

    Members are the records of `inputs` and `labels` with a weight above 0. A `ValidatedLearner` holds some of the
    members back to judge each epoch by them.
    """

    member, judge = weights > 0, None
    if isinstance(learner, ValidatedLearner):
        held = batch_order.traced_held_back(batch_order.held_back_bits(key, len(labels)), member, learner.validation)
        member, judge = member & ~held, partial(_judged, learner, inputs, labels, held)

    def epoch(index: Array, state: TrainState) -> TrainState:
        bits = batch_order.epoch_bits(key, index, len(labels))
        batches = batch_order.traced_batches(
            bits, member, learner.batch_size, learner.batch_coupled or judge is not None
        )

        def take(state: TrainState, batch: tuple[Array, Array, Array]) -> tuple[TrainState, None]:
            chosen, weight, step = batch
            moment = moment_of(key, index, step)
            new = take_step(learner, state, inputs[chosen], labels[chosen], weight, moment)
            return jax.tree.map(lambda old, now: jnp.where(jnp.any(weight > 0), now, old), state, new), None

        state = jax.lax.scan(take, state, (*batches, jnp.arange(len(batches[0]))))[0]
        return state if judge is None else judge(state)

    return jax.lax.fori_loop(0, learner.epochs, epoch, learner.init(batch_order.init_key(key)))


def _judged(
    learner: ValidatedLearner, inputs: Inputs, labels: Labels, held: Bool[Array, " n"], state: TrainState
) -> TrainState:
    """The state after an epoch, given the validation loss, which is computed one batch at a time."""
    most = int(batch_order.held_back_counts(len(labels), learner.validation)[-1])
    places = jnp.arange(-(-most // learner.batch_size) * learner.batch_size)
    order = jnp.argsort(~held, stable=True)[places % max(len(labels), 1)].reshape(-1, learner.batch_size)
    real = (places < jnp.sum(held)).reshape(-1, learner.batch_size)

    def add(total: Array, batch: tuple[Array, Array]) -> tuple[Array, None]:
        chosen, counts = batch
        return total + jnp.sum(jnp.where(counts, learner.losses(state, inputs[chosen], labels[chosen]), 0)), None

    return learner.judged(state, jax.lax.scan(add, jnp.zeros(()), (order, real))[0] / jnp.sum(held))


class TrainsBySteps:
    """Base class of a `SteppedLearner`: derives `step` and `fit` from `gradient` and `update`."""

    def step(self: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> TrainState:
        return self.update(state, *self.gradient(state, inputs, labels, weights))

    def fit(self: SteppedLearner, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights) -> Any:
        return self.finish(train_by_steps(self, key, inputs, labels, weights))


@dataclass(frozen=True)
class TrainsAsAnother(TrainsBySteps):
    """Base class of a learner that trains like another one (`learner`), with additions to its training state."""

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
        return self.learner.form if isinstance(self.learner, FormedLearner) else None

    def convolutions(self) -> list[Convolution]:
        return self.learner.convolutions() if isinstance(self.learner, FormedLearner) else []

    def in_form(self, form: str | None) -> "TrainsAsAnother":
        learner = self.learner.in_form(form) if isinstance(self.learner, FormedLearner) else self.learner
        return replace(self, learner=learner)

    def in_batches_of(self, records: int) -> "TrainsAsAnother":
        learner = self.learner.in_batches_of(records) if isinstance(self.learner, FormedLearner) else self.learner
        return replace(self, learner=learner)

    def at_once(self) -> "TrainsAsAnother":
        learner = self.learner.at_once() if isinstance(self.learner, FormedLearner) else self.learner
        return replace(self, learner=learner)

    @property
    def shared(self) -> Any:
        return getattr(self.learner, "shared", None)

    def record_ends(self, inputs: np.ndarray) -> np.ndarray | None:
        ends = getattr(self.learner, "record_ends", None)
        return None if ends is None else ends(inputs)

    def having(self, shared: Any) -> "TrainsAsAnother":
        learner: Any = self.learner
        return replace(self, learner=learner.having(shared))
