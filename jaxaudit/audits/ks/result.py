"""The results of the `ks` audit."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Confidence, Finding, checked, in_order
from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.metrics.before_after import Change
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.ema import EMA
from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.ks import Rho, Verdict, paper_rule
from jaxaudit.metrics.usage import Usage
from jaxaudit.shadow_models import ShadowModels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_SETS = (HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY)
"""Checks of the sets alone: where one of them fails, it is the reason, whatever the outputs on these sets show."""


class Resembles(NamedTuple):
    """The design of shadow models that a target's outputs are most like.

    Attributes:
        design: its name.
        recognised: the share of shadow models whose own design is named in the same way.
    """

    design: str
    recognised: float


@dataclass(frozen=True, eq=False)
class TargetResult:
    """The result for one target.

    Attributes:
        name: the target's name.
        truth: what is known of it; None for a file of outputs.
        finding: the verdict, by the first test that was asked for.
        judgements: what each test says, the deciding one first.
        checks: everything that was checked, on the numbers that were compared.
        confidences: `float32[1, n]`, the target's probability of each query record's ground-truth class.
        resembles: the design of shadow models that its outputs are most like; None where there is one design, or no
            records that it did not use.
    """

    name: str
    truth: Truth | None
    finding: Finding
    judgements: tuple[Judgement, ...]
    checks: tuple[Check, ...]
    confidences: Float[np.ndarray, "1 n"]
    resembles: Resembles | None = None

    @property
    def verdict(self) -> str:
        """`forgotten`, `not forgotten` or `inconclusive`."""
        return self.finding.verdict

    @property
    def because(self) -> str:
        """What the verdict rests on, in one line."""
        return "; ".join(self.finding.reasons)

    @property
    def method(self) -> str:
        """The name of the test that gave the verdict."""
        return self.judgements[0].test

    @property
    def rho(self) -> Rho | None:
        """rho over replicates, whichever test gave the verdict; None without rho."""
        return next((each.rho for each in self.judgements if each.rho is not None), None)

    @property
    def rho_verdict(self) -> str | None:
        """The verdict of rho's interval and its checks, whichever test gave the verdict; None without rho."""
        return next((each.finding.verdict for each in self.judgements if each.rho is not None), None)

    @property
    def paper_rule(self) -> Verdict | None:
        """The paper's own verdict, from one number: the median of rho; None without rho."""
        return None if self.rho is None else paper_rule(self.rho.median)

    @property
    def controls(self) -> tuple[Rho, ...]:
        """rho of the models trained on the calibration and the whole query set, compared in the same way."""
        return next((each.controls for each in self.judgements if each.rho is not None), ())

    @property
    def usage(self) -> tuple[Usage, ...]:
        """The result of each test of use, in their order."""
        return tuple(each.usage for each in self.judgements if each.usage is not None)

    @property
    def change(self) -> Change | None:
        """The used fraction before a deletion minus that after, by the holdout test; None without outputs before."""
        return next((each.change for each in self.judgements if each.change is not None), None)

    @property
    def ema(self) -> tuple[EMA, ...]:
        """The result of EMA with each replicate's calibration model; empty without EMA."""
        return next((each.ema for each in self.judgements if each.ema), ())


