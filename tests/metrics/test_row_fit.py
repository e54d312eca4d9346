"""Which training set outputs fit: by hand, by a loop, by chance, and on models that scikit-learn trained."""

import itertools
import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from jaxaudit.metrics import Dealt, dealt_records, log_odds, other_row, row_fits


def slow_fit(outputs: np.ndarray, row: np.ndarray, sets: list[Dealt]) -> float:
    """By all deals of as many units of each set as the row has."""
    sums = [np.zeros(1)]
    own = 0.0
    for places, units in sets:
        centred = outputs[places] - outputs[places].mean()
        members = {unit for unit, member in zip(units.tolist(), row[places], strict=True) if member}
        own += centred[row[places]].sum()
        deals = itertools.combinations(range(units.max() + 1), len(members))
        sums.append(np.array([centred[np.isin(units, deal)].sum() for deal in deals]))
    mean, variance = sum(each.mean() for each in sums), sum(each.var() for each in sums)
    return float((own - mean) / np.sqrt(variance)) if variance > 0 else 0.0


@pytest.mark.parametrize("grouped", [False, True])
def test_a_fit_is_in_standard_deviations_over_all_deals(grouped: bool):
    rng = np.random.default_rng(3)
    outputs = rng.normal(size=13)
    units = np.array([0, 0, 1, 2, 2, 2, 3, 4]) if grouped else np.arange(8)
    sets = [Dealt(np.arange(8), units), dealt_records(np.arange(8, 12))]
    chosen = [rng.choice(units.max() + 1, 3, replace=False) for _ in range(5)]
    rows = np.zeros((5, 13), bool)
    for row, own in zip(rows, chosen, strict=True):
        row[:8] = np.isin(units, own)
        row[8 + rng.choice(4, 2, replace=False)] = True
    wanted = [slow_fit(outputs, row, sets) for row in rows]
    np.testing.assert_allclose(row_fits(outputs, rows, sets), wanted, rtol=1e-10)


def test_a_set_that_a_row_has_all_or_none_of_says_nothing():
    rows = np.array([[True, True, False], [False, False, False]])
    sets = [dealt_records(np.arange(2)), dealt_records(np.arange(2, 3))]
    np.testing.assert_array_equal(row_fits(np.array([1.0, 5.0, 2.0]), rows, sets), [0, 0])


def test_what_other_models_explain_is_taken_off_without_the_rows_own_model():
    rng = np.random.default_rng(4)
    rows = rng.random((3, 40)) < 0.5
    level = rng.normal(0, 5, 40)
    others = level + rng.normal(size=(2, 40))
    outputs = level + 2 * rows[2] + rng.normal(size=40)
    sets = [dealt_records(np.arange(40))]
    plain, adjusted = row_fits(outputs, rows, sets), row_fits(outputs, rows, sets, others, (0, 1))
    assert adjusted[2] > plain[2]

    def by_one(other: np.ndarray) -> np.ndarray:
        x, y = outputs - outputs.mean(), other - other.mean()
        return row_fits(x - (x @ y) / (y @ y) * y, rows, sets)

    np.testing.assert_allclose(adjusted, [by_one(others[1])[0], by_one(others[0])[1], by_one(others.mean(axis=0))[2]])


def test_only_another_row_is_named_and_only_beyond_the_limit():
    high = np.sqrt(2 * np.log(300)) + 1
    assert other_row(np.array([0.0, high, 0.0]), 0) == 1
    assert other_row(np.array([0.0, high, 0.0]), 1) is None
    assert other_row(np.array([0.0, np.sqrt(2 * np.log(300)) - 0.1, 0.0]), 0) is None
    assert other_row(np.array([high + 1, high, 0.0]), 0) is None


class Trained(NamedTuple):
    """Models on halves of 600 digits."""

    rows: np.ndarray
    log_odds: np.ndarray


MODELS, RECORDS = 20, 600
KINDS = {
    "network": lambda seed: MLPClassifier((32,), max_iter=150, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(50, random_state=seed),
    "short": lambda seed: MLPClassifier((32,), max_iter=10, random_state=seed),
}
"""Two that remember their records, and one that hardly does."""


@cache
def trained(kind: str) -> Trained:
    inputs, labels = map(np.asarray, load_digits(return_X_y=True))
    rng = np.random.default_rng(8)
    chosen = rng.permutation(len(inputs))[:RECORDS]
    inputs, labels = inputs[chosen] / 16, labels[chosen]
    rows = np.array(
        [np.isin(np.arange(RECORDS), rng.choice(RECORDS, RECORDS // 2, replace=False)) for _ in range(MODELS)]
    )
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the short one does not converge
        for model, row in enumerate(rows):
            learner = KINDS[kind](model).fit(inputs[row], labels[row])
            found.append(log_odds(np.log(np.clip(learner.predict_proba(inputs), 1e-9, 1)), labels))
    return Trained(rows, np.array(found))


def fits(of: Trained, known: int) -> np.ndarray:
    """[model, row]: how well each model's outputs fit each row, with so many other models known."""
    sets = [dealt_records(np.arange(RECORDS))]
    found = []
    for model, outputs in enumerate(of.log_odds):
        others = [other for other in range(MODELS) if other != model][:known]
        found.append(row_fits(outputs, of.rows, sets, of.log_odds[others] if known else None, others))
    return np.array(found)


@pytest.mark.outer
@pytest.mark.parametrize("known", [0, 1, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_right_outputs_of_real_models_are_not_refused(kind: str, known: int):
    """The fits of unrelated rows are as they should be: 380 of mean 0 and variance 1, 5% beyond the 95% quantile."""
    found = fits(trained(kind), known)
    assert [other_row(each, model) for model, each in enumerate(found)] == [None] * MODELS
    unrelated = found[~np.eye(MODELS, dtype=bool)]
    # Fits of one model share its outputs and those of one row its members, so they count as half as many.
    count = len(unrelated) / 2
    assert abs(unrelated.mean()) < stats.norm.isf(0.0005) / np.sqrt(count)
    assert stats.binom.ppf(0.0005, count, 0.05) <= (unrelated > stats.norm.isf(0.05)).sum() / 2
    assert (unrelated > stats.norm.isf(0.05)).sum() / 2 <= stats.binom.ppf(0.9995, count, 0.05)
    assert unrelated.max() < np.sqrt(2 * np.log(100 * MODELS))


@pytest.mark.outer
@pytest.mark.parametrize("kind", ["network", "forest"])
def test_outputs_of_another_model_that_remembers_are_found(kind: str):
    """Of every model, said to be each of the others; the row that is named is that of the model."""
    found = fits(trained(kind), 8)
    named = [other_row(each, said) for model, each in enumerate(found) for said in range(MODELS) if said != model]
    right = [model for model in range(MODELS) for said in range(MODELS) if said != model]
    assert sum(one == model for one, model in zip(named, right, strict=True)) >= 0.95 * len(right)
    assert all(one in (None, model) for one, model in zip(named, right, strict=True))


@pytest.mark.outer
def test_a_model_that_remembers_nothing_is_accepted_anywhere():
    found = fits(trained("short"), 8)
    assert all(other_row(each, said) is None for each in found for said in range(MODELS))
