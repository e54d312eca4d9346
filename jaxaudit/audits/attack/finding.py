"""The verdict of the `attack` audit, decided by one rule for the terminal, the page and the JSON."""

import math
from operator import itemgetter
from typing import Literal

import numpy as np
from msgspec.structs import replace
from scipy import special

from jaxaudit.audits.attack.result import AttackOutcome, AttackResult, SplitAttacks
from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order, trained_here, undecided
from jaxaudit.metrics.attack import AttackRates, RateAt
from jaxaudit.metrics.over_models import Estimate, mean_of_models
from jaxaudit.metrics.usage import ALPHA

FEW_TARGETS, FEW_MODELS = 30, 16
FEW_UNITS = 50
"""With fewer records or groups of a bank, areas differ more between models than their interval over models says."""
CLEARLY = 0.01
"""A p-value of at most this is far below the level."""
SOURCE = "Kairouz, Oh & Viswanath 2015"
Grade = Literal["gives records away", "gives some away", "no better than guessing"]
AWAY, SOME, GUESSING = "gives records away", "gives some away", "no better than guessing"
INCONCLUSIVE = "inconclusive"
RIGHT_CALLS = 10.0
"""`gives records away` requires this many right calls for each wrong one where half of the records are members: a true
positive rate of 10 times the false positive rate, which no model of a differentially private recipe with an epsilon
below ln 10 = 2.3 and a small delta has (Kairouz, Oh & Viswanath 2015, theorem 2.1)."""
GRADED_AT = (0.01, 0.001)
"""The false positive rates at which `gives records away` is decided: at higher ones nobody is named with confidence
(Carlini et al. 2022)."""
CLEAR = 0.51
"""`gives some away` by the area requires more than this: areas of models that share their shadow models are not
independent, so an interval over models is somewhat too narrow."""
MATTERS = 0.55
"""`no better than guessing` requires that accuracies, or the area under the ROC curve, and their intervals lie below
this."""
TIMES_CHANCE = 2.0
"""`no better than guessing` also requires that the true positive rate stays below this many times the false positive
rate."""
SURELY = 0.01
"""The largest probability that chance alone names any record so often."""
UNEVEN = 4
"""Groups differ much in size if the largest has this many times as many records as the smallest."""
MIN_REACH = 0.1
"""A working classifier covers at least this share of the way from guessing the commonest class to 100% accuracy."""
NOT_GIVEN = "more non-members are called than stated, so no true positive rate is given there"
"""Shown in place of a true positive rate."""
TIED = 0.2
"""If more than this share of a model's records have one score, the attack has too few thresholds."""


def attack_finding(result: AttackResult, by_default: bool = True) -> Finding:
    """The verdict over models of this recipe.

    `gives some away` if the measurements exclude guessing, `gives records away` if they also show `RIGHT_CALLS` right
    calls for each wrong one; `no better than guessing` if they exclude that the attacks are right in `MATTERS` or more
    of all cases; else `inconclusive`. Error rates are fixed: no option changes a verdict, and p-values are corrected
    for the number of attacks.

    - On random halves all attacks decide together. Models give some away if the p-value of "no attack is right more
      often than by guessing" is at most 0.05, and records if the lower limit of the best attack's accuracy (one-sided,
      95% over all attacks) is at least 10 / 11. Attacks are no better than guessing if the upper limit of every
      attack's accuracy (one-sided, 95%, over records) is below `MATTERS`.
    - With a bank one attack decides, which is fixed before any number is seen: see `grade_of`. Models also give some
      away if single records are named far more often than chance explains. Only the deciding attack that is used
      `by_default` can show that attacks are no better than guessing: one that a user names may be weak.
    """
    return _by_bank(result, by_default) if result.splits is None else trained_here(_on_halves(result, result.splits))


def best_on_halves(attacks: tuple[AttackOutcome, ...], splits: SplitAttacks) -> AttackOutcome:
    """The attack whose lower limit is furthest above 0.5; if there is none, the one with the largest accuracy."""

    def rank(attack: AttackOutcome) -> tuple[float, float]:
        assert attack.metrics is not None
        return max(_limits(splits, attack.name)[0], 0.5), attack.metrics.accuracy.value

    return max(attacks, key=rank)


