"""The power that a pilot promises, against what is found on tables of that size."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxaudit.audits.ks.scores import judge_scores
from jaxaudit.audits.power.audit import power_of_scores
from jaxaudit.data.scores.table import score_table
from jaxaudit.errors import InputError

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


def test_use_is_found_as_often_as_promised() -> None:
    """Within four standard errors of a share of 60 tables, and a tenth for the approximation."""
    random = np.random.default_rng(1)
    found = power_of_scores(jax.random.key(1), score_table(_pilot(random)), query_size=100)
    promised = {each.fraction: each.probability for each in found.result.given.chances}
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
