"""Targets judged by models that somebody else trained: outputs and memberships, and no model of rho among them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import special
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY
from support.simulated_shadows import Provider, provider

from jaxaudit.audits.ks.audit import audit_ks
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.judge import judge_targets
from jaxaudit.audits.ks.models import Trained
from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, Judgement, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import Pool, make_pool
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, CLASS_COVERAGE, SHADOW_ACCURACY
from jaxaudit.metrics.ema import Signals

KEY = jax.random.key(5)
TESTS: tuple[KSTest, ...] = (HoldoutTest(), ReferenceTest(), ShadowTest())
POOL = make_pool(QUERY, CALIBRATION, (), HOLDOUT)
POOL = POOL._replace(reference=POOL.calibration)
RECORDS = len(POOL.asked)
WORLD = provider(np.random.default_rng(1), RECORDS, 4.0)


def evidence(tests: tuple[KSTest, ...] = TESTS, pool: Pool = POOL) -> Evidence:
    """A bank of the targets' recipe: what models of known membership say of query set, holdout and calibration set."""
    random = np.random.default_rng(2)
    roles = {role: rows for test in tests for role, rows in test.draw(KEY, pool).items()}
    asked = len(pool.asked)
    world = Provider(WORLD.level[:asked], WORLD.gap[:asked])

    def said(rows: list[np.ndarray]) -> Trained:
        members = np.concatenate(rows)[:, pool.asked]
        odds = world.outputs(random, members).astype(np.float32)
        right = np.full(len(rows), 0.95)
        none = np.zeros((len(rows), 0))
        return Trained(special.expit(odds[:, : len(QUERY)]), odds, right, right, Signals(none, none, none))

    return Evidence({role: said(rows) for role, rows in roles.items()}, roles, pool, QUERY, 0.9, own_recipe=True)


BANK = evidence()


def target(name: str, used: bool, seed: int, *, bank: Evidence = BANK, moved: float = 0, on_others: float = 1) -> Said:
    """A target whose log-odds are those of the bank's world, from its files.

    All log-odds are moved, and those on records other than the query set multiplied.
    """
    members = np.zeros((1, RECORDS), bool)
    members[0, : len(QUERY)] = used
    odds = WORLD.outputs(np.random.default_rng(seed), members)[0] + moved
    odds[len(QUERY) :] *= on_others

    query, holdout, calibration = np.split(odds, [len(QUERY), len(QUERY) + len(HOLDOUT)])
    held = bank.dealt.stop > len(QUERY)
    given = FileTarget(
        outputs_of(QUERY, query, name),
        outputs_of(HOLDOUT, holdout, name) if held else None,
        True,
        outputs_of(CALIBRATION, calibration, name),
    )
    return given.says(bank, HOLDOUT if held else None, "", with_signals=False)


def outputs_of(examples: Examples, log_odds: np.ndarray, name: str) -> Outputs:
    """Outputs with these log-odds of each record's class."""
    own = special.expit(log_odds)
    probabilities = np.repeat((1 - own)[:, None] / 2, 3, axis=1)
    probabilities[np.arange(len(own)), examples.labels] = own
    return Outputs(probabilities.astype(np.float32), "probabilities", None, "float32", name)


USED = target("used.csv", True, 3)
UNUSED = tuple(target(f"unused {seed}.csv", False, seed) for seed in range(4, 14))


@pytest.fixture(scope="module")
def audit() -> KSAudit:
    return judge_targets(KEY, BANK, (USED, *UNUSED), TESTS)


def verdicts(judged: TargetResult) -> dict[str, str]:
    return {each.test: each.finding.verdict for each in judged.judgements}


def test_use_is_told_from_no_use_without_a_model_of_rho():
    """Of ten unused targets, each judged alone and wrong with probability 5%, more than three are with 0.1%."""
    used, *unused = (judge_targets(KEY, BANK, (each,), TESTS).targets[0] for each in (USED, *UNUSED))
    assert verdicts(used) == dict.fromkeys(("holdout", "reference", "shadow"), "not forgotten")
    for test in verdicts(used):
        found = [verdicts(each)[test] for each in unused]
        assert found.count("not forgotten") <= 3
        assert found.count("forgotten") >= 7
    assert (used.method, used.name, used.truth) == ("holdout", "used.csv", None)
    assert used.confidences.shape == (1, len(QUERY))


def test_what_there_is_not_is_none_or_empty(audit: KSAudit):
    for judged in audit.targets:
        assert (judged.rho, judged.paper_rule, judged.rho_verdict, judged.controls) == (None, None, None, ())
    for rows in (audit.query_confidences, audit.calibration_confidences, audit.control_confidences):
        assert rows.shape == (0, len(QUERY))
    assert audit.noise_floor.shape == (0,)
    assert (audit.models_per_batch, audit.shadow_log_odds) == (None, {})
    np.testing.assert_array_equal(audit.labels, QUERY.labels)


