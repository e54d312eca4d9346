"""What the attacks on records conclude: one rule for every output."""

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order
from jaxaudit.metrics.attack_rates import AttackRates, RateAt, mean_of_models

if TYPE_CHECKING:
    from jaxaudit.audits.record_attack.result import Named, RecordAttackResult, RecordAudit
    from jaxaudit.metrics.vulnerability import Likeness

CLEAR = 0.51
"""`attack succeeds` by the area requires more than this: areas of models that share their shadow models are not
independent, so an interval over models is somewhat too narrow."""
DECIDING_LEVEL = 0.95
SURELY = 0.01
"""The probability that some record is named so often by chance alone, at most."""
MATTERS = 0.55
"""`attacks fail` requires that the areas under the ROC curves of all attacks are below this, with their intervals."""
TIMES_CHANCE = 2.0
"""And that no attack's true positive rate reaches this many times the stated false positive rate."""
FEW_MODELS = 16
TIED = 0.2
"""A commonest score of this share of records leaves an attack with few thresholds."""


def find(audit: "RecordAudit") -> Finding:
    """The verdict over models of this recipe; the deciding attack is fixed before any number is seen.

    `attack succeeds` if the 95% interval of its area under the ROC curve lies above `CLEAR`, or that of its true
    positive rate above `TIMES_CHANCE` times a stated false positive rate and the realised one, or if single records are
    named far more often than chance explains. `attacks fail` if no attack comes near, and each could have; else
    `inconclusive`. Whatever `--level` says: that is of the intervals that are shown.
    """
    deciding = audit.attacks[0]
    area, words = mean_of_models(deciding.rates.auc_of, DECIDING_LEVEL), _in_words(deciding)
    checks, caveats, single = _checks(audit), _caveats(audit), audit.surely_named
    strong = [rate for rate in deciding.rates.rates if _well_above(rate)]
    if area.low > CLEAR or strong:
        sentence = f"Records that a model of this recipe was trained on can be told from others ({words})."
        return Finding("attack succeeds", "bad", sentence, (words,), _found(audit, strong), checks, caveats)
    if single:
        sentence = (
            f"Single records are given away: {single:,} {'is' if single == 1 else 'are'} called a member by models "
            f"trained on {'it' if single == 1 else 'them'} far more often than chance explains. On average over "
            f"records the attack does not succeed clearly ({words})."
        )
        why = f"With probability {1 - SURELY:.0%} no record's outputs would differ so much by chance."
        return Finding("attack succeeds", "bad", sentence, (words,), Confidence("fair", why), checks, caveats)
    if all(_fails(each.rates) for each in audit.attacks):
        sentence = f"No attack tells records that a model was trained on from others ({words}; guessing: 0.5)."
        why = f"All attacks stay below an area of {MATTERS}. An attack that was not tried may do better."
        sure = Confidence("fair" if len(audit.models) >= FEW_MODELS else "weak", why)
        return Finding("attacks fail", "good", sentence, (words,), sure, checks, caveats)
    sentence = f"The deciding attack is not clearly better than guessing, and not all attacks clearly fail ({words})."
    why = (
        f"The interval of some attack reaches {MATTERS} or more, there is none, or its scores tie too often to tell "
        "records apart."
    )
    more = ("Add shadow models to the bank (--models).",)
    return Finding("inconclusive", "open", sentence, (words,), Confidence("none", why), checks, caveats, more)


def find_target(
    audit_finding: Finding,
    named: "Named | None",
    likeness: "Likeness | None",
    records: int,
    models: int,
    relative: bool,
) -> Finding:
    """The verdict over one target of unknown membership.

    `attack succeeds` if more of its records are called members than chance explains; else `inconclusive`: it may have
    used none of them, or the attack may be too weak. A target that is unlike the shadow models is `inconclusive`.
    """
    unlike = likeness is not None and not likeness.like
    checks = in_order((_like(likeness), *audit_finding.checks))
    caveats = (
        "A record that is called a member was not for certain in the training set: see the expected number of false "
        "calls. Thresholds come from the shadow models and hold for targets that are trained as they are.",
    )
    if relative:
        why = (
            "The deciding attack compares a record with the target's other records, so how many it would call by "
            "chance depends on how many the target used. Name another attack first (--attacks), or give the bank 100 "
            "records that neither its models nor the target used."
        )
        sentence = "This attack does not tell how many calls are by chance."
        return Finding("inconclusive", "open", sentence, (), Confidence("none", why), checks, caveats)
    if named is None:
        why = "The bank has too few records without their model to set a threshold."
        return Finding("inconclusive", "open", "No threshold can be set.", (), Confidence("none", why), checks, caveats)
    words = (
        f"{named.count:,} of {records:,} records are called members at {named.stated:.0%} false positives; about "
        f"{named.by_chance:,.0f} would be if none were"
    )
    if unlike:
        sentence = (
            f"The target's outputs are unlike those of the shadow models, so its thresholds may not hold ({words})."
        )
        more = ("Train shadow models as the target was trained, and add them to a bank.",)
        why = "What is known of the shadow models need not hold for this target."
        return Finding("inconclusive", "open", sentence, (words,), Confidence("none", why), checks, caveats, more)
    if named.count > named.at_most:
        weak = models < FEW_MODELS or named.count < 1.5 * named.at_most
        why = (
            f"By chance at most {named.at_most:,.0f} would be called, with probability {named.level:.2%}: a bound over "
            "shadow models, for all targets together."
        )
        return Finding(
            "attack succeeds",
            "bad",
            f"Members can be named: {words}.",
            (words,),
            Confidence("weak" if weak else "strong", why),
            checks,
            caveats,
        )
    sentence = f"No more records are called members than chance explains ({words})."
    why = "Either the target used few of these records, or it does not give them away."
    more = ("Whether it used the records as a whole is what `jaxaudit ks` asks, with more power.",)
    return Finding("inconclusive", "open", sentence, (words,), Confidence("none", why), checks, caveats, more)


