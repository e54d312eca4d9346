"""Estimators as learners: what a model is trained on and says, through `fit_many`, and what is refused."""

import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from jaxaudit.audits import leave_out
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution, LocalWorkers, fit_many, kept_models, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import EstimatorLearner

RANDOM = np.random.default_rng(4)
CLASSES = 3
LABELS = (np.arange(40) % CLASSES).astype(np.int32)
INPUTS = (RANDOM.normal(size=(40, 3)) + LABELS[:, None]).astype(np.float32)
ROWS = RANDOM.random((5, 40)) < 0.6
KEYS = jax.random.split(jax.random.key(1), len(ROWS))

FOREST = make_pipeline(StandardScaler(), RandomForestClassifier(4))


def outputs(learner: EstimatorLearner, rows: np.ndarray = ROWS, **how: Any) -> np.ndarray:
    """What models of these rows say of all records."""
    return fit_many(
        KEYS[: len(rows)],
        rows,
        INPUTS,
        LABELS,
        learner,
        summarize=lambda params, _: log_probs_many(learner, params, INPUTS),
        **how,
    )


@pytest.mark.parametrize("prototype", [KNeighborsClassifier(2), LogisticRegression(), FOREST])
def test_a_model_is_scikit_learns_own_of_its_members(prototype: Any):
    found = outputs(EstimatorLearner(prototype, CLASSES))
    for key, row, log_probs in zip(KEYS, ROWS, found, strict=True):
        seed = int(jax.random.bits(key, dtype=np.uint32))
        seeds = {name: seed for name in prototype.get_params() if name.endswith("random_state")}
        prototype.set_params(**seeds).fit(INPUTS[row].astype(np.float64), LABELS[row])
        assert len(prototype.classes_) == CLASSES
        np.testing.assert_allclose(np.exp(log_probs), prototype.predict_proba(INPUTS.astype(np.float64)), atol=1e-12)


class Complaining(KNeighborsClassifier):
    """Warns whenever it is fitted."""

    def fit(self, X: Any, y: Any) -> Any:
        warnings.warn("did not converge\nraise max_iter", RuntimeWarning, stacklevel=1)
        return super().fit(X, y)


def test_a_warning_of_all_models_is_said_once():
    with pytest.warns(RuntimeWarning, match="did not converge") as raised:
        outputs(EstimatorLearner(Complaining(2), CLASSES))
    assert len(raised) == 1


def test_a_model_does_not_hang_on_the_others_nor_on_a_stop_or_workers(tmp_path: Path):
    learner = EstimatorLearner(RandomForestClassifier(3), CLASSES)
    whole = outputs(learner)
    assert not np.array_equal(whole[0], outputs(learner, ROWS[[1, 1]])[0])
    np.testing.assert_array_equal(whole[:2], outputs(learner, ROWS[:2]))
    stopped = Execution(progress=lambda done, _: sys.exit("enough") if done == 3 else None, checkpoints=tmp_path)
    with pytest.raises(SystemExit):
        outputs(learner, execution=stopped)
    assert kept_models(tmp_path) == 3
    told = []
    np.testing.assert_array_equal(
        whole, outputs(learner, execution=Execution(8, lambda *seen: told.append(seen), tmp_path))
    )
    assert told == [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.outer
def test_workers_train_the_same():
    learner = EstimatorLearner(RandomForestClassifier(3), CLASSES)
    with LocalWorkers(2) as workers:
        np.testing.assert_array_equal(outputs(learner), outputs(learner, execution=Execution(executor=workers)))


def test_leaving_one_out_is_a_refit_with_the_same_seed():
    learner, records = EstimatorLearner(RandomForestClassifier(3), CLASSES), np.array([7, 3])
    left = leave_out(KEYS[0], Examples(INPUTS, LABELS, ("a", "b", "c"), "small"), learner, records)
    members = 1 - np.eye(40)[records]
    for place, (record, weights) in enumerate(zip(records, members, strict=True)):
        without = learner.fit(KEYS[0], INPUTS, LABELS, weights)
        everyone = learner.fit(KEYS[0], INPUTS, LABELS, np.ones(40))
        np.testing.assert_array_equal(left.without_record[place], learner.log_probs(without, INPUTS[[record]])[0])
        np.testing.assert_array_equal(left.with_record[place], learner.log_probs(everyone, INPUTS[[record]])[0])


def test_a_class_that_a_model_never_saw_has_probability_0():
    row = LABELS != 1
    (found,) = np.exp(outputs(EstimatorLearner(KNeighborsClassifier(1), CLASSES), row[None]))
    assert (found[:, 1] == 0).all()
    np.testing.assert_array_equal(found[row].argmax(axis=1), LABELS[row])


class Meddler:
    """Changes what it is given, prints, and votes for the class of the largest label."""

    def fit(self, inputs: Any, labels: Any) -> None:
        print("training")
        self.largest = labels.max()
        inputs[:], labels[:] = 0, 0

    def predict_proba(self, inputs: Any) -> Any:
        inputs[:] = 0
        return np.eye(CLASSES)[np.full(len(inputs), self.largest)]


def test_code_that_changes_its_data_and_prints_moves_nothing(capsys: pytest.CaptureFixture[str]):
    inputs, labels = INPUTS.copy(), LABELS.copy()
    assert (np.exp(outputs(EstimatorLearner(Meddler(), CLASSES)))[:, :, 2] == 1).all()
    np.testing.assert_array_equal(INPUTS, inputs)
    np.testing.assert_array_equal(LABELS, labels)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("training") == len(ROWS)


def unfit(probabilities: Any, classes: Any = None) -> Any:
    """An estimator that predicts this, whatever it is given."""

    class Fixed(Meddler):
        def predict_proba(self, inputs: Any) -> Any:
            if classes is not None:
                self.classes_ = np.array(classes)
            return np.repeat([probabilities], len(inputs), axis=0)

    return Fixed()


@pytest.mark.parametrize(
    "prototype",
    [
        unfit([0.5, 0.5]),
        unfit([0.5, 0.5], [0, 3]),
        unfit([0.5, 0.5], [1, 1]),
        unfit([0.5, 0.5], ["a", "b"]),
        unfit([0.5, 0.2, 0.2]),
        unfit([1.5, -0.5, 0.0]),
        unfit([np.nan, 0.5, 0.5]),
        unfit([2.0, -1.0, 0.3]),
    ],
)
def test_what_is_no_probability_of_these_classes_is_refused(prototype: Any):
    with pytest.raises(InputError, match="predict_proba gave no probabilities"):
        outputs(EstimatorLearner(prototype, CLASSES))


def test_a_model_that_fails_is_named():
    rows = ROWS.copy()
    rows[2] = LABELS == 1
    with pytest.raises(
        InputError, match=r"^model 2 of this training: LogisticRegression failed to learn .* ValueError"
    ):
        outputs(EstimatorLearner(LogisticRegression(), CLASSES), rows)


def test_an_estimator_has_fit_and_predict_proba():
    for prototype in (SVC(), StandardScaler(), 3):
        with pytest.raises(InputError, match="has no fit and predict_proba"):
            EstimatorLearner(prototype, CLASSES)
    with pytest.raises(InputError, match="`classes`"):
        EstimatorLearner(FOREST, 1)