def _limits(splits: SplitAttacks, attack: str, among: int = 1) -> tuple[float, float]:
    """The one-sided 95% limits of an attack's accuracy, the best `among` so many, by Student's t over records."""
    rates = np.array([record.accuracy[attack] for record in splits.records])
    reach = special.stdtrit(len(rates) - 1, 1 - ALPHA / among) * rates.std(ddof=1) / np.sqrt(len(rates))
    return float(rates.mean() - reach), float(rates.mean() + reach)


def _on_halves(result: AttackResult, splits: SplitAttacks) -> Finding:
    best, p_value, few = result.deciding, splits.p_value, result.records < FEW_TARGETS
    assert best.metrics is not None
    accuracy = best.metrics.accuracy
    words = f"{best.name} attack, accuracy {accuracy.value:.1%}"
    words += f", 95% interval {accuracy.low:.1%} to {accuracy.high:.1%}" if math.isfinite(accuracy.low) else ""
    most = max(_limits(splits, attack.name)[1] for attack in result.attacks)
    checks = in_order((*_checks_of_splits(splits), *_checks_of_rates(result, best)))
    caveats = (
        f"Per-target accuracies are over {result.models} attacks each: guessing lies within "
        f"{1 / np.sqrt(result.models):.2f} of 0.5 on most targets, and the best of several attacks lies above 0.5 even "
        "if all of them guess.",
        *(("Attacks that fail do not prove that a better one would fail.",) if most < MATTERS else ()),
    )
    weak = Confidence("weak", f"Only {result.records} targets were attacked.")
    if p_value <= ALPHA:
        together = "" if len(result.attacks) == 1 else f" over {len(result.attacks)} attacks"
        reasons = (words, f"p = {p_value:.2g}{together} that guessing does as well")
        sentence = f"Membership can be inferred better than by guessing ({'; '.join(reasons)}; guessing: 50%)."
        sure = Confidence("strong", "The p-value is exact, and pays for the number of attacks.")
        if p_value > CLEARLY:
            sure = Confidence("fair", "The p-value is exact, and not far below 0.05.")
        sure = weak if few else sure
        more = ("Attack more targets for a firmer answer.",) if few else ()
        right = RIGHT_CALLS / (1 + RIGHT_CALLS)
        verdict = AWAY if _limits(splits, best.name, len(result.attacks))[0] >= right else SOME
        return Finding(verdict, "bad", sentence, reasons, sure, checks, caveats, more)
    if most < MATTERS:
        sentence = f"No attack is right on {MATTERS:.0%} or more of its guesses (best: {words}; guessing: 50%)."
        limit = math.ceil(1000 * most) / 1000
        why = f"The accuracy of every attack is at most {limit:.1%} (95%). An attack that was not tried may do better."
        sure = weak if few else Confidence("fair", why)
        return Finding(GUESSING, "good", sentence, (words,), sure, checks, caveats)
    sentence = (
        f"No attack is clearly better than guessing, but not all are clearly below {MATTERS:.0%} (best: {words})."
    )
    why = f"Guessing may do as well (p = {p_value:.2g}), and some attack may be right on {MATTERS:.0%} or more."
    more = ("Attack more targets, or each target more often.",)
    return undecided(sentence, (words,), why, caveats, more, checks)


