"""The verdict of the deciding attack on one target of unknown membership."""

from jaxaudit.audits.attack.finding import FEW_MODELS, checks_of_bank
from jaxaudit.audits.attack.result import AttackResult
from jaxaudit.audits.attack.sections import Named
from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order
from jaxaudit.metrics.attack_rates import AttackRates
from jaxaudit.metrics.vulnerability import Likeness


def find_target(
    result: AttackResult,
    rates: AttackRates,
    named: Named | None,
    likeness: Likeness | None,
    records: int,
    relative: bool,
) -> Finding:
    """The verdict over one target of unknown membership, by the deciding attack.

    `attack succeeds` if more of its records are called members than chance explains; else `inconclusive`: the target
    may have used none of them, or the attack may be too weak. A target that is unlike the shadow models is
    `inconclusive`.

    `rates` are those on the shadow models, at the resolution at which the target is compared.
    """
    unlike = likeness is not None and not likeness.like
    attack, models = result.decided_by, result.models
    checks = in_order((_like(likeness), *checks_of_bank(result, rates)))
    caveats = (
        "A record that is called a member was not for certain in the training set: see the expected number of false "
        "calls. Thresholds come from the shadow models and hold for targets that are trained as they are.",
    )
    if relative:
        why = (
            "The deciding attack compares a record with the target's other records, so how many it would call by "
            "chance depends on how many the target used. Name another attack first, or give the bank 100 "
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
        f"{named.count:,} of {records:,} records are called members by {attack}, which decides, at {named.fpr:.0%} "
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


def _like(likeness: Likeness | None) -> Checked:
    name = "trained as the shadow models"
    if likeness is None:
        return Checked(name, "warning", "too few shadow models tell what is usual for one")
    words = (
        f"distance of its outputs from the nearer kind of shadow models {likeness.strangeness:.2f}, usual "
        f"{likeness.usual:.2f} (p = {likeness.p_value:.2g})"
    )
    return Checked(name, "passed" if likeness.like else "failed", words)
