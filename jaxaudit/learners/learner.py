"""The interface of a learner: two pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Real

from jaxaudit.kernels.convolutions import Convolution

Progress = Callable[[int, int], None]
"""`progress(done, total)`: the amount of work that is done, and the total, in the same unit."""


Inputs = Real[Array, "n ..."]
"""The records of a training set, or of a minibatch."""
Rows = Float[Array, "n columns"]
"""The same, of a table."""
Labels = Int[Array, " n"]
"""Their classes, from 0."""
Pool = Float[np.ndarray, "n ..."]
"""All records of a pool, on the host; `PoolLabels` are their classes."""
PoolLabels = Int[np.ndarray, " n"]
Indices = Int[np.ndarray, " k"]
"""Positions of some records in the pool."""
Weights = Float[Array, " n"]
"""1 for the members of a training set; 0 for other records, and for padding."""


@runtime_checkable
class Learner(Protocol):
    """Anything that can be trained on a weighted set of records and then predicts class probabilities.

    Both functions are pure and can be jitted and vmapped. A record of weight 0 is not a member of the training set
    and does not affect the result.
    """

    def fit(self, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights) -> Any:
        """The parameters of one model trained on the records whose weight is 1; records of weight 0 have no effect."""
        ...

    def log_probs(self, params: Any, inputs: Inputs) -> Float[Array, "n classes"]:
        """The model's log-probabilities, in nats."""
        ...


class LeftOut(NamedTuple):
    """Log-probabilities (nats) at each record, of a model trained on all records and of one without that record."""

    with_record: Float[np.ndarray, "k classes"]
    without_record: Float[np.ndarray, "k classes"]


@runtime_checkable
class LeavesOneOut(Learner, Protocol):
    """A learner that computes its leave-one-out models without refitting.

    The result is equal to refitting with weight 0 for the record and the same key, within a tolerance that each
    learner states. Memory is bounded: records are processed in chunks, and nothing of size n by n is made. It contains
    no NaN: each learner defines the output for a class that loses its last member.
    """

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Outputs of the models with and without each of `records` (indices into `inputs`) on that record.

        `progress`, if given, is called with the number of records done, at least once per chunk.
        """
        ...


@runtime_checkable
class ReadsAllForEach(LeavesOneOut, Protocol):
    """A `LeavesOneOut` learner whose time is the number of left-out records times the size of the pool.

    The left-out records are therefore processed in pieces, which can run in workers and are saved when finished.

    Attributes:
        piece: the largest number of left-out records in a piece.
    """

    @property
    def piece(self) -> int: ...


@runtime_checkable
class BoundsDTP(Learner, Protocol):
    """A learner with a proven bound of differential training privacy (DTP), without bins.

    DTP is the largest change of any output, on any input, by removing a record (Long, Bindschaedler & Gunter 2017,
    definition 4.2). PDTP, the change at the record's own input, is only a lower bound of it. The file of each learner
    names the proof.

    Attributes:
        largest_dtp: an upper bound in nats of the change of any output by any record, whatever the training set; None
            if there is none.
    """

    @property
    def largest_dtp(self) -> float | None: ...

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """An upper bound of the DTP of each left-out record, in nats; None if none is proven for these options.

        Args:
            all_labels: the labels of the whole training set.
            labels: the labels of the left-out records.
            left: the outputs on these records of models with and without each.
        """
        ...


class Moment(NamedTuple):
    """The epoch of a step, from 0, and the step's random key (`step_key`)."""

    epoch: Int[Array, ""]
    key: Key[Array, ""]


class TrainState(NamedTuple):
    """A model in training, as pytrees: its parameters, its module's other state, and its optimiser's state.

    `moment` is set for each step, for learning rate schedules and random steps. Between steps it is None, so it is not
    saved with the training state.
    """

    params: Any
    state: Any
    optimizer: Any
    moment: Moment | None = None


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that trains minibatch by minibatch, so that many models can take each step together.

    One training run is `state = init(key)`, then `state = step(state, inputs, labels, weights)` for every minibatch
    of `epochs` passes through the members, then `finish(state)`. A step whose weights are all 0 must not be taken.

    Attributes:
        epochs: training epochs.
        batch_size: records per step.
        batch_coupled: whether a record of weight 0 in a minibatch would still affect the result (batch
            normalisation); its minibatches then contain only members.
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

    def init(self, key: Key[Array, ""]) -> TrainState:
        """The training state before the first step."""
        ...

    def step(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> TrainState:
        """The training state after one minibatch, whose loss is the weighted mean over its records."""
        ...

    def gradient(self, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> tuple[Any, Any]:
        """The first half of `step`: the gradient at a minibatch, and the new module state, which `update` needs."""
        ...

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The second half: `step(state, *batch) == update(state, *gradient(state, *batch))`."""
        ...

    def finish(self, state: TrainState) -> Any:
        """The parameters for `log_probs`."""
        ...


@runtime_checkable
class FormedLearner(SteppedLearner, Protocol):
    """A learner whose convolutions can be computed in several forms, which differ by rounding.

    Attributes:
        form: as `kernels.convolutions.parsed_form` reads it; None: as JAX has them, until the engine chooses.
    """

    @property
    def form(self) -> str | None: ...

    def convolutions(self) -> list[Convolution]:
        """The different convolutions of one model's step, in the order of their first use."""
        ...

    def in_form(self, form: str | None) -> "FormedLearner":
        """The same learner with its convolutions in this form; None: as JAX has them.

        Raises:
            InputError: the form does not fit the network.
        """
        ...

    def in_batches_of(self, records: int) -> "FormedLearner":
        """The same learner with so many records a step."""
        ...

    def at_once(self) -> "FormedLearner":
        """The same learner with the gradient of a whole minibatch in one piece, whose operations can be counted."""
        ...


@runtime_checkable
class ValidatedLearner(SteppedLearner, Protocol):
    """A learner that holds back some of each model's records, and uses the loss on them after every epoch.

    The model's key and membership mask determine which records are held back (`batch_order.held_back`). Minibatches are
    drawn from the other members, always in the model's own order. After each epoch, training calls
    `state = judged(state, loss)` with the mean of `losses` over the records held back (NaN if there are none). It may
    end once `finished(state)` is true.

    Attributes:
        validation: the share of a model's records that is held back.
    """

    @property
    def validation(self) -> float: ...

    def losses(self, state: TrainState, inputs: Inputs, labels: Labels) -> Float[Array, " n"]:
        """The loss of each record, in evaluation."""
        ...

    def judged(self, state: TrainState, loss: Float[Array, ""]) -> TrainState:
        """The training state after an epoch with this validation loss."""
        ...

    def finished(self, state: TrainState) -> Bool[Array, ""]:
        """Whether later epochs cannot change the result of `finish` any more."""
        ...
