"""Verdicts on tables of scores, from worlds of known truth; a query set that looks less used is no evidence of use."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import binom
from support.saved_runs.unlearn import unlearn_audit

from jaxaudit import ScoresTest, judge_scores, score_table
from jaxaudit.audits import recipe_evidence, ways_of_use
from jaxaudit.errors import InputError
from jaxaudit.metrics import Usage, normal_scores
from jaxaudit.metrics.checks import MODELS_LIKE_TARGET, UNDAMAGED

KEY = jax.random.key(7)
STATED, NOT_STATED = ScoresTest(same_recipe=True), ScoresTest()


def holds(usage: Usage, used: float) -> bool:
    """Whether the interval holds this fraction."""
    low, high = usage.fraction_low, usage.fraction_high
    return low is not None and high is not None and low <= used <= high


def _judged(columns: dict[str, Any], test: ScoresTest = NOT_STATED, **directions: Any) -> Any:
    """The only target of a table with these columns."""
    return judge_scores(KEY, score_table(columns, **directions), test=test).targets[0]


def _columns(random, used: float, size: int = 150, **more) -> dict[str, Any]:
    """Losses of a target that used a share of the query set, and of a baseline; members are remembered, too."""
    sets = np.repeat(["query", "holdout", "members"], size)
    hard = random.normal(3, 1, 3 * size)
    inside = (sets == "members") | ((sets == "query") & (random.uniform(size=3 * size) < used))
    loss = hard - inside * random.uniform(0.5, 1.5, 3 * size) + 0.3 * random.normal(size=3 * size)
    return {"set": sets, "target.loss": loss, "baseline.loss": hard, **more}


@pytest.mark.parametrize(("used", "verdict"), [(0.0, "forgotten"), (1.0, "not forgotten"), (0.5, "not forgotten")])
def test_members_lead_to_every_verdict(used: float, verdict: str) -> None:
    found = _judged(_columns(np.random.default_rng(1), used))
    assert found.verdict == verdict
    assert found.method == found.usage[0].method == "scores"
    assert holds(found.usage[0], used)


@pytest.mark.parametrize("is_used", [True, False])
def test_sets_that_nothing_compares_give_no_strong_verdict(is_used: bool) -> None:
    """Of a model that used the query set, and of one that used neither of two sets of two sites."""
    random, sets = np.random.default_rng(22), np.repeat(["query", "holdout"], 300)
    inside = sets == "query"
    loss = (
        random.normal(3, 1, 600) - inside if is_used else np.abs(random.normal(size=600)) * np.where(inside, 0.7, 1.1)
    )
    columns, site = {"set": sets, "target.loss": loss}, random.normal(size=600) + (not is_used) * inside
    for known, verdict, word, state in (
        ({}, "not forgotten", "weak", "warning"),
        (
            {"covariate.year": np.full(600, 1999.5), "pair": np.tile(np.arange(300), 2)},
            "not forgotten",
            "weak",
            "warning",
        ),
        (
            {"covariate.age": site},
            *(("not forgotten", "strong", "passed") if is_used else ("inconclusive", "none", "failed")),
        ),
    ):
        found = _judged({**columns, **known})
        assert (found.verdict, found.finding.confidence.word) == (verdict, word)
        assert [check.state for check in found.finding.checks] == [state]


def test_members_that_are_not_remembered_give_no_fraction_whatever_the_query_set_shows() -> None:
    columns = _columns(np.random.default_rng(16), 1.0)
    columns["set"] = np.select(
        [columns["set"] == "members", columns["set"] == "holdout"], ["holdout", "members"], columns["set"]
    )
    found = {}
    for used in (True, False):
        hard = columns["baseline.loss"] + 0.3 * np.random.default_rng(17).normal(size=450)
        found[used] = _judged({**columns, "target.loss": hard - used * (columns["set"] == "query")})
    assert [found[used].verdict for used in (True, False)] == ["not forgotten", "inconclusive"]
    assert {each.usage[0].has_fraction for each in found.values()} == {False}


def test_a_retrained_model_does_not_hide_what_is_remembered_of_the_members() -> None:
    """It used the members, too, and not the query set: its scores must not predict the members' away."""
    columns = _columns(np.random.default_rng(18), 0.5, 300)
    remembered = (columns["set"] == "members") * np.random.default_rng(19).uniform(0.5, 1.5, 900)
    retrained = columns["baseline.loss"] - remembered + 0.3 * np.random.default_rng(20).normal(size=900)
    found = _judged({**columns, "unused.1.loss": retrained})
    assert found.verdict == "not forgotten"
    assert holds(found.usage[0], 0.5)


