"""The probability of detection, as predicted, against the test itself on simulated scores."""

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.difficulty import residual_scores_of_models
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.power import (
    Separation,
    detection_probability,
    min_detectable_fraction,
    own_data_stretch,
    records_needed,
    separation,
)
from jaxaudit.metrics.profile import profile

TOLD = Separation(0.3, 0.05, 0.04, 0.003, 31)
RUNS = 400


def simulated_chance(measured: Separation, query: int, holdout: int, fraction: float, seed: int) -> float:
    """The share of simulated targets that the permutation test detects."""
    random = np.random.default_rng(seed)
    noticed = 0
    for run in range(RUNS):
        effect = random.normal(measured.difference, np.sqrt(measured.between))
        used = random.permutation(query) < round(fraction * query)
        spread = np.where(used, np.sqrt(measured.inside), np.sqrt(measured.outside))
        mine = used * effect + spread * random.normal(size=query)
        others = np.sqrt(measured.outside) * random.normal(size=holdout)
        test = permutation_test(jax.random.fold_in(jax.random.key(seed), run), mine, others, permutations=199)
        noticed += test.p_larger <= 0.05
    return noticed / RUNS


@pytest.mark.outer
@pytest.mark.parametrize(
    ("query", "holdout", "fraction"), [(100, 100, 0.0), (100, 100, 0.25), (60, 240, 0.5), (400, 100, 0.1)]
)
def test_predicted_chance_is_the_simulated_one(query, holdout, fraction):
    """Within what 400 simulated targets can tell, 99.9% of the time, and 0.03 for the approximation."""
    predicted = detection_probability(TOLD, query, holdout, fraction)
    found = simulated_chance(TOLD, query, holdout, fraction, seed=5)
    sampling = stats.norm.ppf(0.9995) * np.sqrt(predicted * (1 - predicted) / RUNS)
    assert abs(found - predicted) <= sampling + 0.03


def test_separation_of_known_scores():
    """Log-odds that differ by nothing have no separation; those far apart are separated perfectly."""
    random = np.random.default_rng(3)
    membership = random.random((16, 300)) < 0.5
    noise = random.normal(size=(16, 300))
    nothing, everything = separation(noise, membership), separation(noise + 20 * membership, membership)
    # Scores are sums of two of variance 1. Each model's difference has a standard error of at most 2 sqrt(4 / 300);
    # 16 of them, and 5 standard errors.
    assert abs(nothing.difference) < 0.29
    # There the learned score is taken, which is from 0 to 1.
    assert 0.95 < everything.difference < 1
    assert nothing.models == everything.models == 16


def test_records_needed_is_the_first_size_that_does():
    needed = records_needed(TOLD, 0.2)
    assert needed is not None
    assert (
        detection_probability(TOLD, needed, needed, 0.2)
        >= 0.95
        > detection_probability(TOLD, needed - 1, needed - 1, 0.2)
    )


def test_where_no_size_does():
    useless = Separation(0.0, 0.04, 0.04, 0.0, 31)
    assert records_needed(useless, 1.0, most=1000) is None
    assert min_detectable_fraction(useless, 1000, 1000, 31) is None
    # Models that differ this much would need luck, however many records there are.
    assert records_needed(Separation(0.3, 0.05, 0.04, 0.3**2, 31), 0.5) is None


def test_scores_without_spread():
    perfect = Separation(1.0, 0.0, 0.0, 0.0, 31)
    assert detection_probability(perfect, 10, 10, 0.0) == 0
    assert detection_probability(perfect, 10, 10, 1.0) == 1


def test_too_few_records_to_know_a_spread(monkeypatch):
    membership = np.array([[True, False, False]] * 5)
    with pytest.raises(InputError, match="a model has 1 records in or out of its training set"):
        separation(np.zeros((5, 3)), membership)


DRAWS = np.arange(40) // 2
DESIGNS = DRAWS % 4


