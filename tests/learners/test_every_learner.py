"""What holds of every learner that the command line knows: a new entry in `FAMILIES` is tested by being there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.cli.classifiers import FAMILIES, Classifier, ClassifierOptions, Family
from jaxaudit.cli.groups import Recipe
from jaxaudit.data import Column, Table
from jaxaudit.learners import BoundsDTP, Learner, LeavesOneOut

RECORDS, CLASSES = 24, 3
KEY = jax.random.key(5)
RECIPE = Recipe(epochs=4, batch_size=8, learning_rate=0.05, optimizer="sgd")


def table() -> Table:
    """Two columns of categories and one of numbers that have to do with the label."""
    rng = np.random.default_rng(3)
    labels = np.arange(RECORDS) % CLASSES
    columns = [
        (labels + rng.integers(0, 2, RECORDS)) % 4,
        rng.integers(0, 2, RECORDS),
        labels + rng.normal(size=RECORDS),
    ]
    kinds = (Column("kind", ("a", "b", "c", "d")), Column("flag", ("no", "yes")), Column("number", None))
    return Table(np.stack(columns, axis=1).astype(np.float32), kinds, labels, ("x", "y", "z"), "small")


def made(family: Family) -> Classifier:
    return family.make(ClassifierOptions(model=family.name), RECIPE, table())


def fitted(learner: Learner, inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What a model says of all records."""
    params = jax.jit(learner.fit)(KEY, *map(jnp.asarray, (inputs, labels, weights)))
    return np.asarray(learner.log_probs(params, jnp.asarray(inputs)))


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def classifier(request: pytest.FixtureRequest) -> Classifier:
    return made(request.param)


def test_it_says_normalised_log_probabilities(classifier: Classifier):
    examples, learner = classifier
    said = fitted(learner, examples.inputs, examples.labels, np.ones(RECORDS, np.float32))
    assert said.shape == (RECORDS, CLASSES)
    np.testing.assert_allclose(np.exp(said.astype(np.float64)).sum(axis=1), 1, rtol=1e-4)


def test_a_record_of_weight_zero_leaves_no_trace(classifier: Classifier):
    examples, learner = classifier
    weights = np.ones(RECORDS, np.float32)
    weights[7] = 0
    inputs, labels = examples.inputs.copy(), examples.labels.copy()
    inputs[7], labels[7] = inputs[8], labels[8]
    others = np.arange(RECORDS) != 7
    before = fitted(learner, examples.inputs, examples.labels, weights)[others]
    np.testing.assert_array_equal(before, fitted(learner, inputs, labels, weights)[others])


def test_many_at_once_are_each_alone(classifier: Classifier):
    examples, learner = classifier
    weights = np.ones((2, RECORDS), np.float32)
    weights[1, 3] = 0
    given = [jnp.asarray(each) for each in (examples.inputs, examples.labels, weights)]
    params = jax.vmap(learner.fit, in_axes=(None, None, None, 0))(KEY, *given)
    for row in range(2):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], params)
        alone = fitted(learner, examples.inputs, examples.labels, weights[row])
        np.testing.assert_allclose(np.asarray(learner.log_probs(one, given[0])), alone, atol=2e-4)


def test_known_leave_one_out_models_are_refits(classifier: Classifier):
    examples, learner = classifier
    if not isinstance(learner, LeavesOneOut):
        pytest.skip("its leave-one-out models are refitted")
    records = np.array([0, 5, 11])
    left = learner.leave_one_out(KEY, examples.inputs, examples.labels, records, None)
    for place, record in enumerate(records):
        weights = np.ones(RECORDS, np.float32)
        weights[record] = 0
        refit = fitted(learner, examples.inputs, examples.labels, weights)[record]
        np.testing.assert_allclose(left.without_record[place], refit, atol=2e-4)


def test_a_bound_on_dtp_bounds_what_a_record_moves_at_its_own_input(classifier: Classifier):
    examples, learner = classifier
    if not (isinstance(learner, BoundsDTP) and isinstance(learner, LeavesOneOut)):
        pytest.skip("no bound is known")
    records = np.arange(RECORDS)
    left = learner.leave_one_out(KEY, examples.inputs, examples.labels, records, None)
    bound = learner.dtp_bound(examples.labels, examples.labels, left)
    if bound is None:
        pytest.skip("no bound is known of these columns")
    moved = np.abs(np.asarray(left.with_record) - np.asarray(left.without_record)).max(axis=1)
    assert (moved <= bound + 1e-4).all()
