"""The interface of a learner: two pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

Progress = Callable[[int, int], None]
"""`progress(done, total)`: pieces of work done, and in total."""


@runtime_checkable
class Learner(Protocol):
    """Anything that can be trained on a weighted set of records and then gives probabilities.

    Both functions are pure and can be jitted and vmapped. A record of weight 0 is not a member of the training set
    and does not affect the result.
    """

    def fit(
        self,
        key: Key[Array, ""],
        inputs: Float[Array, "n ..."],
        labels: Int[Array, " n"],
        weights: Float[Array, " n"],
    ) -> Any:
        """The parameters of one model trained on the records whose weight is 1."""
        ...

    def log_probs(self, params: Any, inputs: Float[Array, "n ..."]) -> Float[Array, "n classes"]:
        """The model's log-probabilities, in nats."""
        ...


class LeftOut(NamedTuple):
    """Outputs on records, of models with and without the record in their training set.

    Attributes:
        with_record: log-probabilities (nats) at record r of the model trained on everything.
        without_record: log-probabilities (nats) at record r of the model trained on everything but r.
    """

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
        self,
        key: Key[Array, ""],
        inputs: Float[np.ndarray, "n ..."],
        labels: Int[np.ndarray, " n"],
        records: Int[np.ndarray, " k"],
        progress: Progress | None = None,
    ) -> LeftOut:
        """Outputs of the models with and without each of `records` (indices into `inputs`) on that record.

        `progress`, if given, is called with the number of records done, at least once per chunk.
        """
        ...


@runtime_checkable
class ReadsAllForEach(LeavesOneOut, Protocol):
    """A `LeavesOneOut` learner that reads the whole pool for each record: time is records by pool.

    Pieces of the records are then worth a worker each, and worth keeping once they are done.

    Attributes:
        piece: how many records are answered together at most.
    """

    @property
    def piece(self) -> int: ...


@runtime_checkable
class BoundsDTP(Learner, Protocol):
    """A learner with a proven bound of how far a record can move any output, on any input, without bins.

    Differential training privacy (DTP) is that largest change (Long, Bindschaedler & Gunter 2017, definition 4.2).
    PDTP, at the record's own input, is only a lower bound of it. The learner's file names the proof.

    Attributes:
        largest_dtp: an upper bound in nats of the change of any output by any record, whatever the training set; None
            if there is none.
    """

    @property
    def largest_dtp(self) -> float | None: ...

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """An upper bound of the DTP of each record left out, nats; None if none is proven for these options.

        Args:
            all_labels: of the whole training set.
            labels: of the records left out.
            left: outputs on these records of models with and without each.
        """
        ...


class Moment(NamedTuple):
    """When a step is taken, and its own random key.

    Attributes:
        epoch: the epoch, from 0.
        key: the step's, a function of the model's key, the epoch and the step's number in it alone: `step_key`.
    """

    epoch: Int[Array, ""]
    key: Key[Array, ""]


class TrainState(NamedTuple):
    """A model in training, as pytrees: its parameters, its module's other state, and its optimiser's state.

    `moment` is told before each step, for learning rates that follow a schedule and for random steps. It is None
    otherwise, so it is no part of what is kept of a training.
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

    def step(
        self,
        state: TrainState,
        inputs: Float[Array, "batch ..."],
        labels: Int[Array, " batch"],
        weights: Float[Array, " batch"],
    ) -> TrainState:
        """The training state after one minibatch, whose loss is the weighted mean over its records."""
        ...

    def gradient(
        self,
        state: TrainState,
        inputs: Float[Array, "batch ..."],
        labels: Int[Array, " batch"],
        weights: Float[Array, " batch"],
    ) -> tuple[Any, Any]:
        """The first half of `step`: what `update` needs from the minibatch."""
        ...

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The second half: `step(state, *batch) == update(state, *gradient(state, *batch))`."""
        ...

    def finish(self, state: TrainState) -> Any:
        """The parameters for `log_probs`."""
        ...


@runtime_checkable
class ValidatedLearner(SteppedLearner, Protocol):
    """A learner that holds back some of a model's own records, and is told after every epoch how it does on them.

    Which ones is a function of the model's key and its row (`batch_order.held_back`). Minibatches are drawn from the
    others alone, always in the row's own order. After each epoch training calls `state = judged(state, loss)`, with the
    mean of `losses` over the records held back (NaN if there are none), and may end once `finished(state)`.

    Attributes:
        validation: the share of a model's records that is held back.
    """

    @property
    def validation(self) -> float: ...

    def losses(
        self, state: TrainState, inputs: Float[Array, "batch ..."], labels: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """The loss of each record, in evaluation."""
        ...

    def judged(self, state: TrainState, loss: Float[Array, ""]) -> TrainState:
        """The training state after an epoch with this loss."""
        ...

    def finished(self, state: TrainState) -> Bool[Array, ""]:
        """Whether no later epoch changes what `finish` gives."""
        ...
