"""The verdicts of the `unlearn` audit, on each method and on the run, decided by one rule for every output."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from jaxaudit.audits.finding import UNDECIDED, Checked, Confidence, Finding, assumed, in_order, trained_here, undecided
from jaxaudit.audits.unlearn.result import (
    FORGETTING,
    LEAST_SEEDS,
    ORIGINAL,
    REFERENCES,
    Conclusion,
    MethodResult,
    Protocol,
    Score,
    UnlearnResult,
)
from jaxaudit.metrics.over_models import LOW
from jaxaudit.metrics.usage import OVER_FORGOTTEN

WORST_FIRST = ("distinguishable", "inconclusive", "not distinguishable")
LEAST_FIRST = ("none", "weak", "fair", "strong")
SCORES = {
    "efficacy": "efficacy",
    "bound": "bound",
    "remaining_accuracy": "remaining accuracy",
    "forgotten_accuracy": "forgotten accuracy",
    "test_accuracy": "test accuracy",
    "attack": "attack probability",
    "remaining_log_likelihood": "remaining log-likelihood",
    "forgotten_log_likelihood": "forgotten log-likelihood",
    "test_log_likelihood": "test log-likelihood",
}
"""Names of the scores in sentences."""
BY_OUTPUTS = "save their outputs, of any library, and judge these (jaxaudit unlearn)"

OVER: tuple[Score, ...] = ("forgotten_accuracy", "attack", "forgotten_log_likelihood")
"""Scores that are lower than by retrained models if records were over-forgotten."""

One = TypeVar("One")


def concluded_result(
    forgotten: str, protocol: Protocol, methods: tuple[MethodResult, ...], notes: Sequence[str] = ()
) -> UnlearnResult:
    """The result, with a conclusion on each method and one on all of them; `notes` become part of every finding."""

    def noted(finding: Finding) -> Finding:
        return trained_here(replace(finding, caveats=(*finding.caveats, *notes)), advice=BY_OUTPUTS)

    unjudged = UnlearnResult(finding=UNDECIDED, forgotten=forgotten, protocol=protocol, methods=methods)
    findings = {
        method.name: method_finding(unjudged, method.name) for method in methods if method.name not in REFERENCES
    }
    concluded = tuple(
        replace(method, finding=noted(findings[method.name])) if method.name in findings else method
        for method in methods
    )
    return replace(unjudged, finding=noted(together(findings)), methods=concluded)


def conclusion(result: UnlearnResult, name: str) -> Conclusion:
    """The conclusion on a method. `distinguishable` if at least one score distinguishes it from retrained models.
    `inconclusive` if there are too few seeds, no score distinguishes even the original, or U-LiRA's accuracy may be
    `LOW` or more. Else `not distinguishable`.
    """
    if any(where.differs for where in result[name].places.values()):
        return "distinguishable"
    sighted = any(where.differs for where in result[ORIGINAL].places.values())
    return "not distinguishable" if sighted and _most_accurate(result, name) < LOW else "inconclusive"


def _most_accurate(result: UnlearnResult, name: str) -> float:
    """The upper end of the interval of U-LiRA's accuracy; 0 if it was not computed."""
    lira = result[name].u_lira
    return 0.0 if lira is None else lira.high


