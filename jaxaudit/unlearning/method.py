"""The interface of an unlearning method that needs only the trained model and the data."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Real

from jaxaudit.errors import InputError

Method = TypeVar("Method", bound=Callable[..., Any])
LogProbs = Callable[[Any, Any], Any]
"""`log_probs(params, inputs [n, ...]) -> Float["n classes"]`: nats, each record independent of the others. A
language model has one column, the mean log-likelihood of a record's tokens."""


@runtime_checkable
class Unlearn(Protocol):
    """An unlearning method: a pure function that returns parameters that should have forgotten the forget set.

    It is jitted, and on an accelerator vmapped over models. So it must not print, and no array's size may depend on
    `forget`.
    """

    def __call__(
        self,
        key: Key[Array, ""],
        log_probs: LogProbs,
        params: Any,
        inputs: Real[Array, "n ..."],
        labels: Int[Array, " n"],
        forget: Bool[Array, " n"],
    ) -> Any:
        """The parameters after unlearning, a pytree like `params`.

        Args:
            key: random key for this model and this forget set.
            log_probs: `(params, inputs) -> Float["n classes"]`, the model in evaluation mode, nats.
            params: the trained parameters, a pytree of floating-point arrays.
            inputs, labels: the training set and its classes.
            forget: which records are in the forget set; all others remain.
        """
        ...


def cites(source: str) -> Callable[[Method], Method]:
    """A decorator that records the papers behind a method or one of its settings, such as `Efron 1979; Holm 1979`."""

    def mark(method: Method) -> Method:
        setattr(method, "source", source)  # noqa: B010
        return method

    return mark


def source_of(method: Any) -> str:
    """The papers behind a method and its settings, as `cites` recorded them; empty if none were recorded.

    >>> source_of(partial(cites("Efron 1979")(lambda: None), noise=cites("Holm 1979")(lambda: None)))
    'Efron 1979; Holm 1979'
    """
    if not isinstance(method, partial):
        return str(getattr(method, "source", ""))
    every = (source_of(each) for each in (method.func, *method.args, *method.keywords.values()))
    return "; ".join(filter(None, every))


def refuse_without_classes(method: str, outputs: Any) -> None:
    """Refuses outputs of one column, as those of language models, for a method that needs a distribution over classes.

    Raises:
        InputError: they have one column.
    """
    if outputs.shape[1] == 1:
        raise InputError(
            f"{method} needs the probabilities of classes, and these records have none, as texts: use another method."
        )


def of_label(log_probs: LogProbs) -> Callable[[Any, Any, Any], Any]:
    """`(params, inputs, labels) -> Float["n"]`: the log-probability of each record's label."""

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(log_probs(params, inputs), labels[:, None], axis=1)[:, 0]

    return log_prob
