"""Scores of unlearning: the challenge's, U-LiRA's and TOFU's, against loops, by hand, and intervals over models."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from jaxaudit.errors import InputError
from jaxaudit.metrics import (
    Answers,
    ChallengeScore,
    Estimate,
    between_retrained,
    challenge_score,
    forget_quality,
    privleak,
    u_lira,
    u_lira_rate,
)

KEY = jax.random.key(5)


def epsilon_by_loop(unlearned: np.ndarray, retrained: np.ndarray) -> float:
    """One record: every attack as the docstring has it, and thresholds tried at values, between them and at bounds."""

    def of_rates(fpr: float, fnr: float) -> float:
        if fpr == 0 and fnr == 0:
            return math.inf
        if fpr == 0 or fnr == 0:
            return math.nan
        found = [0.0]
        for one, other in ((fpr, fnr), (fnr, fpr)):
            if 1 - 1e-5 - one > 0:
                found.append(math.log(1 - 1e-5 - one) - math.log(other))
        return max(found)

    spans = [float(side.max() - side.min()) for side in (unlearned, retrained)]
    if min(spans) < 0.01 * max(spans):
        return 50.0
    found = [0.0]
    values = sorted({*unlearned.tolist(), *retrained.tolist()})
    upper, lower = (retrained, unlearned) if np.median(retrained) > np.median(unlearned) else (unlearned, retrained)
    found += [of_rates(float((lower >= t).mean()), float((upper < t).mean())) for t in values]
    inner, outer = (unlearned, retrained) if spans[0] < spans[1] else (retrained, unlearned)
    top, width, crumb = float(inner.max()), min(spans), 1e-9
    ends = {top - 2, top + 2, *(v + c for v in values for c in (-crumb, 0, crumb))}
    for high in ends:
        lows = {high - width - 2, high - width + 2, *ends}
        for low in lows:
            if abs(high - top) <= 2 and abs(high - low - width) <= 2 and low <= high:
                inside, false = ((side >= low) & (side <= high) for side in (inner, outer))
                found.append(of_rates(float(false.mean()), float(1 - inside.mean())))
    return min(50.0, max(each for each in found if not math.isnan(each)))


def scored(unlearned: np.ndarray, retrained: np.ndarray) -> ChallengeScore:
    sides = (Answers(side, np.ones(len(side)), np.ones(len(side))) for side in (unlearned, retrained))
    return challenge_score(KEY, *sides, replicates=2)


# Quarters, so that no interval ends within rounding of a bound: bounds are eighths away.
quarters = st.integers(-24, 24).map(lambda n: n / 4)


@settings(max_examples=25)
@given(data=st.data(), sizes=st.tuples(st.integers(4, 7), st.integers(4, 7)))
def test_an_epsilon_is_that_of_every_attack(data: st.DataObject, sizes: tuple[int, int]):
    unlearned, retrained = (
        np.array([data.draw(st.lists(quarters, min_size=size, max_size=size)) for _ in range(3)]).T for size in sizes
    )
    expected = [epsilon_by_loop(*(side[:, record] for side in (unlearned, retrained))) for record in range(3)]
    np.testing.assert_allclose(scored(unlearned, retrained).epsilon, expected, rtol=1e-6)


def test_the_score_is_f_times_two_ratios():
    random = np.random.default_rng(1)
    accuracies = random.uniform(0.5, 1, (2, 2, 12))
    unlearned, retrained = (Answers(random.normal(size=(12, 6)), *each) for each in accuracies)
    found: Any = challenge_score(KEY, unlearned, retrained)
    # Half a point less for each half of a nat, and none from log(11) on, which is rounded up.
    assert found.quality.value == pytest.approx(np.mean([0.5 ** int(e / 0.5) if e < 3 else 0 for e in found.epsilon]))
    remaining, test = accuracies.mean(axis=2)[0] / accuracies.mean(axis=2)[1]
    assert (found.remaining_ratio, found.test_ratio) == (pytest.approx(remaining), pytest.approx(test))
    assert found.score.value == pytest.approx(found.quality.value * remaining * test)
    for each in (found.quality, found.score):
        assert 0 <= each.low < each.value < each.high


def test_certainty_is_cut():
    """A probability of exactly 1 or 0 is as far as the published code's constant lets it be."""
    random = np.random.default_rng(3)
    side = random.normal(size=(8, 2))
    certain = np.full((8, 2), np.inf)
    ones = np.ones(8)
    found: Any = challenge_score(KEY, Answers(certain, ones, ones), Answers(side, ones, ones))
    np.testing.assert_array_equal(found.epsilon, 50)
    assert found.score.value == 0