@pytest.mark.parametrize("by", [-1.0, 1.0])
def test_a_score_of_unknown_direction_gives_no_verdict(by: float) -> None:
    """Of an over-forgotten model, any difference would be use: what is found is a difference, and no use."""
    columns = _columns(np.random.default_rng(4), 0.0)
    columns["target.loss"] = columns["target.loss"] + by * (columns["set"] == "query")
    renamed = {name.replace("loss", "number"): column for name, column in columns.items()}
    found = _judged(renamed)
    assert found.verdict == "inconclusive"
    assert found.usage[0].p_never <= 0.001
    assert not found.usage[0].has_fraction
    directed = _judged(renamed, lower=["number"])
    assert directed.verdict == ("not forgotten" if by < 0 else "inconclusive")


def test_models_of_known_truth_tell_the_direction_of_a_score_that_has_none() -> None:
    for holdout in (0, 200):
        columns = _with_models(np.random.default_rng(35), 1.0, 3, holdout=holdout)
        renamed = {name.replace("loss", "number"): column for name, column in columns.items()}
        found = _judged(renamed)
        assert found.verdict == "inconclusive"
        assert "number lower" in found.because


@pytest.mark.parametrize(("by", "holdout"), [(0.8, 0), (0.8, 200), (-0.6, 200), (0.0, 200)])
def test_a_direction_that_models_of_known_truth_contradict_gives_no_verdict(by: float, holdout: int) -> None:
    """A loss called log-odds: an over-forgotten target would look used."""
    columns = _with_models(np.random.default_rng(31), 0.0, 3, holdout=holdout)
    columns["target.loss"] = columns["target.loss"] + by * (columns["set"] == "query")
    wrong = {name.replace("loss", "log_odds"): column for name, column in columns.items()}
    found = _judged(wrong)
    assert found.verdict == "inconclusive"
    assert "look less used" in found.because
    assert "log_odds as higher" in found.because
    right = _judged(wrong, lower=["log_odds"], test=STATED)
    assert right.verdict == {0.8: "inconclusive", -0.6: "not forgotten", 0.0: "forgotten"}[by]
    # Beside a score whose direction is right, the wrong one does not hide in a mean.
    both = _judged({**columns, **wrong})
    assert both.verdict == "inconclusive"
    assert "by log_odds," in both.because


def test_members_do_not_hide_that_models_of_known_truth_contradict_a_direction() -> None:
    columns = _columns(np.random.default_rng(32), 1.0)
    hard = columns["baseline.loss"]
    for number in range(2):
        noise = 0.2 * np.random.default_rng(33 + number).normal(size=(2, 450))
        columns[f"unused.{number}.loss"] = hard + noise[0]
        columns[f"used.{number}.loss"] = hard + 0.7 * (columns["set"] == "query") + noise[1]
    assert _judged(columns).verdict == "inconclusive"


@pytest.mark.outer
def test_models_that_hardly_differ_contradict_no_direction_more_often_than_stated() -> None:
    """At 5%, by 200 tables: at most 20, whose probability is below 0.1%."""
    random, contrary = np.random.default_rng(34), 0
    for _ in range(200):
        scores = random.normal(size=(5, 60))
        columns = {name: scores[row] for row, name in enumerate(("target", "unused.0", "unused.1", "used.0", "used.1"))}
        table = score_table({"set": ["query"] * 60, **{f"{name}.loss": each for name, each in columns.items()}})
        contrary += ways_of_use(table, table.of("target")[0])["loss"] > 0
    assert contrary <= 20


