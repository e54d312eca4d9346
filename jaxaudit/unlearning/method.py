"""The interface of an unlearning method that needs only the trained model and the data."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.unlearning.fisher import LogProbs


@runtime_checkable
class Unlearn(Protocol):
    """A pure function from a trained model to one that should have forgotten some of its records.

    It is jitted, and on an accelerator vmapped over models: no printing, no arrays of sizes that depend on `forget`.
    """

    def __call__(
        self,
        key: Key[Array, ""],
        log_probs: LogProbs,
        params: Any,
        inputs: Float[Array, "n ..."],
        labels: Int[Array, " n"],
        forget: Bool[Array, " n"],
    ) -> Any:
        """New parameters, a pytree like `params`.

        Args:
            key: random key of this model and this set.
            log_probs: `(params, inputs) -> Float["n classes"]`, the model in evaluation mode, nats.
            params: the trained parameters.
            inputs: the training set, `labels` their classes.
            forget: the records to forget.
        """
        ...
