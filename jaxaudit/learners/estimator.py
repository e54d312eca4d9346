"""Any classifier with scikit-learn's `fit` and `predict_proba` as a learner, whose models are trained on the host.

Its code is no pure function of arrays, so `fit_many` trains these models one by one, each a clone that gets copies of
its own records. A class that a model was not trained on has probability 0.
"""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Real
from threadpoolctl import ThreadpoolController

from jaxaudit.data.table import Column, frame
from jaxaudit.errors import InputError, check_ranges, few, first_line
from jaxaudit.learners.learner import AnyInputs
from jaxaudit.randomness import OneKey

SUMS = 1e-4
"""Probabilities of a record sum to 1 up to this much (those of float16 would not)."""
NOT_SET = ("random_state", "n_jobs", "verbose")
"""Parameters that a recipe cannot set: a model is seeded by its key, on one core, as workers share them, and silent."""


def is_estimator(value: Any) -> bool:
    """Whether the value, or an instance of this class, has what a model of `EstimatorLearner` needs."""
    return callable(getattr(value, "fit", None)) and callable(getattr(value, "predict_proba", None))


ENCODERS = ("sklearn.compose.", "sklearn.preprocessing._encoders", "sklearn.preprocessing._target_encoder")
"""Modules of transformers that turn columns of a frame into numbers."""


def has_encoder(estimator: Any) -> bool:
    """Whether this is a pipeline of scikit-learn whose first step encodes the columns of a frame."""
    steps = getattr(estimator, "steps", ())
    return bool(steps) and type(steps[0][1]).__module__.startswith(ENCODERS)


def settable(estimator: Any) -> dict[str, Any]:
    """The parameters that a recipe can set, those within the estimator too (`step__name`), and their values."""
    return {name: value for name, value in _parameters(estimator).items() if _last(name) not in NOT_SET}


def _parameters(estimator: Any) -> dict[str, Any]:
    return estimator.get_params() if hasattr(estimator, "get_params") else {}


def _last(name: str) -> str:
    return name.rpartition("__")[2]