def conclude(
    name: str,
    truth: Truth | None,
    confidences: Float[np.ndarray, "1 n"],
    judgements: tuple[Judgement, ...],
    common: tuple[Check, ...],
    limitations: tuple[str, ...] = (),
) -> TargetResult:
    """The answer for one target: the first test's finding, with what was checked.

    A decisive check that failed takes away the verdicts that rest on it; another weakens them.

    Args:
        name: the target's.
        truth: what is known of it.
        confidences: its probabilities of each query record's ground-truth class.
        judgements: what the numbers of each test say, the deciding one first.
        common: checks that no test made.
        limitations: what else is to be said of the shadow models, in sentences.
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
    return TargetResult(
        name=name,
        truth=truth,
        finding=decided[0].finding,
        judgements=decided,
        checks=every,
        confidences=confidences,
    )


def _with_checks(judgement: Judgement, judgements: tuple[Judgement, ...], every: tuple[Check, ...]) -> Finding:
    """The finding with every check; one that its verdict does not rest on names the tests that do, or that made it."""
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
    return msgspec.structs.replace(_weakened(finding, failed), checks=in_order(shown))


def _trusted(confidence: Confidence | None, every: tuple[Check, ...], names: frozenset[str]) -> Confidence | None:
    """Confidence in a number, after the checks that it rests on."""
    failed = [check for check in every if not check.passed and check.name in names]
    if confidence is None or confidence.word == "none" or not failed:
        return confidence
    decisive = any(check.decisive for check in failed)
    why = f"Not every check that it rests on passed: {', '.join(check.name for check in failed)}."
    return Confidence("none" if decisive else "weak", why)


def _taken_away(finding: Finding, check: Check) -> Finding:
    """What is left of a finding that rests on this check, which failed."""
    reason = f"{check.name}: {check.message}"
    return Finding(
        "inconclusive",
        "open",
        f"The check {check.name} failed, and the verdict would rest on it.",
        (reason,),
        Confidence("none", f"{reason[:1].upper()}{reason[1:]}."),
        caveats=finding.caveats,
        would_change=(f"Correct what the check {check.name} found, and repeat the audit.",),
    )


def _weakened(finding: Finding, failed: list[Check]) -> Finding:
    """The finding with little confidence where one of these checks failed."""
    if not failed or finding.confidence.word == "none":
        return finding
    why = f"Not every check that the verdict rests on passed: {', '.join(check.name for check in failed)}."
    return msgspec.structs.replace(finding, confidence=Confidence("weak", why))


def _beside(judgement: Judgement, others: tuple[Judgement, ...]) -> Finding:
    """The deciding finding with what the other tests take for granted, and with those that say the opposite."""
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


class Rates(NamedTuple):
    """How often a test gave each verdict for targets of one truth.

    Attributes:
        test: its name.
        used: the fraction of the query set that they used.
        records: number of query records that they were judged by.
        targets: their number.
        not_forgotten, forgotten, inconclusive: how many of them were called so.
    """

    test: str
    used: float
    records: int
    targets: int
    not_forgotten: int
    forgotten: int
    inconclusive: int


@dataclass(frozen=True, eq=False)
class KSAudit:
    """The results for all targets, and the outputs of the shadow models.

    Attributes:
        targets: one result per target, in the given order.
        noise_floor: KS distances between query models of different seeds.
        query_confidences, calibration_confidences: `float32[replicates, n]`, in full precision; 0 replicates without
            rho.
        control_confidences: `float32[controls, n]`, of the models trained on both sets.
        labels: the query set's labels.
        level: confidence level of the intervals.
        models_per_batch: how many models were trained at the same time; None if none was trained here.
        shadows: the models that the tests judged by; None where nobody told them apart (`judge_outputs`).
        sampled_alike: whether query set and holdout were sampled alike; None where no test asked.
        rates: of each test, measured on the shadow models of a bank; empty where nobody asked for them.
    """

    targets: tuple[TargetResult, ...]
    noise_floor: Float[np.ndarray, " pairs"]
    query_confidences: Float[np.ndarray, "replicates n"]
    calibration_confidences: Float[np.ndarray, "replicates n"]
    control_confidences: Float[np.ndarray, "controls n"]
    labels: np.ndarray
    level: float
    models_per_batch: int | None = None
    shadows: ShadowModels | None = None
    sampled_alike: Alike | None = None
    rates: tuple[Rates, ...] = ()

    def plot(self, target: int = 0) -> "Figure":
        """Confidences of one target on two axes, and rho of all of them against 1, as a Matplotlib figure.

        Without rho, the used fractions of all targets by each test of use.

        Raises:
            InputError: no test has a chart.
        """
        from jaxaudit.audits.ks.figure import plot_ks

        return plot_ks(self, target)
