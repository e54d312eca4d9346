"""Which test of `ks` decides, what its numbers say, and which failed check takes which verdict away."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from support.saved_runs.ks import UNSURE, UNUSED, USED, check, decided, judged, rho_between

from jaxaudit import Check, HoldoutTest, Judgement, RhoTest, ShadowTest, TargetResult
from jaxaudit.audits import Checked, adjusted
from jaxaudit.metrics import Limits, Rho, Usage, conclude, holm
from jaxaudit.metrics import checks as preflight

APART, NEAR, BOTH = rho_between(1.1, 1.3), rho_between(0.2, 0.4), rho_between(0.9, 1.1)
NONE = rho_between(np.nan, np.nan, 0.5)


def failed(name: str, decisive: bool = True) -> Check:
    return check(name, False, decisive, "does not hold")


def state(target: TargetResult, name: str) -> Checked:
    return next(each for each in target.finding.checks if each.name == name)


def test_the_first_test_decides_and_all_are_kept():
    other = UNSURE
    target = judged(usage=(UNUSED, other))
    assert (target.verdict, target.method) == ("forgotten", "holdout")
    assert [test.finding.verdict for test in target.tests if test.name == "rho"] == ["not forgotten"]
    assert [usage.p_never for usage in target.usage] == [UNUSED.p_never, other.p_never]
    assert [each.name for each in target.tests] == ["holdout", "shadow", "rho"]
    assert target.finding == target.tests[0].finding
    assert judged(usage=(other,)).method == "shadow"
    assert judged().method == "rho"


@pytest.mark.parametrize(
    ("rho", "verdict", "unlike", "words"),
    [
        (APART, "forgotten", "inconclusive", "1.1 to 1.3"),
        (NEAR, "not forgotten", "not forgotten", "0.2 to 0.4"),
        (BOTH, "inconclusive", "inconclusive", "0.9 to 1.1"),
        (NONE, "inconclusive", "inconclusive", "no interval"),
    ],
)
def test_rho_decides_by_its_interval(rho: Rho, verdict: str, unlike: str, words: str):
    """And never says `forgotten` where nobody knows how much is remembered."""
    assert RhoTest().decide(rho, (), (), (), lacks=(("Give members", ""),)).finding.verdict == unlike
    finding = judged(rho=rho).finding
    assert finding.verdict == verdict
    assert words in finding.sentence
    assert (finding.confidence.word == "none") == (verdict == "inconclusive")


WIDE = Limits(0.92, 0.7, 1.0, 0.98, 0.1)


def decided_again(test: HoldoutTest | ShadowTest, p_never: float, limits: Limits) -> Judgement:
    """What a test says of these numbers."""
    return decided(test, conclude(test.name, p_never, 0.4, limits))


def usage_of(judgement: Judgement) -> Usage:
    assert isinstance(judgement.details, Usage)
    return judgement.details


def test_verdicts_of_several_targets_follow_the_adjusted_p_values():
    rho = (RhoTest().decide(rho_between(0.4, 0.6), (), (), ()),)
    each = [
        (decided_again(HoldoutTest(), p, WIDE), decided_again(ShadowTest(), 0.3, WIDE), *rho)
        for p in (0.03, 0.0005, 0.04)
    ]
    assert [target[0].finding.verdict for target in each] == ["not forgotten"] * 3
    found = adjusted(each)
    assert [usage_of(target[0]).p_never_adjusted for target in found] == [0.06, 0.0015, 0.06]
    assert tuple(usage_of(target[1]).p_never_adjusted for target in found) == holm([0.3] * 3)
    for before, after, verdict in zip(each, found, ("inconclusive", "not forgotten", "inconclusive"), strict=True):
        first, usage = after[0].finding, usage_of(after[0])
        assert usage.verdict == first.verdict == verdict
        assert usage_of(before[0]) == replace(usage, verdict="not forgotten", reasons=(), p_never_adjusted=None)
        assert after[1].finding.verdict == before[1].finding.verdict
        assert after[2:] == before[2:]
        if verdict == "not forgotten":
            assert "adjusted for all targets" in first.sentence
    assert adjusted(each[:1]) == each[:1]


@pytest.mark.parametrize(
    ("name", "takes_away"),
    [
        (preflight.TARGET_OUTPUTS, {"rho", "holdout", "shadow"}),
        (preflight.CALIBRATION_LIKE_QUERY, {"rho", "shadow"}),
        (preflight.SHADOW_ACCURACY, {"rho"}),
        (preflight.DISTANCES_APART, {"rho"}),
        (preflight.QUERY_SIZE, {"rho"}),
        ("anything else", {"rho"}),
        (preflight.HOLDOUT_LIKE_QUERY, {"holdout"}),
        (preflight.SHADOW_MODELS, {"shadow"}),
    ],
)
def test_a_failed_check_takes_away_the_verdicts_that_rest_on_it(name: str, takes_away: set[str]):
    every = (USED, replace(USED, method="shadow"))
    target = judged(usage=every, checks=(failed(name),))
    for test in target.tests:
        finding = test.finding
        (shown,) = finding.checks
        assert (finding.verdict == "inconclusive") == (test.name in takes_away)
        assert shown.state == ("failed" if test.name in takes_away else "warning")
        if takes_away == {"rho"} and test.name in ("holdout", "shadow"):
            assert finding.confidence.word == {"holdout": "strong", "shadow": "fair"}[test.name]
        if test.name in takes_away:
            assert shown.affects == ""
            assert finding.reasons == (f"{name}: does not hold",)
            assert finding.confidence.word == "none"
            assert finding.tone == "open"
        else:
            titles = {each.name: each.title for each in target.tests}
            assert set(shown.affects.split(", ")) == {titles[test] for test in takes_away}


@pytest.mark.parametrize("usage", [USED, UNUSED, replace(UNUSED, verdict="inconclusive", upper=0.3)])
@pytest.mark.parametrize("name", [preflight.TARGET_OUTPUTS, preflight.HOLDOUT_APART])
def test_no_share_and_no_limit_stand_beside_a_failed_check(usage: Usage, name: str):
    """Neither where the verdict rests on the check, nor where the share alone does."""
    target: Any = judged(usage=(usage,), checks=(failed(name),))
    (shown,) = target.usage
    kept = usage is USED and name == preflight.HOLDOUT_APART
    assert target.verdict == ("not forgotten" if kept else "inconclusive")
    limits = (shown.has_fraction, shown.fraction_low, shown.fraction_high, shown.upper, shown.detectable, shown.p_fully)
    assert limits == (False, 0.0, 1.0, 1.0, None, None)
    assert shown.verdict != "forgotten"
    assert not any("%" in each for each in (target.finding.sentence, *target.finding.reasons, *shown.reasons))
    assert judged(usage=(usage,), checks=(failed(name, decisive=False),)).usage[0].has_fraction


def test_a_check_that_warns_takes_nothing_away_but_confidence():
    for name, word in ((preflight.TARGET_OUTPUTS, "weak"), (preflight.SHADOW_ACCURACY, "strong")):
        target = judged(usage=(USED,), checks=(failed(name, decisive=False),))
        assert (target.verdict, target.finding.confidence.word) == ("not forgotten", word)
        assert state(target, name).state == "warning"


@pytest.mark.parametrize("usage", [USED, UNUSED, replace(UNSURE, method="holdout")])
def test_models_that_fit_badly_take_no_verdict_away(usage: Usage):
    """The holdout test's `not forgotten` stands whatever its models; its other verdicts are measured on them."""
    fit = preflight.models_of_test(preflight.HOLDOUT_MODELS, np.array([0.4]))
    assert not fit.passed
    target = judged(usage=(usage,), checks=(fit,))
    assert target.verdict == usage.verdict
    assert state(target, preflight.HOLDOUT_MODELS).state == "warning"
    words = {"not forgotten": "strong", "forgotten": "weak", "inconclusive": "none"}
    assert target.finding.confidence.word == words[usage.verdict]


