"""Targets judged by models that somebody else trained: outputs and memberships, and no model of rho among them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import special
from support.clouds import CALIBRATION, HOLDOUT, LEARNER, QUERY
from support.simulated_shadows import provider

from jaxaudit.audits.ks.audit import audit_ks
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.judge import judge_targets
from jaxaudit.audits.ks.models import Trained
from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, KSTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import make_pool
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


def evidence() -> Evidence:
    """A bank of the targets' recipe: what models of known membership say of query set, holdout and calibration set."""
    random = np.random.default_rng(2)
    roles = {role: rows for test in TESTS for role, rows in test.draw(KEY, POOL).items()}

    def said(rows: list[np.ndarray]) -> Trained:
        members = np.concatenate(rows)[:, POOL.asked]
        odds = WORLD.outputs(random, members).astype(np.float32)
        right = np.full(len(rows), 0.95)
        none = np.zeros((len(rows), 0))
        return Trained(special.expit(odds[:, : len(QUERY)]), odds, right, right, Signals(none, none, none))

    return Evidence({role: said(rows) for role, rows in roles.items()}, roles, POOL, QUERY, 0.9, own_recipe=True)


BANK = evidence()


def target(name: str, used: bool, seed: int) -> Said:
    """A target whose log-odds are those of the bank's world, from its files."""
    members = np.zeros((1, RECORDS), bool)
    members[0, : len(QUERY)] = used
    odds = WORLD.outputs(np.random.default_rng(seed), members)[0]

    parts = np.split(odds, [len(QUERY), len(QUERY) + len(HOLDOUT)])
    sets = (QUERY, HOLDOUT, CALIBRATION)
    query, holdout, calibration = (outputs_of(*each, name) for each in zip(sets, parts, strict=True))
    return FileTarget(query, holdout, True, calibration).says(BANK, HOLDOUT, "", with_signals=False)


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
