"""Which columns tell known members from the holdout: by groups where groups were dealt, and how often by chance."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxaudit.audits.ks.known_models import ways_by_members
from jaxaudit.audits.ks.score_evidence import know_members
from jaxaudit.data.scores.table import score_table
from jaxaudit.metrics.effect import ALPHA

TABLES = 300


def _columns(random: np.random.Generator, alike: float, knows: float = 0.0, sizes: Any = 10) -> dict[str, Any]:
    """Scores of whole groups, 15 in each set, whose records are alike; one model knows the members by `knows`."""
    counts = np.broadcast_to(random.integers(1, 20, 45) if sizes is None else sizes, 45)
    groups = np.repeat(np.arange(45), counts)
    sets = np.array(["query", "holdout", "members"])[groups // 15]

    def column() -> np.ndarray:
        return alike * random.normal(size=45)[groups] + random.normal(size=len(groups))

    columns: dict[str, Any] = {"set": sets, "group": groups, "target.loss": column(), "covariate.tokens": column()}
    return columns | {"unused.loss": column() - knows * (sets == "members")}


@pytest.mark.parametrize("sizes", [10, None])
@pytest.mark.parametrize("alike", [0.0, 0.5, 3.0])
def test_a_column_is_seldom_left_out_by_chance(alike: float, sizes: int | None) -> None:
    """In at most 5% of deals, by the bound of 99.9%; by records far more often, where those of a group are alike."""
    random, chosen, by_records = np.random.default_rng(31), 0, 0
    for _ in range(TABLES):
        columns = _columns(random, alike, sizes=sizes)
        chosen += "covariate.tokens" in know_members(score_table(columns))
        del columns["group"]
        by_records += "covariate.tokens" in know_members(score_table(columns))
    assert chosen <= stats.binom.ppf(0.999, TABLES, ALPHA)
    assert (by_records > 0.4 * TABLES) == (alike == 3.0)


def test_directions_by_members_keep_their_level() -> None:
    random, told = np.random.default_rng(32), 0
    for _ in range(TABLES):
        table = score_table(_columns(random, 3.0))
        told += ways_by_members(table, table.of("target")[0])["loss"] != 0
    assert told <= stats.binom.ppf(0.999, TABLES, ALPHA)


def test_a_model_that_used_the_members_is_still_left_out() -> None:
    random = np.random.default_rng(33)
    found = [know_members(score_table(_columns(random, 0.5, knows=1.0))) for _ in range(20)]
    assert sum("unused.loss" in names for names in found) >= 18
    columns = _columns(random, 0.5)
    columns["target.loss"] = columns["target.loss"] - 1.5 * (columns["set"] == "members")
    table = score_table(columns)
    assert ways_by_members(table, table.of("target")[0]) == {"loss": -1}


def test_a_column_is_left_out_by_the_means_of_its_groups() -> None:
    """As a slow twin says, group by group."""
    random, answers = np.random.default_rng(34), []
    for _ in range(60):
        columns = _columns(random, 1.0, knows=0.7, sizes=None)
        values: dict[str, dict[int, list[float]]] = {"members": {}, "holdout": {}}
        for role, group, value in zip(columns["set"], columns["group"], columns["unused.loss"], strict=True):
            if role in values:
                values[role].setdefault(int(group), []).append(float(value))
        means = [[sum(of_group) / len(of_group) for of_group in of_set.values()] for of_set in values.values()]
        slow = float(np.asarray(stats.ttest_ind(*means, equal_var=False))[1]) <= ALPHA
        answers.append(slow)
        assert ("unused.loss" in know_members(score_table(columns))) == slow
    assert 10 < sum(answers) < 50


def test_a_single_group_tells_nothing() -> None:
    columns = _columns(np.random.default_rng(35), 0.5, knows=9.0)
    columns["group"] = np.where(columns["set"] == "members", 99, columns["group"])
    assert not know_members(score_table(columns))
