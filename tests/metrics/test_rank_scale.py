"""The scale of a bank of scores: against a loop, and indifferent to the unit of the scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.errors import InputError
from jaxaudit.metrics.rank_scale import RankScale, rank_scale

NUMBERS = st.lists(st.integers(-50, 50), min_size=1, max_size=30).map(lambda each: np.array(each) / 8)


def slow(known: np.ndarray, score: float) -> float:
    """Half a score is added below and above all of them, so that no share is 0 or 1."""
    below = sum(1.0 if each < score else 0.5 if each == score else 0.0 for each in known) + 0.5
    return float(np.log(below / (len(known) + 1 - below)))


@given(NUMBERS, NUMBERS)
def test_it_is_that_of_a_loop(known: np.ndarray, asked: np.ndarray):
    scale = rank_scale(known.reshape(1, 1, -1))
    np.testing.assert_allclose(scale(asked), [slow(known, each) for each in asked], rtol=1e-12, atol=1e-12)


@given(NUMBERS, NUMBERS)
def test_an_increasing_function_of_the_scores_changes_no_number(known: np.ndarray, asked: np.ndarray):
    found = rank_scale(known.reshape(1, 1, -1))(asked)
    for other in (np.exp, lambda each: 3 * each - 1e3, lambda each: each**3, np.arctan):
        np.testing.assert_array_equal(rank_scale(other(known).reshape(1, 1, -1))(other(asked)), found)
    assert (np.diff(found[np.argsort(asked)]) >= 0).all()


def test_scores_that_are_rounded_further_than_models_differ_are_refused():
    scale = RankScale(np.zeros(1, np.float32), spread=0.1, step=1e-4)
    scale.refuse_coarse(1e-4, "as coarse as the bank")
    scale.refuse_coarse(0.01, "a tenth of what models differ by")
    with pytest.raises(InputError, match=r"^t.csv: its scores are rounded to about 0.1, while .* differ by 0.1 "):
        scale.refuse_coarse(0.1, "t.csv")
