"""Made-up worlds of groups: what they are made of, and how errors are counted."""

import numpy as np
import pytest

from experiments.group_rates import (
    MEMORY,
    QUERY,
    RECORDS,
    WORLDS,
    World,
    coverage,
    errors,
    made,
    p_values,
    page,
    placed,
    rates,
    summary,
)
from jaxaudit.metrics.effect import Limits


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_has_the_groups_that_it_says(name: str) -> None:
    scores = made(np.random.default_rng(1), WORLDS[name], 3, 4, 5)
    sizes = np.bincount(scores.groups)
    assert sizes.tolist() == [RECORDS] * (QUERY - 1) + [WORLDS[name].records] + [RECORDS] * 4
    assert (scores.unused.shape, scores.size) == ((3, len(scores.groups)), int(sizes[:QUERY].sum()))
    assert p_values(scores).shape == (QUERY,)


def test_use_raises_the_groups_that_were_used_and_its_spill_the_others() -> None:
    random, apart = np.random.default_rng(2), []
    for _ in range(300):
        scores = made(random, World(spill=2.0), 8, 4, 5)
        apart.append(np.bincount(scores.groups, scores.target - scores.unused.mean(axis=0)) / RECORDS)
    means = np.mean(apart, axis=0)
    # The standard deviation of a mean over 300 tables is below 0.2, with the shifts of models.
    assert means[:5] == pytest.approx(MEMORY, abs=0.8)
    assert means[5:] == pytest.approx(2.0, abs=0.8)


def test_errors_are_those_of_innocent_groups() -> None:
    found = np.full(QUERY, 0.9)
    found[:2], found[-1] = 1e-4, 0.004
    table = errors(found, 5)
    assert np.flatnonzero(table.accused).tolist() == [0, 1]
    assert np.flatnonzero(table.suspected).tolist() == [0, 1, QUERY - 1]
    counted = rates([table, errors(np.ones(QUERY), 5)])
    assert (counted["any accused"], counted["any suspected"], counted["last"]) == (0, 1, 1)
    assert counted["false share"] == pytest.approx((1 / 3 + 0) / 2)
    assert counted["found"] == pytest.approx(2 / 10)
    assert rates([errors(found, 0)])["found"] is None


def test_coverage_counts_limits_below_the_share() -> None:
    limits = [Limits(0.2, 0.1, 0.3, 0.25, None), Limits(0.5, 0.0, 1.0, 1.0, None), Limits(0.2, 0.3, 0.6, 0.5, None)]
    assert coverage(limits, 0.28) == {"tables": 3, "given": 2, "below": 1, "beside": 1}


def test_limits_of_many_models_are_about_the_share() -> None:
    found = [placed(np.random.default_rng(seed), 8, True, 0.5) for seed in range(20)]
    assert np.mean([limits.fraction for limits in found]) == pytest.approx(0.5, abs=0.15)


def test_the_page_and_the_row_say_the_worst() -> None:
    count = {"tables": 100, "any accused": 3, "any suspected": 4, "last": 0, "false share": 0.02, "found": None}
    groups = [{"world": "even", "holdout": holdout, "models": 3, "used": 0, **count} for holdout in (0, 3)]
    of_limits = {"tables": 100, "given": 50, "below": 6, "beside": 7, "holdout": True, "share": 0.25}
    result = {"tables": 100, "groups": groups, "limits": [{"models": kind, **of_limits} for kind in (2, 3, 8)]}
    assert "| even | 3 | 3 | 0 of 20 | 3.0% (0.6%-8.5%) |" in page({**result, "device": "1 x cpu", "seconds": 1.0})
    first, second = summary(result)
    assert first.ours == "3.0% (0.6%-8.5%) / 3.0% (0.6%-8.5%); 2.0% / 2.0%"
    assert second.ours.startswith("2: 6.0% (2.2%-12.6%), 3: ")