@dataclass(frozen=True, eq=False)
class EstimatorLearner:
    """A classifier of scikit-learn, or one of your own like it, as a learner.

    Each model is a clone of `prototype`, which itself is never fitted. Its parameter `random_state`, where it has one,
    is drawn from the model's key; without one it must draw no random numbers, or its models cannot be repeated. A
    number of jobs (`n_jobs`) becomes 1. A record is a row of float64 numbers, a label a number below `classes`. The
    columns of `predict_proba` are those of `classes_`, or else a column per class.

    With `columns`, inputs are the `values` of a `Table`, and the estimator gets a pandas frame with words as words.
    `gaps` names the columns of which inputs may be NaN.

    Raises:
        InputError: from the constructor, if it has no `fit` or no `predict_proba`; from its functions, if the
            estimator's own raise an error, or if what it predicts are no probabilities of these classes.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> learner = EstimatorLearner(KNeighborsClassifier(1), classes=3)
    >>> inputs, labels = np.array([[0.0], [1.0], [9.0]]), np.array([0, 2, 1])
    >>> model = learner.fit(jax.random.key(1), inputs, labels, np.array([1, 1, 0]))
    >>> np.exp(learner.log_probs(model, inputs))
    array([[1., 0., 0.],
           [0., 0., 1.],
           [0., 0., 1.]])
    """

    prototype: Any
    classes: int
    columns: tuple[Column, ...] = ()
    gaps: tuple[str, ...] = ()
    said: set[str] = field(default_factory=set[str], init=False, repr=False)
    """Warnings that were repeated: of many models most warn of the same."""

    def __post_init__(self) -> None:
        check_ranges("[2, inf)", classes=self.classes)
        if not is_estimator(self.prototype):
            raise InputError(
                f"{self.kind} has no fit and predict_proba: name a classifier that tells probabilities, set what makes "
                "it do so, as loss=log_loss of SGDClassifier, or calibrate it in your own function, as file.py:make."
            )

    @property
    def kind(self) -> str:
        return type(self.prototype).__name__

    def fit(
        self,
        key: OneKey,
        inputs: AnyInputs,
        labels: Int[Array | np.ndarray, " n"],
        weights: Real[Array | np.ndarray, " n"] | Bool[np.ndarray, " n"],
    ) -> Any:
        """The estimator, fitted to the records whose weight is 1."""
        # Imported here because it takes a second.
        from sklearn.base import clone

        members = np.asarray(weights) > 0
        rows, own_labels = self._rows(np.asarray(inputs)[members]), np.asarray(labels)[members]
        seed = int(jax.random.bits(key, dtype=np.uint32))
        counts = ", ".join(map(str, np.bincount(own_labels, minlength=self.classes)))
        with self._guarded(f"to learn {len(rows)} records (of each class: {counts})"):
            model: Any = clone(self.prototype, safe=False)
            # A deprecated n_jobs may not even be given its usual value.
            jobs = {name: 1 for name, value in _parameters(model).items() if _last(name) == "n_jobs" and value}
            seeds = {name: seed for name in _parameters(model) if _last(name) == "random_state"}
            if jobs or seeds:
                model.set_params(**jobs, **seeds)
            model.fit(rows, own_labels)
        return model

    def log_probs(self, params: Any, inputs: AnyInputs) -> Any:
        """The logarithms of predictions, in nats: `float64[n, classes]` on the host; -inf for an unknown class."""
        with self._guarded(f"to predict {len(inputs)} records"):
            predicted = np.asarray(params.predict_proba(self._rows(inputs)), np.float64)
            class_numbers = np.asarray(getattr(params, "classes_", np.arange(self.classes)))
        probabilities = np.zeros((len(inputs), self.classes))
        shape = len(inputs), *class_numbers.shape
        fits = predicted.shape == shape and np.isin(class_numbers, np.arange(self.classes)).all()
        if fits:
            probabilities[:, class_numbers] = predicted
        if not fits or not (abs(probabilities.sum(axis=1) - 1) <= SUMS).all() or (predicted < 0).any():
            raise InputError(
                f"{self.kind}: predict_proba gave no probabilities of its classes_ for {len(inputs)} records, but an "
                f"array of shape {predicted.shape}: it must have a row a record, which sums to 1, and a column a class."
            )
        with np.errstate(divide="ignore"):
            return np.log(probabilities)

    def _rows(self, inputs: AnyInputs) -> Any:
        """A copy of the records that the estimator may change."""
        rows = np.array(inputs, np.float64).reshape(len(inputs), -1)
        return frame(rows, self.columns) if self.columns else rows

    @contextmanager
    def _guarded(self, task: str) -> Iterator[None]:
        """Runs the estimator's code: quiet, an error is one line, and sums do not depend on the number of cores."""
        try:
            with (
                redirect_stdout(sys.stderr),
                _threads().limit(limits=1),
                warnings.catch_warnings(record=True, action="default") as raised,
            ):
                # In a virtual machine joblib may not count the cores, of which one is used.
                warnings.filterwarnings("ignore", message="Could not find the number of physical cores")
                yield
            for warning in raised:
                line = self._without_words(str(warning.message).strip().partition("\n")[0])
                if line not in self.said:
                    self.said.add(line)
                    warnings.warn(f"{self.kind}: {line} (of one model or more)", warning.category, stacklevel=3)
        except Exception as error:
            advice = (
                f" The table has empty cells in {few(map(repr, self.gaps))}: what takes no NaN needs an imputer before "
                "it, as in make_pipeline(SimpleImputer(), LogisticRegression())."
            )
            failed = f"{self.kind} failed {task}: {self._without_words(first_line(error))}"
            raise InputError(failed + advice * bool(self.gaps)) from error

    def _without_words(self, message: str) -> str:
        """The message; of an estimator that gets words, without what it quotes, or without any of it."""
        if not self.columns:
            return message
        left = re.sub(r"\[.*\]|\".*\"|'.*'", "'...'", message)
        words = [word for column in self.columns for word in column.categories if len(word) > 1]
        return left if not any(word in left for word in words) else message.partition(":")[0]


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()