def test_no_check_of_the_calibration_set_is_lost(audit: KSAudit):
    """It is made on the shadow models trained without the query set, and takes away the same verdicts."""
    names = [check.name for check in audit.targets[0].checks]
    assert names[:2] == [CALIBRATION_LIKE_QUERY, CLASS_COVERAGE]
    assert SHADOW_ACCURACY not in names
    never = BANK.trained["never"]
    # A third of the records is of the commonest class: 0.4 is 0.1 of the way from guessing to none wrong.
    for accuracy, passed in ((0.401, True), (0.399, False)):
        worse = never._replace(query_accuracy=np.full(len(never.log_odds), accuracy))
        bank = replace(BANK, trained={**BANK.trained, "never": worse})
        used = judge_targets(KEY, bank, [USED], TESTS).targets[0]
        (check,) = (check for check in used.checks if check.name == CALIBRATION_LIKE_QUERY)
        assert (check.passed, check.decisive) == (passed, True)
        assert check.value == pytest.approx((accuracy - 1 / 3) / (2 / 3))
        left = "not forgotten" if passed else "inconclusive"
        assert verdicts(used) == {"holdout": "not forgotten", "reference": left, "shadow": left}


def test_a_holdout_test_alone_needs_no_model_of_others():
    bank = replace(BANK, trained={"mixed": BANK.trained["mixed"]}, roles={"mixed": BANK.roles["mixed"]})
    (alone,) = judge_targets(KEY, bank, [USED], TESTS[:1]).targets
    (beside,) = judge_targets(KEY, BANK, [USED], TESTS).targets
    assert alone.usage == beside.usage[:1]
    assert CALIBRATION_LIKE_QUERY not in [check.name for check in alone.checks]


@pytest.mark.parametrize("test", [RhoTest(), EMATest()])
def test_tests_that_need_models_of_rho_are_refused(test: KSTest):
    with pytest.raises(InputError, match=r"rho|EMA"):
        judge_targets(KEY, BANK, [USED], (*TESTS, test))


# Several targets.

BY_RANK = TESTS[1:]


@pytest.mark.parametrize("test", BY_RANK)
def test_too_few_models_for_so_many_targets_are_the_reason(test: KSTest):
    """39 models give ranks of 1/40 at best: adjusted for two targets 0.05, for three 0.075."""
    for own_recipe in (True, False):
        bank = replace(BANK, own_recipe=own_recipe)
        two, three = (judge_targets(KEY, bank, [USED] * targets, [test]).targets[0].finding for targets in (2, 3))
        assert two.verdict == "not forgotten"
        assert three.verdict == "inconclusive"
        assert any("39 shadow models" in reason and "0.075" in reason for reason in three.reasons)
        assert three.would_change[0].startswith("Add shadow models: at least 59")


def test_models_that_are_enough_for_all_targets_are_no_reason():
    for each in judge_targets(KEY, BANK, UNUSED[:2], BY_RANK).targets:
        for judgement in each.judgements:
            assert "Add shadow models" not in "".join(judgement.finding.would_change)


def test_an_audit_that_could_detect_nothing_is_refused_before_it_trains():
    """Unless something else was asked for: then another refusal comes first."""
    given = [FileTarget(outputs_of(QUERY, np.zeros(len(QUERY)), f"{name}.csv"), None, True) for name in "abc"]
    with pytest.raises(InputError, match=r"at least 59 .*--shadow-models"):
        audit_ks(KEY, QUERY, CALIBRATION, LEARNER, given, tests=[ShadowTest()])
    with pytest.raises(InputError, match="also occur"):
        audit_ks(KEY, QUERY, QUERY, LEARNER, given, tests=[ShadowTest(), RhoTest()])


@pytest.mark.parametrize("used", [True, False])
def test_use_can_be_detected_among_any_number_of_targets(used: bool):
    """1,999 permutations give 0.0005 at best, which is 0.05 adjusted for 100 targets."""
    said = USED if used else UNUSED[0]
    alone, few, many = (
        TESTS[0].judge(KEY, said, replace(BANK, targets=targets, _known={}), (), 0.95).usage
        for targets in (1, 100, 150)
    )
    assert alone is not None
    assert many is not None
    assert alone == few
    assert (150 * many.p_never <= 0.05) == used


# A plan that changed the shadow models.