def _well_above(rate: RateAt) -> bool:
    return rate.resolvable and rate.true_positive.low > TIMES_CHANCE * max(rate.stated, rate.realised.high)


def _fails(rates: AttackRates) -> bool:
    calm = (rate.true_positive.high < TIMES_CHANCE * rate.stated for rate in rates.rates if rate.resolvable)
    shown = [rate for rate in rates.rates if rate.resolvable and rate.stated <= 0.01]
    return rates.auc.high < MATTERS and all(calm) and bool(shown) and rates.tied <= TIED


def _found(audit: "RecordAudit", strong: list[RateAt]) -> Confidence:
    if len(audit.models) < FEW_MODELS:
        return Confidence("weak", f"Only {len(audit.models)} models were attacked.")
    if strong:
        rate = strong[-1]
        return Confidence(
            "strong",
            f"{rate.true_positive.value:.1%} of members are found at {100 * rate.realised.value:.2g}% false positives.",
        )
    return Confidence("fair", "Members score higher on average, but few are found with confidence.")


def _in_words(attack: "RecordAttackResult") -> str:
    area = attack.rates.auc
    between = f", {area.low:.3f} to {area.high:.3f}" if math.isfinite(area.low) else ""
    return f"{attack.name}, area under the ROC curve {area.value:.3f}{between}"


def _like(likeness: "Likeness | None") -> Checked:
    name = "trained as the shadow models"
    if likeness is None:
        return Checked(name, "warning", "too few shadow models tell what is usual for one")
    words = (
        f"distance of its outputs from the nearer kind of shadow models {likeness.strangeness:.2f}, usual "
        f"{likeness.usual:.2f} (p = {likeness.p_value:.2g})"
    )
    return Checked(name, "passed" if likeness.like else "failed", words)


def _checks(audit: "RecordAudit") -> tuple[Checked, ...]:
    deciding = audit.attacks[0].rates
    coarse = [f"{100 * rate.stated:g}%" for rate in deciding.rates if not rate.resolvable]
    off = [
        f"{100 * rate.stated:g}% stated, {100 * rate.realised.value:.2g}% realised"
        for rate in deciding.rates
        if rate.resolvable and not rate.realised.low <= rate.stated <= rate.realised.high
    ]
    models = len(audit.models)
    return in_order(
        (
            Checked(
                "enough shadow models",
                "passed" if models >= FEW_MODELS else "warning",
                f"{models} shadow models" + ("" if models >= FEW_MODELS else f"; train {FEW_MODELS} or more"),
            ),
            Checked(
                "low false positive rates",
                "warning" if coarse else "passed",
                f"too few non-members to measure a rate at {' and '.join(coarse)} false positives"
                if coarse
                else "there are enough non-members for the rates shown",
            ),
            Checked(
                "thresholds hold on other models",
                "warning" if off else "passed",
                "; ".join(off) if off else "realised false positive rates agree with the stated ones",
            ),
            Checked(
                "few ties",
                "warning" if deciding.tied > TIED else "passed",
                f"{deciding.tied:.0%} of the scores are equal" if deciding.tied > TIED else "scores differ",
            ),
        )
    )


def _caveats(audit: "RecordAudit") -> tuple[str, ...]:
    found = [
        "The rates hold for models that are trained as the shadow models are, on records drawn as theirs were. A "
        "stronger attack may exist.",
        "Intervals of rates treat records and models as independent; the spread over models is told beside them.",
        "The riskiest of many records look riskier than they are: their intervals hold for a record alone.",
    ]
    if audit.attacks[0].rates.unjudged > 0:
        found.append(
            f"{audit.attacks[0].rates.unjudged:.1%} of the records and models have too few shadow models and are not "
            "judged."
        )
    copies = np.unique(audit.copies[audit.copies >= 0])
    if len(copies):
        found.append(
            f"{int((audit.copies >= 0).sum()):,} records have the same outputs as another in every model: copies hide "
            "what their removal would change."
        )
    return tuple(found)
