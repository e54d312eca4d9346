"""Records that were dealt within strata: differences by a slow twin, levels, coverage, and what strata bring."""

from itertools import permutations as orders_of

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.metrics.blind_baseline import PENALTY, blind_baseline
from jaxaudit.metrics.blind_baseline import _p_value as p_value  # pyright: ignore[reportPrivateUsage]
from jaxaudit.metrics.deal import deal_within
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.permutation import orders_within
from jaxaudit.metrics.score_permutation import share_left
from jaxaudit.metrics.strata import set_effects

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
    found = set_effects(scores, sets, strata)
    levels = [(strata == name).astype(float) for name in np.unique(strata)]
    design = np.stack([sets == 1, sets == 2, *levels], axis=1).astype(float)
    fit = np.linalg.lstsq(design, scores, rcond=None)[0]
    assert np.allclose(found.effects, fit[:2])
    inverse, meat = np.linalg.inv(design.T @ design), np.zeros((6, 6))
    for row, score, stratum in zip(design, scores, strata, strict=True):
        size = int((strata == stratum).sum())
        if size > 1:
            meat += np.outer(row, row) * (score - row @ fit) ** 2 * size / (size - 1)
    # The stratum of a single record says nothing: 12 records, 2 effects, 3 levels.
    assert np.allclose(found.covariance, (inverse @ meat @ inverse)[:2, :2] * 12 / 10)
    assert found.freedom == 4 * 7 // 12


def test_strata_of_one_set_say_nothing() -> None:
    scores, sets, strata = np.array([1.0, 2, 4, 50, 60]), np.array([0, 1, 1, 1, 1]), np.array([0, 0, 0, 7, 7])
    assert np.allclose(set_effects(scores, sets, strata).effects, [2.0])
    alone = set_effects(scores[3:], np.array([0, 1]), np.array([0, 1]))
    assert (alone.effects[0], alone.covariance[0, 0], alone.freedom) == (0, 0, 1)


def test_orders_within_strata_are_all_orders_of_each() -> None:
    strata = np.array([1, 1, 1, 4, 4])
    found = np.concatenate(list(orders_within(np.random.default_rng(2), strata, 400)))
    expected = {(*first, *second) for first in orders_of(range(3)) for second in orders_of((3, 4))}
    assert {tuple(row) for row in found.tolist()} == expected


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
