"""Targets judged by models that somebody else trained: outputs and memberships, and no model of rho among them."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY, replaced, with_log_odds
from support.ks_audits import audit_ks
from support.simulated_shadows import bank_of, provider

from jaxaudit import (
    Evidence,
    FileTarget,
    HoldoutTest,
    KSAudit,
    KSTest,
    MembersTest,
    Part,
    RhoTest,
    Sets,
    ShadowTest,
    SimulatedTarget,
    TargetOutputs,
    TargetResult,
    judge,
)
from jaxaudit.audits import HOLM, judge_outputs, make_pool, possible_tests, unlearned_models
from jaxaudit.data import number_groups
from jaxaudit.errors import InputError
from jaxaudit.metrics import Usage
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, CLASS_COVERAGE, SHADOW_ACCURACY
from jaxaudit.shadow_models import Pool, no_models

KEY = jax.random.key(5)
TESTS: tuple[KSTest, ...] = (HoldoutTest(), ShadowTest())
POOL = make_pool(Sets(query=QUERY, calibration=CALIBRATION, holdout=HOLDOUT))
POOL = POOL._replace(compares_calibration=True)
ALONE = POOL._replace(compares_calibration=False)
RECORDS = len(POOL.compared)
WORLD = provider(np.random.default_rng(1), RECORDS, 4.0)


def evidence(tests: tuple[KSTest, ...] = TESTS, pool: Pool = POOL) -> Evidence:
    """A bank of the targets' recipe."""
    return bank_of(KEY, WORLD, pool, tests, own_recipe=True)


@cache
def whole() -> Evidence:
    return evidence()


def target(
    name: str, used: bool, seed: int, *, bank: Evidence | None = None, moved: float = 0, on_others: float = 1
) -> TargetOutputs:
    """A target whose log-odds are those of the bank's world, from its files."""
    members = np.zeros((1, RECORDS), bool)
    members[0, : len(QUERY)] = used
    odds = WORLD.outputs(np.random.default_rng(seed), members)[0] + moved
    odds[len(QUERY) :] *= on_others

    query, holdout, calibration = np.split(odds, [len(QUERY), len(QUERY) + len(HOLDOUT)])
    bank = bank or whole()
    held = bank.dealt_records.stop > len(QUERY)
    on_query, on_holdout, on_calibration = (
        with_log_odds(each, of, name) for each, of in ((query, QUERY), (holdout, HOLDOUT), (calibration, CALIBRATION))
    )
    given = FileTarget(
        Sets(query=on_query, holdout=on_holdout if held else None, calibration=on_calibration), allow_unrelated=True
    )
    return given.says(bank, "")


@cache
def used() -> TargetOutputs:
    return target("used.csv", True, 3)


@cache
def unused(place: int = 0) -> TargetOutputs:
    return target(f"unused {place}.csv", False, 4 + place)


@pytest.fixture(scope="module")
def audit() -> KSAudit:
    return judge_outputs(KEY, whole(), (used(), unused()), TESTS)


def verdicts(judged: TargetResult) -> dict[str, str]:
    return {each.name: each.finding.verdict for each in judged.tests}


def test_no_check_of_the_calibration_set_is_lost(audit: KSAudit):
    """It is made on the shadow models trained without the query set, and takes away the same verdicts."""
    names = [check.name for check in audit.targets[0].checks]
    assert names[:2] == [CALIBRATION_LIKE_QUERY, CLASS_COVERAGE]
    assert SHADOW_ACCURACY not in names
    models = whole().models
    query, never = np.arange(len(QUERY)), models.of("never")
    # A third of the records is of the commonest class: 0.4 is 0.1 of the way from guessing to none wrong.
    for accuracy, passed in ((0.401, True), (0.399, False)):
        worse = np.array(models.correct, float)
        worse[np.ix_(never, query)] = accuracy
        bank = replace(whole(), models=replace(models, correct=worse))
        found = judge_outputs(KEY, bank, [used()], TESTS).targets[0]
        (check,) = (check for check in found.checks if check.name == CALIBRATION_LIKE_QUERY)
        assert (check.passed, check.decisive) == (passed, True)
        assert check.value == pytest.approx((accuracy - 1 / 3) / (2 / 3))
        left = "not forgotten" if passed else "inconclusive"
        assert verdicts(found) == {"holdout": "not forgotten", "shadow": left}


