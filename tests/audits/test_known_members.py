"""What is known of members: which columns tell them from the holdout, and the power that a pilot promises."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit import ScoreTable, TargetResult, judge_scores, score_table
from jaxaudit.audits import FRACTIONS, know_members, power_of_scores
from jaxaudit.errors import InputError
from jaxaudit.metrics.usage import ALPHA

TABLES = 300


def _columns(random: np.random.Generator, alike: float, knows: float = 0.0, sizes: Any = 10) -> dict[str, Any]:
    """Scores of whole groups, 15 in each set, whose records are alike; one model knows the members by `knows`."""
    counts = np.broadcast_to(random.integers(1, 20, 45) if sizes is None else sizes, 45)
    groups = np.repeat(np.arange(45), counts)
    sets = np.array(["query", "holdout", "members"])[groups // 15]

    def column() -> np.ndarray:
        return alike * random.normal(size=45)[groups] + random.normal(size=len(groups))

    columns: dict[str, Any] = {"set": sets, "group": groups, "target.loss": column(), "covariate.tokens": column()}
    return columns | {"baseline.loss": column() - knows * (sets == "members")}


@pytest.mark.outer
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


def test_a_column_is_left_out_by_the_means_of_its_groups() -> None:
    """As a slow twin says, group by group."""
    random, answers = np.random.default_rng(34), []
    for _ in range(60):
        columns = _columns(random, 1.0, knows=0.7, sizes=None)
        values: dict[str, dict[int, list[float]]] = {"members": {}, "holdout": {}}
        for role, group, value in zip(columns["set"], columns["group"], columns["baseline.loss"], strict=True):
            if role in values:
                values[role].setdefault(int(group), []).append(float(value))
        means = [[sum(of_group) / len(of_group) for of_group in of_set.values()] for of_set in values.values()]
        slow = float(np.asarray(stats.ttest_ind(*means, equal_var=False))[1]) <= ALPHA
        answers.append(slow)
        assert ("baseline.loss" in know_members(score_table(columns))) == slow
    assert 10 < sum(answers) < 50


def test_a_single_group_tells_nothing() -> None:
    columns = _columns(np.random.default_rng(35), 0.5, knows=9.0)
    columns["group"] = np.where(columns["set"] == "members", 99, columns["group"])
    assert not know_members(score_table(columns))


def _retrained(random: np.random.Generator, used: float, left: float, *, records: int = 200) -> ScoreTable:
    """A target that used the query set by `used`, with `left` of its members; two retrained models hold 0.1 of them."""
    sets = np.repeat(["query", "holdout", "members"], records)
    hard, members = random.normal(3, 1, len(sets)), sets == "members"

    def loss(memory: np.ndarray) -> np.ndarray:
        return hard - memory + 0.3 * random.normal(size=len(sets))

    columns = {"set": sets, "target.loss": loss(used * (sets == "query") + left * members)}
    return score_table(columns | {f"unused.{number}.loss": loss(0.1 * members) for number in (1, 2)})


def _judged(random: np.random.Generator, tables: int, used: float, left: float) -> list[TargetResult]:
    return [judge_scores(jax.random.key(number), _retrained(random, used, left)).targets[0] for number in range(tables)]


def test_retrained_models_tell_nothing_of_members_that_they_used_too() -> None:
    """Also where what they remember does not show; a baseline that does not know them tells how hard they are."""
    table = _retrained(np.random.default_rng(36), 0.1, 0.1)
    assert know_members(table) == {"unused.1.loss", "unused.2.loss"}
    assert "baseline.loss" not in know_members(score_table(_columns(np.random.default_rng(37), 0.0)))
    alone = dataclasses.replace(table, models=table.of("target"))
    key = jax.random.key(1)
    assert power_of_scores(key, table).result == power_of_scores(key, alone).result


@pytest.mark.outer
def test_use_is_found_beside_members_that_an_unlearning_weakened() -> None:
    """Of 20 targets that used the query set and lost what they remembered of the members."""
    found = _judged(np.random.default_rng(38), 20, 0.15, 0.0)
    assert all(target.usage[0].p_never <= ALPHA for target in found)
    assert sum(target.verdict == "not forgotten" for target in found) >= 18


@pytest.mark.outer
def test_a_target_without_use_keeps_its_level_beside_weakened_members() -> None:
    """At most 5% of 60 tables are called not forgotten, by the bound of 99.9%."""
    called = sum(target.verdict == "not forgotten" for target in _judged(np.random.default_rng(39), 60, 0.0, 0.0))
    assert called <= stats.binom.ppf(0.999, 60, ALPHA)


RUNS = 60


def _hard(random, size: int) -> np.ndarray:
    return random.normal(3, 1, size)


def _pilot(random, size: int = 300) -> dict:
    hard = _hard(random, size)
    models = {
        f"{role}.{seed}.loss": hard - share + 0.5 * random.normal(size=size)
        for seed in range(4)
        for role, share in (("unused", 0.0), ("used", 0.6))
    }
    return {"set": ["query"] * size, "baseline.loss": hard, **models}


def test_sizes_that_are_alike_by_rounding_have_conclusions_of_their_own() -> None:
    sizes: dict[str, Any] = {"query_size": 2, "holdout_size": 2, "members_size": 200}
    found = power_of_scores(jax.random.key(1), score_table(_pilot(np.random.default_rng(1))), **sizes).result
    assert len({(size.query, size.holdout) for size in found.sizes}) < len(found.sizes)
    assert {row.members for row in found.given.conclusions} == {0, 200}


@pytest.mark.outer
def test_use_is_found_as_often_as_promised() -> None:
    """Within four standard errors of a share of 60 tables, and a tenth for the approximation."""
    random = np.random.default_rng(1)
    found = power_of_scores(jax.random.key(1), score_table(_pilot(random)), query_size=100)
    promised = dict(zip(FRACTIONS, found.result.given.chances, strict=True))
    for fraction in (0.25, 0.5):
        detected = 0
        for number in range(RUNS):
            sets, hard = np.repeat(["query", "holdout"], 100), _hard(random, 200)
            inside = (sets == "query") & (random.permuted(np.arange(200) % 100) < 0)
            inside[random.choice(100, round(100 * fraction), replace=False)] = True
            loss = hard - 0.6 * inside + 0.5 * random.normal(size=200)
            table = score_table({"set": sets, "target.loss": loss, "baseline.loss": hard})
            key = jax.random.fold_in(jax.random.key(2), number)
            detected += judge_scores(key, table).targets[0].usage[0].p_never <= 0.05
        error = 4 * np.sqrt(promised[fraction] * (1 - promised[fraction]) / RUNS) + 0.1
        assert abs(detected / RUNS - promised[fraction]) <= error


def test_members_and_a_holdout_tell_it_too() -> None:
    random = np.random.default_rng(3)
    sets, hard = np.repeat(["query", "holdout", "members"], 100), _hard(random, 300)
    loss = hard - 0.6 * (sets == "members") + 0.5 * random.normal(size=300)
    columns = {"set": sets, "target.loss": loss, "baseline.loss": hard}
    by_members = power_of_scores(jax.random.key(1), score_table(columns)).result.given.min_detectable
    by_models = power_of_scores(jax.random.key(1), score_table(_pilot(random)), query_size=100).result.given
    assert by_members == pytest.approx(by_models.min_detectable, rel=0.3)


def test_a_table_without_anybody_of_known_truth_is_refused() -> None:
    with pytest.raises(InputError):
        power_of_scores(jax.random.key(1), score_table({"set": ["query", "holdout"] * 3, "target.loss": range(6)}))


def test_a_column_that_knows_the_members_takes_no_other_with_it() -> None:
    """`covariate.tok` knows the members; `covariate.tokens`, whose name begins alike, tells how hard a record is."""
    random = np.random.default_rng(31)
    hard, members = 3 * random.normal(size=400), np.arange(400) < 200
    columns = {
        "set": np.where(members, "members", "holdout"),
        "target.loss": hard - 0.5 * members + 0.1 * random.normal(size=400),
        "covariate.tok": random.normal(size=400) + 3.0 * members,
        "covariate.tokens": hard,
    }
    found: Any = [
        power_of_scores(jax.random.key(1), score_table(table), query_size=100).result.given.min_detectable
        for table in (columns, {name: column for name, column in columns.items() if name != "covariate.tokens"})
    ]
    assert found[0] < 0.5
    assert found[1] is None