def _by_bank(result: AttackResult, by_default: bool) -> Finding:
    deciding, exposure, unit = result.deciding, result.exposure, result.unit
    words, grade = _in_words(deciding), grade_of(deciding)
    checks, caveats = checks_of_bank(result, deciding), _caveats_by_bank(result)
    which, few = f"{unit.title()}s that a model of the shadow models' recipe was trained on", ""
    if result.models < FEW_MODELS:
        few = f"Only {result.models} models were attacked."
    elif result.attacked < FEW_UNITS:
        few = f"Only {result.attacked} {unit}s were attacked."
    if grade in (AWAY, SOME):
        times_chance, rate = max(_ratios(deciding), key=itemgetter(0), default=(1.0, None))
        named_words = ""
        if rate:
            named_words = f"{rate.value:.1%} of members are found at {100 * rate.realised.value:.2g}% false positives"
        sentence = f"{which} can be told from others ({words})."
        if grade == AWAY:
            sentence = f"{which} can be named: {named_words} ({words})."
        if few:
            sure = Confidence("weak", few)
        elif times_chance > TIMES_CHANCE:
            sure = Confidence("strong", f"{named_words}.")
        else:
            sure = Confidence("fair", "Members score higher on average, but few are found with confidence.")
        return Finding(grade, "bad", sentence, (words,), sure, checks, caveats, _what_helps(deciding))
    single = 0 if exposure is None else exposure.surely_named
    if single:
        sentence = (
            f"Single {unit}s are given away: {single:,} {'is' if single == 1 else 'are'} called a member by models "
            f"trained on {'it' if single == 1 else 'them'} far more often than chance explains. On average over "
            f"{unit}s the attack does not succeed clearly ({words})."
        )
        why = f"With probability {1 - SURELY:.0%} no {unit}'s outputs would differ so much by chance."
        return Finding(SOME, "bad", sentence, (words,), Confidence("fair", why), checks, caveats)
    if grade == GUESSING and by_default:
        sentence = f"{which} cannot be told from others ({words}; guessing: 0.5)."
        why = f"The attack stays below an area of {MATTERS}. Another may do better."
        sure = Confidence("weak" if few else "fair", why)
        return Finding(grade, "good", sentence, (words,), sure, checks, caveats)
    if grade == GUESSING:
        sentence = (
            f"The deciding attack is no better than guessing, but it is not the one that can show this of attacks "
            f"({words})."
        )
        why = "An attack that was chosen may be weaker than the one that decides where none is named."
        more = ("Name no attack, so that the usual one decides.",)
    else:
        sentence = f"The deciding attack is not clearly better than guessing, and does not clearly fail ({words})."
        why = (
            f"Its interval reaches {MATTERS} or more, there is none, or its scores tie too often to tell {unit}s apart."
        )
        more = ("Add shadow models to the bank.",)
    return undecided(sentence, (words,), why, caveats, more, checks)


def _ratios(rates: AttackRates) -> list[tuple[float, RateAt]]:
    """How many times the larger of both rates of false positives the lower limit of each rate of true ones is, with
    that rate: of each that can be measured, and whose thresholds hold.
    """
    return [
        (rate.low / max(rate.fpr, rate.realised.high), rate)
        for rate in rates.tpr_at_fpr
        if rate.resolvable and rate.holds
    ]


def grade_of(rates: AttackRates) -> Grade | None:
    """What an attack on the models of a bank shows; None if it shows nothing clearly.

    `gives records away` if the interval of its true positive rate, at 1% or 0.1% false positives, lies at or above
    `RIGHT_CALLS` times both the stated and the realised false positive rate. `gives some away` if such an interval, at
    any rate, lies above `TIMES_CHANCE` times these, or that of its area under the ROC curve above `CLEAR`. `no better
    than guessing` if it could have detected members, and stays well below these limits.
    """
    area, ratios = _decided_area(rates), _ratios(rates)
    if any(times_chance >= RIGHT_CALLS for times_chance, rate in ratios if rate.fpr in GRADED_AT):
        return AWAY
    if area.low > CLEAR or any(times_chance > TIMES_CHANCE for times_chance, _ in ratios):
        return SOME
    return GUESSING if _fails(area, rates) else None


def _what_helps(rates: AttackRates) -> tuple[str, ...]:
    """Advice on a recipe whose models give records away."""
    unmeasured = not any(rate.resolvable for rate in rates.tpr_at_fpr if rate.fpr in GRADED_AT)
    more = "Add shadow models: the rate at 1% false positives, which tells whether records are named, needs more."
    return (
        "Train a model that fits less closely, and measure again: larger leaves, a stronger penalty, fewer epochs.",
        *((more,) if unmeasured else ()),
    )


def _decided_area(rates: AttackRates) -> Estimate:
    """The area under the ROC curve with an interval over models, of which one alone has none."""
    return mean_of_models(np.array(rates.auc_of_models))


def _fails(area: Estimate, rates: AttackRates) -> bool:
    resolved = [rate for rate in rates.tpr_at_fpr if rate.resolvable]
    calm = (rate.holds and rate.high < TIMES_CHANCE * rate.fpr for rate in resolved)
    return area.high < MATTERS and any(rate.fpr <= 0.01 for rate in resolved) and rates.tied <= TIED and all(calm)


def _in_words(attack: AttackOutcome, decides: bool = True) -> str:
    area = attack.auc
    between = f", {area.low:.3f} to {area.high:.3f}" if math.isfinite(area.low) else ""
    return f"{attack.name}{' decides' if decides else ''}: area under the ROC curve {area.value:.3f}{between}"


