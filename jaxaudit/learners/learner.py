"""What a learner is, two pure functions; and training by a learner's own steps.

The order of minibatches follows from a model's key and membership mask (row), and a step's random key is a function of
the model's key, the epoch and the step's number. A row that leaves out at most a tenth of the pool takes *pool order*:
every epoch is a permutation of the whole pool, where non-members have weight 0, so two such rows with one key differ
only by the left-out records. Every other row, and every row of a batch-coupled learner, takes *own order*: a
permutation of its members, the last minibatch padded at weight 0. No neighbour changes a model.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real, UInt32

from jaxaudit.kernels.convolutions import Convolution, loop_body
from jaxaudit.randomness import OneKey

Progress = Callable[[int, int], None]
"""`progress(done, total)`: how much work is done, and how much there is in total, in a unit of the reporter's choice.

`fit_many` counts model-steps (models, for a learner without steps), including the padding of the last chunk. After
`Execution.split`, work is counted in millionths.
"""

Inputs = Real[Array, "n ..."]
"""The records of a training set, or of a minibatch."""
Rows = Float[Array, "n columns"]
"""The same, of a table."""
AnyInputs = Real[Array | np.ndarray, "n ..."]
"""Records on the device or the host."""
Labels = Int[Array, " n"]
"""Their classes, from 0."""
Pool = Float[np.ndarray, "n ..."]
"""All records of a pool, on the host; `PoolLabels` are their classes."""
PoolLabels = Int[np.ndarray, " n"]
Indices = Int[np.ndarray, " k"]
ByClass = Float[np.ndarray, "k classes"]
"""Positions of some records in the pool."""
Count = int | Int[Array, ""]
"""The number of an epoch or of a step; can be traced."""
Weights = Float[Array, " n"]
"""1 for the members of a training set; 0 for other records, and for padding."""


@runtime_checkable
class Learner(Protocol):
    """Anything that can be trained on a weighted set of records and then predicts class probabilities.

    Both functions are pure and can be jitted and vmapped. A record of weight 0 does not affect the result.
    """

    def fit(self, key: OneKey, inputs: Inputs, labels: Labels, weights: Weights) -> Any:
        """The parameters of one model trained on the records whose weight is 1."""
        ...

    def log_probs(self, params: Any, inputs: Inputs) -> Float[Array, "n classes"]:
        """The model's log-probabilities, in nats."""
        ...


class LeftOut(NamedTuple):
    """Log-probabilities (nats) at each record, of a model trained on all records and of one without that record."""

    with_record: ByClass
    without_record: ByClass


