"""Deals of records, and which deal a model's outputs fit: every choice as likely, and false alarms as stated."""

import itertools
import warnings
from collections import Counter
from functools import cache
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from jaxaudit.errors import InputError
from jaxaudit.metrics import (
    Dealt,
    blind_baseline,
    deal_holdout,
    deal_members,
    deal_within,
    dealt_records,
    log_odds,
    members_test,
    merge_groups,
    other_row,
    row_fits,
    set_effects,
    share_left,
)
from jaxaudit.metrics.exchangeability import PENALTY
from jaxaudit.metrics.exchangeability import _blind_p_value as p_value
from jaxaudit.metrics.permutation import orders_within

SURE = 1e-4


def test_all_deals_with_members_are_equally_likely() -> None:
    """Nine records to three sides with one key for both draws, whatever is held out: one false alarm in 10,000."""
    trials, counts = 600, Counter[tuple[bool, tuple[int, ...]]]()
    for seed in range(trials):
        key = jax.random.key(seed)
        held = deal_holdout(key, 9, 1 / 3)
        members = deal_members(key, held, 1 / 3)
        assert not (held & members).any()
        counts[bool(held[0]), tuple(np.flatnonzero(members[~held]).tolist())] += 1
    # The first record is held out in a third of the deals.
    cells = [(first, chosen) for first in (True, False) for chosen in combinations(range(6), 3)]
    found, expected = [counts[cell] for cell in cells], [trials * (1 if first else 2) / 60 for first, _ in cells]
    assert sum(found) == trials
    assert stats.chisquare(found, expected).pvalue > SURE


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 99), min_size=20, max_size=120),
    st.floats(0.01, 0.9),
    st.floats(0.01, 0.9),
    st.integers(0, 5),
)
def test_members_are_whole_groups_that_are_not_held_out(
    values: list[int], share: float, of_members: float, seed: int
) -> None:
    groups, key = np.array(values), jax.random.key(seed)
    count = len(np.unique(groups))
    try:
        held = deal_holdout(key, len(groups), share, groups)
        members = deal_members(key, held, of_members, groups)
    except InputError:
        assert count < 30 or share + of_members > 0.8 or min(share, of_members) < 0.1
        return
    sides = [set(groups[rows]) for rows in (held, members, ~(held | members))]
    assert all(sides)
    assert sum(map(len, sides)) == count
    assert len(sides[0]) == min(max(round(share * count), 1), count - 1)
    assert abs(len(sides[1]) - of_members * count) <= 1.5


@pytest.mark.parametrize(
    ("records", "share", "groups"),
    [(100, 0.0, None), (100, 1.0, None), (0, 0.5, None), (5, 0.5, None), (19, 0.01, None), (9, 0.5, np.arange(9) // 4)],
)
def test_what_cannot_be_dealt_is_refused(records: int, share: float, groups: np.ndarray | None) -> None:
    with pytest.raises(InputError):
        deal_holdout(jax.random.key(1), records, share, groups)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=30))
def test_groups_with_a_common_copy_are_one(pairs: list[tuple[int, int]]) -> None:
    """The slow twin joins until nothing changes."""
    groups, copies = np.array(pairs).T
    slow = groups.copy()
    while True:
        before = slow.copy()
        for values in (groups, copies):
            for value in np.unique(values):
                slow[values == value] = slow[values == value].min()
        if (slow == before).all():
            break
    found = merge_groups(groups, copies)
    np.testing.assert_array_equal(found[:, None] == found, slow[:, None] == slow)


def test_within_a_group_every_split_is_equally_likely_whatever_becomes_of_others() -> None:
    """The 20 * 20 pairs of splits of two groups, by a chi-squared test that errs in 1 of 10,000 keys."""
    groups, drawn = np.tile(np.arange(20), 6), Counter[bytes]()
    for seed in range(400):
        held = deal_within(jax.random.key(seed), groups, 0.5)[0].reshape(6, 10, 2)
        drawn.update(held[:, pair].tobytes() for pair in range(10))
    assert stats.chisquare([*drawn.values(), *[0] * (400 - len(drawn))]).pvalue > SURE


def test_every_record_is_as_likely_on_a_side_as_any_other_one() -> None:
    """Also in groups of other sizes, whose shares are rounded; each share within 4 standard deviations."""
    sizes, draws, shares, alike = [10, 11, 13, 30], 400, (0.3, 0.4), 5
    groups = np.repeat(np.arange(4 * alike), sizes * alike)
    found = np.mean([deal_within(jax.random.key(seed), groups, *shares) for seed in range(draws)], axis=0)
    for side, share in zip(found, shares, strict=True):
        error = np.sqrt(share * (1 - share) / (draws * alike))
        assert np.abs(side.reshape(alike, -1).mean(axis=0) - share).max() < 4.5 * error


