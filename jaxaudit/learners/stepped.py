"""Trains one model by a learner's own steps, in an order that follows from its key and membership mask (row).

A step's random key is a function of the model's key, the epoch and the step's number. So neither a chunk nor a
neighbour changes a model. A row that leaves out at most a tenth of the pool takes *pool order*: every epoch is a
permutation of the whole pool, where non-members have weight 0, so two such rows with one key differ only by the
left-out records. Every other row, and every row of a batch-coupled or validating learner, takes *own order*: a
permutation of its members, the last minibatch padded with members at weight 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Real, UInt32

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.kernels.convolutions import Convolution
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
    """`jax.jit` for a function of a `learner`, its first, static argument, and of arrays. The arrays that all models of
    a learner share (`Shared`) become arguments of the program: constants would be copied into every program.
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
    return Moment(jnp.asarray(epoch, jnp.int32), step_key(key, epoch, step))


def take_step(
    learner: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights, moment: Moment
) -> TrainState:
    """The training state after one step of `learner` on this minibatch, at this moment (epoch and random key)."""
    return learner.step(state._replace(moment=moment), inputs, labels, weights)._replace(moment=None)


def train_by_steps(
    learner: SteppedLearner, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights
) -> TrainState:
    """The training state after all epochs, in the batch order that key and members determine; can be traced. Members
    are the records with a weight above 0; a `ValidatedLearner` holds some of them back.
    """

    member, judge = weights > 0, None
    if isinstance(learner, ValidatedLearner):
        held = traced_held_back(held_back_bits(key, len(labels)), member, learner.validation)
        member, judge = member & ~held, partial(_judged, learner, inputs, labels, held)

    def epoch(index: Array, state: TrainState) -> TrainState:
        bits = epoch_bits(key, index, len(labels))
        batches = traced_batches(bits, member, learner.batch_size, learner.batch_coupled or judge is not None)

        def take(state: TrainState, batch: tuple[Array, Array, Array]) -> tuple[TrainState, None]:
            chosen, weight, step = batch
            moment = moment_of(key, index, step)
            new = take_step(learner, state, inputs[chosen], labels[chosen], weight, moment)
            return jax.tree.map(lambda old, now: jnp.where(jnp.any(weight > 0), now, old), state, new), None

        state = jax.lax.scan(take, state, (*batches, jnp.arange(len(batches[0]))))[0]
        return state if judge is None else judge(state)

    return jax.lax.fori_loop(0, learner.epochs, epoch, learner.init(init_key(key)))


