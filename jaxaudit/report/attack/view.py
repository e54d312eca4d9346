"""The `attack` answer as a part of a page."""

from collections.abc import Mapping
from typing import Any

from jaxaudit.errors import visible
from jaxaudit.report.attack.pictures import (
    accuracies_picture,
    against_pdtp_picture,
    correlation_text,
    curve_pictures,
)
from jaxaudit.report.numbers import level_of, number, precise, span, text
from jaxaudit.report.page import Answer, Cells, Checked, Confidence, Part, Tone
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

TONES: dict[str, Tone] = {"found out": "bad", "not found out": "good", "inconclusive": "open"}
FEW_TARGETS = 30
MATTERS = 0.55
"""An accuracy from which an attack is more than a nuisance; below it `not found out` may be said."""
LISTED = 60
NUMBERS = ("accuracy", "precision", "recall", "f1", "auc")


def attack_part(run: Run) -> Part:
    """What a page says of a run of `attack`."""
    result = run.result
    protocol = result["protocol"]
    options = result["provenance"]["options"]
    names = [attack["name"] for attack in result["attacks"]]
    return Part(
        named(run),
        run.kind,
        "Can an attacker tell who was in the training set?",
        f"The classifier ({text(options.get('learner'))}) was trained on random halves of {protocol['candidates']:,} "
        f"records, and {protocol['targets']:,} of them were attacked {protocol['attacks_on_each_target']:,} times "
        "each, half of the times as members. A coin is right half of the time.",
        (_answer(result),),
        _checks(result),
        (accuracies_picture(result), *(curve_pictures(run) if run.arrays else ()), against_pdtp_picture(result)),
        (_metrics(result), _targets(result)),
        tuple(visible(caveat) for caveat in result["caveats"]),
        repeat(result["provenance"]),
        (
            *("membership attack", "accuracy of an attack", "ROC and AUC", "PDTP", "nat", "correlation", "interval"),
            *(f"{name} attack" for name in names),
        ),
    )


def _answer(result: Mapping[str, Any]) -> Answer:
    best = best_attack(result)
    accuracy = best["accuracy"]
    level = level_of(result["provenance"])
    verdict = verdict_of(result)
    words = {
        "found out": f"The {best['name']} attack is right more often than a coin.",
        "not found out": f"None of these attacks does better than a coin by {MATTERS - 0.5:.2f} or more.",
        "inconclusive": "None of these attacks is clearly better than a coin, and none is clearly as bad as one.",
    }
    between = span(accuracy, 3)
    return Answer(
        "the classifier",
        verdict,
        TONES[verdict],
        words[verdict],
        f"accuracy of the best attack ({best['name']})",
        number(accuracy["value"]),
        f"{between} ({level} interval)" if between else "",
        _confidence(result, best, verdict),
        (
            ("Area under its ROC", f"{number(best['auc']['value'])} ({span(best['auc'], 3) or 'no interval'})"),
            ("Largest PDTP of a target", f"{number(result['max_pdtp'])} nats"),
        ),
    )


def verdict_of(result: Mapping[str, Any]) -> str:
    """`found out` where some attack's interval is above 0.5; `not found out` where all end below `MATTERS`."""
    accuracies = [attack["accuracy"] for attack in result["attacks"]]
    if any(accuracy["low"] is not None and accuracy["low"] > 0.5 for accuracy in accuracies):
        return "found out"
    settled = all(accuracy["high"] is not None and accuracy["high"] < MATTERS for accuracy in accuracies)
    return "not found out" if settled else "inconclusive"


