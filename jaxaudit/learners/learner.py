"""What a learner is: two pure functions."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int, Key


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


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that trains by walking minibatches, so that many models can take each step together.

    One training run is `state = init(key)`, then `state = step(state, inputs, labels, weights)` for every minibatch
    of `epochs` walks through the members, then `finish(state)`. A step whose weights are all 0 must not be taken.

    Attributes:
        epochs: walks through the members.
        batch_size: records a step.
        batch_coupled: whether a record of weight 0 in a minibatch would still touch the result (batch
            normalisation): then only members are ever put into its minibatches.
        host_loop: whether its steps are better driven from the host than inside a compiled loop.
    """

    epochs: int
    batch_size: int
    batch_coupled: bool
    host_loop: bool

    def init(self, key: Key[Array, ""]) -> Any:
        """The training state before the first step."""
        ...

    def step(
        self,
        state: Any,
        inputs: Float[Array, "batch ..."],
        labels: Int[Array, " batch"],
        weights: Float[Array, " batch"],
    ) -> Any:
        """The training state after one minibatch, whose loss is the weighted mean over its records."""
        ...

    def finish(self, state: Any) -> Any:
        """The parameters `log_probs` takes."""
        ...
