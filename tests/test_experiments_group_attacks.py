"""Groups of records for attacks, and how the ways are compared."""

import numpy as np
import pytest

from experiments.group_attacks import UNEVEN, WAYS, compare, group_records, page
from jaxaudit.attacks.records import ShadowScores
from jaxaudit.audits.attack.units import AttackUnits

LABELS = np.random.default_rng(1).integers(0, 10, 600)


@pytest.mark.parametrize("sizes", [(20,), UNEVEN])
def test_groups_have_the_sizes_that_are_asked(sizes: tuple[int, ...]) -> None:
    counts = np.sort(np.bincount(group_records(LABELS, sizes, of_one_class=False, seed=2)))
    # All but one, which has what is left.
    wanted, other = np.resize(sizes, len(counts)), counts.tolist()
    for size in wanted.tolist()[:-1]:
        other.remove(size)
    assert len(other) == 1
    assert other[0] <= wanted[-1]
    of_class = group_records(LABELS, sizes, of_one_class=True, seed=2)
    assert np.bincount(of_class).max() <= max(sizes)
    assert all(len(set(LABELS[of_class == group])) == 1 for group in range(of_class.max() + 1))


def test_the_scores_of_records_are_not_hidden_by_those_that_vary_most() -> None:
    random, groups = np.random.default_rng(3), np.repeat(np.arange(60), 4)
    coins = random.random((16, 60)) < 0.5
    odds = np.resize([30.0, 1.0, 1.0, 1.0], 240) * random.normal(size=(16, 240)) + 1.5 * coins[:, groups]
    units = AttackUnits(groups, np.unique(groups, return_index=True)[1], True)
    rows = compare(ShadowScores(odds[:, None], coins[:, groups]), units)
    areas = {(row["attack"], row["way"]): row["auc"] for row in rows}
    assert areas["lira", WAYS[2]] > 0.85
    assert areas["lira", WAYS[0]] < 0.65
    # Of groups of one size the root of their number is the same for all.
    assert areas["lira", WAYS[1]] == areas["lira", WAYS[2]]
    shown = page({"device": "1 x cpu", "seconds": 1.0, "rows": [{"set": "made", "groups": "4", **row} for row in rows]})
    assert sum(line.startswith("| made | 4 |") for line in shown) == 3
