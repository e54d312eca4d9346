"""What a learner is: two pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int, Key

Progress = Callable[[int, int], None]
"""`progress(done, total)`: pieces of work finished, of all."""


@runtime_checkable
class Learner(Protocol):
    """Anything that can be trained on a weighted set of records and then asked for probabilities.

    Both functions are pure and can be jitted and vmapped. A record of weight 0 is not a member of the training set
    and leaves no trace in the result.
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
    """What models say of one record each, with that record in their training set and without it.

    Attributes:
        with_record: log-probabilities (nats) at record r of the model trained on everything.
        without_record: log-probabilities (nats) at record r of the model trained on everything but r.
    """

    with_record: Float[np.ndarray, "k classes"]
    without_record: Float[np.ndarray, "k classes"]


@runtime_checkable
class LeavesOneOut(Learner, Protocol):
    """A learner that knows its leave-one-out models without refitting each of them.

    The result is equal to refitting with weight 0 for the record and the same key, within a tolerance that each
    learner states. Memory is bounded: records are taken in chunks, and nothing of size n by n is ever made. It holds no
    NaN: each learner says what becomes of a class that loses its last member.
    """

    def leave_one_out(
        self,
        key: Key[Array, ""],
        inputs: Float[np.ndarray, "n ..."],
        labels: Int[np.ndarray, " n"],
        records: Int[np.ndarray, " k"],
        progress: Progress | None = None,
    ) -> LeftOut:
        """What the models with and without each of `records` (indices into `inputs`) say of that record.

        `progress`, where given, is called with how many of the records are done, at least once a chunk.
        """
        ...


@runtime_checkable
class BoundsDTP(Learner, Protocol):
    """A learner of which it is proven how far a record can move any output, on any input, without bins.

    Differential training privacy is that largest move (Long, Bindschaedler & Gunter 2017, definition 4.2); PDTP, at the
    record's own input, is but a lower bound of it. A learner's own file says where its proof is.

    Attributes:
        largest_dtp: nats that no record moves any output by, whatever the training set; None where there is no such
            number.
    """

    @property
    def largest_dtp(self) -> float | None: ...

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """An upper bound of the DTP of each record left out, nats; None where none is proven for these options.

        Args:
            all_labels: of the whole training set.
            labels: of the records left out.
            left: what models say of these records, with and without each.
        """
        ...


class TrainState(NamedTuple):
    """A model in training, as pytrees: its parameters, what else its module keeps, and its optimiser's state."""

    params: Any
    state: Any
    optimizer: Any


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that trains minibatch by minibatch, so that many models can take each step together.

    One training run is `state = init(key)`, then `state = step(state, inputs, labels, weights)` for every minibatch
    of `epochs` passes through the members, then `finish(state)`. A step whose weights are all 0 must not be taken.

    Attributes:
        epochs: passes through the members.
        batch_size: records a step.
        batch_coupled: whether a record of weight 0 in a minibatch would still touch the result (batch
            normalisation): then only members are ever put into its minibatches.
        convolves: whether it convolves: then a CPU takes its steps one at a time, driven from the host.
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
        """The first half of `step`: what `update` needs of the minibatch."""
        ...

    def update(self, state: TrainState, gradient: Any, module_state: Any) -> TrainState:
        """The second half: `step(state, *batch) == update(state, *gradient(state, *batch))`."""
        ...

    def finish(self, state: TrainState) -> Any:
        """The parameters `log_probs` takes."""
        ...