def best_attack(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attack that is right most often; where some interval is above 0.5, the one that is furthest above it."""

    def rank(attack: Mapping[str, Any]) -> tuple[float, float]:
        low = attack["accuracy"]["low"]
        return (0.5 if low is None else max(low, 0.5), attack["accuracy"]["value"] or 0.0)

    return max(result["attacks"], key=rank)


def _confidence(result: Mapping[str, Any], best: Mapping[str, Any], verdict: str) -> Confidence:
    low, high = best["accuracy"]["low"], best["accuracy"]["high"]
    found = verdict == "found out"
    targets = result["protocol"]["targets"]
    if low is None or high is None:
        return Confidence("none", "One target is no sample of a classifier's records.")
    if verdict == "inconclusive":
        why = f"The interval of some attack reaches from 0.5 or less to {MATTERS} or more"
        return Confidence("none", f"{why}: attack more targets, more often (--targets, --iterations).")
    several = len(result["attacks"])
    if found and several > 1 and low < 0.51:
        return Confidence("weak", f"The interval just clears 0.5, and this is the best of {several} attacks.")
    if targets < FEW_TARGETS:
        return Confidence("weak", f"Only {targets} targets were attacked.")
    if found:
        return Confidence("strong", "The whole interval is above 0.5: an attack that works is a fact.")
    return Confidence("fair", f"Accuracy lies below {number(high, 2)}; an attack that was not tried may do better.")


def _checks(result: Mapping[str, Any]) -> tuple[Checked, ...]:
    targets = result["protocol"]["targets"]
    gap = result["train_accuracy"] - result["test_accuracy"]
    found = [
        Checked(
            "enough targets",
            "passed" if targets >= FEW_TARGETS else "warning",
            f"{targets:,} targets were attacked"
            + ("" if targets >= FEW_TARGETS else f"; with under {FEW_TARGETS} a correlation says little (--targets)"),
        ),
        Checked(
            "the classifier works",
            "passed" if result["test_accuracy"] > 0 else "warning",
            f"it is right on {result['train_accuracy']:.1%} of its own half and {result['test_accuracy']:.1%} of the "
            f"other: {abs(gap):.1%} apart",
        ),
    ]
    rates = result["attacks"][0]["true_positive_rates"]
    coarse = [f"{100 * rate['at_false_positive_rate']:g}%" for rate in rates if not rate["resolvable"]]
    found.append(
        Checked(
            "low false positive rates",
            "warning" if coarse else "passed",
            f"too few attacks on non-members to see a rate at {' and '.join(coarse)} false positives"
            if coarse
            else "there are enough attacks on non-members to see the rates that are given",
        )
    )
    return tuple(sorted(found, key=lambda each: ("failed", "warning", "passed").index(each.state)))


def _metrics(result: Mapping[str, Any]) -> Cells:
    attacks = result["attacks"]
    rows = [
        (label, *(_estimate(attack[name]) for attack in attacks))
        for name, label in zip(NUMBERS, ("accuracy", "precision", "recall", "F1", "AUC"), strict=True)
    ]
    limits = {rate["at_false_positive_rate"] for attack in attacks for rate in attack["true_positive_rates"]}
    for limit in sorted(limits, reverse=True):
        rates = [
            next((r for r in attack["true_positive_rates"] if r["at_false_positive_rate"] == limit), None)
            for attack in attacks
        ]
        shown = (_estimate(rate) if rate and rate["resolvable"] else "not resolvable" for rate in rates)
        rows.append((f"true positive rate at {100 * limit:g}% false positives", *shown))
    rows.append(("correlation with PDTP", *(correlation_text(attack["correlation"]) for attack in attacks)))
    names = tuple(attack["name"] for attack in attacks)
    return Cells(f"Each attack ({level_of(result['provenance'])} intervals)", ("number", *names), tuple(rows), names)


def _estimate(estimate: Mapping[str, Any]) -> str:
    between = span(estimate, 3)
    return number(estimate["value"]) + (f" ({between})" if between else "")


def _targets(result: Mapping[str, Any]) -> Cells:
    ranked = sorted(result["targets"], key=lambda target: -target["largest_accuracy"])[:LISTED]
    numbers = ("record", "largest accuracy", "PDTP")
    return Cells(
        f"The {len(ranked)} targets most often found out",
        (*numbers, "by the attack"),
        tuple(
            (
                str(target["index"]),
                number(target["largest_accuracy"]),
                precise(target["pdtp"]),
                target["strongest_attack"],
            )
            for target in ranked
        ),
        numbers,
        folded=True,
    )
