"""Whether two sets were dealt from one pile: seldom doubted where they were, and seen where they were not."""

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics import Alike, alike, exchangeability
from jaxaudit.metrics.exchangeability import _nearest, _neighbours

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
QUERIES, OTHERS, WIDTH = 120, 80, 5
QUERY = np.arange(QUERIES + OTHERS) < QUERIES


def pile(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels, difficulty and hashes."""
    random, records = np.random.default_rng([3, seed]), QUERIES + OTHERS
    inputs = random.normal(size=(records, WIDTH))
    return inputs, random.integers(0, 4, records), inputs[:, 0] + random.normal(size=records), np.arange(records)


def told(seed: int, inputs: np.ndarray, labels: np.ndarray, difficulty: np.ndarray, copies: np.ndarray) -> Alike:
    return alike(jax.random.key(seed), inputs, labels, difficulty, copies, QUERIES, permutations=999)


def test_each_difference_shows_in_its_own_number() -> None:
    inputs, labels, difficulty, copies = pile(1)
    assert min(told(1, inputs, labels, difficulty, copies)) > 0.05
    for changed in (inputs + 0.8 * QUERY[:, None], inputs * (1 + QUERY[:, None])):
        assert told(1, changed, labels, difficulty, copies).inputs == 0.001
    # A class that the holdout has no record of.
    assert told(1, inputs, np.where(QUERY, labels, labels % 3), difficulty, copies).labels == 0.001
    assert told(1, inputs, labels, difficulty + QUERY, copies).difficulty == 0.001


def test_copies_that_all_fell_on_one_side_are_no_chance() -> None:
    inputs, labels, difficulty, copies = pile(2)
    doubled = copies.copy()
    doubled[QUERIES : QUERIES + 10] = doubled[QUERIES + 10 : QUERIES + 20]
    found = told(2, inputs, labels, difficulty, doubled).copies
    together = (QUERIES * (QUERIES - 1) + OTHERS * (OTHERS - 1)) / (200 * 199)
    assert found == pytest.approx(together**10)
    doubled[0] = doubled[-1]
    assert told(2, inputs, labels, difficulty, doubled).copies == 1.0


def test_wide_many_constant_and_missing_inputs() -> None:
    records = 5_000 + 500
    random = np.random.default_rng(4)
    inputs = random.normal(size=(records, 2 * 64, 1)).astype(np.float32)
    inputs[:, 0], inputs[3, 1] = 7.0, np.nan
    labels, copies = np.zeros(records, int), np.arange(records)
    found = alike(jax.random.key(1), inputs, labels, np.zeros(records), copies, records - 300, permutations=99)
    # What never varies tells nothing.
    assert found.labels == found.difficulty == 1.0
    assert 0.01 < found.inputs <= 1
    inputs[-300:] *= 1.5
    shifted = alike(jax.random.key(1), inputs, labels, np.zeros(records), copies, records - 300, permutations=99)
    assert shifted.inputs == 0.01


def test_a_gap_is_as_the_mean_of_its_column() -> None:
    """However far from 0: as 0, gaps were all that such a column shows."""
    random = np.random.default_rng(8)
    inputs = 1000 + random.normal(size=(600, 1)).astype(np.float32)
    inputs[300:] += 0.5
    gapped = np.where(random.random(600)[:, None] < 0.1, np.nan, inputs).astype(np.float32)
    by_hand = np.where(np.isnan(gapped), np.nanmean(gapped), gapped).astype(np.float32)
    common = np.zeros(600, int), np.zeros(600), np.arange(600), 300
    found, wanted = (alike(jax.random.key(1), some, *common, permutations=99) for some in (gapped, by_hand))
    assert found.inputs == wanted.inputs == 0.01
    assert (found.clustered, found.mixed) == (wanted.clustered, wanted.mixed)


def test_both_sets_need_records() -> None:
    inputs, labels, difficulty, copies = pile(5)
    for size in (0, 200):
        with pytest.raises(InputError, match="`size` must be at least 1 and at most 199"):
            alike(jax.random.key(1), inputs, labels, difficulty, copies, size)


def near_copies(seed: int, by_groups: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of near-copies in fives, and their groups, dealt whole or record by record; and unrelated labels."""
    random = np.random.default_rng([7, seed])
    groups = np.repeat(np.arange(40), 5)
    inputs = random.normal(size=(40, WIDTH))[groups] + 0.05 * random.normal(size=(200, WIDTH))
    order = np.argsort(random.permutation(40)[groups], kind="stable") if by_groups else random.permutation(200)
    return inputs[order], groups[order], random.integers(0, 4, 200)


def told_of(seed: int, inputs: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, size: int = 100) -> Alike:
    key, copies = jax.random.key(seed), np.arange(len(inputs))
    return alike(key, inputs, labels, inputs[:, 1], copies, size, groups=groups, permutations=99)


def test_near_copies_that_were_dealt_together_show_and_the_others_do_not() -> None:
    inputs, groups, labels = near_copies(1, by_groups=True)
    assert (told_of(1, inputs, labels, None).clustered, told_of(1, inputs, labels, None).mixed) == (0.01, 1.0)
    assert told_of(1, inputs, labels, groups).clustered > 0.01
    # One of each pair in each set, more often than by chance.
    twins = np.repeat(inputs[:100], 2, axis=0) + np.random.default_rng(1).normal(size=(200, WIDTH)) * 0.001
    apart = told_of(1, np.concatenate([twins[::2], twins[1::2]]), labels, None)
    assert (apart.clustered, apart.mixed) == (1.0, 0.01)


def unequal(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Inputs of 60 near-copied groups of 1 to 12 records, large ones apart from small ones, dealt whole at random."""
    random = np.random.default_rng([11, seed])
    sizes = random.integers(1, 13, 60)
    held = np.isin(np.arange(60), random.choice(60, 25, replace=False))
    order = np.argsort(held, kind="stable")
    groups = np.repeat(order, sizes[order])
    centres = random.normal(size=(60, WIDTH)) + sizes[:, None] / 4
    inputs = centres[groups] + 0.05 * random.normal(size=(len(groups), WIDTH))
    return inputs, random.integers(0, 4, len(groups)), groups, int((~held[groups]).sum())


def test_copies_are_sought_in_other_groups() -> None:
    inputs, groups, labels = near_copies(6, by_groups=True)

    def copies_of(copies: np.ndarray) -> float:
        key = jax.random.key(1)
        return alike(key, inputs, labels, inputs[:, 1], copies, 100, groups=groups, permutations=9).copies

    assert copies_of(groups) == 1.0
    # Three groups of one side share records: less likely than that two do, and taken for that.
    linked = np.where(np.isin(groups, groups[[0, 10, 20]]), 0, groups + 1)
    assert copies_of(linked) == pytest.approx(2 * 20 * 19 / (40 * 39))
    assert copies_of(np.where(np.isin(groups, groups[[0, -1]]), 0, groups + 1)) == 1.0


def test_nearest_neighbours_and_their_p_value_are_those_of_a_loop() -> None:
    inputs, groups, _ = near_copies(3, by_groups=True)
    nearest = _nearest(inputs.astype(np.float32), groups)
    for record in range(0, 200, 7):
        distances = ((inputs - inputs[record]) ** 2).sum(axis=1)
        assert nearest[record] == min(np.flatnonzero(groups != groups[record]), key=distances.__getitem__)
    random = np.random.default_rng(4)
    more, fewer = _neighbours(np.random.default_rng(5), inputs.astype(np.float32), 100, 1999, groups)
    counts, row = [], np.arange(200) < 100
    first = np.array([row[groups == group][0] for group in range(40)])
    for _ in range(1999):
        dealt = random.permutation(first)[groups]
        counts.append((dealt == dealt[nearest]).sum())
    observed = (row == row[nearest]).sum()
    for ours, theirs in ((more, np.mean(counts >= observed)), (fewer, np.mean(counts <= observed))):
        assert abs(ours - theirs) < stats.norm.isf(SURE / 2) * np.sqrt(2 * 0.25 / 2000)


@pytest.mark.outer
@pytest.mark.parametrize("dealt", ["records", "groups", "a sample of groups"])
def test_p_values_are_uniform_where_chance_dealt(dealt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, found = 150, []
    if dealt == "a sample of groups":
        monkeypatch.setattr(exchangeability, "MOST_RECORDS", 60)
    for seed in range(trials):
        if dealt == "a sample of groups":
            inputs, labels, groups, size = unequal(seed)
        else:
            inputs, groups, labels = near_copies(seed, dealt == "groups")
            # Tied records, too: every fifth input is one of two.
            inputs[::5], size = np.sign(inputs[::5]), 100
        every = told_of(seed, inputs, labels, None if dealt == "records" else groups, size)
        found.append((*every[:3], every.clustered, every.mixed))
    for u in (0.05, 0.25, 0.5):
        below = (np.array(found) <= u).sum(axis=0)
        assert (below <= stats.binom.ppf(1 - SURE, trials, u)).all()
        # With groups there are fewer deals, and ties of p-values.
        assert dealt != "records" or (below[:3] >= stats.binom.ppf(SURE, trials, u)).all()