LEARNED, BARELY = 0.41, 0.39
"""Accuracies; a third of the records is of the commonest class, so that 0.4 is 0.1 of the way to none wrong."""


@pytest.mark.parametrize(
    ("accuracy", "titles"),
    [
        ({"mixed": LEARNED, "never": LEARNED, "half": LEARNED, "fully": LEARNED}, []),
        ({"mixed": BARELY, "never": LEARNED, "half": LEARNED, "fully": LEARNED}, ["Holdout test"]),
        ({"mixed": LEARNED, "never": BARELY, "half": BARELY, "fully": BARELY}, ["Shadow test"]),
    ],
)
def test_models_that_did_not_learn_are_named_by_their_test_among_its_caveats(
    accuracy: dict[str, float], titles: list[str]
):
    """By the median of their training accuracies."""
    models = whole().models
    reached = np.array([accuracy[kind] for kind in models.kinds])
    for kind in accuracy:
        own = models.of(kind)
        reached[own] += np.linspace(-0.3, 0.3, len(own))
    models = replace(models, own_accuracy=reached)
    said = [*unlearned_models(Evidence(models), (*TESTS, MembersTest()))]
    assert [each.partition(":")[0] for each in said] == titles
    file = FileTarget(
        Sets(
            query=with_log_odds(np.zeros(len(QUERY)), QUERY, "a.csv"),
            holdout=with_log_odds(np.zeros(len(HOLDOUT)), HOLDOUT, "a.csv"),
        ),
        allow_unrelated=True,
    )
    (judged,) = judge(KEY, models, [file], tests=[HoldoutTest()]).targets
    assert {*said} & {*judged.finding.caveats} == {each for each in said if each.startswith("Holdout test")}


class OwnTest(ShadowTest):
    """A test of one's own, whose models nobody trained."""

    name = "own"
    title = "own test"

    def kinds(self) -> tuple[str, ...]:
        return ("nobody's",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": []}, "no target"),
        ({"tests": []}, "at least one test"),
        ({"tests": [ShadowTest(), ShadowTest()]}, r"\(shadow, shadow\)"),
        ({"shadows": no_models(POOL)}, "records of the holdout but no outputs"),
        ({"shadows": no_models(POOL), "tests": [ShadowTest()]}, "shadow test cannot be made: there are 0 of at least"),
        ({"tests": [OwnTest()]}, "own test cannot be made: there are no models of the kind nobody's"),
    ],
)
def test_what_cannot_be_judged_is_refused(options: dict[str, Any], words: str):
    file = FileTarget(Sets(query=with_log_odds(np.zeros(len(QUERY)), QUERY, "a.csv")), allow_unrelated=True)
    with pytest.raises(InputError, match=words):
        judge(**{"key": KEY, "shadows": whole().models, "targets": [file], **options})


def test_a_simulated_target_alone_is_judged_by_the_query_set():
    """And beside files with outputs on the calibration set by what is left of that, if it is enough."""
    bank = bank_of(KEY, WORLD, POOL, (ShadowTest(),))
    shadows = replace(bank.models, pool=ALONE)
    simulated = SimulatedTarget("simulated", (Part(CALIBRATION, 1.0),))
    assert possible_tests(shadows, [simulated]) == (ShadowTest(),)
    own = shadows.take(np.array([0]))
    everything = np.ones_like(own.membership)
    trained = replace(
        shadows,
        kinds=(*shadows.kinds, "target 0"),
        **{
            name: np.concatenate([getattr(shadows, name), everything if name == "membership" else getattr(own, name)])
            for name in ("membership", "log_odds", "correct", "confidences", "own_accuracy")
        },
    )
    assert judge(KEY, trained, [simulated], tests=[ShadowTest()]).targets[0].method == "shadow"
    random = np.random.default_rng(2)
    on_query, on_calibration = (with_log_odds(random.normal(size=len(of)), of, "a.csv") for of in (QUERY, CALIBRATION))
    file = FileTarget(Sets(query=on_query, calibration=on_calibration), allow_unrelated=True)
    with pytest.raises(InputError, match=r"`calibration_records_not_used` .* got 0"):
        judge(KEY, trained, [file, simulated], tests=[ShadowTest()])
    with pytest.raises(InputError, match="set, and some have none"):
        judge(KEY, trained, [file, replaced(file, calibration=None)], tests=[ShadowTest()])