def _with_models(random, used: float, models: int, size: int = 200, holdout: int = 0) -> dict[str, Any]:
    hard, memory = random.normal(3, 1, size + holdout), random.uniform(0.3, 1, size + holdout)
    memory[size:] = 0

    def loss(share: float) -> np.ndarray:
        inside = random.uniform(size=size + holdout) < share
        return hard - memory * inside + 0.2 * random.normal(size=size + holdout)

    models_of = {f"{role}.{i}.loss": loss(share) for i in range(models) for role, share in (("unused", 0), ("used", 1))}
    sets = np.repeat(["query", "holdout"], [size, holdout])
    return {"set": sets, "target.loss": loss(used), **models_of}


@pytest.mark.parametrize("holdout", [0, 200])
@pytest.mark.parametrize(("used", "verdict"), [(0.0, "forgotten"), (0.5, "not forgotten")])
def test_models_of_known_truth_lead_to_verdicts(used: float, verdict: str, holdout: int) -> None:
    table = score_table(_with_models(np.random.default_rng(10), used, 4, holdout=holdout))
    found = judge_scores(KEY, table, test=STATED)
    assert found.targets[0].verdict == verdict
    assert holds(found.targets[0].usage[0], used)


@pytest.mark.parametrize(("models", "holdout"), [(4, 0), (1, 200)])
@pytest.mark.parametrize("used", [0.0, 1.0])
def test_where_nothing_shows_the_recipe_a_verdict_needs_the_users_word(models: int, holdout: int, used: float) -> None:
    table = score_table(_with_models(np.random.default_rng(10), used, models, holdout=holdout))
    found = judge_scores(KEY, table).targets[0]
    # Beside a holdout, use is detected whatever the recipe is; the share is not known.
    assert found.verdict == ("not forgotten" if holdout and used else "inconclusive")
    assert not found.usage[0].has_fraction
    assert ("same_recipe" in " ".join(found.finding.would_change)) is (found.verdict == "inconclusive")
    assert judge_scores(KEY, table, test=STATED).targets[0].verdict == ("not forgotten" if used else "forgotten")
    left = judge_scores(KEY, table, test=ScoresTest(question="left")).targets[0]
    assert left.verdict == ("not forgotten" if used else "forgotten")


def _models_of_recipe(random: Any, weight: float) -> dict[str, Any]:
    """Three models of a kind, and a target that used nothing and takes this share of the records' difficulty."""
    columns = _with_models(random, 0.0, 3, holdout=200)
    hard = np.mean([columns[f"unused.{place}.loss"] for place in range(3)], axis=0)
    columns["target.loss"] = weight * hard + (1 - weight) * 3 + 0.2 * random.normal(size=400)
    return columns


def test_a_target_of_another_recipe_gets_no_limit_by_models_whatever_is_stated() -> None:
    table = score_table(_models_of_recipe(np.random.default_rng(41), 0.3))
    found = judge_scores(KEY, table, test=STATED).targets[0]
    assert found.verdict == "inconclusive"
    assert not found.usage[0].has_fraction
    assert "on the holdout, which nobody used" in found.because
    (check,) = [check for check in found.checks if check.name == MODELS_LIKE_TARGET]
    assert (check.passed, check.decisive, check.value) == (False, False, recipe_evidence(table, table.of("target")[0]))
    # What is left after unlearning is no question of the target's recipe.
    left = judge_scores(KEY, table, test=ScoresTest(question="left", same_recipe=True)).targets[0]
    assert left.usage[0].has_fraction
    assert MODELS_LIKE_TARGET not in {check.name for check in left.checks}


@pytest.mark.parametrize(("models", "holdout", "state"), [(3, 200, "passed"), (1, 200, "warning"), (3, 0, "warning")])
def test_the_comparison_of_recipes_is_a_check(models: int, holdout: int, state: str) -> None:
    table = score_table(_with_models(np.random.default_rng(14), 0.0, models, holdout=holdout))
    found = judge_scores(KEY, table, test=STATED).targets[0]
    assert {check.name: check.state for check in found.finding.checks}[MODELS_LIKE_TARGET] == state
    assert ({check.name: check.value for check in found.checks}[MODELS_LIKE_TARGET] is None) is (state == "warning")


