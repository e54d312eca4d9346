"""Which test a verdict is by, and what takes it away."""

import numpy as np
import pytest
from jaxaudit.audits.ks.settle import rests_on, settle

from jaxaudit.audits.ks.result import TargetResult
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA, Thresholds
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.usage import Usage

ONES = np.ones((1, 4), np.float32)
RHO = Rho(np.array([0.5, 0.5]), 0.5, 0.4, 0.6, np.ones(2), np.ones(2))
USED = Usage("holdout", "not forgotten", 0.0005, 0.4, 0.9, 0.7, 1.0, 0.1, ())
UNUSED = Usage("holdout", "forgotten", 0.6, 0.03, 0.0, 0.0, 0.05, 0.125, ("the use of 12% or more would be seen",))
UNSURE = Usage("holdout", "inconclusive", 0.6, 0.5, 0.1, 0.0, 1.0, None, ("too few records", "and no power"))


def ema(p_value: float) -> EMA:
    nothing = Thresholds(np.zeros(2), np.zeros(2))
    return EMA(p_value, 0.75, np.array([True, True, True, False]), nothing)


def failed(name: str, decisive: bool = True) -> Check:
    return Check(name, False, 0.1, 0.5, decisive, "does not hold")


def result(*checks: Check) -> TargetResult:
    return TargetResult("t", None, RHO, "not forgotten", "rho says so", "not forgotten", checks, (), ONES)


def test_the_first_test_decides_and_rho_is_kept():
    other = UNSURE._replace(method="shadow")
    settled = settle(result(), (UNUSED, other), (ema(1.0),))
    assert (settled.verdict, settled.method) == ("forgotten", "holdout")
    assert (settled.rho_verdict, settled.rho_because) == ("not forgotten", "rho says so")
    assert settled.usage == (UNUSED, other)
    assert settle(result(), (other,), (ema(1.0),)).method == "shadow"
    assert settle(result(), (), (ema(1.0),)).method == "ema"
    alone = settle(result(), (), ())
    assert (alone.verdict, alone.method, alone.because) == ("not forgotten", "rho", "rho says so")


def test_forgotten_is_said_with_the_least_share_seen():
    because = settle(result(), (UNUSED,), ()).because
    assert because.startswith("no use shows (p = 0.6); had 12% of the query set or more been used")
    assert because.endswith("less than that cannot be excluded")


def test_forgotten_without_that_number_is_not_said():
    assert settle(result(), (UNUSED._replace(detectable=None),), ()).verdict == "inconclusive"


def test_not_forgotten_and_inconclusive_give_their_reasons():
    assert settle(result(), (USED,), ()).because == "p = under 0.001 for a target that never used the query set"
    doubt = USED._replace(reasons=("as far as shadow models go",))
    assert settle(result(), (doubt,), ()).because.endswith("never used the query set; as far as shadow models go")
    assert settle(result(), (UNSURE,), ()).because == "too few records; and no power"


@pytest.mark.parametrize(
    ("name", "takes_away"),
    [
        (preflight.TARGET_OUTPUTS, {"rho", "ema", "holdout", "shadow"}),
        (preflight.CALIBRATION_LIKE_QUERY, {"rho", "ema", "shadow"}),
        (preflight.SHADOW_ACCURACY, {"rho", "ema"}),
        ("noise floor", {"rho"}),
        (preflight.POSITIVE_CONTROL, {"rho"}),
        (preflight.HOLDOUT_LIKE_QUERY, {"holdout"}),
        (preflight.HOLDOUT_MODELS, {"holdout"}),
        (preflight.SHADOW_MODELS, {"shadow"}),
    ],
)
def test_a_failed_check_takes_away_the_verdicts_that_rest_on_it(name, takes_away):
    check = failed(name)
    for method in ("rho", "ema", "holdout", "shadow"):
        assert rests_on(method, check) == (method in takes_away)
    for method in ("holdout", "shadow"):
        settled = settle(result(check), (USED._replace(method=method),), ())
        assert (settled.verdict == "inconclusive") == (method in takes_away)
    assert (settle(result(check), (), (ema(1.0),)).verdict == "inconclusive") == ("ema" in takes_away)


def test_checks_that_rho_does_not_rest_on_are_added():
    settled = settle(result(failed("noise floor")), (USED,), (), (failed(preflight.HOLDOUT_LIKE_QUERY),))
    assert [check.name for check in settled.checks] == ["noise floor", preflight.HOLDOUT_LIKE_QUERY]
    assert (settled.verdict, settled.because) == ("inconclusive", "holdout like query: does not hold")
    assert settled.rho_verdict == "not forgotten"


def test_models_that_fit_badly_take_no_verdict_away():
    """The holdout test's `not forgotten` does not even rest on them; its other verdicts are measured on them."""
    (check,) = checks = (preflight.models_of_test(preflight.HOLDOUT_MODELS, np.array([0.4])),)
    assert not check.passed
    for usage in (USED, UNUSED, UNSURE):
        settled = settle(result(), (usage,), (), checks)
        assert settled.verdict == usage.verdict
        assert settled.checks == checks
    assert not rests_on("holdout", check, "not forgotten")
    assert rests_on("holdout", check, "forgotten")
    assert rests_on("holdout", failed(preflight.HOLDOUT_LIKE_QUERY), "not forgotten")


def test_a_warning_takes_nothing_away():
    assert settle(result(failed(preflight.TARGET_OUTPUTS, decisive=False)), (USED,), ()).verdict == "not forgotten"
    assert settle(result(failed(preflight.TARGET_OUTPUTS)), (USED,), ()).because == "target outputs: does not hold"


def test_ema_says_not_forgotten_or_nothing():
    """By the median over replicates; its `forgotten` comes without a least share."""
    settled = settle(result(), (), (ema(1.0), ema(0.9), ema(0.0)))
    assert settled.verdict == "not forgotten"
    assert settled.because.startswith(
        "EMA: 75.0% of the query records look like training records (p = 0.9); so they do"
    )
    against = settle(result(), (), (ema(1.0), ema(0.01), ema(0.0)))
    assert against.verdict == "inconclusive"
    assert against.because.endswith("EMA does not say how small a part would have shown, so 'forgotten' is not said")
