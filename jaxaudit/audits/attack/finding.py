"""What the `attack` audit concludes: one rule for every output."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from jaxaudit.audits.finding import Checked, Confidence, Finding, State, in_order
from jaxaudit.metrics.attack import Estimate
from jaxaudit.metrics.effect import ALPHA

if TYPE_CHECKING:
    from jaxaudit.audits.attack.result import AttackAudit, AttackResult

FEW_TARGETS = 30
CLEARLY = 0.01
"""A p-value of at most this is far below the level."""
MATTERS = 0.55
"""`attacks fail` requires that the upper limits of all attacks' accuracies lie below this."""
MIN_REACH = 0.1
"""How far from guessing the commonest class to perfection a classifier that works must get."""


def find(audit: "AttackAudit") -> Finding:
    """The verdict over all attacks.

    `attack succeeds` if the p-value of "no attack is right more often than by guessing", over all attacks together, is
    at most 0.05; `attacks fail` if the upper limit of every attack's accuracy (one-sided, 95%, over targets) is below
    `MATTERS`; else `inconclusive`. No option moves these levels.
    """
    best = best_attack(audit.attacks)
    words = f"{best.name} attack, accuracy {_interval(best.metrics.accuracy, audit.level)}"
    checks, caveats = _checks(audit), _caveats(audit)
    if len(audit.targets) > 1 and audit.p_value <= ALPHA:
        attacks = "" if len(audit.attacks) == 1 else f" over {len(audit.attacks)} attacks"
        reasons = (words, f"p = {audit.p_value:.2g}{attacks} that guessing does as well")
        sentence = f"Membership can be inferred better than by guessing ({'; '.join(reasons)}; guessing: 50%)."
        return Finding("attack succeeds", "bad", sentence, reasons, _found(audit), checks, caveats, _advice(audit))
    most = max(accuracy_limits(attack)[1] for attack in audit.attacks)
    if most < MATTERS:
        sentence = f"No attack is right on {MATTERS:.0%} or more of its guesses (best: {words}; guessing: 50%)."
        return Finding("attacks fail", "good", sentence, (words,), _failed(audit, most), checks, caveats)
    if len(audit.targets) == 1:
        sentence = f"A single target gives no interval ({words})."
        why = "One target does not represent the classifier's records."
    else:
        sentence = (
            f"No attack is clearly better than guessing, but not all are clearly below {MATTERS:.0%} (best: {words})."
        )
        why = (
            f"Guessing may do as well (p = {audit.p_value:.2g}), and some attack may be right on {MATTERS:.0%} or more."
        )
    more = ("Attack more targets (--targets), or each target more often (--iterations).",)
    return Finding("inconclusive", "open", sentence, (words,), Confidence("none", why), checks, caveats, more)


def best_attack(attacks: Sequence["AttackResult"]) -> "AttackResult":
    """The attack that is furthest above 0.5 by its lower limit; where none is, the one with the largest accuracy."""

    def rank(attack: "AttackResult") -> tuple[float, float]:
        low = accuracy_limits(attack)[0]
        return (max(low, 0.5) if math.isfinite(low) else 0.5, attack.metrics.accuracy.value)

    return max(attacks, key=rank)


def accuracy_limits(attack: "AttackResult") -> tuple[float, float]:
    """The one-sided 95% limits of an attack's accuracy, by Student's t over targets; NaN with a single target."""
    rates, targets = attack.per_target, len(attack.per_target)
    if targets < 2:
        return float("nan"), float("nan")
    reach = special.stdtrit(targets - 1, 1 - ALPHA) * rates.std(ddof=1) / np.sqrt(targets)
    return float(rates.mean() - reach), float(rates.mean() + reach)


def _found(audit: "AttackAudit") -> Confidence:
    if len(audit.targets) < FEW_TARGETS:
        return Confidence("weak", f"Only {len(audit.targets)} targets were attacked.")
    if audit.p_value > CLEARLY:
        return Confidence("fair", "The p-value is exact, and not far below 0.05.")
    return Confidence("strong", "The p-value is exact, and pays for the number of attacks.")


