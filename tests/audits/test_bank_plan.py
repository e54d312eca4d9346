"""How a bank is dealt: the rows of `ks`, the same whatever their number, groups whole, dropped records never."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit import HoldoutTest, Sets, ShadowTest, plan_bank
from jaxaudit.audits import make_pool
from jaxaudit.data import Examples
from jaxaudit.errors import InputError
from jaxaudit.randomness import stream

KEY = jax.random.key(11)
QUERY, HOLDOUT, CALIBRATION = 24, 18, 30


def examples(count: int, of: int) -> Examples:
    inputs = (np.arange(count) + 1000 * of)[:, None].astype(np.float32)
    return Examples(inputs, np.arange(count) % 3, ("a", "b", "c"), f"set {of}")


SETS = examples(QUERY, 1), examples(CALIBRATION, 2), examples(HOLDOUT, 3)
GROUPS = np.r_[np.arange(QUERY) // 4, 100 + np.arange(HOLDOUT) // 3]


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["records", "groups"])
def test_with_a_holdout_rows_are_those_that_ks_draws(groups):
    """audit_ks draws with the stream `draw` of its key."""
    query, calibration, holdout = SETS
    if groups is not None:
        query, holdout = replace(query, groups=groups[:QUERY]), replace(holdout, groups=groups[QUERY:])
    pool = make_pool(Sets(query=query, calibration=calibration, holdout=holdout))
    rows = HoldoutTest(mixed=12).draw(stream(KEY, "draw"), pool)["mixed"]
    plan = plan_bank(KEY, 12, QUERY, holdout=HOLDOUT, calibration=CALIBRATION, groups=groups)
    np.testing.assert_array_equal(plan.membership, rows)


def test_without_a_holdout_rows_are_those_that_ks_draws_in_turn():
    query, calibration, _ = SETS
    pool = make_pool(Sets(query=query, calibration=calibration))
    roles = ShadowTest(never=6, half=3, fully=3).draw(stream(KEY, "draw"), pool)
    plan = plan_bank(KEY, 12, QUERY, calibration=CALIBRATION)
    names = ["never", "fully", "never", "half"] * 3
    turns = [0, 0, 1, 0, 2, 1, 3, 1, 4, 2, 5, 2]
    wanted = [roles[name][place] for name, place in zip(names, turns, strict=True)]
    np.testing.assert_array_equal(plan.membership, np.stack(wanted))


@pytest.mark.parametrize("holdout", [0, HOLDOUT])
def test_more_models_begin_with_the_same(holdout: int):
    few, many = (plan_bank(KEY, models, QUERY, holdout=holdout, calibration=CALIBRATION) for models in (7, 20))
    for less, more in zip(few[:2], many[:2], strict=True):
        np.testing.assert_array_equal(less, more[:7])
    other = plan_bank(jax.random.key(12), 7, QUERY, holdout=holdout, calibration=CALIBRATION)
    assert not np.array_equal(few.seeds, other.seeds)
    assert not np.array_equal(few.membership, other.membership)
    assert len(set(many.seeds.tolist())) == 20


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["records", "groups"])
def test_dropped_records_are_in_no_row_and_the_others_are_dealt_as_if_they_were_alone(groups):
    dropped = np.zeros(QUERY + HOLDOUT + CALIBRATION, bool)
    dropped[[0, 1, 2, 3, QUERY + 1, QUERY + HOLDOUT + 5]] = True
    plan = plan_bank(KEY, 9, QUERY, holdout=HOLDOUT, calibration=CALIBRATION, groups=groups, dropped=dropped)
    assert not plan.membership[:, dropped].any()
    left = None if groups is None else groups[~dropped[: QUERY + HOLDOUT]]
    alone = plan_bank(KEY, 9, QUERY - 4, holdout=HOLDOUT - 1, calibration=CALIBRATION - 1, groups=left)
    np.testing.assert_array_equal(plan.membership[:, ~dropped], alone.membership)


def are_coins(masks: np.ndarray) -> None:
    """Each of three checks fails once in a million fair masks: of the records a model, of the models a record, and of
    the records on which two models agree.
    """
    models, records = masks.shape
    for counts, of in ((masks.sum(axis=1), records), (masks.sum(axis=0), models)):
        squares = ((counts - of / 2) ** 2).sum() / (of / 4)
        assert 2 * min(stats.chi2.cdf(squares, len(counts)), stats.chi2.sf(squares, len(counts))) > 1e-6
    signs = np.where(masks, 1.0, -1.0)
    common = (signs @ signs.T)[np.triu_indices(models, 1)] / np.sqrt(records)
    assert 2 * stats.norm.sf(np.abs(common).max()) * len(common) > 1e-6


def test_coins_are_fair_and_more_models_begin_with_the_same():
    """Of 200 models and 300 records, at a rate of false alarms of one in a million a check."""
    dropped = np.arange(300) == 7
    few, many = (plan_bank(KEY, models, 300, coins=True, dropped=dropped) for models in (9, 200))
    for less, more in zip(few[:2], many[:2], strict=True):
        np.testing.assert_array_equal(less, more[:9])
    assert not many.membership[:, 7].any()
    are_coins(many.membership[:, ~dropped])
    assert len(set(many.seeds.tolist())) == 200


@pytest.mark.parametrize("holdout", [0, HOLDOUT])
def test_coins_deal_whole_groups(holdout: int):
    """Each group, and each record of the calibration set, by a coin of its own; dropped records never."""
    groups = GROUPS[: QUERY + holdout]
    dropped = np.arange(QUERY + holdout + CALIBRATION) == 5
    sets = {"holdout": holdout, "calibration": CALIBRATION, "coins": True}
    plan = plan_bank(KEY, 200, QUERY, **sets, groups=groups, dropped=dropped)
    units = np.concatenate([groups, 1000 + np.arange(CALIBRATION)])
    assert not plan.membership[:, 5].any()
    masks = [plan.membership[:, (units == unit) & ~dropped] for unit in np.unique(units)]
    assert all((mask == mask[:, :1]).all() for mask in masks)
    are_coins(np.stack([mask[:, 0] for mask in masks], axis=1))
    fewer = plan_bank(KEY, 20, QUERY, **sets, groups=groups, dropped=dropped)
    np.testing.assert_array_equal(plan.membership[:20], fewer.membership)
    # Groups of one record are records.
    alone = np.arange(QUERY + holdout)
    by_groups, by_records = (plan_bank(KEY, 5, QUERY, **sets, groups=each).membership for each in (alone, None))
    np.testing.assert_array_equal(by_groups, by_records)


@pytest.mark.parametrize(
    "sets",
    [
        {},
        {"holdout": 0, "calibration": CALIBRATION, "groups": GROUPS},
        {"holdout": HOLDOUT, "dropped": np.arange(QUERY + HOLDOUT) < QUERY},
        {"holdout": HOLDOUT, "groups": (np.arange(QUERY + HOLDOUT) < QUERY).astype(int)},
    ],
    ids=["query alone", "groups without a holdout", "nothing left", "two groups"],
)
def test_what_cannot_be_dealt_is_refused(sets):
    with pytest.raises(InputError):
        plan_bank(KEY, 5, QUERY, **sets)