@pytest.mark.parametrize("own_recipe", [True, False])
@pytest.mark.parametrize("test", TESTS)
def test_a_plan_that_changed_the_shadow_models_is_a_reason(own_recipe: bool, test: KSTest):
    bank = replace(BANK, own_recipe=own_recipe, reduced=("mlp (128) instead of liu-cnn",))
    found, missed = (judge_targets(KEY, bank, [each], [test]).targets[0].finding for each in (USED, UNUSED[1]))
    assert (found.verdict, missed.verdict) == ("not forgotten", "inconclusive")
    for each in (found, missed):
        assert sum("mlp (128) instead of liu-cnn" in reason for reason in each.reasons) == 1
    (advice,) = missed.would_change
    assert 0 < advice.index("--model FILE.py:NAME") < advice.index("--members")


def test_a_plan_that_changed_nothing_is_no_reason():
    (missed,) = judge_targets(KEY, replace(BANK, own_recipe=False), UNUSED[1:2], TESTS).targets
    assert not any("to fit the time" in each for each in (*missed.finding.reasons, *missed.finding.caveats))


# Whether the shadow models have the target's recipe.


def judgement(test: KSTest, bank: Evidence, said: Said) -> Judgement:
    return judge_targets(KEY, bank, (said,), (test,)).targets[0].judgements[0]


RHO = RhoTest(replicates=3)
RHO_BANK = evidence((RHO,))
FAR = target("far.csv", False, 4, bank=RHO_BANK, moved=-3)
"""Further from the models of the query set than those of the calibration set."""


@pytest.mark.parametrize(
    ("test", "bank", "said"),
    [(ReferenceTest(), BANK, UNUSED[0]), (ShadowTest(), BANK, UNUSED[0]), (RHO, RHO_BANK, FAR)],
    ids=["reference", "shadow", "rho"],
)
def test_forgotten_takes_the_targets_own_recipe(test: KSTest, bank: Evidence, said: Said):
    assert judgement(test, bank, said).finding.verdict == "forgotten"
    guessed = judgement(test, replace(bank, own_recipe=False), said).finding
    assert guessed.verdict == "inconclusive"
    assert "how much this model remembers of what it used is not known" in guessed.sentence
    reduced = judgement(test, replace(bank, reduced=("2 epochs, not 20",)), said).finding
    assert reduced.verdict == "inconclusive"
    assert "2 epochs, not 20" in reduced.sentence


def test_a_forgotten_of_rho_says_that_it_rests_on_the_word():
    assert "the word alone" in judgement(RHO, RHO_BANK, FAR).finding.confidence.why
    here = judgement(RHO, replace(RHO_BANK, own_recipe=False), FAR._replace(trained_here=True)).finding
    assert here.verdict == "forgotten"
    assert "the word" not in here.confidence.why


SHADOW_ALONE = make_pool(QUERY, CALIBRATION, ())


@pytest.mark.parametrize("pool", [POOL, POOL._replace(reference=slice(0, 0))], ids=["calibration set", "holdout alone"])
def test_the_shadow_test_compares_targets_on_records_that_they_did_not_use(pool: Pool):
    """One with other outputs than the bank's models there was not trained by their recipe, whatever is said."""
    bank = evidence((ShadowTest(),), pool)
    like, unlike = (target("out.csv", False, 5, bank=bank, on_others=by) for by in (1, 0.3))
    found = judgement(ShadowTest(), bank, like).finding
    assert found.verdict == "forgotten"
    assert "the word that" in found.confidence.why
    otherwise = judgement(ShadowTest(), bank, unlike).finding
    assert otherwise.verdict == "inconclusive"
    assert "does not behave like the shadow models" in otherwise.sentence


def test_the_shadow_test_without_such_records_says_that_it_rests_on_the_word_alone():
    bank = evidence((ShadowTest(),), SHADOW_ALONE)
    found = judgement(ShadowTest(), bank, target("out.csv", False, 4, bank=bank)).finding
    assert found.verdict == "forgotten"
    assert found.confidence.word == "weak"
    assert "the word alone" in found.confidence.why


def test_a_reference_that_was_used_leaves_neither_forgotten_nor_a_fraction():
    """Even by the target's own recipe; use of the query set is detected all the same."""
    members = np.zeros((1, RECORDS), bool)
    members[0, BANK.referred] = np.random.default_rng(6).random(len(CALIBRATION)) < 0.45
    members[0, : len(QUERY)] = np.arange(len(QUERY)) % 2
    odds = WORLD.outputs(np.random.default_rng(7), members)[0]
    found = judgement(ReferenceTest(), BANK, UNUSED[0]._replace(log_odds=odds, trained_here=True))
    assert found.usage is not None
    assert found.finding.verdict != "forgotten"
    assert np.isnan(found.usage.fraction)
    assert (found.usage.upper, found.usage.p_fully) == (1.0, None)
    assert found.fraction_confidence is not None
    assert "of the reference looks used" in found.fraction_confidence.why
