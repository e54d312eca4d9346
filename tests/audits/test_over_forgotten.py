"""A query set that looks less used than what nobody used is over-forgotten, which is no evidence of use."""

from typing import Any

import jax
import numpy as np
import pytest
from support.saved_runs.unlearn import unlearn_audit

from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.data.scores.table import score_table
from jaxaudit.metrics.usage import STATED_FRACTION

KEY = jax.random.key(7)
SCORES_OF = ("loss", "min_k", "zlib")


def _moved(random, by: float, sets: tuple[str, ...] = ("query", "holdout"), size: int = 100) -> dict[str, Any]:
    """Three scores of a target, `by` higher on the query set: below 0 it was used, above 0 over-forgotten."""
    of = np.repeat(sets, size)
    hard = random.normal(3, 1, len(of))
    shift = by * (of == "query") - 1.0 * (of == "members")
    scores = {name: hard + shift + 0.3 * random.normal(size=len(of)) for name in SCORES_OF}
    return {"set": of, **{f"target.{name}": each for name, each in scores.items()}, "baseline.loss": hard}


def _exchanged(columns: dict[str, Any]) -> dict[str, Any]:
    names = {"query": "holdout", "holdout": "query"}
    return {**columns, "set": np.array([names.get(each, each) for each in columns["set"]])}


@pytest.mark.parametrize("scores", [1, 2, 3])
@pytest.mark.parametrize("by", [0.5, 6.0])
@pytest.mark.parametrize("question", ["used", "left"])
def test_an_over_forgotten_query_set_is_no_evidence_of_use_by_any_number_of_scores(
    scores: int, by: float, question: Any
) -> None:
    """The same picture: a target that used the query set, with query set and holdout exchanged."""
    random = np.random.default_rng(30)
    for columns in (_moved(random, by), _exchanged(_moved(random, -by))):
        kept = {name: each for name, each in columns.items() if name.rpartition(".")[2] not in SCORES_OF[scores:]}
        for table in (kept, {**kept, "target.log_likelihood": -columns["target.loss"]}):
            found = judge_scores(KEY, score_table(table), test=ScoresTest(question=question)).targets[0]
            assert found.verdict == "inconclusive"
            assert "over-forgotten" in found.usage[0].reasons[0]
            assert "p = 0.0005" in found.usage[0].reasons[0]
            assert "over-forgotten" in found.finding.sentence
            assert found.usage[0].p_never > 0.5


def _beside_models(random, holdout: int, size: int = 200) -> dict[str, Any]:
    """An over-forgotten target, and models of known truth."""
    sets = np.repeat(["query", "holdout"], [size, holdout])
    hard = random.normal(3, 1, len(sets))
    columns: dict[str, Any] = {"set": sets}
    for name, by in {
        "target": 0.8,
        "unused.1": 0,
        "unused.2": 0,
        "unused.3": 0,
        "used.1": -0.6,
        "used.2": -0.6,
    }.items():
        columns[f"{name}.loss"] = hard + by * (sets == "query") + 0.2 * random.normal(size=len(sets))
    return columns


def test_limits_agree_where_the_query_set_was_over_forgotten() -> None:
    """By known members, and by models of known truth with a holdout and without one."""
    random = np.random.default_rng(31)
    by_members = _moved(random, 0.8, ("query", "holdout", "members"))
    for columns in (by_members, _beside_models(random, 0), _beside_models(random, 200)):
        found = judge_scores(KEY, score_table(columns), test=ScoresTest(same_recipe=True)).targets[0]
        assert found.verdict == "inconclusive"
        assert "over-forgotten" in found.usage[0].reasons[0]
        assert found.usage[0].fraction_high <= STATED_FRACTION
        assert found.usage[0].p_never > 0.5


def test_scores_that_contradict_one_another_give_no_verdict() -> None:
    columns = _moved(np.random.default_rng(32), -1.0)
    columns["target.zlib"] = columns["target.zlib"] + 2.0 * (columns["set"] == "query")
    found = judge_scores(KEY, score_table(columns)).targets[0]
    assert found.verdict == "inconclusive"
    assert "contradict" in found.because
    assert judge_scores(KEY, score_table(columns, higher=["zlib"])).targets[0].verdict == "not forgotten"


@pytest.mark.parametrize("score", ["forgotten_accuracy", "attack"])
def test_unlearning_that_pushes_below_retrained_models_is_named(score: str) -> None:
    original = {"efficacy": 9.0, score: 1.5}
    found = {factor: unlearn_audit(original, {"mine": {score: factor}}).finding for factor in (0.1, 9.0)}
    assert {each.verdict for each in found.values()} == {"distinguishable"}
    assert "over-forgotten" in found[0.1].sentence
    assert "over-forgotten" not in found[9.0].sentence