def test_some_records_are_as_if_no_others_had_been_given():
    """Each stays in its set, with its group, and models say the same of it."""
    groups = np.arange(len(QUERY) + len(HOLDOUT)) // 3
    of_all = np.r_[groups, 1000 + np.arange(len(POOL.examples) - len(groups))]
    shadows = replace(whole().models, pool=POOL._replace(examples=replace(POOL.examples, groups=of_all)))
    records = np.r_[5:25, len(QUERY) : len(QUERY) + 10, POOL.calibration.start + 3 : POOL.calibration.stop]
    found, pool = shadows.take(np.array([2, 0]), records), shadows.take(records=records).pool
    assert (pool.query, pool.holdout, pool.calibration) == (slice(0, 20), slice(20, 30), slice(30, len(records)))
    assert pool.compares_calibration
    assert pool.groups is not None
    np.testing.assert_array_equal(pool.groups, number_groups(groups[records[:30]]))
    np.testing.assert_array_equal(pool.examples.inputs, POOL.examples.inputs[records])
    np.testing.assert_array_equal(found.log_odds, shadows.log_odds[[2, 0]][:, records])
    np.testing.assert_array_equal(found.membership, shadows.membership[[2, 0]][:, records])
    assert found.kinds == (shadows.kinds[2], shadows.kinds[0])


def test_without_outputs_on_the_holdout_it_is_left_out():
    """Models that were dealt a holdout, too, judge outputs on the query set and the calibration set alone."""
    log_odds = used().log_odds
    on_query, on_calibration = (
        with_log_odds(odds, of, "a.csv")
        for odds, of in ((log_odds[: len(QUERY)], QUERY), (log_odds[-len(CALIBRATION) :], CALIBRATION))
    )
    shadows = whole().models
    (found,) = judge(
        KEY,
        shadows,
        [FileTarget(Sets(query=on_query, calibration=on_calibration), allow_unrelated=True)],
        own_recipe=True,
    ).targets
    assert found.method == "shadow"
    assert found.verdict == "not forgotten"
    whole_usage, (usage,) = judge_outputs(KEY, whole(), [used()], [ShadowTest()]).targets[0].usage[0], found.usage
    assert usage == whole_usage


def test_tests_that_need_models_of_rho_are_refused():
    with pytest.raises(InputError, match="rho"):
        judge_outputs(KEY, whole(), [used()], (*TESTS, RhoTest()))


@pytest.mark.parametrize("pool", [POOL, ALONE], ids=["two sets", "one set"])
def test_too_few_models_for_so_many_targets_are_the_reason(pool: Pool):
    """39 models give ranks of 1/40 at best: adjusted for two targets 0.05, for three 0.075."""
    bank = replace(evidence(pool=pool), own_recipe=False)
    said, test = target("used.csv", True, 3, bank=bank), ShadowTest()
    one, *several = (judge_outputs(KEY, bank, [said] * targets, [test]) for targets in (1, 2, 3))
    assert [HOLM[0] in each.sources for each in (one, *several)] == [False, True, True]
    two, three = (each.targets[0].finding for each in several)
    assert (two.verdict, three.verdict) == ("not forgotten", "inconclusive")
    assert any("39 shadow models" in reason and "0.075" in reason for reason in three.reasons)
    assert three.would_change[0].startswith("Add shadow models: at least 59")
    assert "Add shadow models" not in "".join(two.would_change)