@pytest.mark.outer
@pytest.mark.parametrize("score", ["challenge", "u_lira"])
def test_an_interval_covers_the_mean_over_other_models(score: str):
    """Of 16 models a side that share what they say of all records: at least 85% of 100 intervals at 95%.

    Of 150 drawn like these 96% did. At 93% fewer than 85 of 100 would with probability 0.2%; the key is fixed.
    """
    random, ones = np.random.default_rng(4), np.ones(16)

    def side(shift: float = 0.0) -> np.ndarray:
        return random.normal(size=(16, 20)) + 0.7 * random.normal(size=(16, 1)) + shift

    def estimate(key: jax.Array) -> Estimate:
        if score == "u_lira":
            return u_lira(key, side(1.0), side(), replicates=100).accuracy
        return challenge_score(key, Answers(side(), ones, ones), Answers(side(), ones, ones)).quality

    found = [estimate(key) for key in jax.random.split(KEY, 100)]
    mean = np.mean([each.value for each in found])
    assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.85


def evidence_by_loop(*sides: np.ndarray) -> list[np.ndarray]:
    """Of each model and record: the log-density by the unlearned models less that by the others, without the model."""
    found = [np.empty(side.shape) for side in sides]
    for own, record in product(range(2), range(sides[0].shape[1])):
        for model, value in enumerate(sides[own][:, record]):
            fits = [np.delete(side[:, record], model) if side is sides[own] else side[:, record] for side in sides]
            of_unlearned, of_retrained = (norm.logpdf(value, fit.mean(), fit.std(ddof=1)) for fit in fits)
            found[own][model, record] = of_unlearned - of_retrained
    return found


@pytest.mark.parametrize(
    ("models", "others", "shift", "rate"), [(4, 9, 0.0, 0.2), (12, 12, 1.0, 0.17), (9, 5, 90.0, 0.3)]
)
def test_accuracy_and_rate_are_a_loop_over_models_and_records(models: int, others: int, shift: float, rate: float):
    random = np.random.default_rng(models)
    unlearned = shift + random.normal(size=(models, 10)) * random.uniform(0.1, 3, 10)
    retrained = random.normal(size=(others, 10))
    found, at_rate = u_lira(KEY, unlearned, retrained), u_lira_rate(KEY, unlearned, retrained, false_positive_rate=rate)
    ours, theirs = evidence_by_loop(unlearned, retrained)
    np.testing.assert_allclose(found.per_record, ((ours > 0).mean(axis=0) + (theirs < 0).mean(axis=0)) / 2)
    assert found.accuracy.value == pytest.approx(found.per_record.mean())
    assert 0 <= found.accuracy.low <= found.accuracy.value <= found.accuracy.high <= 1
    allowed = [threshold for threshold in theirs.ravel() if np.mean(theirs > threshold) <= rate]
    assert at_rate.value == pytest.approx(np.mean(ours > min(allowed)))
    assert 0 <= at_rate.low <= at_rate.value <= at_rate.high <= 1


def test_a_rate_of_too_few_pairs_is_none_and_of_none_at_all_refused():
    random = np.random.default_rng(1)
    assert np.isnan(u_lira_rate(KEY, *random.normal(size=(2, 9, 111))).value)
    assert not np.isnan(u_lira_rate(KEY, *random.normal(size=(2, 10, 100)), replicates=2).value)
    for rate in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="`false_positive_rate`"):
            u_lira_rate(KEY, *random.normal(size=(2, 10, 100)), false_positive_rate=rate)


SIDE = Answers(np.zeros((5, 2)), np.ones(5), np.ones(5))


