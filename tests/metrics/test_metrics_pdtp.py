"""PDTP: the definition written out, every 0, and IBM ART's own implementation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import log_of

from jaxaudit.errors import InputError
from jaxaudit.kernels import bin_indices
from jaxaudit.metrics import pdtp, seed_floor


def centre(probability: float, bins: int) -> float:
    """The centre of the bin that holds it, by looking at every bin's edges."""
    for i in range(bins):
        if probability < (i + 1) / bins * (1 - 1e-6) or i == bins - 1:
            return (i + 0.5) / bins
    raise AssertionError


def change(with_record: float, without_record: float, bins: int) -> float:
    """log of the ratio, for one class of one record."""
    if bins:
        with_record, without_record = centre(with_record, bins), centre(without_record, bins)
    if with_record == without_record:
        return 0.0
    if 0 in (with_record, without_record):
        return math.inf if with_record else -math.inf
    return math.log(with_record) - math.log(without_record)


PROBABILITY = st.sampled_from([0.0, 1e-300, 0.004, 0.29, 1 / 3, 0.5, 0.999, 1.0]) | st.floats(0, 1)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 4), st.integers(1, 4), st.sampled_from([0, 1, 7, 100]))
def test_pdtp_is_the_definition(data, records, classes, bins):
    size = records * classes
    a, b = (
        np.reshape(data.draw(st.lists(PROBABILITY, min_size=size, max_size=size)), (records, classes)) for _ in "ab"
    )
    answer = pdtp(log_of(a), log_of(b), bins=bins)
    assert answer.values.shape == answer.classes.shape == answer.directions.shape == (records,)
    for r in range(records):
        changes = [change(a[r, y], b[r, y], bins) for y in range(classes)]
        largest = max(abs(each) for each in changes)
        np.testing.assert_allclose(answer.values[r], largest, rtol=1e-12, atol=1e-12)
        # A class that attains it, up to rounding, and the sign of its change.
        attained = changes[answer.classes[r]]
        np.testing.assert_allclose(abs(attained), largest, rtol=1e-12, atol=1e-12)
        assert answer.directions[r] == np.sign(attained) or largest < 1e-12


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bins", [10, 100])
def test_an_edge_is_the_start_of_its_bin_in_either_precision(dtype, bins):
    edges = np.arange(1, bins + 1) / bins
    expected = np.minimum(np.arange(1, bins + 1), bins - 1)
    assert np.array_equal(bin_indices(np.log(edges.astype(dtype)).astype(np.float64), bins), expected)
    assert np.array_equal(bin_indices(np.log(edges * (1 - 1e-5)), bins), np.arange(bins))


@pytest.mark.parametrize("bins", [0, 100])
def test_the_seed_floor_is_the_first_seed_against_every_other(bins):
    outputs = log_of(np.random.default_rng(6).dirichlet(np.ones(3), (4, 7)))
    floor = seed_floor(outputs, bins=bins)
    pairs = np.stack([pdtp(outputs[0], outputs[s], bins=bins).values for s in (1, 2, 3)])
    np.testing.assert_allclose(floor.mean, pairs.sum(axis=0) / 3, rtol=1e-14)
    assert np.array_equal(floor.largest, pairs.max(axis=0))
    assert (floor.largest > floor.mean).all()
    same = seed_floor(np.broadcast_to(outputs[0], (3, 7, 3)), bins=bins)
    assert not np.stack([same.mean, same.largest]).any()


ONE = log_of([[0.5, 0.5]])


def test_outputs_of_other_shapes_are_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=r"^`without_record` has shape \(2, 2\) but must have \(1, 2\)"):
        pdtp(ONE, ONE.repeat(2, axis=0))


def test_outputs_without_classes_or_seeds_are_refused():
    with pytest.raises(InputError, match="`classes` must be at least 1; got 0"):
        pdtp(np.zeros((3, 0)), np.zeros((3, 0)))
    with pytest.raises(InputError, match=r"^`seeds` must be at least 2; got 1"):
        seed_floor(ONE[None])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("bad", "most"), [([np.nan, 0.0], "nan: did training"), ([0.3, 0.7], "0.7"), ([np.inf, 0.0], "inf")]
)
def test_outputs_that_are_no_log_probabilities_are_refused(which: int, bad: list[float], most: str):
    pair, name = [ONE, ONE], ("with", "without")[which]
    pair[which] = np.array([bad])
    with pytest.raises(InputError, match=rf"^outputs of the model {name} the record are no .*, but up to {most}"):
        pdtp(*pair)
    assert pdtp(ONE, np.array([[1e-5, 0.0]]), bins=0).values[0] > 0  # within rounding of 1


def test_binned_dtp_over_the_training_set_is_arts_pdtp(tmp_path, monkeypatch):
    """Of trees: probabilities of 0, 1, and on edges of bins.

    IBM's PDTP is a ratio, and its maximum is over all records of the training set, not the removed one alone: the
    exponential of the largest of ours over those inputs.
    """
    monkeypatch.setenv("HOME", str(tmp_path))  # importing ART writes its settings there
    metrics = pytest.importorskip("art.metrics", reason="IBM ART is not installed")
    classifier = pytest.importorskip("art.estimators.classification.scikitlearn").SklearnClassifier
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(9)
    x = random.normal(size=(24, 2))
    y = (x @ [1.0, -1.0] + 0.5 * random.normal(size=24) > 0).astype(int) + (x[:, 0] > 1)

    def outputs(rows):
        return log_of(DecisionTreeClassifier(max_depth=2, random_state=0).fit(x[rows], y[rows]).predict_proba(x))

    removed, everyone = np.arange(0, 24, 3), np.arange(24)
    models = (classifier(DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y)) for _ in range(2))
    theirs = metrics.PDTP(*models, x, y, removed, num_iter=1)
    everything = outputs(everyone)
    ours = [pdtp(everything, outputs(everyone != record)).values.max() for record in removed]
    np.testing.assert_allclose(np.exp(ours), theirs[0], rtol=1e-12)
    assert max(ours) > 0.1


@pytest.mark.parametrize(
    ("p_with", "p_without", "value", "direction"),
    [(0.0, 0.0, 0.0, 0), (0.0, 0.5, np.inf, -1), (0.5, 0.0, np.inf, 1), (0.5, 0.5, 0.0, 0), (1.0, 0.5, np.log(2), 1)],
)
def test_exact_comparison_gives_every_zero_a_meaning(p_with, p_without, value, direction):
    answer = pdtp(log_of([[0.25, p_with]]), log_of([[0.25, p_without]]), bins=0)
    assert answer.values[0] == value
    assert answer.directions[0] == direction
    assert answer.classes[0] == (1 if value else 0)


@pytest.mark.parametrize("bins", [1, 2, 100])
def test_no_binned_value_is_above_its_bound(bins):
    answer = pdtp(log_of([[1.0, 0.0], [0.0, 1.0]]), log_of([[0.0, 0.5], [0.0, 1.0]]), bins=bins)
    np.testing.assert_allclose(answer.values, [np.log(2 * bins - 1), 0], rtol=1e-14)
    if bins == 100:
        assert round(answer.values[0], 2) == 5.29  # the paper's log_of(0.995 / 0.005)
