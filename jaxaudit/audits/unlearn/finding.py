"""What the `unlearn` audit concludes, of each method and of the run: one rule for every output."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order

if TYPE_CHECKING:
    from jaxaudit.audits.unlearn.result import UnlearnAudit

Conclusion = Literal["distinguishable", "not distinguishable", "inconclusive"]
Position = Literal["above", "below", "not distinguishable", "too few seeds"]
"""Of a score among those of retrained models."""

WORST_FIRST = ("distinguishable", "inconclusive", "not distinguishable")
LEAST_SEEDS = 16
"""To tell unlearned from retrained models, eight a side; intervals of fewer are too wide to be of use."""
LEAST_FIRST = ("none", "weak", "fair", "strong")
SCORES = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_accuracy": "remaining accuracy",
    "forgotten_accuracy": "forgotten accuracy",
    "test_accuracy": "test accuracy",
    "attack": "attack probability",
}
"""What the scores are called."""

One = TypeVar("One")


def find(audit: "UnlearnAudit", name: str, forget_set: int = 0) -> Finding:
    """What the scores of one method say together about one set to forget, by `UnlearnAudit.conclusion`."""
    verdict = audit.conclusion(name, forget_set)
    checks, caveats = _checks(audit, forget_set), _caveats(audit, verdict, forget_set)
    more = () if audit.nonmembers else ("Also attack the models (--nonmembers above 0).",)
    if verdict == "distinguishable":
        why = "The test over seeds is exact, and its level of 95% covers all scores together."
        sentence, reasons = _differences(audit, name, forget_set)
        return Finding(verdict, "bad", sentence, reasons, Confidence("strong", why), checks, caveats)
    if verdict == "not distinguishable":
        informative = audit.informative(forget_set)
        sentence = f"None of {len(audit[name].places)} scores distinguishes its models from retrained models."
        reason = "no score lies above or below those of retrained models"
        if not informative:
            why = "No score about the forgotten records distinguishes even the original from retraining."
            return Finding(verdict, "good", sentence, (reason,), Confidence("weak", why), checks, caveats, more)
        why = f"{_sentence(informative, 'distinguish')} the original from retraining, but not this method."
        return Finding(verdict, "good", sentence, (reason,), Confidence("fair", why), checks, caveats, more)
    if not audit.enough_seeds:
        words = f"{audit.seeds} seeds cannot show any difference from retraining"
        more = (f"Train at least {_seeds_needed(audit)} seeds (--seeds).", *more)
        return Finding(
            verdict,
            "open",
            f"{words}.",
            (words,),
            Confidence("none", "There are too few seeds."),
            checks,
            caveats,
            more,
        )
    sentence = "No score distinguishes its models, nor the original, from retrained models."
    why = "On these data the scores cannot show what was not forgotten."
    reasons = ("no score distinguishes even the original, which forgot nothing, from retraining",)
    more = ("Train more seeds, or forget more records, to distinguish the original (--seeds, --fraction).", *more)
    return Finding(verdict, "open", sentence, reasons, Confidence("none", why), checks, caveats, more)


def together(findings: Mapping[str, Finding]) -> Finding:
    """One finding for several methods, by name: the worst verdict, with a clause for each method.

    The worst is `distinguishable`, then `inconclusive`. With one method it is its own finding; with none,
    `inconclusive`.
    """
    if not findings:
        why = "There is no method to judge."
        more = ("Name methods to judge, such as --methods retraining,amnesiac.",)
        return Finding(
            "inconclusive", "open", "Only reference models were trained.", (), Confidence("none", why), (), (), more
        )
    if len(findings) == 1:
        return next(iter(findings.values()))
    worst = min(findings.values(), key=lambda each: WORST_FIRST.index(each.verdict))
    alike = [each.confidence for each in findings.values() if each.verdict == worst.verdict]
    return Finding(
        worst.verdict,
        worst.tone,
        f"{'; '.join(f'{name}: {clause(each.verdict)}' for name, each in findings.items())}.",
        tuple(f"{name}: {reason}" for name, each in findings.items() for reason in each.reasons),
        min(alike, key=lambda each: LEAST_FIRST.index(each.word)),
        in_order(_once(check for each in findings.values() for check in each.checks)),
        _once(caveat for each in findings.values() for caveat in each.caveats),
        _once(more for each in findings.values() for more in each.would_change),
    )


def clause(verdict: str) -> str:
    """A verdict where nothing else says what is compared.

    >>> clause("distinguishable"), clause("inconclusive")
    ('distinguishable from retraining', 'inconclusive')
    """
    return verdict if verdict == "inconclusive" else f"{verdict} from retraining"


def _differences(audit: "UnlearnAudit", name: str, forget_set: int) -> tuple[str, tuple[str, ...]]:
    """Which scores lie above, and which below; and each with its p-value."""
    places = {score: where[forget_set] for score, where in audit[name].places.items()}
    positions = {score: audit.verdict(where) for score, where in places.items()}
    said = []
    for position, word in (("below", "lower"), ("above", "higher")):
        scores = [score for score, found in positions.items() if found == position]
        if scores:
            one = len(scores) == 1
            those = "that" if one else "those"
            said.append(f"{_sentence(scores, 'are')} {word} than {those} of retrained models.")
    reasons = (
        f"{SCORES[score]} {found} retrained models (p = {places[score].p_value:.2g})"
        for score, found in positions.items()
        if found in ("above", "below")
    )
    return " ".join(said), tuple(reasons)


def _checks(audit: "UnlearnAudit", forget_set: int) -> tuple[Checked, ...]:
    few = (
        f" cannot show any difference: the smallest p-value, {2.0 ** (1 - audit.seeds):.2g}, is above "
        f"{audit.threshold:.2g}; train at least {_seeds_needed(audit)} (--seeds)"
    )
    perfect = [each.name for each in audit.methods if np.isinf(each.scores.efficacy[forget_set]).any()]
    return in_order(
        (
            Checked(
                "enough seeds",
                "passed" if audit.enough_seeds else "failed",
                f"{audit.seeds} seeds" + ("" if audit.enough_seeds else few),
            ),
            Checked(
                "finite efficacies",
                "warning" if perfect else "passed",
                f"some models of {', '.join(perfect)} fit the records perfectly: infinite efficacy, whether they saw "
                "the records or not"
                if perfect
                else "every model has gradients that could be measured",
            ),
            Checked(
                "membership attack",
                "passed" if audit.nonmembers else "warning",
                "every trained model was attacked"
                if audit.nonmembers
                else "no model was attacked, and efficacy alone can mislead (--nonmembers)",
            ),
        )
    )


def _caveats(audit: "UnlearnAudit", verdict: Conclusion, forget_set: int) -> tuple[str, ...]:
    found = []
    blind = [f"`{SCORES[name]}`" for name in audit.blind(forget_set)]
    if blind and audit.enough_seeds:
        so = "it is" if len(blind) == 1 else "they are"
        found.append(
            f"{_join(blind)} cannot distinguish even the original model from retraining, so {so} uninformative here."
        )
    if verdict == "not distinguishable":
        found.append("Not distinguishable is not a proof of forgetting: another score may distinguish the method.")
    found.append(
        "An epsilon of few models is biased upward, so even retrained models are far from the challenge's best score: "
        "compare a method with `retraining` here, and with no score of another number of models."
        if audit.compared
        else f"The unlearning challenge's score and U-LiRA need {LEAST_SEEDS} seeds (--seeds); there are {audit.seeds}."
    )
    return tuple(found)


def _seeds_needed(audit: "UnlearnAudit") -> int:
    return math.ceil(1 - math.log2(audit.threshold))


def _listed(scores: Iterable[str]) -> str:
    return _join([SCORES[score] for score in scores])


def _sentence(scores: Sequence[str], verb: str) -> str:
    """The scores with a verb, which is given for several."""
    words, one = _listed(scores), {"are": "is", "distinguish": "distinguishes"}[verb]
    return f"{words[0].upper()}{words[1:]} {one if len(scores) == 1 else verb}"


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _once(values: Iterable[One]) -> tuple[One, ...]:
    return tuple(dict.fromkeys(values))