@pytest.mark.parametrize(
    ("change", "how", "said"),
    [
        ({"log_odds": np.zeros((3, 2))}, {}, "`models` must be at least 4; got 3"),
        ({"log_odds": np.zeros((5, 0))}, {}, "`records` must be at least 1; got 0"),
        ({"log_odds": np.zeros((5, 3))}, {}, r"`retrained` has shape \(5, 2\) but must have \(5, 3\)"),
        ({"log_odds": np.full((5, 2), np.nan)}, {}, "`unlearned` must be a number; got nan"),
        ({"remaining_accuracy": np.ones(4)}, {}, r"`remaining` has shape \(4,\) but must have \(5,\)"),
        ({}, {"replicates": 1}, "`replicates` must be at least 2; got 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict, how: dict, said: str):
    unlearned = SIDE._replace(**change)
    with pytest.raises(InputError, match=said):
        challenge_score(KEY, unlearned, SIDE, **how)
    if "remaining_accuracy" not in change:
        with pytest.raises(InputError, match=said):
            u_lira(KEY, unlearned.log_odds, SIDE.log_odds, **how)


def test_equal_sides_are_not_told_and_what_is_certain_is():
    """And equal ones somewhat below one half with few models, as the docstring says."""
    random = np.random.default_rng(3)
    found = [u_lira(KEY, *random.normal(size=(2, 8, 500)), replicates=2).accuracy.value for _ in range(5)]
    assert 0.42 < np.mean(found) < 0.5
    same = np.zeros((6, 3))
    assert u_lira(KEY, same, same).accuracy == Estimate(0.5, 0.5, 0.5)
    certain = np.full((6, 3), np.inf)
    assert u_lira(KEY, certain, np.random.default_rng(1).normal(size=(6, 3))).accuracy.value == 1


ROOT = Path(__file__).parents[2]


def test_forget_quality_is_that_of_the_framework():
    random = np.random.default_rng(0)
    for n, m in ((400, 400), (40, 41), (3999, 4000), (400, 400)):
        ours, theirs = random.lognormal(size=n), random.lognormal(0.1, size=m)
        # `evals.metrics.privacy.ks_test`: ks_2samp(forget, retain).pvalue.
        assert forget_quality(ours, theirs) == stats.ks_2samp(ours, theirs)[1]
    # Where rounding takes it above 1, SciPy warns, and takes the asymptotic one.
    assert forget_quality(np.arange(7.0), np.arange(7.0)) == pytest.approx(1)


def test_a_model_and_itself_have_a_forget_quality_of_1():
    ratios = np.random.default_rng(0).lognormal(size=400)
    assert forget_quality(ratios, ratios) == 1.0
    assert math.isnan(forget_quality(np.append(ratios, np.nan), ratios))
    with pytest.raises(InputError, match="`records` must be at least 1; got 0"):
        forget_quality(ratios, ratios[:0])


def test_privleak_by_hand():
    assert privleak(0.5, 0.5) == 0
    assert privleak(1.0, 0.5) == pytest.approx(-100, abs=1e-7)
    assert privleak(0.25) == pytest.approx(50, abs=1e-7)
    assert privleak(0.7, 0.4) == pytest.approx(-50, abs=1e-7)


def test_between_retrained_takes_every_pair():
    random = np.random.default_rng(0)
    ratios, areas = random.lognormal(size=(4, 50)), np.array([0.4, 0.5, 0.6])
    found = between_retrained(ratios, areas)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    np.testing.assert_array_equal(found.between, [stats.ks_2samp(ratios[i], ratios[j])[1] for i, j in pairs])
    assert found.share_below == (np.array(found.between, float) < 0.05).mean()
    ordered = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    np.testing.assert_allclose(np.array(found.privleak, float), [privleak(areas[i], areas[j]) for i, j in ordered])
    assert between_retrained(ratios).privleak == ()
    without = between_retrained(areas=areas)
    assert without.between == ()
    assert without.share_below is None
    assert between_retrained(np.array([[1.0, np.nan], [1.0, 2.0]])).share_below is None


def test_between_retrained_needs_models():
    for arguments in ({}, {"truth_ratios": np.ones((1, 5))}, {"areas": np.ones(1)}):
        with pytest.raises(InputError):
            between_retrained(**arguments)


def test_the_page_about_forget_quality_shows_what_its_program_prints(capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "how_to" / "score_open_unlearning_logs.md").read_text(encoding="utf-8")
    page = page.partition("## What forget quality is worth")[2]
    program, printed = (page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "text"))
    exec(program, {})
    assert capsys.readouterr().out == printed


def test_records_in_blocks_are_as_all_at_once(monkeypatch):
    random = np.random.default_rng(2)
    unlearned, retrained = random.normal(size=(2, 12, 9))
    whole = scored(unlearned, retrained).epsilon
    monkeypatch.setattr("jaxaudit.metrics.forgetting_quality.ENTRIES", 2 * 24**2)
    assert scored(unlearned, retrained).epsilon == whole
