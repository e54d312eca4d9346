"""A lower bound on epsilon: never above the true one more often than stated, near it where the attack is strong."""

import sys
from math import comb, exp

import numpy as np
import pytest
from scipy import special, stats

from jaxaudit.attacks.records import BASE, ShadowScores
from jaxaudit.audits.attack.exposure import bound_by_halves, single_records
from jaxaudit.errors import InputError
from jaxaudit.metrics import EpsilonBound, epsilon_bound, refuse_unless_coins
from jaxaudit.metrics.epsilon import FALSE_ALARM, coins

MODELS, RECORDS, HALF = 16, 500, 8
DELTA = 1e-5
extra = pytest.mark.usefixtures("with_extra")


@pytest.fixture
def with_extra() -> None:
    pytest.importorskip("jax_privacy.auditing", reason="the extra dp is not installed")


def fair(random: np.random.Generator, models: int = MODELS, records: int = RECORDS) -> np.ndarray:
    return random.random((models, records)) < 0.5


def bound(scores: np.ndarray, truth: np.ndarray, delta: float = DELTA, level: float = 0.95) -> EpsilonBound:
    half = len(scores) // 2
    return epsilon_bound(scores[half:], truth[half:], scores[:half], truth[:half], delta=delta, level=level)


def response(random: np.random.Generator, epsilon: float, truth: np.ndarray) -> np.ndarray:
    """Randomized response, which is epsilon-differentially private and no better: scores without further ties."""
    right = random.random(truth.shape) < special.expit(epsilon)
    return np.where(right, truth, ~truth) + random.uniform(0, 0.1, truth.shape)


@pytest.mark.outer
@extra
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_the_bound_is_above_the_true_epsilon_at_most_as_often_as_stated(epsilon: float):
    """Of 300 runs at most 5%, and what chance adds to that once in 1,000 times. It is near what it bounds."""
    random, runs = np.random.default_rng(31), 300
    found = []
    for _ in range(runs):
        truth = fair(random)
        found.append(bound(response(random, epsilon, truth), truth).bound)
    assert sum(each > epsilon for each in found) <= stats.binom.ppf(0.999, runs, 0.05)
    assert np.mean(found) >= 0.75 * epsilon


@pytest.mark.outer
@extra
def test_attacks_on_models_that_remember_nothing():
    """The whole way from outputs of a bank, by halves: at most 5% of 200 banks, and what chance adds."""
    random, runs, above = np.random.default_rng(32), 200, 0
    for _ in range(runs):
        truth = fair(random, 8, 120)
        level = random.normal(0, 2, 120)
        odds = level + random.normal(size=truth.shape)
        shadowed = ShadowScores(odds[:, None], truth)
        above += bound_by_halves(shadowed, BASE(), single_records(120), delta=DELTA).bound > 0
    assert above <= stats.binom.ppf(0.999, runs, 0.05)


@extra
def test_scores_that_are_nan_or_equal_are_guessed_last_and_bound_nothing():
    random = np.random.default_rng(34)
    truth = fair(random)
    assert bound(np.zeros(truth.shape), truth).bound == 0
    assert bound(np.full(truth.shape, np.nan), truth).bound == 0
    assert bound(-response(random, 4.0, truth), truth).bound == 0
    partly = np.where(random.random(truth.shape) < 0.5, np.nan, response(random, 4.0, truth))
    assert 2 < bound(partly, truth).bound < 4


@extra
def test_the_number_of_guesses_is_no_function_of_the_coins_that_are_judged():
    random = np.random.default_rng(35)
    truth = fair(random)
    scores = response(random, 2.0, truth)
    other = truth.copy()
    other[HALF:] = fair(random)[HALF:]
    assert bound(scores, truth).guesses == bound(scores, other).guesses
    assert bound(scores, other).bound == 0