@pytest.mark.outer
def test_targets_of_the_same_recipe_are_seldom_taken_for_others() -> None:
    """At most 5%: bounds of 99.9% over tables of fixed keys."""
    random, tables = np.random.default_rng(42), 200
    models = [score_table(_with_models(random, 0.0, 3, holdout=60)) for _ in range(tables)]
    p_values = np.array([recipe_evidence(table, table.of("target")[0]) for table in models], float)
    assert (p_values <= 0.05).sum() <= binom.ppf(0.999, tables, 0.05)
    others = [score_table(_models_of_recipe(random, 0.3)) for _ in range(20)]
    assert sum((recipe_evidence(table, table.of("target")[0]) or 0) <= 0.05 for table in others) >= 18


def test_no_kind_of_record_is_missing_unsaid() -> None:
    columns = _columns(np.random.default_rng(14), 0.0)
    with pytest.raises(InputError):
        judge_scores(KEY, score_table({name: each for name, each in columns.items() if name != "target.loss"}))
    for lacking in ("query", "holdout"):
        kept = columns["set"] != lacking
        with pytest.raises(InputError):
            judge_scores(KEY, score_table({name: each[kept] for name, each in columns.items()}))


def test_members_of_another_kind_give_no_forgotten_and_take_no_detected_use_away() -> None:
    """Longer records, as a covariate shows: what is remembered of them is no measure of the query set."""
    for used, longer, verdict in ((0.0, 0, "forgotten"), (0.0, 20, "inconclusive"), (1.0, 20, "not forgotten")):
        columns = _columns(np.random.default_rng(21), used)
        tokens = np.random.default_rng(22).normal(50, 5, 450) + longer * (columns["set"] == "members")
        found = _judged({**columns, "covariate.tokens": tokens})
        assert found.verdict == verdict
        assert (found.tests[0].confidences["fraction"].word == "none") is (longer > 0)
    assert any(each.state == "warning" for each in _judged(columns).finding.checks)


def test_the_model_before_a_deletion_may_have_any_name() -> None:
    columns = _with_models(np.random.default_rng(25), 0.0, 1, holdout=200)
    names: dict[str, str] = {"target.loss": "target.npo.loss", "used.0.loss": "before.full.loss"}
    columns = {names.get(name, name): each for name, each in columns.items()}
    found = _judged(columns, test=STATED)
    assert found.usage[0].has_fraction
    assert found.verdict == "forgotten"


def test_a_target_that_was_not_tested_takes_no_adjustment_away() -> None:
    columns = _columns(np.random.default_rng(26), 1.0)
    names: dict[str, str] = {"target.loss": "target.a.loss"}
    columns = {names.get(name, name): each for name, each in columns.items()}
    noise = 0.2 * np.random.default_rng(27).normal(size=450)
    columns["target.b.loss"] = columns["baseline.loss"] + noise
    columns["target.c.loss"] = np.where(columns["set"] == "query", columns["baseline.loss"] - noise, np.nan)
    first, second, third = judge_scores(KEY, score_table(columns)).targets
    assert not third.usage
    assert first.usage[0].p_never_adjusted == 2 * first.usage[0].p_never
    assert second.verdict != "not forgotten"


def test_retrained_models_count_as_the_mean_of_their_scores() -> None:
    """They differ by their seeds. One model is what it was: a mean of one has the same ranks."""
    random = np.random.default_rng(61)
    columns = {name: column[:300] for name, column in _columns(random, 0.05).items()}
    hard = columns.pop("baseline.loss")
    retrained = [hard + 0.5 * random.normal(size=300) for _ in range(3)]
    several = {f"unused.{number}.loss": losses for number, losses in enumerate(retrained)}
    mean = np.mean([normal_scores(losses) for losses in retrained], axis=0)
    apart = {f"baseline.{number}.loss": losses for number, losses in enumerate(retrained)}
    p_never = [_judged({**columns, **models}).usage[0].p_never for models in (several, {"unused.loss": mean}, apart)]
    assert p_never[0] == p_never[1] != p_never[2]