def checks_of_bank(result: AttackResult, deciding: AttackRates) -> tuple[Checked, ...]:
    """Checks of the deciding attack's rates; these may be rates of the shadow models at a target's resolution."""
    words = f"{result.models} shadow models"
    enough = result.models >= FEW_MODELS, words, f"{words}; train {FEW_MODELS} or more"
    return in_order((assumed("enough shadow models", *enough), *_checks_of_rates(result, deciding)))


def _checks_of_rates(result: AttackResult, deciding: AttackRates) -> tuple[Checked, ...]:
    """Checks of the deciding attack's rates; whether thresholds hold is checked for every attack."""
    unresolvable = [f"{100 * rate.fpr:g}%" for rate in deciding.tpr_at_fpr if not rate.resolvable]
    excesses: dict[str, list[str]] = {}
    for attack in result.attacks:
        for rate in (deciding if attack.name == result.decided_by else attack).tpr_at_fpr:
            if rate.resolvable and not rate.holds:
                words = f"{100 * rate.fpr:g}% stated and {100 * rate.realised.value:.2g}% realised"
                excesses.setdefault(attack.name, []).append(words)
    transfer = assumed(
        "thresholds hold on other models",
        not excesses,
        "realised false positive rates are not above the stated ones",
        f"{NOT_GIVEN}: {'; '.join(', '.join((name, *words)) for name, words in excesses.items())}",
        decisive=result.decided_by in excesses,
    )
    return (
        assumed(
            "low false positive rates",
            not unresolvable,
            "there are enough non-members for the rates shown",
            f"too few non-members to measure a rate at {' and '.join(unresolvable)} false positives",
        ),
        replace(transfer, affects=f"true positive rates of {', '.join(excesses)}" if excesses else ""),
        assumed(
            "few ties", deciding.tied <= TIED, "scores differ", f"{deciding.tied:.0%} of a model's scores are equal"
        ),
    )


def _checks_of_splits(splits: SplitAttacks) -> tuple[Checked, ...]:
    targets, guess = len(splits.records), splits.guess_accuracy
    reach = (splits.test_accuracy - guess) / (1 - guess) if guess < 1 else 0.0
    accuracies = f"target accuracy: {splits.train_accuracy:.1%} train, {splits.test_accuracy:.1%} held out"
    accuracies += f" (guessing the commonest class: {guess:.1%})"
    untrained = f"{accuracies}; a classifier that learned nothing leaks nothing: train longer"
    words = f"{targets:,} targets were attacked"
    return (
        assumed("enough targets", targets >= FEW_TARGETS, words, f"{words}; attack {FEW_TARGETS} or more"),
        assumed("classifier accuracy", reach >= MIN_REACH, accuracies, untrained),
    )


def _caveats_by_bank(result: AttackResult) -> tuple[str, ...]:
    first, *other_attacks = result.attacks
    unit = result.unit
    caveats = [
        f"The rates hold for models that are trained as the shadow models are, on {unit}s drawn as theirs were. A "
        "stronger attack may exist.",
        f"Intervals of rates treat {unit}s and models as independent, and thresholds as given; the spread over models "
        "is told beside them.",
        f"The riskiest of many {unit}s look riskier than they are: their intervals hold for a {unit} alone.",
    ]
    fewest, most = result.records_of_a_group or (1, 1)
    if most >= UNEVEN * fewest:
        caveats.append(
            f"Groups have {fewest:,} to {most:,} records, and false positive rates are averages over them: groups of "
            "some sizes are called wrongly more often than others, which sizes depends on how alike their records are."
        )
    better = [
        _in_words(attack, decides=False)
        for attack in other_attacks
        if _decided_area(attack).low > max(CLEAR, first.auc.value)
    ]
    if better:
        caveats.append(f"Attacks that do not decide do better: {'; '.join(better)}.")
    # Fewer would be 0.0%.
    if first.unjudged >= 0.0005:
        caveats.append(f"{first.unjudged:.1%} of the {unit}s and models have too few shadow models and are not judged.")
    if result.exposure is not None and result.exposure.copies:
        caveats.append(
            f"{result.exposure.copies:,} {unit}s have the same outputs as another in every model: copies hide what "
            "their removal would change."
        )
    return tuple(caveats)