@extra
@pytest.mark.parametrize(("delta", "level"), [(1e-12, 0.95), (1e-5, 0.95), (1e-3, 0.9)])
def test_it_is_the_theorem(delta: float, level: float):
    """The p-value of Steinke et al. (2023), theorem 3.1, by sums over binomial terms."""
    random = np.random.default_rng(36)
    truth = fair(random, 16, 60)
    found = bound(response(random, 2.5, truth), truth, delta, level)
    canaries = found.members + found.non_members

    def p_value(epsilon: float) -> float:
        chance = exp(epsilon) / (1 + exp(epsilon))
        terms = [
            comb(found.guesses, right) * chance**right * (1 - chance) ** (found.guesses - right)
            for right in range(found.guesses + 1)
        ]
        beyond = [sum(terms[right:]) for right in range(found.guesses + 2)]
        most = max((beyond[found.right - i] - beyond[found.right]) / i for i in range(1, found.right + 1))
        return beyond[found.right] + 2 * canaries * delta * most

    assert found.bound > 0.5
    assert p_value(found.bound) == pytest.approx(1 - level, abs=1e-5)
    # What the bound refutes: every smaller epsilon.
    values = [p_value(epsilon) for epsilon in np.linspace(0, found.bound, 50)]
    assert values == sorted(values)


@pytest.mark.outer
def test_fair_coins_pass():
    """At a rate of false alarms of one in a million a check, none of 300 banks is refused."""
    random = np.random.default_rng(38)
    lowest = []
    for models, records in ((8, 40), (8, 2000), (64, 300)):
        for _ in range(100):
            truth = fair(random, models, records)
            refuse_unless_coins(truth)
            lowest.append(min(coins(truth)))
    assert min(lowest) > FALSE_ALARM
    # p-values are not far too large either: about 3 in 20 have one of three below 0.05.
    assert 10 < sum(each < 0.05 for each in lowest) < 75


def a_row_twice(random: np.random.Generator) -> np.ndarray:
    truth = fair(random)
    truth[3] = truth[12]
    return truth


def sets_of_a_plan(random: np.random.Generator) -> np.ndarray:
    """As many records as the query set has of query set and holdout, two thirds of the calibration set."""
    rows = np.zeros((MODELS, 300), bool)
    for row in rows:
        row[random.choice(200, 100, replace=False)] = True
        row[200 + random.choice(100, 67, replace=False)] = True
    return rows


@pytest.mark.parametrize(
    ("deal", "named"),
    [
        (
            lambda random: random.permuted(np.tile(np.arange(RECORDS) < RECORDS // 2, (MODELS, 1)), axis=1),
            "on 250 of 500 records",
        ),
        (
            lambda random: random.permuted(np.tile(np.arange(MODELS)[:, None] < HALF, (1, RECORDS)), axis=0),
            "in 8 to 8 of 16 models",
        ),
        (lambda random: random.random((MODELS, RECORDS)) < 0.6, "of 500 records"),
        (lambda random: np.repeat(fair(random, MODELS, RECORDS // 10), 10, axis=1), "of 500 records"),
        (a_row_twice, "in common"),
        (sets_of_a_plan, "on 167 of 300 records"),
    ],
    ids=["rows of a size", "records in half of the models", "unfair coins", "whole groups", "a row twice", "a plan"],
)
def test_other_deals_are_refused_and_the_way_to_coins_is_named(deal, named: str):
    with pytest.raises(InputError) as refused:
        refuse_unless_coins(deal(np.random.default_rng(39)))
    assert named in str(refused.value)
    assert "`coins`" in str(refused.value)


def test_few_models_are_refused():
    with pytest.raises(InputError, match="7 finished models"):
        refuse_unless_coins(fair(np.random.default_rng(40), 7))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax_privacy.auditing", None)
    truth = fair(np.random.default_rng(41))
    with pytest.raises(InputError, match=r"jaxaudit\[dp\]"):
        bound(truth.astype(float), truth)


@pytest.mark.parametrize(("delta", "level"), [(0.0, 0.95), (1.0, 0.95), (-1e-5, 0.95), (1e-5, 0.4), (1e-5, 1.0)])
def test_numbers_out_of_range_are_refused(delta: float, level: float):
    truth = fair(np.random.default_rng(42))
    with pytest.raises(InputError, match=r"^`(delta|level)` must be"):
        bound(truth.astype(float), truth, delta, level)
