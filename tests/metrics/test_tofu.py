"""Forget quality, the area of an attack and privleak against slow twins; what a p-value of dependent samples does."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics import between_retrained, forget_quality, mia_auc, privleak, truth_ratio

ROOT = Path(__file__).parents[2]
# Quarters, so that values tie.
quarters = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=9).map(np.array)


def ks_by_paths(ours: np.ndarray, theirs: np.ndarray) -> Fraction:
    """The exact p-value: the share of lattice paths, orders of the pooled sample, that are as far from the diagonal."""
    n, m = len(ours), len(theirs)
    gaps = [abs(Fraction(int((ours <= x).sum()), n) - Fraction(int((theirs <= x).sum()), m)) for x in [*ours, *theirs]]
    widest, inside = max(gaps), {(0, 0): 1}
    for i in range(n + 1):
        for j in range(m + 1):
            if (i, j) != (0, 0):
                near = abs(Fraction(i, n) - Fraction(j, m)) < widest
                inside[i, j] = inside.get((i - 1, j), 0) + inside.get((i, j - 1), 0) if near else 0
    # The first point counts as inside only where a distance of 0 is.
    return 1 - Fraction(inside[n, m], math.comb(n + m, n)) if widest else Fraction(1)


@given(ours=quarters, theirs=quarters)
def test_forget_quality_is_the_exact_p_value_of_a_ks_test(ours: np.ndarray, theirs: np.ndarray):
    found, wanted = forget_quality(ours, theirs), float(ks_by_paths(ours, theirs))
    # Where rounding takes it above 1, SciPy takes the asymptotic one: .99996 for 7 and 7 records.
    assert found == pytest.approx(wanted, abs=1e-12 if wanted < 1 else 1e-4)


def test_the_truth_ratio_by_hand():
    """Of wrong answers the geometric mean: 1/8 and 1/2 give 1/4, over 1/2."""
    found = truth_ratio(np.log([[1 / 2, 1 / 8, 1 / 2], [1 / 4, 1 / 4, 1 / 4]]))
    np.testing.assert_allclose(found, [1 / 2, 1], rtol=1e-9)
    # `evals.metrics.memorization.truth_ratio` adds 1e-10 to what it divides by.
    assert truth_ratio(np.array([[-np.inf, 0.0]]))[0] == pytest.approx(1e10)
    losses = np.random.default_rng(1).exponential(size=(5, 4))
    slow = [math.prod(math.exp(-wrong) for wrong in each[1:]) ** (1 / 3) / math.exp(-each[0]) for each in losses]
    np.testing.assert_allclose(truth_ratio(-losses), slow, rtol=1e-8)


def test_forget_quality_is_that_of_the_framework():
    random = np.random.default_rng(0)
    for n, m in ((400, 400), (40, 41), (3999, 4000), (400, 400)):
        ours, theirs = random.lognormal(size=n), random.lognormal(0.1, size=m)
        # `evals.metrics.privacy.ks_test`: ks_2samp(forget, retain).pvalue.
        assert forget_quality(ours, theirs) == stats.ks_2samp(ours, theirs)[1]
        # `evals.metrics.utils.get_forget_quality`, which nothing calls, takes reciprocals, as ratios of later versions.
        assert forget_quality(1 / (ours + 1e-10), 1 / (theirs + 1e-10)) == pytest.approx(forget_quality(ours, theirs))


def test_a_model_and_itself_have_a_forget_quality_of_1():
    ratios = np.random.default_rng(0).lognormal(size=400)
    assert forget_quality(ratios, ratios) == 1.0
    assert math.isnan(forget_quality(np.append(ratios, np.nan), ratios))
    with pytest.raises(InputError, match="no truth ratios"):
        forget_quality(ratios, ratios[:0])


@given(forget=quarters, holdout=quarters)
def test_the_area_counts_pairs(forget: np.ndarray, holdout: np.ndarray):
    """As `roc_auc_score` with 0 for the forget set and 1 for the holdout: above .5 if the forget set is lower."""
    twice = sum(2 * (theirs > ours) + (theirs == ours) for ours in forget for theirs in holdout)
    assert mia_auc(forget, holdout) == pytest.approx(twice / (2 * len(forget) * len(holdout)), abs=1e-12)


def test_the_area_is_that_of_the_framework():
    metrics = pytest.importorskip("sklearn.metrics")
    forget, holdout = np.random.default_rng(0).normal(size=(2, 400)).round(2)
    labels = np.array([0] * len(forget) + [1] * len(holdout))
    assert mia_auc(forget, holdout) == pytest.approx(
        metrics.roc_auc_score(labels, np.array([*forget, *holdout])), abs=1e-12
    )


@given(area=st.fractions(0, 1), retrained=st.fractions(0, Fraction(9, 10)))
def test_privleak_is_the_papers_ratio(area: Fraction, retrained: Fraction):
    other = 1 - retrained
    wanted = ((1 - area) - other) / (other + Fraction(1, 10**10)) * 100
    assert privleak(float(area), float(retrained)) == pytest.approx(float(wanted), rel=1e-12, abs=1e-12)
    assert privleak(float(area)) == privleak(float(area), 0.5)


def test_privleak_by_hand():
    assert privleak(0.5, 0.5) == 0
    assert privleak(1.0, 0.5) == pytest.approx(-100, abs=1e-7)
    assert privleak(0.25, 0.5) == pytest.approx(50, abs=1e-7)


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


def test_dependent_samples_are_rejected_too_rarely():
    """Records that differ far more than models do: at 5%, hardly a pair is rejected; independent records keep 5%."""
    random = np.random.default_rng(0)
    records = random.normal(size=400)
    dependent = np.exp(records + 0.3 * random.normal(size=(40, 400)))
    independent = np.exp(1.04 * random.normal(size=(40, 400)))
    found, wanted = between_retrained(dependent), between_retrained(independent)
    assert found.share_below == 0
    assert np.median(np.array(found.between, float)) > 0.8
    # 780 pairs of 40 models; pairs that share no model are independent: 20 at a time.
    assert 0.01 < (wanted.share_below or 0.0) < 0.1


def test_the_page_about_forget_quality_shows_what_its_program_prints(capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "how_to" / "score_open_unlearning_logs.md").read_text(encoding="utf-8")
    page = page.partition("## What forget quality is worth")[2]
    program, printed = (page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "text"))
    exec(program, {})
    assert capsys.readouterr().out == printed