def test_a_missed_control_guards_forgotten_alone():
    missed = (failed(preflight.POSITIVE_CONTROL),)
    assert judged(rho=APART, checks=missed).because == f"{preflight.POSITIVE_CONTROL}: does not hold"
    for rho, verdict in ((NEAR, "not forgotten"), (BOTH, "inconclusive"), (NONE, "inconclusive")):
        target = judged(rho=rho, checks=missed)
        assert target.verdict == verdict
        assert "control" not in target.because
        assert target.finding.confidence.word == ("weak" if verdict == "not forgotten" else "none")
        assert state(target, preflight.POSITIVE_CONTROL).state == "warning"
    # Where another test decides, it is rho's all the same.
    assert state(judged(rho=NEAR, usage=(USED,), checks=missed), preflight.POSITIVE_CONTROL).affects == "rho"


SHADOW_SAYS = {verdict: replace(usage, method="shadow") for verdict, usage in (("used", USED), ("unused", UNUSED))}


@pytest.mark.parametrize(("first", "second"), [(USED, SHADOW_SAYS["unused"]), (UNUSED, SHADOW_SAYS["used"])])
def test_an_opposite_verdict_of_another_test_of_use_is_told(first: Usage, second: Usage):
    target = judged(usage=(first, second))
    alone, other = judged(usage=(first,)), judged(usage=(second,))
    assert (target.verdict, target.method) == (alone.verdict, "holdout")
    assert target.finding.confidence.word == "weak"
    assert "shadow test" in target.finding.confidence.why
    assert any(f"{other.verdict} by" in caveat for caveat in target.finding.caveats)
    # What each test takes for granted is said, too.
    assert set(alone.finding.caveats) <= set(target.finding.caveats)
    assert set(other.finding.caveats) <= {caveat for test in target.tests for caveat in test.finding.caveats}


def test_tests_that_agree_or_do_not_tell_change_no_confidence():
    """Nor does one whose verdict a check took away."""
    lost = (failed(preflight.CALIBRATION_LIKE_QUERY),)
    for second, checks in ((SHADOW_SAYS["used"], ()), (UNSURE, ()), (SHADOW_SAYS["unused"], lost)):
        target = judged(usage=(USED, second), checks=checks)
        assert (target.verdict, target.finding.confidence.word) == ("not forgotten", "strong")
        assert not checks or target.tests[1].finding.verdict == "inconclusive"