def _failed(audit: "AttackAudit", most: float) -> Confidence:
    if len(audit.targets) < FEW_TARGETS:
        return Confidence("weak", f"Only {len(audit.targets)} targets were attacked.")
    limit = math.ceil(1000 * most) / 1000
    why = f"The accuracy of every attack is at most {limit:.1%} (95%). An attack that was not tried may do better."
    return Confidence("fair", why)


def _advice(audit: "AttackAudit") -> tuple[str, ...]:
    few = len(audit.targets) < FEW_TARGETS
    return ("Attack more targets for a firmer answer (--targets).",) if few else ()


def _checks(audit: "AttackAudit") -> tuple[Checked, ...]:
    targets, guess = len(audit.targets), audit.guess_accuracy
    enough = targets >= FEW_TARGETS
    reach = (audit.test_accuracy - guess) / (1 - guess) if guess < 1 else 0.0
    coarse = [f"{100 * rate.limit:g}%" for rate in audit.attacks[0].metrics.true_positive_rates if not rate.resolvable]
    accuracies = f"target accuracy: {audit.train_accuracy:.1%} train, {audit.test_accuracy:.1%} held out"
    return in_order(
        (
            Checked(
                "enough targets",
                _warning(enough),
                f"{targets:,} targets were attacked"
                + ("" if enough else f"; attack {FEW_TARGETS} or more (--targets)"),
            ),
            Checked(
                "classifier accuracy",
                _warning(reach >= MIN_REACH),
                f"{accuracies} (guessing the commonest class: {guess:.1%})"
                + (
                    ""
                    if reach >= MIN_REACH
                    else "; a classifier that learned nothing leaks nothing: train longer (--epochs)"
                ),
            ),
            Checked(
                "low false positive rates",
                _warning(not coarse),
                f"too few attacks on non-members to measure a rate at {' and '.join(coarse)} false positives"
                if coarse
                else "there are enough attacks on non-members for the rates shown",
            ),
        )
    )


def _warning(passed: bool) -> State:
    return "passed" if passed else "warning"


def _caveats(audit: "AttackAudit") -> tuple[str, ...]:
    found = []
    models, targets = audit.truth.shape
    unresolved = [rate.limit for rate in audit.attacks[0].metrics.true_positive_rates if not rate.resolvable]
    if unresolved:
        limits = " and ".join(f"{100 * limit:g}%" for limit in unresolved)
        found.append(
            f"A true positive rate at {limits} false positives requires {round(1 / min(unresolved)):,} attacks on "
            f"non-members, but there were {int((~audit.truth).sum()):,}. The rate at no false positive is given."
        )
    if targets < 3:
        found.append(f"A correlation requires at least 3 targets; there were {targets}.")
    else:
        # Two standard errors of a correlation of independent normal pairs.
        by_chance = min(1.0, 2 / np.sqrt(targets))
        found.append(
            f"By chance alone, a correlation over {targets} targets lies within {by_chance:.2f} of 0 with 95% "
            "probability" + (", so it is little evidence." if targets < FEW_TARGETS else ".")
        )
    spread = 0.5 / np.sqrt(models)
    found.append(
        f"Per-target accuracies are over {models} attacks each: guessing lies within {2 * spread:.2f} of 0.5 on most "
        "targets, and the best of several attacks lies above 0.5 even if all of them guess."
    )
    if not np.isfinite(audit.pdtp).all():
        found.append("Some PDTP are infinite (outputs of 0 without bins), so there is no correlation with them.")
    if max(accuracy_limits(attack)[1] for attack in audit.attacks) < MATTERS:
        found.append("Attacks that fail do not prove that a better one would fail.")
    return tuple(found)


def _interval(estimate: Estimate, level: float) -> str:
    if not math.isfinite(estimate.low):
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%}, {100 * level:.10g}% interval {estimate.low:.1%} to {estimate.high:.1%}"
