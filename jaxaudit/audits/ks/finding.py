"""Concludes on one target: the deciding test's finding, corrected for failed checks, and the numbers of all tests."""

from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Confidence, Finding, checked, in_order, sentence, undecided
from jaxaudit.audits.ks.result import (
    Distances,
    EMAResult,
    Resembles,
    RhoResult,
    TargetResult,
    TestResult,
    Truth,
    UsageResult,
)
from jaxaudit.audits.ks.tests.ema import medians
from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.json_types import Number, number
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.ema import EMA, ema_rule
from jaxaudit.metrics.ks import Rho, Verdict, paper_rule
from jaxaudit.metrics.usage import Usage, used_share

OF_SETS = (HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY)
"""Checks of the sets alone. If one of them fails, it is given as the reason before any other failed check."""


def conclude(
    name: str,
    truth: Truth | None,
    judgements: tuple[Judgement, ...],
    common: tuple[Check, ...],
    limitations: tuple[str, ...] = (),
    resembles: Resembles | None = None,
) -> TargetResult:
    """The result for one target: the deciding test's finding, with all checks.

    If a decisive check fails, no verdict that depends on it is given; other failed checks weaken the confidence.
    """
    rho_first = sorted(judgements, key=lambda each: each.rho is None)
    every = (*common, *(check for each in rho_first for check in each.checks))
    decided = tuple(
        each._replace(
            finding=_with_checks(each, judgements, every),
            p_confidence=_trusted(each.p_confidence, every, each.p_rests_on),
            fraction_confidence=_trusted(each.fraction_confidence, every, each.rests_on),
        )
        for each in judgements
    )
    first, *others = decided
    finding = _beside(first, tuple(others))
    finding = msgspec.structs.replace(finding, caveats=(*limitations, *finding.caveats))
    decided = (first._replace(finding=finding), *others)
    of_rho = next((each for each in decided if each.rho is not None), None)
    return TargetResult(
        name=name,
        truth=truth,
        finding=finding,
        verdict=_verdict(finding),
        because="; ".join(finding.reasons),
        method=first.test,
        usage=tuple(_usage(each.usage, each) for each in decided if each.usage is not None),
        change=next((each.change for each in decided if each.change is not None), None),
        ema=next((_ema(each.ema) for each in decided if each.ema), None),
        tests=tuple(
            TestResult(
                each.test, each.title, each.finding, {name: number(value) for name, value in each.numbers.items()}
            )
            for each in decided
        ),
        checks=every,
        resembles=resembles,
        **_of_rho(of_rho),
    )


def _of_rho(judgement: Judgement | None) -> dict[str, Any]:
    """The results of rho, whichever test decides."""
    if judgement is None or judgement.rho is None:
        return dict.fromkeys(("paper_rule", "rho", "rho_verdict", "ks", "controls"))
    rho = judgement.rho
    return {
        "paper_rule": paper_rule(rho.median),
        "rho": _rho(rho),
        "rho_verdict": _verdict(judgement.finding),
        "ks": Distances(numbers(rho.distances), numbers(rho.calibration_distances)),
        "controls": tuple(map(_rho, judgement.controls)),
    }


def _verdict(finding: Finding) -> Verdict:
    return msgspec.convert(finding.verdict, Verdict)


def _rho(rho: Rho) -> RhoResult:
    return RhoResult(number(rho.median), number(rho.low), number(rho.high), numbers(rho.values))


def _usage(usage: Usage, judgement: Judgement) -> UsageResult:
    share = used_share(usage)
    return UsageResult(
        usage.method,
        usage.verdict,
        usage.p_never,
        usage.p_fully,
        share and share.value,
        number(usage.fraction_low),
        number(usage.fraction_high),
        usage.detectable,
        usage.reasons,
        usage.upper,
        usage.p_never_adjusted,
        usage.design,
        judgement.p_confidence,
        judgement.fraction_confidence,
        usage.question,
    )


def _ema(emas: tuple[EMA, ...]) -> EMAResult:
    p_value, share = medians(emas)
    p_values, shares = zip(*((number(each.p_value), number(each.member_share)) for each in emas), strict=True)
    return EMAResult(number(p_value), number(share), p_values, shares, ema_rule(p_value))


def numbers(values: Float[np.ndarray, " n"]) -> tuple[Number, ...]:
    """These numbers; None for those that are not finite."""
    return tuple(map(number, values))


def _with_checks(judgement: Judgement, judgements: tuple[Judgement, ...], every: tuple[Check, ...]) -> Finding:
    """The finding with every check; a check that its verdict does not depend on names the tests that do."""
    shown = []
    for check in every:
        rests = check.name in judgement.rests_on
        others = [
            each.title
            for each in judgements
            if each is not judgement and (check in each.checks or check.name in each.rests_on)
        ]
        decides = rests and check.name not in judgement.weakened_by
        shown.append(checked(check, rests=decides, affects="" if rests else ", ".join(others)))
    failed = [check for check in every if not check.passed and check.name in judgement.rests_on]
    decisive = min(
        (each for each in failed if each.decisive and each.name not in judgement.weakened_by),
        key=lambda check: check.name not in OF_SETS,
        default=None,
    )
    finding = judgement.finding if decisive is None else _taken_away(judgement.finding, decisive)
    if failed and finding.confidence.word != "none":
        why = f"Not every check that the verdict rests on passed: {', '.join(check.name for check in failed)}."
        finding = msgspec.structs.replace(finding, confidence=Confidence("weak", why))
    return msgspec.structs.replace(finding, checks=in_order(shown))


def _trusted(confidence: Confidence, every: tuple[Check, ...], names: frozenset[str]) -> Confidence:
    """Confidence in a number, reduced if a check that it depends on failed."""
    failed = [check for check in every if not check.passed and check.name in names]
    if confidence.word == "none" or not failed:
        return confidence
    decisive = any(check.decisive for check in failed)
    why = f"Not every check that it rests on passed: {', '.join(check.name for check in failed)}."
    return Confidence("none" if decisive else "weak", why)


def _taken_away(finding: Finding, check: Check) -> Finding:
    """The finding `inconclusive`, in place of a finding that depends on this failed check."""
    reason = f"{check.name}: {check.message}"
    return undecided(
        f"The check {check.name} failed, and the verdict would rest on it.",
        (reason,),
        sentence(reason),
        finding.caveats,
        (f"Correct what the check {check.name} found, and repeat the audit.",),
    )


def _beside(judgement: Judgement, others: tuple[Judgement, ...]) -> Finding:
    """The deciding finding, with the assumptions of the other tests and any test that gives the opposite verdict."""
    finding = judgement.finding
    shown = [each for each in others if each.usage is not None or each.ema]
    caveats = [*finding.caveats, *(caveat for each in shown for caveat in each.finding.caveats)]
    opposite = {"forgotten": "not forgotten", "not forgotten": "forgotten"}.get(finding.verdict)
    against = [each for each in others if each.usage is not None and each.finding.verdict == opposite]
    if against:
        titles = ", ".join(each.title for each in against)
        caveats.insert(0, f"Tests disagree: {opposite} by the {titles}.")
        why = f"Another test of use gives the opposite verdict: {titles}."
        finding = msgspec.structs.replace(finding, confidence=Confidence("weak", why))
    return msgspec.structs.replace(finding, caveats=tuple(dict.fromkeys(caveats)))