def _judged(
    learner: ValidatedLearner, inputs: Inputs, labels: Labels, held: Bool[Array, " n"], state: TrainState
) -> TrainState:
    """The state after an epoch, given the validation loss, which is computed one batch at a time."""
    most = int(held_back_counts(len(labels), learner.validation)[-1])
    places = jnp.arange(-(-most // learner.batch_size) * learner.batch_size)
    order = jnp.argsort(~held, stable=True)[places % max(len(labels), 1)].reshape(-1, learner.batch_size)
    real = (places < jnp.sum(held)).reshape(-1, learner.batch_size)

    def add(total: Array, batch: tuple[Array, Array]) -> tuple[Array, None]:
        chosen, counts = batch
        return total + jnp.sum(jnp.where(counts, learner.losses(state, inputs[chosen], labels[chosen]), 0)), None

    return learner.judged(state, jax.lax.scan(add, jnp.zeros(()), (order, real))[0] / jnp.sum(held))


class TrainsBySteps:
    """Base class of a `SteppedLearner`: derives `step` and `fit` from `gradient` and `update`."""

    kind = "a neural network"

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


VALIDATION = 0.1
"""The default share of a model's records that is held back."""


class Stopping(NamedTuple):
    """The state of early stopping, which takes the place of the optimiser's state and contains it.

    `best` are the parameters of the best epoch so far, `loss` its validation loss (nats; infinite before the first
    epoch), `chosen` its number (from 1; 0 before the first epoch), and `epochs` how many have passed.
    """

    optimizer: Any
    best: Any
    loss: Float[Array, ""]
    chosen: Int[Array, ""]
    epochs: Int[Array, ""]


@dataclass(frozen=True)
class EarlyStopping(TrainsAsAnother):
    """A learner that trains like `learner` and keeps the best epoch; made by `stop_early`.

    Guarantee: steps after a model has stopped do not change its result, so it may stay in a chunk with other models.
    """

    patience: int
    validation: float

    def init(self, key: Key[Array, ""]) -> TrainState:
        start = self.learner.init(key)
        none = jnp.zeros((), jnp.int32)
        best = jax.tree.map(jnp.zeros_like, self.learner.finish(start))
        return start._replace(optimizer=Stopping(start.optimizer, best, jnp.full((), jnp.inf, jnp.float32), none, none))

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        return self.learner.gradient(_inner(state), inputs, labels, weights)

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        new = self.learner.update(_inner(state), gradient, module_state)
        return new._replace(optimizer=state.optimizer._replace(optimizer=new.optimizer))

    def losses(self, state: TrainState, inputs: Inputs, labels: Labels) -> Float[Array, " n"]:
        """The cross-entropy (nats) of each record in evaluation, without label smoothing or augmentation."""
        log_probs = self.learner.log_probs(self.learner.finish(_inner(state)), inputs)
        return -jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]

    def judged(self, state: TrainState, loss: Float[Array, ""]) -> TrainState:
        """The state after an epoch: its parameters become the best if its loss is the least and it has not stopped."""
        kept: Stopping = state.optimizer
        epochs = kept.epochs + 1
        # False if the loss is NaN.
        better = (loss < kept.loss) & ~self.finished(state)
        now = self.learner.finish(_inner(state))
        new = Stopping(
            kept.optimizer,
            jax.tree.map(lambda old, current: jnp.where(better, current, old), kept.best, now),
            jnp.where(better, loss, kept.loss),
            jnp.where(better, epochs, kept.chosen),
            epochs,
        )
        return state._replace(optimizer=new)

    def finished(self, state: TrainState) -> Bool[Array, ""]:
        """Whether `patience` epochs have passed without a smaller loss; False if no epoch had a finite loss."""
        kept: Stopping = state.optimizer
        return (kept.chosen > 0) & (kept.epochs - kept.chosen >= self.patience)

    def finish(self, state: TrainState) -> Any:
        """The best epoch's parameters; the last parameters if no epoch had a loss."""
        kept: Stopping = state.optimizer
        last = self.learner.finish(_inner(state))
        return jax.tree.map(lambda best, now: jnp.where(kept.chosen > 0, best, now), kept.best, last)

    def log_probs(self, params: Any, inputs: Real[Array, "n ..."]) -> Float[Array, "n classes"]:
        return self.learner.log_probs(params, inputs)


def stop_early(learner: SteppedLearner, patience: int, validation: float = VALIDATION) -> EarlyStopping:
    """A learner that trains like `learner`, with early stopping (Prechelt 1998, "Early stopping - but when?").

    Each model holds back a share of its own records (validation records), drawn by its key, and is trained on the rest.
    After every epoch, the mean cross-entropy of the validation records is computed in evaluation mode. The model's
    parameters are those of the epoch where it is least (the first if tied). Once `patience` epochs have passed without
    a smaller one, later epochs do not count. A learning rate schedule extends over all epochs, wherever a model stops.

    Validation records count as training records, since they select the epoch; the membership mask includes them. Models
    that differ in one record would also hold back different records, so leave-one-out audits refuse such a learner.

    Args:
        learner: a learner that trains by minibatches, such as one made by `network`; its `epochs` are the maximum.
        patience: at least 1.
        validation: the share of a model's records that is held back, rounded to at least one record and less than all.

    >>> import optax
    >>> from jaxaudit.learners import network
    >>> from jaxaudit.models import MLP
    >>> mlp = network(MLP, (4,), 3, optimizer=optax.adam(1e-3), epochs=100, batch_size=32)
    >>> stop_early(mlp, patience=5).validation
    0.1
    """
    check_ranges("[1, inf)", patience=patience)
    check_ranges("(0, 1)", validation=validation)
    if isinstance(learner, EarlyStopping):
        raise InputError("this learner stops early already; give the learner that it was made of.")
    return EarlyStopping(learner, patience, validation)


def _inner(state: TrainState) -> TrainState:
    return state._replace(optimizer=state.optimizer.optimizer)


POOL_ORDER_SHARE = 0.9


def takes_pool_order(members: Any, examples: int, batch_coupled: bool) -> Any:
    """Whether rows with these numbers of members take minibatches in the pool order (elementwise)."""
    return (members >= POOL_ORDER_SHARE * examples) & (not batch_coupled)


def init_key(key: Key[Array, ""]) -> Key[Array, ""]:
    return jax.random.fold_in(key, 0)


def epoch_bits(key: Key[Array, ""], epoch: int | Int[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Random words, whose ranks are the order of records in an epoch; a shorter draw is a prefix of a longer one."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), (count,))


def step_key(key: Key[Array, ""], epoch: int | Int[Array, ""], step: int | Int[Array, ""]) -> Key[Array, ""]:
    """The random key of a step, from its number within the epoch. Steps without records have numbers, too."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 2), epoch), step)


def held_back_bits(key: Key[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Random words for a row's members: those with the smallest are held back. Shorter draws are prefixes."""
    return jax.random.bits(jax.random.fold_in(key, 3), (count,))


def held_back_counts(examples: int, share: float) -> Int[np.ndarray, " counts"]:
    """How many records a model with 0, 1, ..., `examples` members holds back: at least one, and not all."""
    members = np.arange(examples + 1)
    return np.maximum(np.minimum(np.maximum(np.rint(share * members), 1), members - 1), 0).astype(np.int32)


def held_back(
    bits: UInt32[np.ndarray, " members"], members: Int[np.ndarray, " members"], share: float
) -> Int[np.ndarray, " held"]:
    """The members of a row that are held back to validate, in ascending order."""
    count = held_back_counts(len(members), share)[-1]
    return np.sort(members[np.argsort(bits, kind="stable")[:count]])


def traced_held_back(
    bits: UInt32[Array, " examples"], member: Bool[Array, " examples"], share: float
) -> Bool[Array, " examples"]:
    """`held_back` in a traced program, where the row is not known in advance."""
    count = jnp.asarray(held_back_counts(member.shape[0], share))[jnp.sum(member)]
    own_order = _own_order(bits, member)
    return jnp.zeros_like(member).at[own_order].set(jnp.arange(member.shape[0]) < count)


def pool_batches(
    bits: UInt32[np.ndarray, " examples"], batch_size: int
) -> tuple[Int[np.ndarray, "steps batch"], Float[np.ndarray, "steps batch"]]:
    """Record indices of an epoch's minibatches in the pool order, and their weights: 0 for padding of the last one."""
    return _fill(np.argsort(bits, kind="stable"), batch_size)


def own_batches(
    bits: UInt32[np.ndarray, " members"], members: Int[np.ndarray, " members"], batch_size: int
) -> tuple[Int[np.ndarray, "steps batch"], Float[np.ndarray, "steps batch"]]:
    """Record indices of an epoch's minibatches in a row's own order, and weights: 0 for padding of the last one."""
    return _fill(members[np.argsort(bits, kind="stable")], batch_size)


def _fill(order: np.ndarray, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    steps = -(-len(order) // batch_size)
    places = np.arange(steps * batch_size)
    indices = order[places % max(len(order), 1)].astype(np.int32)
    real = (places < len(order)).astype(np.float32)
    return indices.reshape(steps, batch_size), real.reshape(steps, batch_size)


def traced_batches(
    bits: UInt32[Array, " examples"], member: Bool[Array, " examples"], batch_size: int, batch_coupled: bool
) -> tuple[Int[Array, "steps batch"], Float[Array, "steps batch"]]:
    """`pool_batches` or `own_batches` in a traced program, which does not know the members: there are as many
    minibatches as all records need; further ones have weights of 0.
    """
    examples = member.shape[0]
    members = jnp.sum(member)
    own_order = _own_order(bits, member)
    pool = takes_pool_order(members, examples, batch_coupled)
    order = jnp.where(pool, jnp.argsort(bits, stable=True), own_order)
    count = jnp.where(pool, examples, members)
    places = jnp.arange(-(-examples // batch_size) * batch_size)
    indices = order[places % jnp.maximum(count, 1)]
    weights = jnp.where((places < count) & member[indices], 1.0, 0.0)
    return indices.reshape(-1, batch_size), weights.reshape(-1, batch_size)


def _own_order(bits: UInt32[Array, " examples"], member: Bool[Array, " examples"]) -> Int[Array, " examples"]:
    """Record indices with the members first, ordered by their random words; non-members' words have no effect."""
    rank = jnp.maximum(jnp.cumsum(member) - 1, 0)
    return jnp.lexsort((bits[rank], ~member))
