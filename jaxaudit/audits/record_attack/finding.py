"""What the attacks on records conclude: one rule for every output."""

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order
from jaxaudit.metrics.attack_rates import AttackRates, Interval, RateAt, clopper_pearson, mean_of_models

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
"""`attacks fail` requires that the area under the ROC curve is below this, with its interval."""
TIMES_CHANCE = 2.0
"""And that the true positive rate does not reach this many times the stated false positive rate."""
FEW_MODELS = 16
NOT_GIVEN = "more non-members are called than stated, so no true positive rate is given there"
"""Said wherever a rate would stand."""
TIED = 0.2
"""A commonest score of this share of a model's records leaves an attack with few thresholds."""


def find(audit: "RecordAudit") -> Finding:
    """The verdict over models of this recipe, by one attack alone, which is fixed before any number is seen.

    `attack succeeds` if the 95% interval of its area under the ROC curve lies above `CLEAR`, or that of its true
    positive rate above `TIMES_CHANCE` times a stated false positive rate and the realised one, or if single records are
    named far more often than chance explains. `attacks fail` if it comes near none of these, and could have, and is the
    attack that decides where none is named: an attack that was chosen may be a weak one. Else `inconclusive`. Neither
    `--level`, which is of the intervals that are shown, nor the other attacks that are made move the verdict.
    """
    deciding = audit.attacks[0]
    rates, words = deciding.rates, _in_words(deciding)
    area = mean_of_models(rates.auc_of, DECIDING_LEVEL)
    checks, caveats, single = _checks(audit, rates), _caveats(audit), audit.surely_named
    strong = [rate for rate in rates.rates if _well_above(rate, rates)]
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
    fails = _fails(area, rates)
    if fails and audit.usual:
        sentence = f"Records that a model was trained on cannot be told from others ({words}; guessing: 0.5)."
        why = f"The attack stays below an area of {MATTERS}. Another may do better."
        sure = Confidence("fair" if len(audit.models) >= FEW_MODELS else "weak", why)
        return Finding("attacks fail", "good", sentence, (words,), sure, checks, caveats)
    if fails:
        sentence = f"The deciding attack fails, but it is not the one that can show that attacks fail ({words})."
        why = "An attack that was chosen may be weaker than the one that decides where none is named."
        more = ("Leave out --attacks (in Python, attacks=None).",)
    else:
        sentence = f"The deciding attack is not clearly better than guessing, and does not clearly fail ({words})."
        why = (
            f"Its interval reaches {MATTERS} or more, there is none, or its scores tie too often to tell records apart."
        )
        more = ("Add shadow models to the bank (--models).",)
    return Finding("inconclusive", "open", sentence, (words,), Confidence("none", why), checks, caveats, more)


def find_target(
    audit: "RecordAudit",
    rates: AttackRates,
    named: "Named | None",
    likeness: "Likeness | None",
    records: int,
    relative: bool,
) -> Finding:
    """The verdict over one target of unknown membership, by the deciding attack.

    `rates` are those on the shadow models, at the resolution that the target is compared at.

    `attack succeeds` if more of its records are called members than chance explains; else `inconclusive`: it may have
    used none of them, or the attack may be too weak. A target that is unlike the shadow models is `inconclusive`.
    """
    unlike = likeness is not None and not likeness.like
    attack, models = audit.attacks[0].name, len(audit.models)
    checks = in_order((_like(likeness), *_checks(audit, rates)))
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
        why = (
            "The bank has too few records without their model to set a threshold, or the thresholds of other models do "
            "not hold."
        )
        sentence = f"No threshold can be set for the deciding attack, {attack}."
        return Finding("inconclusive", "open", sentence, (), Confidence("none", why), checks, caveats)
    words = (
        f"{named.count:,} of {records:,} records are called members by {attack}, which decides, at {named.stated:.0%} "
        f"false positives; about {named.by_chance:,.0f} would be if none were"
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


def _well_above(rate: RateAt, rates: AttackRates) -> bool:
    if not (rate.resolvable and rate.holds):
        return False
    found, realised = _decided(rate.true_positive, rates.members), _decided(rate.realised, rates.others)
    return found.low > TIMES_CHANCE * max(rate.stated, realised.high)


def _decided(share: Interval, of: int) -> Interval:
    """The same share with the interval that decides, whatever level is shown."""
    return clopper_pearson(round(share.value * of), of, DECIDING_LEVEL)


def _fails(area: Interval, rates: AttackRates) -> bool:
    told = [rate for rate in rates.rates if rate.resolvable]
    calm = (
        rate.holds and _decided(rate.true_positive, rates.members).high < TIMES_CHANCE * rate.stated for rate in told
    )
    return area.high < MATTERS and any(rate.stated <= 0.01 for rate in told) and rates.tied <= TIED and all(calm)


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


def _in_words(attack: "RecordAttackResult", decides: bool = True) -> str:
    area = attack.rates.auc
    between = f", {area.low:.3f} to {area.high:.3f}" if math.isfinite(area.low) else ""
    return f"{attack.name}{' decides' if decides else ''}: area under the ROC curve {area.value:.3f}{between}"


def _like(likeness: "Likeness | None") -> Checked:
    name = "trained as the shadow models"
    if likeness is None:
        return Checked(name, "warning", "too few shadow models tell what is usual for one")
    words = (
        f"distance of its outputs from the nearer kind of shadow models {likeness.strangeness:.2f}, usual "
        f"{likeness.usual:.2f} (p = {likeness.p_value:.2g})"
    )
    return Checked(name, "passed" if likeness.like else "failed", words)


def _checks(audit: "RecordAudit", deciding: AttackRates) -> tuple[Checked, ...]:
    """What the deciding attack's rates rest on; whether thresholds hold is said of all attacks that were made."""
    coarse = [f"{100 * rate.stated:g}%" for rate in deciding.rates if not rate.resolvable]
    rates_of = {audit.attacks[0].name: deciding, **{each.name: each.rates for each in audit.attacks[1:]}}
    off = {name: words for name, rates in rates_of.items() if (words := _not_held(rates))}
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
                "failed" if audit.attacks[0].name in off else "warning" if off else "passed",
                f"{NOT_GIVEN}: {'; '.join(f'{name}, {words}' for name, words in off.items())}"
                if off
                else "realised false positive rates are not above the stated ones",
                f"true positive rates of {', '.join(off)}" if off else "",
            ),
            Checked(
                "few ties",
                "warning" if deciding.tied > TIED else "passed",
                f"{deciding.tied:.0%} of a model's scores are equal" if deciding.tied > TIED else "scores differ",
            ),
        )
    )


def _not_held(rates: AttackRates) -> str:
    return ", ".join(
        f"{100 * rate.stated:g}% stated and {100 * rate.realised.value:.2g}% realised"
        for rate in rates.rates
        if rate.resolvable and not rate.holds
    )


def _caveats(audit: "RecordAudit") -> tuple[str, ...]:
    found = [
        "The rates hold for models that are trained as the shadow models are, on records drawn as theirs were. A "
        "stronger attack may exist.",
        "Intervals of rates treat records and models as independent; the spread over models is told beside them.",
        "The riskiest of many records look riskier than they are: their intervals hold for a record alone.",
    ]
    better = [
        _in_words(each, decides=False)
        for each in audit.attacks[1:]
        if mean_of_models(each.rates.auc_of, DECIDING_LEVEL).low > max(CLEAR, audit.attacks[0].rates.auc.value)
    ]
    if better:
        found.append(f"Attacks that do not decide do better: {'; '.join(better)}.")
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
