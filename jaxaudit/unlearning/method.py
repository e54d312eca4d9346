"""The interface of an unlearning method that needs only the trained model and the data; and retraining without them."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.ensemble.chunk import Summarize
from jaxaudit.errors import InputError, check_ranges
from jaxaudit.learners import Learner
from jaxaudit.learners.learner import AnyInputs, Inputs, Labels
from jaxaudit.metrics.arrays import AnyIntegers, Members, OneKey
from jaxaudit.randomness import ModelKeys

Method = TypeVar("Method", bound=Callable[..., Any])
Chosen = Bool[Array, " n"]
"""Which records of a training set."""
LogProbs = Callable[[Any, Any], Any]
"""`log_probs(params, inputs [n, ...]) -> Float["n classes"]`: nats, each record independent of the others. A
language model has one column, the mean log-likelihood of a record's tokens."""


@runtime_checkable
class Unlearn(Protocol):
    """An unlearning method: a pure function that returns parameters that should have forgotten the forget set.

    It is jitted, and on an accelerator vmapped over models. So it must not print, and no size may depend on `forget`.
    """

    def __call__(
        self,
        key: OneKey,
        log_probs: LogProbs,
        params: Any,
        inputs: Inputs,
        labels: Labels,
        forget: Chosen,
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


def papers_of(method: Any) -> str:
    """The papers behind a method and its settings, as `cites` recorded them; empty if none were recorded.

    >>> papers_of(partial(cites("Efron 1979")(lambda: None), noise=cites("Holm 1979")(lambda: None)))
    'Efron 1979; Holm 1979'
    """
    if not isinstance(method, partial):
        return str(getattr(method, "source", ""))
    every = (papers_of(part) for part in (method.func, *method.args, *method.keywords.values()))
    return "; ".join(filter(None, every))


def refuse_without_classes(method: str, outputs: Any) -> None:
    """Refuses outputs of one column, as of language models, for a method that needs a distribution over classes."""
    if outputs.shape[1] == 1:
        raise InputError(
            f"{method} needs the probabilities of classes, and these records have none, as texts: use another method."
        )


def of_label(log_probs: LogProbs) -> Callable[[Any, Any, Any], Any]:
    """`(params, inputs, labels) -> Float["n"]`: the log-probability of each record's label."""

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        return jnp.take_along_axis(log_probs(params, inputs), labels[:, None], axis=1)[:, 0]

    return log_prob


@cites("Becker & Liebig 2022")
def retrain(
    keys: ModelKeys,
    forget: Members,
    inputs: AnyInputs,
    labels: AnyIntegers,
    learner: Learner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
) -> Any:
    """Models trained from scratch on everything but the records to forget (Becker & Liebig 2022, section 2.1).

    A retrained model has the key of its original model, and so the same initial weights. If at most a tenth of the
    records are forgotten, it also has the original's minibatches, without the forgotten records: losses are averaged
    over the rest, and the number of steps is the same. (The authors draw new, full minibatches of the remaining
    records.) Otherwise it has its own minibatches. A row that forgets nothing gives the original again, bit for bit if
    both are rows of one call.

    Args:
        keys: one per model: the key of its original.
        forget: for each model, which records are in its forget set; an `InputError` if all are.
        learner: the learner of the originals: same network, optimiser, epochs, batch size.
        execution, summarize: as for `fit_many`, whose result is returned.
    """
    check_ranges(
        "[1, inf)",
        "`forget` marks all records, perhaps those to keep; mark fewer",
        records_that_remain=(~forget).sum(axis=1),
    )
    return fit_many(keys, ~forget, inputs, labels, learner, execution=execution, summarize=summarize)