@runtime_checkable
class LeavesOneOut(Learner, Protocol):
    """A learner that computes its leave-one-out models without refitting, equal to refits within a tolerance that it
    states. Nothing of size n by n is made. No output is NaN: each defines that of a class without members.
    """

    def leave_one_out(
        self, key: OneKey, inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Outputs of the models with and without each of `records` (indices into `inputs`) on that record.

        `progress` is called with the number of records done, at least once per chunk.
        """
        ...


@runtime_checkable
class BoundsDTP(Learner, Protocol):
    """A learner with a proven bound of differential training privacy (DTP), of which PDTP is a lower bound: the largest
    change of any output, on any input, by removing a record (Long, Bindschaedler & Gunter 2017, definition 4.2).
    """

    def dtp_bound(self, all_labels: PoolLabels, labels: Indices, left: LeftOut) -> Float[np.ndarray, " k"] | None:
        """An upper bound of the DTP of each left-out record, in nats; None if none is proven."""
        ...


class Moment(NamedTuple):
    """The epoch of a step, from 0, and the step's random key (`step_key`)."""

    epoch: Int[Array, ""]
    key: OneKey


class TrainState(NamedTuple):
    """A model in training, as pytrees. `moment` is set within a step only, so it is not saved with the state."""

    params: Any
    state: Any
    optimizer: Any
    moment: Moment | None = None


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that trains minibatch by minibatch, so that many models can take each step together.

    One training run is `state = init(key)`, then `state = update(state, *gradient(state, inputs, labels, weights))` for
    every minibatch of `epochs` passes through the members, then `finish(state)`. A step of weights 0 must not be taken.

    Attributes:
        batch_coupled: whether a record of weight 0 in a minibatch would still affect the result (batch normalisation);
            its minibatches then contain only members.
        convolves: whether it has convolutions; on a CPU its steps are then dispatched one by one from the host.
    """

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def batch_coupled(self) -> bool: ...
    @property
    def convolves(self) -> bool: ...

    def init(self, key: OneKey) -> TrainState:
        """The training state before the first step."""
        ...

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        """The gradient of a minibatch's loss, the weighted mean over its records, and the new module state."""
        ...

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The training state after a step along this gradient."""
        ...

    def finish(self, state: TrainState) -> Any:
        """The parameters for `log_probs`."""
        ...


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


def moment_of(key: OneKey, epoch: Count, step: Count) -> Moment:
    """The `Moment` of a step of the model with this key; can be traced."""
    return Moment(jnp.asarray(epoch, jnp.int32), step_key(key, epoch, step))


def take_step(
    learner: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights, moment: Moment
) -> TrainState:
    """The training state after one step of `learner` on this minibatch, at this moment (epoch and random key)."""
    state = state._replace(moment=moment)
    return learner.update(state, *learner.gradient(state, inputs, labels, weights))._replace(moment=None)


def train_by_steps(
    learner: SteppedLearner, key: OneKey, inputs: Inputs, labels: Labels, weights: Weights
) -> TrainState:
    """The training state after all epochs, in the batch order of key and members (weight above 0); can be traced."""

    member = weights > 0

    def epoch(index: Array, state: TrainState) -> TrainState:
        bits = epoch_bits(key, index, len(labels))
        batches = traced_batches(bits, member, learner.batch_size, learner.batch_coupled)

        def take(state: TrainState, batch: tuple[Array, Array, Array]) -> tuple[TrainState, None]:
            chosen, weight, step = batch
            moment = moment_of(key, index, step)
            new = take_step(learner, state, inputs[chosen], labels[chosen], weight, moment)
            return jax.tree.map(lambda old, now: jnp.where(jnp.any(weight > 0), now, old), state, new), None

        return jax.lax.scan(loop_body(take), state, (*batches, jnp.arange(len(batches[0]))))[0]

    return jax.lax.fori_loop(0, learner.epochs, epoch, learner.init(init_key(key)))


class TrainsBySteps:
    """Base class of a `SteppedLearner`: derives `fit` from `gradient` and `update`.

    Convolutions may have several forms (`kernels.convolutions.parsed_form`), which differ by rounding; `form` None is
    that of JAX, until the engine chooses.
    """

    kind = "a neural network"
    form: str | None = None

    def convolutions(self) -> list[Convolution]:
        """The different convolutions of one model's step, in the order of their first use."""
        return []

    def with_form(self, form: str | None) -> Any:
        """The same learner with its convolutions in this form; `InputError` if the form does not fit the network."""
        return self

    def in_one_piece(self) -> Any:
        """The same learner with the gradient of a whole minibatch in one piece, whose operations can be counted."""
        return self

    def fit(self: SteppedLearner, key: OneKey, inputs: Inputs, labels: Labels, weights: Weights) -> Any:
        return self.finish(train_by_steps(self, key, inputs, labels, weights))


POOL_ORDER_SHARE = 0.9


def takes_pool_order(members: Any, examples: int, batch_coupled: bool) -> Any:
    """Whether rows with these numbers of members take minibatches in the pool order (elementwise)."""
    return (members >= POOL_ORDER_SHARE * examples) & (not batch_coupled)


def init_key(key: OneKey) -> OneKey:
    return jax.random.fold_in(key, 0)


def epoch_bits(key: OneKey, epoch: Count, count: int) -> UInt32[Array, " count"]:
    """Random words, whose ranks are the order of records in an epoch; a shorter draw is a prefix of a longer one."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), (count,))


def step_key(key: OneKey, epoch: Count, step: Count) -> OneKey:
    """The random key of a step, from its number within the epoch. Steps without records have numbers, too."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 2), epoch), step)


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
    """`pool_batches` or `own_batches` in a traced program: as many as all records need, the last with weights of 0."""
    examples = member.shape[0]
    members = jnp.sum(member)
    # Members first, ordered by their random words; those of others have no effect.
    rank = jnp.maximum(jnp.cumsum(member) - 1, 0)
    own_order = jnp.lexsort((bits[rank], ~member))
    pool = takes_pool_order(members, examples, batch_coupled)
    order = jnp.where(pool, jnp.argsort(bits, stable=True), own_order)
    count = jnp.where(pool, examples, members)
    places = jnp.arange(-(-examples // batch_size) * batch_size)
    indices = order[places % jnp.maximum(count, 1)]
    weights = jnp.where((places < count) & member[indices], 1.0, 0.0)
    return indices.reshape(-1, batch_size), weights.reshape(-1, batch_size)
