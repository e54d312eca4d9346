"""The verdict of the deciding attack on one target of unknown membership."""

from jaxaudit.audits.attack.finding import FEW_MODELS, checks_of_bank
from jaxaudit.audits.attack.result import AttackResult
from jaxaudit.audits.attack.sections import Named
from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order
from jaxaudit.metrics.attack_rates import AttackRates
from jaxaudit.metrics.vulnerability import Likeness


def find_target(
    result: AttackResult, rates: AttackRates, named: Named | None, like: Likeness | None, records: int, relative: bool
) -> Finding:
    """The verdict over one target of unknown membership, by the deciding attack.

    `attack succeeds` if more of its records are called members than chance explains; else `inconclusive`: the target
    may have used none of them, or the attack may be too weak. A target that is unlike the shadow models is
    `inconclusive`. `rates` are those on the shadow models, at the resolution at which the target is compared.
    """
    attack, checks = result.decided_by, in_order((_like(like), *checks_of_bank(result, rates)))
    caveats = (
        "A record that is called a member was not for certain in the training set: see the expected number of false "
        "calls. Thresholds come from the shadow models and hold for targets that are trained as they are.",
    )

    def undecided(sentence: str, why: str, *more: str, reasons: tuple[str, ...] = ()) -> Finding:
        return Finding("inconclusive", "open", sentence, reasons, Confidence("none", why), checks, caveats, more)

    if relative:
        why = (
            "The deciding attack compares a record with the target's other records, so how many it would call by "
            "chance depends on how many the target used. Name another attack first, or give the bank 100 "
            "records that neither its models nor the target used."
        )
        return undecided("This attack does not tell how many calls are by chance.", why)
    if named is None:
        why = (
            "The bank has too few records without their model to set a threshold, or the thresholds of other models do "
            "not hold."
        )
        return undecided(f"No threshold can be set for the deciding attack, {attack}.", why)
    words = (
        f"{named.count:,} of {records:,} records are called members by {attack}, which decides, at {named.fpr:.0%} "
        f"false positives; about {named.by_chance:,.0f} would be if none were"
    )
    if like is not None and not like.like:
        return undecided(
            f"The target's outputs are unlike those of the shadow models, so its thresholds may not hold ({words}).",
            "What is known of the shadow models need not hold for this target.",
            "Train shadow models as the target was trained, and add them to a bank.",
            reasons=(words,),
        )
    if named.count > named.at_most:
        weak = result.models < FEW_MODELS or named.count < 1.5 * named.at_most
        why = (
            f"By chance at most {named.at_most:,.0f} would be called, with probability {named.level:.2%}: a bound over "
            "shadow models, for all targets together."
        )
        sure = Confidence("weak" if weak else "strong", why)
        return Finding("attack succeeds", "bad", f"Members can be named: {words}.", (words,), sure, checks, caveats)
    return undecided(
        f"No more records are called members than chance explains ({words}).",
        "Either the target used few of these records, or it does not give them away.",
        "Whether it used the records as a whole is what `jaxaudit ks` asks, with more power.",
        reasons=(words,),
    )


def _like(likeness: Likeness | None) -> Checked:
    name = "trained as the shadow models"
    if likeness is None:
        return Checked(name, "warning", "too few shadow models tell what is usual for one")
    words = (
        f"distance of its outputs from the nearer kind of shadow models {likeness.strangeness:.2f}, usual "
        f"{likeness.usual:.2f} (p = {likeness.p_value:.2g})"
    )
    return Checked(name, "passed" if likeness.like else "failed", words)