def test_an_audit_that_could_detect_nothing_is_refused_before_it_trains():
    """Unless something else was asked for: then another refusal comes first."""
    given = [
        FileTarget(Sets(query=with_log_odds(np.zeros(len(QUERY)), QUERY, f"{name}.csv")), allow_unrelated=True)
        for name in "abc"
    ]
    with pytest.raises(InputError, match=r"at least 59 .*`never`"):
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, given, tests=[ShadowTest()])
    with pytest.raises(InputError, match="also occur"):
        audit_ks(KEY, QUERY, QUERY, LEARNER, given, tests=[ShadowTest(), RhoTest()])


@pytest.mark.parametrize("said", [used, unused])
def test_use_can_be_detected_among_any_number_of_targets(said: Any):
    """1,999 permutations give 0.0005 at best, which is 0.05 adjusted for 100 targets."""
    alone, few, many = (
        TESTS[0].judge(KEY, said(), replace(whole(), targets=targets, _known={}), ()).details
        for targets in (1, 100, 150)
    )
    assert isinstance(many, Usage)
    assert alone == few
    assert (150 * many.p_never <= 0.05) == (said is used)


def judgement(test: KSTest, bank: Evidence, said: TargetOutputs) -> TargetResult:
    return judge_outputs(KEY, bank, (said,), (test,)).targets[0]


RHO = RhoTest(replicates=3)


@cache
def of_rho() -> tuple[Evidence, TargetOutputs]:
    """And a target further from the models of the query set than those of the calibration set."""
    bank = evidence((RHO,))
    return bank, target("far.csv", False, 4, bank=bank, moved=-3)


@pytest.mark.parametrize("test", [*TESTS, RHO], ids=lambda each: each.name)
def test_forgotten_takes_the_targets_own_recipe(test: KSTest):
    bank, said = of_rho() if test is RHO else (whole(), unused(1))
    known, guessed = (judgement(test, replace(bank, own_recipe=own), said) for own in (True, False))
    assert (known.finding.verdict, guessed.finding.verdict) == ("forgotten", "inconclusive")
    assert "how much this model remembers of what it used is not known" in guessed.finding.sentence
    for fair, blind in zip(known.usage, guessed.usage, strict=True):
        assert fair.has_fraction
        assert (blind.has_fraction, blind.p_fully) == (False, None)
        assert fair.upper < blind.upper
    reduced = judgement(test, replace(bank, reduced=("2 epochs, not 20",)), said).finding
    assert reduced.verdict == "inconclusive"
    assert "2 epochs, not 20" in reduced.sentence


@pytest.mark.parametrize("pool", [POOL, ALONE], ids=["calibration set", "holdout alone"])
def test_the_shadow_test_compares_targets_on_records_that_they_did_not_use(pool: Pool):
    """One with other outputs than the bank's models there was not trained by their recipe, whatever is said."""
    bank = evidence((ShadowTest(),), pool)
    like, unlike = (target("out.csv", False, 5, bank=bank, on_others=by) for by in (1, 0.3))
    found, otherwise = (judgement(ShadowTest(), bank, each).finding for each in (like, unlike))
    assert (found.verdict, otherwise.verdict) == ("forgotten", "inconclusive")
    assert "the word that" in found.confidence.why
    assert "does not behave like the shadow models" in otherwise.sentence


def test_a_calibration_set_that_was_used_leaves_neither_forgotten_nor_a_fraction():
    """Even by the target's own recipe; use of the query set is detected all the same."""
    members = np.zeros((1, RECORDS), bool)
    members[0, whole().in_calibration] = np.random.default_rng(6).random(len(CALIBRATION)) < 0.45
    members[0, : len(QUERY)] = np.arange(len(QUERY)) % 2
    odds = WORLD.outputs(np.random.default_rng(7), members)[0]
    found = judgement(ShadowTest(), whole(), unused()._replace(log_odds=odds, trained_here=True))
    (usage,) = found.usage
    assert found.finding.verdict != "forgotten"
    assert (usage.has_fraction, usage.upper, usage.p_fully) == (False, 1.0, None)
    assert "of the calibration set looks used" in found.tests[0].confidences["fraction"].why
