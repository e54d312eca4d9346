"""One model that counts as two is found by its numbers, and one unlike all others; honest models are not."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxaudit.data import refuse_odd_models, same_models
from jaxaudit.data.outputs.model_copies import pairs_within, standard_ranks, unlike_others
from jaxaudit.errors import InputError

RECORDS = 200


def models(seed: int, count: int = 6, apart: float = 0.25, records: int = RECORDS) -> np.ndarray:
    """Log-odds of models that agree on how difficult records are, and differ by what each was trained on."""
    random = np.random.default_rng(seed)
    return random.normal(0, 0.6, records) + apart * random.normal(size=(count, records))


def rounded(decimals: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(odds: np.ndarray) -> np.ndarray:
        chance = np.round(1 / (1 + np.exp(-odds)), decimals)
        return np.log(chance / (1 - chance))

    return change


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda odds: odds,
    "another batch size": lambda odds: odds + 0.003 * np.random.default_rng(9).normal(size=odds.shape),
    "bfloat16": lambda odds: odds * (1 + 2**-9 * np.random.default_rng(9).uniform(-1, 1, odds.shape)),
    "float16": lambda odds: odds.astype(np.float16).astype(float),
    "four decimals": rounded(4),
    "three decimals": rounded(3),
    "another temperature": lambda odds: odds / 3 - 1,
    "a loss": lambda odds: np.log1p(np.exp(-odds)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_copy_is_found_and_no_other_pair(change: Callable[[np.ndarray], np.ndarray]) -> None:
    of = models(1, 5)
    assert list(same_models(np.vstack([of, change(of[3])]))) == [(3, 5)]
    # Of three models, one is a copy; of more records than are compared, too.
    assert list(same_models(np.vstack([of[:2], change(of[0])]))) == [(0, 2)]
    many = models(2, 4, records=6000)
    assert list(same_models(np.vstack([many, change(many[1])]))) == [(1, 4)]


@pytest.mark.parametrize("apart", [0.002, 0.05, 2.0])
def test_honest_models_however_near_each_other_are_refused_at_most_once_in_a_hundred(apart: float) -> None:
    """No alarm in 300 sets: with 95% confidence at most 1 in 100."""
    for seed in range(300):
        random = np.random.default_rng([seed, 7])
        of = models(seed, int(random.integers(3, 12)), apart, int(random.integers(60, 200)))
        assert not list(same_models(of))
        assert not list(unlike_others(of))


def test_training_sets_that_differ_by_single_records_are_left_alone_where_they_are_known() -> None:
    of = models(4)
    of[5] = of[2] + 1e-4 * np.random.default_rng(1).normal(size=RECORDS)
    rows = np.random.default_rng(2).random((6, RECORDS)) < 0.5
    with pytest.raises(InputError, match="models 12 and 15 give nearly the same"):
        refuse_odd_models(of, range(10, 16), "bank", rows)
    rows[5] = rows[2] ^ (np.arange(RECORDS) == 0)
    refuse_odd_models(of, range(6), "bank", rows)
    rows[5] = rows[2]
    with pytest.raises(InputError):
        refuse_odd_models(of, range(6), "bank", rows)


def test_few_different_numbers_and_two_models_tell_only_so_much() -> None:
    right = (models(5) > 0).astype(float)
    right[4] = right[1]
    assert not list(same_models(right))
    two = models(6, 2)
    assert not list(same_models(np.vstack([two[0], CHANGES["another batch size"](two[0])])))
    assert list(same_models(np.vstack([two[0], two[0]]))) == [(0, 1)]
    votes = (models(7) * 10).round()
    votes[4] = votes[1]
    assert list(same_models(votes)) == [(1, 4)]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda odds: 1000 * odds, True),
        (lambda odds: 1e-3 * odds, True),
        (lambda odds: 0 * odds + 2, True),
        # Ten times as many epochs, or a tenth; labels that were permuted: unlike others, and honest or not.
        (lambda odds: 10 * odds, False),
        (lambda odds: odds / 10, False),
        (lambda odds: -odds, False),
    ],
)
def test_a_model_on_another_scale_is_named(change: Callable[[np.ndarray], np.ndarray], found: bool) -> None:
    of = models(8, 16)
    of[3] = change(of[3])
    assert [model for model, _ in unlike_others(of)] == [3] * found
    assert not list(unlike_others(of[2:5]))
    infinite = np.where(np.arange(16)[:, None] == 5, np.inf, of)
    assert 5 not in [model for model, _ in unlike_others(infinite)]


def test_the_rank_correlation_is_that_of_its_definition() -> None:
    of = models(3, 4).round(1)
    twin = np.array([[float(np.asarray(spearmanr(one, other))[0]) for other in of] for one in of])
    ranks = standard_ranks(of)
    np.testing.assert_allclose(ranks @ ranks.T, twin, atol=1e-12)
    least = 1 - twin[1][2]
    assert (1, 2) in list(pairs_within(ranks, least + 1e-9))
    assert (1, 2) not in list(pairs_within(ranks, least - 1e-9))
    assert not standard_ranks(np.ones((1, 5))).any()