def outputs(part: float, apart: float = 3.0, gap: float = 2.0, records: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Models two and two of the same draw, which makes this part of their variance within a design; and membership."""
    random = np.random.default_rng(8)
    membership = random.random((40, records)) < 0.5
    of_draws, of_designs = random.normal(size=(20, records)), apart * random.normal(size=(4, records))
    own = np.sqrt(1 - part) * random.normal(size=(40, records))
    return own + np.sqrt(part) * of_draws[DRAWS] + of_designs[DESIGNS] + gap * membership, membership


def test_a_slow_stretch():
    log_odds, membership = outputs(0.4)
    residuals = np.empty_like(log_odds)
    for record in range(log_odds.shape[1]):
        terms = np.column_stack([design == DESIGNS for design in range(4)] + [membership[:, record]]).astype(float)
        fitted = terms @ np.linalg.lstsq(terms, log_odds[:, record])[0]
        residuals[:, record] = log_odds[:, record] - fitted
    residuals = residuals / np.sqrt(profile(log_odds, membership).variance)
    pairs = [(a, b) for a in range(40) for b in range(40) if a != b and DESIGNS[a] == DESIGNS[b]]
    same = np.mean([residuals[a] @ residuals[b] for a, b in pairs if DRAWS[a] == DRAWS[b]])
    apart = np.mean([residuals[a] @ residuals[b] for a, b in pairs if DRAWS[a] != DRAWS[b]])
    whole = np.mean([each @ each for each in residuals])
    part = (same - apart) / (whole - apart)
    assert own_data_stretch(log_odds, membership, DRAWS, DESIGNS) == pytest.approx(np.sqrt(1 + 4 * part))
    halved = own_data_stretch(log_odds, membership, DRAWS, DESIGNS, share=0.5)
    assert halved == pytest.approx(np.sqrt(1 + 2 * part))


def test_without_pairs_nothing_is_stretched():
    log_odds, membership = outputs(0.5)
    assert own_data_stretch(log_odds, membership, np.arange(40), DESIGNS) == 1.0
    assert own_data_stretch(log_odds, membership, np.zeros(40, int), DESIGNS) == 1.0
    assert separation(log_odds, membership, np.arange(40), DESIGNS) == separation(log_odds, membership)


def test_a_target_with_data_of_its_own_shows_less():
    """Targets of fresh draws, judged by shadow models of one calibration set, show what is promised for them.

    10 targets; a difference of mean scores has a standard error of about 0.02 over 400 records, 0.007 over targets.
    """
    log_odds, membership = outputs(0.5, apart=0.3)
    promised = separation(log_odds, membership, DRAWS, DESIGNS)
    naive = separation(log_odds, membership)
    assert promised.stretch > 1.4
    random = np.random.default_rng(9)
    # The draws of the shadow models scatter around what their calibration set makes of a record, which varies twice
    # as much as they do; those of a target around zero, three times as much: (1 + s) / (1 - s) = 5 in all.
    of_designs = np.stack([(log_odds - 2 * membership)[each == DESIGNS].mean(axis=0) for each in range(4)])
    used = random.random((10, 400)) < 0.5
    own = np.sqrt(0.5) * random.normal(size=used.shape) + np.sqrt(0.5 * 5) * random.normal(size=used.shape)
    targets = own + of_designs[DESIGNS[:10]] + 2 * used
    shown = []
    for target, row in zip(targets, used, strict=True):
        scores = residual_scores_of_models(target[None], [profile(log_odds, membership)])[0]
        shown.append(scores[row].mean() - scores[~row].mean())
    assert abs(np.mean(shown) - promised.difference) < 0.15 * promised.difference
    assert naive.difference > 1.15 * np.mean(shown)


def test_groups_that_go_together_are_worth_fewer_records():
    """Outputs that are the same within a group of five vary as much over records and five times as much over groups."""
    random = np.random.default_rng(10)
    groups = np.arange(500) // 5
    membership = (random.random((20, 100)) < 0.5)[:, groups]
    log_odds = random.normal(size=(20, 100))[:, groups] + 0.01 * random.normal(size=(20, 500)) + 2 * membership
    alone, whole = separation(log_odds, membership), separation(log_odds, membership, groups=groups)
    assert whole.difference == alone.difference
    assert 4 < whole.outside / alone.outside < 6
    chances = [detection_probability(each, 500, 500, 0.2) for each in (whole, alone)]
    assert chances[0] < chances[1]