def _unlearned(random: Any, damage: float, left: float, size: int = 200) -> dict[str, Any]:
    """A target that keeps this share of the memory of its query set, and is so much worse on all other records, too."""
    sets = np.repeat(["query", "holdout", "members"], size)
    hard, effect = random.normal(3, 1, 3 * size), random.uniform(0.5, 1.5, 3 * size)
    noise = 0.3 * random.normal(size=(3, 3 * size))
    before = hard - (sets != "holdout") * effect + noise[0]
    kept = np.select([sets == "members", sets == "query"], [1.0, left], 0.0)
    target = hard - kept * effect + damage * (sets != "members") + noise[1]
    return {"set": sets, "target.loss": target, "before.loss": before, "baseline.loss": hard + noise[2]}


@pytest.mark.parametrize("with_members", [True, False])
def test_a_damaged_model_is_not_forgotten_and_an_honest_one_is(with_members: bool) -> None:
    """By the target before, with and without members; a retrained model may be a little worse on all records."""
    for damage, left, verdict in (
        (0.0, 0.0, "forgotten"),
        (0.05, 0.0, "forgotten"),
        (0.7, 0.0, "inconclusive"),
        (0.7, 1.0, "not forgotten"),
    ):
        columns = _unlearned(np.random.default_rng(50), damage, left)
        if not with_members:
            columns["set"] = np.where(columns["set"] == "members", "reference", columns["set"])
        found = _judged(columns, test=ScoresTest(question="left"))
        assert found.verdict == verdict
        assert {check.name: check.passed for check in found.checks}[UNDAMAGED] == (damage < 0.7)
        assert any("weights" in caveat for caveat in found.finding.caveats)


def test_damage_beside_a_baseline_alone_is_a_warning() -> None:
    """A baseline may be better for other reasons."""
    for damage, state in ((0.0, "passed"), (0.7, "warning")):
        columns = _unlearned(np.random.default_rng(51), damage, 0.0)
        del columns["before.loss"]
        found = _judged(columns)
        assert {check.name: check.state for check in found.finding.checks}[UNDAMAGED] == state
        assert found.verdict == "forgotten"


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


@pytest.mark.parametrize(
    ("scores", "by", "question"), [(1, 0.5, "used"), (1, 6.0, "left"), (3, 0.5, "left"), (3, 6.0, "used")]
)
def test_an_over_forgotten_query_set_is_no_evidence_of_use_by_any_number_of_scores(
    scores: int, by: float, question: Any
) -> None:
    """The same picture: a target that used the query set, with query set and holdout exchanged."""
    random = np.random.default_rng(30)
    for columns in (_moved(random, by), _exchanged(_moved(random, -by))):
        kept = {name: each for name, each in columns.items() if name.rpartition(".")[2] not in SCORES_OF[scores:]}
        for table in (kept, {**kept, "target.log_likelihood": -columns["target.loss"]}):
            found = _judged(table, test=ScoresTest(question=question))
            assert found.verdict == "inconclusive"
            assert "over-forgotten" in found.usage[0].reasons[0]
            assert "p = 0.0005" in found.usage[0].reasons[0]
            assert "over-forgotten" in found.finding.sentence
            assert found.usage[0].p_never > 0.5


def test_scores_that_contradict_one_another_give_no_verdict() -> None:
    columns = _moved(np.random.default_rng(32), -1.0)
    columns["target.zlib"] = columns["target.zlib"] + 2.0 * (columns["set"] == "query")
    found = _judged(columns)
    assert found.verdict == "inconclusive"
    assert "contradict" in found.because
    assert _judged(columns, higher=["zlib"]).verdict == "not forgotten"


@pytest.mark.parametrize("score", ["forgotten_accuracy", "attack"])
def test_unlearning_that_pushes_below_retrained_models_is_named(score: str) -> None:
    original = {"efficacy": 9.0, score: 1.5}
    found = {factor: unlearn_audit(original, {"mine": {score: factor}}).finding for factor in (0.1, 9.0)}
    assert {each.verdict for each in found.values()} == {"distinguishable"}
    assert "over-forgotten" in found[0.1].sentence
    assert "over-forgotten" not in found[9.0].sentence
