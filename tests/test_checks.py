"""Each pre-flight check passes and fails on the right side of its threshold, and says what to do."""

import numpy as np
import pytest

from jaxaudit.audits.ks_judge import decide
from jaxaudit.metrics import checks
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Rho

LABELS = np.array([0, 0, 1, 1, 1], np.int32)


def ratio(low: float, high: float) -> Rho:
    none = np.zeros(0)
    return Rho(none, (low + high) / 2, low, high, none, none)


def test_shadow_accuracy():
    assert checks.shadow_accuracy(np.array([0.99, 0.9])).passed
    failed = checks.shadow_accuracy(np.array([0.99, 0.89]))
    assert not failed.passed
    assert failed.decisive
    assert "89.0% of its own training records right, under 90%; train longer (--epochs)" in failed.message


def test_calibration_reach_counts_from_guessing():
    # Guessing the commonest class gets 60% right; 64% is a tenth of the way from there.
    assert checks.calibration_reach(np.array([0.7, 0.59]), LABELS).passed
    failed = checks.calibration_reach(np.array([0.63]), LABELS)
    assert not failed.passed
    assert "(guessing: 60.0%); the calibration set does not look like the query set's domain" in failed.message


def test_one_class_leaves_nothing_to_reach():
    assert not checks.calibration_reach(np.array([1.0]), np.zeros(4, np.int32)).passed


def test_distances_apart():
    assert checks.distances_apart(np.array([0.2, 0.3]), np.array([0.1, 0.05])).passed
    failed = checks.distances_apart(np.array([0.19, 0.3]), np.array([0.1]))
    assert not failed.passed
    assert "differ by up to 0.100 from one another, from calibration models by 0.190 or more" in failed.message
    assert checks.distances_apart(np.array([0.0]), np.array([0.1])).value == float("inf")


def test_one_replicate_has_no_floor():
    assert "--replicates 5" in checks.distances_apart(np.array([0.5]), np.zeros(0)).message


def test_query_size_against_the_critical_value():
    # 1.358 * sqrt(2 / 200) = 0.1358, half of 0.2716.
    assert checks.query_size(200, np.array([0.272])).passed
    failed = checks.query_size(200, np.array([0.271]))
    assert not failed.passed
    assert "under 0.136 can be chance, and the one measured is 0.271; more query records" in failed.message


def test_tied_confidences_warn():
    assert checks.tied_confidences(np.array([[0.1, 0.1, 0.3, 0.4]])).passed
    failed = checks.tied_confidences(np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 1.0, 0.4]]))
    assert not failed.passed
    assert not failed.decisive
    assert "75.0% of the query confidences are one and the same value; " in failed.message


def test_class_coverage_names_the_rarest_class_that_occurs():
    names = ("cat", "dog", "emu")
    many = np.repeat([0, 1], 10).astype(np.int32)
    assert checks.class_coverage(many, many, names).passed  # no emu anywhere: nothing is missing
    failed = checks.class_coverage(many, many[:-1], names)
    assert not failed.passed
    assert "the rarest class is 'dog', with 9 records in the calibration set" in failed.message


def test_positive_control():
    assert checks.positive_control([ratio(0.2, 0.9)]).passed
    failed = checks.positive_control([ratio(0.2, 0.9), ratio(0.4, 1.0)])
    assert not failed.passed
    assert "rho 0.55 (up to 0.90), 0.70 (up to 1.00)" in failed.message
    assert "'forgotten' is not said" in failed.message
    assert not checks.positive_control([ratio(np.nan, np.nan)]).passed


def test_no_control_is_a_failed_control():
    failed = checks.positive_control([])
    assert not failed.passed
    assert "no control model was trained" in failed.message


def test_target_accuracy():
    assert checks.target_accuracy(0.64, LABELS, "out.csv").passed
    failed = checks.target_accuracy(0.6, LABELS, "out.csv")
    assert not failed.passed
    assert "out.csv gets 60.0% of the query set right" in failed.message
    assert "--allow-unrelated-target" in failed.message


def check(name: str, passed: bool, decisive: bool = True) -> Check:
    return Check(name, passed, 0.0, 0.0, decisive, "words")


@pytest.mark.parametrize("low_high", [(0.2, 0.4), (1.1, 1.3)])
def test_a_failed_decisive_check_takes_the_verdict_away(low_high):
    assert decide(ratio(*low_high), (check("fine", True), check("size", False))) == ("inconclusive", "size: words")


def test_a_failed_warning_does_not():
    assert decide(ratio(0.2, 0.4), (check("ties", False, decisive=False),))[0] == "not forgotten"


def test_the_positive_control_guards_forgotten_alone():
    failed = (check(checks.POSITIVE_CONTROL, False),)
    assert decide(ratio(1.1, 1.3), failed)[0] == "inconclusive"
    assert decide(ratio(0.2, 0.4), failed)[0] == "not forgotten"


def test_reasons_say_the_interval():
    assert decide(ratio(1.1, 1.3), ())[1].startswith("rho lies between 1.10 and 1.30, at or above 1")
    assert "cannot tell the two apart" in decide(ratio(0.2, 0.4), ())[1]
    assert "straddles 1" in decide(ratio(0.9, 1.1), ())[1]
    assert "more than one replicate" in decide(ratio(np.nan, np.nan), ())[1]