@given(st.lists(st.integers(10, 40), min_size=1, max_size=8), st.integers(0, 5))
def test_a_group_has_its_share_on_each_side_up_to_a_record(sizes: list[int], seed: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    held, members = deal_within(jax.random.key(seed), groups, 0.3, 0.4)
    assert not (held & members).any()
    for rows, share in ((held, 0.3), (members, 0.4), (~(held | members), 0.3)):
        assert (np.abs(np.bincount(groups[rows], minlength=len(sizes)) - share * np.array(sizes)) < 1).all()


def test_shares_and_groups_that_allow_no_test_are_refused() -> None:
    groups = np.repeat(np.arange(3), [10, 10, 4])
    with pytest.raises(InputError, match="1 of 3 groups have fewer than 10 records"):
        deal_within(jax.random.key(0), groups, 0.3, 0.4)
    with pytest.raises(InputError, match="`held_and_stay` must be above 0 and below 1; got 1"):
        deal_within(jax.random.key(0), groups, 0.5, 0.5)


KEY = jax.random.key(51)
DEALS = 200
AUTHORS, RECORDS = 12, 13
"""A deal of 30%, 40% and 30% of 13 records is rounded, otherwise for every author."""


def _most(rate: float) -> float:
    """Of the deals, at most so many err if this rate does; the bound is that of 99.9%."""
    return float(stats.binom.ppf(0.999, DEALS, rate))


def _dealt(deal: int) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The author of each record of query set, holdout and members, and the sizes of the sets."""
    authors = np.repeat(np.arange(AUTHORS), RECORDS)
    held, members = deal_within(jax.random.fold_in(KEY, deal), authors, 0.3, 0.4)
    sides = [np.flatnonzero(side) for side in (~held & ~members, held, members)]
    return authors[np.concatenate(sides)], (len(sides[0]), len(sides[1]), len(sides[2]))


def _scores(random: np.random.Generator, authors: np.ndarray, alike: float = 3.0) -> np.ndarray:
    return alike * random.normal(size=AUTHORS)[authors] + random.normal(size=len(authors))


def test_effects_are_those_of_a_level_for_each_stratum() -> None:
    """By least squares with a column for each stratum, and a sum of squares record by record."""
    random = np.random.default_rng(1)
    strata = np.array([3, 3, 3, 5, 5, 5, 5, 9, 9, 9, 3, 5, 8])
    sets = np.array([0, 1, 2, 0, 0, 1, 2, 1, 0, 2, 2, 1, 1])
    scores = random.normal(size=13) + strata
    effects, covariance, freedom = set_effects(scores, sets, strata)
    levels = [(strata == name).astype(float) for name in np.unique(strata)]
    design = np.stack([sets == 1, sets == 2, *levels], axis=1).astype(float)
    fit = np.linalg.lstsq(design, scores, rcond=None)[0]
    assert np.allclose(effects, fit[:2])
    inverse, meat = np.linalg.inv(design.T @ design), np.zeros((6, 6))
    for row, score, stratum in zip(design, scores, strata, strict=True):
        size = int((strata == stratum).sum())
        if size > 1:
            meat += np.outer(row, row) * (score - row @ fit) ** 2 * size / (size - 1)
    # The stratum of a single record says nothing: 12 records, 2 effects, 3 levels.
    assert np.allclose(covariance, (inverse @ meat @ inverse)[:2, :2] * 12 / 10)
    assert freedom == 4 * 7 // 12


def test_strata_of_one_set_say_nothing() -> None:
    scores, sets, strata = np.array([1.0, 2, 4, 50, 60]), np.array([0, 1, 1, 1, 1]), np.array([0, 0, 0, 7, 7])
    assert np.allclose(set_effects(scores, sets, strata)[0], [2.0])
    effects, covariance, freedom = set_effects(scores[3:], np.array([0, 1]), np.array([0, 1]))
    assert (effects[0], covariance[0, 0], freedom) == (0, 0, 1)


@pytest.mark.outer
@pytest.mark.parametrize("alike", [0.0, 3.0])
def test_false_alarms_of_the_blind_baseline_within_strata(alike: float) -> None:
    """At most 5% of deals have p of at most 5%, and about as many, also where records of an author are alike."""
    random, alarms = np.random.default_rng(4), 0
    for deal in range(DEALS):
        authors, (query, holdout, _) = _dealt(deal)
        columns = {"c": np.round(_scores(random, authors, alike), 1)[: query + holdout]}
        found = blind_baseline(jax.random.fold_in(KEY, deal), columns, None, query, strata=authors[: query + holdout])
        alarms += found.p_values["columns"] <= 0.05
    assert stats.binom.ppf(0.001, DEALS, 0.05) <= alarms <= _most(0.05)


def test_sets_that_were_not_dealt_are_told_apart_within_strata_alone() -> None:
    random, told = np.random.default_rng(5), np.zeros(2)
    for deal in range(20):
        authors, (query, holdout, _) = _dealt(deal)
        authors = authors[: query + holdout]
        column = _scores(random, authors) + 1.2 * (np.arange(query + holdout) < query)
        for place, strata in enumerate((None, authors)):
            told[place] += blind_baseline(KEY, {"c": column}, None, query, strata=strata).p_values["columns"] <= 0.01
    assert told[0] <= 5
    assert told[1] >= 18


@pytest.mark.outer
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_members_test_within_strata_keeps_its_levels(share: float) -> None:
    """P-values at most 5% in 5% of deals, and limits below the truth; and both tell what those of free deals do not."""
    random, rejected, missed, told = np.random.default_rng(6), 0, 0, np.zeros(2)
    for deal in range(DEALS):
        authors, sizes = _dealt(deal)
        used = np.repeat([False, False, True], sizes)
        used[random.permutation(sizes[0])[: round(share * sizes[0])]] = True
        scores = _scores(random, authors) + used
        for place, strata in enumerate((None, authors)):
            key = jax.random.fold_in(KEY, deal)
            answer = members_test(key, scores, sizes, strata=strata, permutations=199)
            told[place] += answer.usage.upper < 1
        p_fully = answer.usage.p_fully
        rejected += (answer.usage.p_never if p_fully is None or not share else p_fully) <= 0.05
        missed += answer.usage.upper < share
    if share in (0, 1):
        assert rejected <= _most(0.05)
    assert missed <= _most(0.05)
    assert told[0] < 0.5 * DEALS
    assert share or told[1] > 0.9 * DEALS


@pytest.mark.outer
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_limits_by_models_within_strata_cover_the_share(share: float) -> None:
    random, missed, told = np.random.default_rng(7), 0, np.zeros(2)
    for deal in range(DEALS):
        authors, (query, holdout, _) = _dealt(deal)
        authors, in_query = authors[: query + holdout], np.arange(query + holdout) < query
        # Records are as difficult for all models, and seeds move an author's level.
        hard, full = random.normal(size=len(authors)), in_query.astype(float)
        part = in_query * (random.permutation(len(authors)) < share * len(authors))
        target, *models = (
            _scores(random, authors) + hard + used for used in (part, *[np.zeros(len(authors))] * 4, *[full] * 4)
        )
        limits = [
            share_left(target, np.stack(models[:4]), np.stack(models[4:]), query, strata=strata).limits
            for strata in (None, authors)
        ]
        told += [each.upper < 1 for each in limits]
        missed += limits[1].upper < share
    assert missed <= _most(0.05)
    assert told[1] > told[0]


def test_the_blind_baseline_within_strata_is_that_of_a_slow_twin() -> None:
    random = np.random.default_rng(3)
    strata, numbers = np.repeat([0, 1, 2], 6), random.normal(size=(18, 2))
    row = np.tile([True, True, False], 6)
    rows = [row, *(row[order] for order in next(orders_within(random, strata, 50)))]
    kernel = numbers @ numbers.T
    within = np.array(
        [
            [
                kernel[i, j]
                - kernel[strata == strata[i], j].mean()
                - kernel[i, strata == strata[j]].mean()
                + kernel[np.ix_(strata == strata[i], strata == strata[j])].mean()
                for j in range(18)
            ]
            for i in range(18)
        ]
    )
    hat = np.linalg.inv(within + PENALTY * np.trace(within) / 18 * np.eye(18)) @ within
    statistics = []
    for of_deal in rows:
        side = [of_deal[i] - of_deal[strata == strata[i]].mean() for i in range(18)]
        statistics.append(sum(side[i] * hat[i, j] * side[j] for i in range(18) for j in range(18) if i != j))
    slow = np.mean(np.array(statistics) >= statistics[0] - 1e-9)
    assert p_value(kernel, np.array(rows, float), np.arange(18), strata) == pytest.approx(slow)


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


MODELS, PLACES = 20, 600
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
    chosen = rng.permutation(len(inputs))[:PLACES]
    inputs, labels = inputs[chosen] / 16, labels[chosen]
    rows = np.array([np.isin(np.arange(PLACES), rng.choice(PLACES, PLACES // 2, replace=False)) for _ in range(MODELS)])
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the short one does not converge
        for model, row in enumerate(rows):
            learner = KINDS[kind](model).fit(inputs[row], labels[row])
            found.append(log_odds(np.log(np.clip(learner.predict_proba(inputs), 1e-9, 1)), labels))
    return Trained(rows, np.array(found))


def fits(of: Trained, known: int) -> np.ndarray:
    """[model, row]: how well each model's outputs fit each row, with so many other models known."""
    sets = [dealt_records(np.arange(PLACES))]
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
