"""Whether two sets were dealt from one pile: seldom doubted where they were, and seen where they were not."""

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.exchangeability import MOST_FEATURES, MOST_RECORDS, Alike, alike

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
QUERIES, OTHERS, WIDTH = 120, 80, 5
QUERY = np.arange(QUERIES + OTHERS) < QUERIES


def pile(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels, difficulty and hashes."""
    random, records = np.random.default_rng([3, seed]), QUERIES + OTHERS
    inputs = random.normal(size=(records, WIDTH))
    return inputs, random.integers(0, 4, records), inputs[:, 0] + random.normal(size=records), np.arange(records)


def told(
    seed: int,
    inputs: np.ndarray,
    labels: np.ndarray,
    difficulty: np.ndarray,
    copies: np.ndarray,
    permutations: int = 999,
) -> Alike:
    return alike(jax.random.key(seed), inputs, labels, difficulty, copies, QUERIES, permutations=permutations)


def test_p_values_are_uniform_where_chance_dealt_the_records() -> None:
    trials = 150
    found = np.array([told(seed, *pile(seed), permutations=99)[:3] for seed in range(trials)])
    for u in (0.05, 0.25, 0.5):
        below = (found <= u).sum(axis=0)
        assert (below <= stats.binom.ppf(1 - SURE, trials, u)).all()
        assert (below >= stats.binom.ppf(SURE, trials, u)).all()


def test_each_difference_shows_in_its_own_number() -> None:
    inputs, labels, difficulty, copies = pile(1)
    assert min(told(1, inputs, labels, difficulty, copies)) > 0.05
    for changed in (inputs + 0.8 * QUERY[:, None], inputs * (1 + QUERY[:, None])):
        assert told(1, changed, labels, difficulty, copies).inputs == 0.001
    # A class that the holdout has no record of.
    assert told(1, inputs, np.where(QUERY, labels, labels % 3), difficulty, copies).labels == 0.001
    assert told(1, inputs, labels, difficulty + QUERY, copies).difficulty == 0.001


def test_copies_that_all_fell_on_one_side_are_no_chance() -> None:
    inputs, labels, difficulty, copies = pile(2)
    doubled = copies.copy()
    doubled[QUERIES : QUERIES + 10] = doubled[QUERIES + 10 : QUERIES + 20]
    found = told(2, inputs, labels, difficulty, doubled).copies
    together = (QUERIES * (QUERIES - 1) + OTHERS * (OTHERS - 1)) / (200 * 199)
    assert found == pytest.approx(together**10)
    doubled[0] = doubled[-1]
    assert told(2, inputs, labels, difficulty, doubled).copies == 1.0


def test_wide_many_constant_and_missing_inputs() -> None:
    records = MOST_RECORDS + 500
    random = np.random.default_rng(4)
    inputs = random.normal(size=(records, 2 * MOST_FEATURES, 1)).astype(np.float32)
    inputs[:, 0], inputs[3, 1] = 7.0, np.nan
    labels, copies = np.zeros(records, int), np.arange(records)
    found = alike(jax.random.key(1), inputs, labels, np.zeros(records), copies, records - 300, permutations=99)
    # What never varies tells nothing.
    assert found.labels == found.difficulty == 1.0
    assert 0.01 < found.inputs <= 1
    inputs[-300:] *= 1.5
    shifted = alike(jax.random.key(1), inputs, labels, np.zeros(records), copies, records - 300, permutations=99)
    assert shifted.inputs == 0.01


def test_both_sets_need_records() -> None:
    inputs, labels, difficulty, copies = pile(5)
    for size in (0, 200):
        with pytest.raises(InputError, match="of 200 records are query records"):
            alike(jax.random.key(1), inputs, labels, difficulty, copies, size)