def informative(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that distinguish the original, which forgot nothing, from retraining."""
    compared = result[ORIGINAL].places
    return tuple(name for name in FORGETTING if name in compared and compared[name].differs)


def blind(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that do not distinguish even the original: of a method they are no evidence of
    forgetting.
    """
    compared, telling = result[ORIGINAL].places, informative(result)
    return tuple(name for name in FORGETTING if name in compared and name not in telling)


def method_finding(result: UnlearnResult, name: str) -> Finding:
    """The finding on one method, from all of its scores, by the rule of `conclusion`."""
    verdict, protocol = conclusion(result, name), result.protocol
    checks, caveats = _checks(result), _caveats(result, verdict)
    unattacked = not protocol.attack_nonmembers and not result.of_texts
    more = ("Also attack the models: keep non-members for that.",) if unattacked else ()
    if verdict == "distinguishable":
        why = "The test over seeds is exact, and its level of 95% covers all scores together."
        sentence, reasons = _differences(result, name)
        return Finding(verdict, "bad", sentence, reasons, Confidence("strong", why), checks, caveats)
    if verdict == "not distinguishable":
        informing = informative(result)
        sentence = f"None of {len(result[name].places)} scores distinguishes its models from retrained models."
        reason = "no score lies above or below those of retrained models"
        if not informing:
            why = "No score about the forgotten records distinguishes even the original from retraining."
            return Finding(verdict, "good", sentence, (reason,), Confidence("weak", why), checks, caveats, more)
        why = f"{_sentence(informing, 'distinguish')} the original from retraining, but not this method."
        return Finding(verdict, "good", sentence, (reason,), Confidence("fair", why), checks, caveats, more)
    if not protocol.enough_seeds:
        words = f"{protocol.seeds} seeds cannot show any difference from retraining"
        more = (f"Train at least {_seeds_needed(protocol)} seeds.", *more)
        return undecided(f"{words}.", (words,), "There are too few seeds.", caveats, more, checks)
    most = _most_accurate(result, name)
    if most >= LOW:
        sentence = (
            f"No score distinguishes its models from retrained models, but U-LiRA may: accuracy {most:.2f} at most."
        )
        reasons = (f"the interval of U-LiRA's accuracy reaches {most:.2f}, and 0.5 is a guess",)
        why = f"Not distinguishable needs an interval below {LOW}; one model unlike all others widens it."
        return undecided(sentence, reasons, why, caveats, ("Train more seeds.", *more), checks)
    sentence = "No score distinguishes its models, nor the original, from retrained models."
    why = "On these data the scores cannot show what was not forgotten."
    reasons = ("no score distinguishes even the original, which forgot nothing, from retraining",)
    more = ("Train more seeds, or forget more records, to distinguish the original.", *more)
    return undecided(sentence, reasons, why, caveats, more, checks)


def together(findings: Mapping[str, Finding]) -> Finding:
    """One finding for several methods, given by name: the worst verdict (`distinguishable`, then `inconclusive`), with
    a clause for each method. A single method gives its own finding, no method `inconclusive`.
    """
    if not findings:
        sentence = "Only reference models were trained."
        more = ("Name methods to judge, such as retraining or amnesiac.",)
        return undecided(sentence, (), "There is no method to judge.", would_change=more)
    if len(findings) == 1:
        return next(iter(findings.values()))
    worst = min(findings.values(), key=lambda finding: WORST_FIRST.index(finding.verdict))
    alike = [finding.confidence for finding in findings.values() if finding.verdict == worst.verdict]
    return Finding(
        worst.verdict,
        worst.tone,
        f"{'; '.join(f'{name}: {clause(finding.verdict)}' for name, finding in findings.items())}.",
        tuple(f"{name}: {reason}" for name, finding in findings.items() for reason in finding.reasons),
        min(alike, key=lambda confidence: LEAST_FIRST.index(confidence.word)),
        in_order(_once(check for finding in findings.values() for check in finding.checks)),
        _once(caveat for finding in findings.values() for caveat in finding.caveats),
        _once(more for finding in findings.values() for more in finding.would_change),
    )


def clause(verdict: str) -> str:
    """A verdict in words that say what is compared.

    >>> clause("distinguishable"), clause("inconclusive")
    ('distinguishable from retraining', 'inconclusive')
    """
    return verdict if verdict == "inconclusive" else f"{verdict} from retraining"


def _differences(result: UnlearnResult, name: str) -> tuple[str, tuple[str, ...]]:
    """A sentence on the scores above and below those of retrained models, and the p-value of each."""
    compared, sentences = result[name].places, []
    for position, word in (("below", "lower"), ("above", "higher")):
        scores = [score for score, where in compared.items() if where.verdict == position]
        if scores:
            one = len(scores) == 1
            pronoun = "that" if one else "those"
            sentences.append(f"{_sentence(scores, 'are')} {word} than {pronoun} of retrained models.")
    if any(score in compared and compared[score].verdict == "below" for score in OVER):
        sentences.append(f"So the records are {OVER_FORGOTTEN}, which is no evidence of memory.")
    reasons = (
        f"{SCORES[score]} {where.verdict} retrained models (p = {where.p_value:.2g})"
        for score, where in compared.items()
        if where.differs
    )
    return " ".join(sentences), tuple(reasons)


def _checks(result: UnlearnResult) -> tuple[Checked, ...]:
    protocol, seeds = result.protocol, f"{result.protocol.seeds} seeds"
    perfect = [
        method.name
        for method in result.methods
        if method.scores.efficacy is not None and any(map(math.isinf, method.scores.efficacy.values))
    ]
    few = (
        f"{seeds} cannot show any difference: the smallest p-value, {2.0 ** (1 - protocol.seeds):.2g}, is above "
        f"{protocol.p_value_threshold:.2g}; train at least {_seeds_needed(protocol)}"
    )
    infinite = (
        f"some models of {', '.join(perfect)} fit the records perfectly: infinite efficacy, whether they saw the "
        "records or not"
    )
    finite = "every model has gradients that could be measured"
    attacked, unattacked = "every trained model was attacked", "no model was attacked, and efficacy alone can mislead"
    attack = assumed("membership attack", bool(protocol.attack_nonmembers), attacked, unattacked)
    return in_order(
        (
            assumed("enough seeds", protocol.enough_seeds, seeds, few, decisive=True),
            assumed("finite efficacies", not perfect, finite, infinite),
            *(() if result.of_texts else (attack,)),
        )
    )


def _caveats(result: UnlearnResult, verdict: Conclusion) -> tuple[str, ...]:
    caveats, seeds = [], result.protocol.seeds
    unseeing = [f"`{SCORES[name]}`" for name in blind(result)]
    if unseeing and result.protocol.enough_seeds:
        so = "it is" if len(unseeing) == 1 else "they are"
        caveats.append(
            f"{_join(unseeing)} cannot distinguish even the original model from retraining, so {so} uninformative here."
        )
    if verdict == "not distinguishable":
        caveats.append("Not distinguishable is not a proof of forgetting: another score may distinguish the method.")
    if result.of_texts:
        caveats.append(
            "Texts have no classes, so there are no accuracies, no attack network, and of the unlearning challenge's "
            "score its forgetting quality alone: a record's number is the mean log-likelihood of its tokens."
        )
    caveats.append(
        "An epsilon of few models is biased upward, so even retrained models are far from the challenge's best score: "
        "compare a method with `retraining` here, and with no score of another number of models."
        if result.compared
        else f"The unlearning challenge's score and U-LiRA need {LEAST_SEEDS} seeds; there are {seeds}."
    )
    return tuple(caveats)


def _seeds_needed(protocol: Protocol) -> int:
    return math.ceil(1 - math.log2(protocol.p_value_threshold))


def _sentence(scores: Sequence[str], verb: str) -> str:
    """The scores followed by a verb, which is given in the plural."""
    words, one = _join([SCORES[score] for score in scores]), {"are": "is", "distinguish": "distinguishes"}[verb]
    return f"{words[0].upper()}{words[1:]} {one if len(scores) == 1 else verb}"


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _once(values: Iterable[One]) -> tuple[One, ...]:
    return tuple(dict.fromkeys(values))
