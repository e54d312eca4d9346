"""The interface of a learner, two pure functions; and what learners without refits share.

A test holds each learner that computes leave-one-out models without refits against refits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int, Key, Real

from jaxaudit.errors import InputError, check_ranges, check_shapes
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
ByClass = Float[np.ndarray, "k classes"]
"""Positions of some records in the pool."""
Weights = Float[Array, " n"]
"""1 for the members of a training set; 0 for other records, and for padding."""


@runtime_checkable
class Learner(Protocol):
    """Anything that can be trained on a weighted set of records and then predicts class probabilities.

    Both functions are pure and can be jitted and vmapped. A record of weight 0 does not affect the result.
    """

    def fit(self, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights) -> Any:
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
    """A learner that computes its leave-one-out models without refitting.

    The result is equal to refitting with weight 0 for the record and the same key, within a tolerance that each learner
    states. Memory is bounded: records are processed in chunks, and nothing of size n by n is made. No output is NaN:
    each learner defines the output for a class that loses its last member.
    """

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Outputs of the models with and without each of `records` (indices into `inputs`) on that record.

        `progress` is called with the number of records done, at least once per chunk.
        """
        ...


@runtime_checkable
class BoundsDTP(Learner, Protocol):
    """A learner with a proven bound of differential training privacy (DTP), without bins.

    DTP is the largest change of any output, on any input, by removing a record (Long, Bindschaedler & Gunter 2017,
    definition 4.2). PDTP, the change at the record's own input, is only a lower bound of it. The file of each learner
    names the proof.
    """

    def dtp_bound(self, all_labels: PoolLabels, labels: Indices, left: LeftOut) -> Float[np.ndarray, " k"] | None:
        """An upper bound of the DTP of each left-out record, in nats; None if none is proven for these options.

        `all_labels` are those of the whole training set, `labels` those of the left-out records, `left` the outputs on
        them.
        """
        ...


class Moment(NamedTuple):
    """The epoch of a step, from 0, and the step's random key (`step_key`)."""

    epoch: Int[Array, ""]
    key: Key[Array, ""]


class TrainState(NamedTuple):
    """A model in training, as pytrees. `moment` is set within a step only, so it is not saved with the state."""

    params: Any
    state: Any
    optimizer: Any
    moment: Moment | None = None


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that trains minibatch by minibatch, so that many models can take each step together.

    One training run is `state = init(key)`, then `state = step(state, inputs, labels, weights)` for every minibatch of
    `epochs` passes through the members, then `finish(state)`. A step whose weights are all 0 must not be taken.

    Attributes:
        batch_size: records per step.
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
        """The same learner with its convolutions in this form; `InputError` if the form does not fit the network."""
        ...

    def at_once(self) -> "FormedLearner":
        """The same learner with the gradient of a whole minibatch in one piece, whose operations can be counted."""
        ...


def check_left_out(
    inputs: Float[np.ndarray, "n ..."], labels: Int[np.ndarray, " m"], records: Indices, classes: int
) -> None:
    """Refuses inputs and labels that differ in number, and labels and indices of records that are out of range."""
    check_shapes((len(inputs),), labels=labels)
    check_ranges(f"[0, {classes})", labels=labels)
    check_ranges(f"[0, {len(inputs)})", records=records)


def check_finite(values: Float[np.ndarray, "n columns"], columns: Int[np.ndarray, " columns"]) -> None:
    """Refuses numbers that are not finite; `columns` are the indices of their columns, for the message."""
    bad = ~np.isfinite(values).all(axis=0)
    if bad.any():
        raise InputError(
            f"column {columns[bad.argmax()]} contains a number that is NaN or infinite: drop such records, or give "
            "missing values their own category."
        )


def tell(progress: Progress | None, done: int, records: int) -> None:
    """Reports the number of records done; padding of the last chunk does not count."""
    if progress is not None:
        progress(min(done, records), records)
