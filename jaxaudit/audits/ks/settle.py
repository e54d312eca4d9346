"""One verdict from all that was found about a target: by the best test that was made."""

from dataclasses import replace

import numpy as np

from jaxaudit.audits.ks.result import Method, TargetResult
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA, ema_rule
from jaxaudit.metrics.ks import Verdict
from jaxaudit.metrics.usage import Usage

Ruling = tuple[Verdict, str]
OF_ONE_TEST: dict[str, Method] = {
    preflight.HOLDOUT_LIKE_QUERY: "holdout",
    preflight.HOLDOUT_MODELS: "holdout",
    preflight.SHADOW_MODELS: "shadow",
}
"""Checks that are about one test alone."""


def settle(
    result: TargetResult, usage: tuple[Usage, ...], emas: tuple[EMA, ...], checks: tuple[Check, ...] = ()
) -> TargetResult:
    """The result with its verdict by the holdout test, else the shadow test, else EMA, else rho, as far as made.

    A failed check takes away the verdict of a test that rests on it (`rests_on`), and of no other; `checks` are those
    that rho's verdict does not rest on.
    """
    result = replace(
        result,
        rho_verdict=result.verdict,
        rho_because=result.because,
        usage=usage,
        ema=emas,
        checks=(*result.checks, *checks),
    )
    if usage:
        verdict, because = _by_usage(usage[0], result.checks)
        return replace(result, verdict=verdict, because=because, method=usage[0].method)
    if emas:
        verdict, because = _by_ema(emas, result.checks)
        return replace(result, verdict=verdict, because=because, method="ema")
    return result


def rests_on(method: Method, check: Check, verdict: Verdict | None = None) -> bool:
    """Whether a verdict by this method, or this verdict by it, rests on what was checked.

    All rest on outputs that have to do with the labels. The holdout test alone rests on a holdout like the query set:
    it compares records of one origin, and learns from its own shadow models how much they give away. How well these fit
    their data decides how much it notices, and that is measured, so it is a warning; and its `not forgotten` is exact
    whatever they are. The shadow test needs a calibration set from the query set's domain. EMA needs shadow models that
    fit their data besides; rho needs everything but the holdout.
    """
    if check.name in OF_ONE_TEST:
        exact = method == "holdout" and verdict == "not forgotten"
        return method == OF_ONE_TEST[check.name] and not (exact and check.name == preflight.HOLDOUT_MODELS)
    if check.name == preflight.TARGET_OUTPUTS or method == "rho":
        return True
    if check.name == preflight.CALIBRATION_LIKE_QUERY:
        return method in ("shadow", "ema")
    return check.name == preflight.SHADOW_ACCURACY and method == "ema"


def concerned(check: Check) -> str:
    """Whose verdict rests on this check where another decides, as messages call it."""
    method = OF_ONE_TEST.get(check.name)
    return "rho" if method is None else f"the {method} test"


def _by_usage(usage: Usage, checks: tuple[Check, ...]) -> Ruling:
    failed = _failed(usage.method, checks)
    if failed is not None:
        return failed
    reasons = "; ".join(usage.reasons)
    if usage.verdict == "not forgotten":
        found = f"p = {p_text(usage.p_never)} for a target that never used the query set"
        return usage.verdict, f"{found}; {reasons}" if reasons else found
    if usage.verdict == "forgotten" and usage.detectable is not None:
        return usage.verdict, (
            f"no use shows (p = {p_text(usage.p_never)}); had {percent(usage.detectable)} of the query set or more "
            "been used, it would have shown 19 times of 20, and less than that cannot be excluded"
        )
    return "inconclusive", reasons or "the test says neither"


def _by_ema(emas: tuple[EMA, ...], checks: tuple[Check, ...]) -> Ruling:
    """EMA's `forgotten` is not said: it stands for "not all of it", with no word on how much would have shown."""
    failed = _failed("ema", checks)
    if failed is not None:
        return failed
    p_value, share = (float(np.median([getattr(each, name) for each in emas])) for name in ("p_value", "member_share"))
    found = f"EMA: {share:.1%} of the query records look like training records (p = {p_text(p_value)})"
    if ema_rule(p_value) == "not forgotten":
        return "not forgotten", (f"{found}; so they do for a model that merely classifies them well")
    return "inconclusive", (
        f"{found}, so not all of them were used; EMA does not say how small a part would have shown, so 'forgotten' is "
        "not said"
    )


def _failed(method: Method, checks: tuple[Check, ...]) -> Ruling | None:
    for check in checks:
        if check.decisive and rests_on(method, check) and not check.passed:
            return "inconclusive", f"{check.name}: {check.message}"
    return None


def percent(fraction: float) -> str:
    """A fraction for a person: two digits below 10%, none of them a promise.

    >>> percent(0.0312), percent(0.5), percent(1.0), percent(0.0)
    ('3.1%', '50%', '100%', '0%')
    """
    return f"{100 * fraction:.0f}%" if fraction >= 0.1 or fraction == 0 else f"{100 * fraction:.1f}%"


def p_text(value: float) -> str:
    """A p-value for a person.

    >>> p_text(0.0005), p_text(0.0312), p_text(1.0)
    ('under 0.001', '0.031', '1')
    """
    return "under 0.001" if value < 0.001 else f"{value:.2g}"
