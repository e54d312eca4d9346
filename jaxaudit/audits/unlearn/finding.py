"""The verdicts of the `unlearn` audit, on each method and on the run, decided by one rule for every output."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from jaxaudit.audits.finding import UNDECIDED, Checked, Confidence, Finding, assumed, in_order, undecided
from jaxaudit.audits.unlearn.result import (
    FORGETTING,
    LEAST_SEEDS,
    ORIGINAL,
    REFERENCES,
    Conclusion,
    Method,
    Protocol,
    Score,
    UnlearnResult,
)
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

OVER: tuple[Score, ...] = ("forgotten_accuracy", "attack", "forgotten_log_likelihood")
"""Scores that are lower than by retrained models if records were over-forgotten."""

One = TypeVar("One")


def decided(
    forgotten: str, protocol: Protocol, methods: tuple[Method, ...], notes: Sequence[str] = ()
) -> UnlearnResult:
    """The result for one set to forget, with the conclusion on each method and on all methods.

    `forgotten` is the set in words; `methods` are without conclusions. `notes` are further limitations, in sentences,
    which become part of every finding.
    """

    def noted(finding: Finding) -> Finding:
        return replace(finding, caveats=(*finding.caveats, *notes))

    undecided = UnlearnResult(finding=UNDECIDED, forgotten=forgotten, protocol=protocol, methods=methods, caveats=())
    found = {each.name: find(undecided, each.name) for each in methods if each.name not in REFERENCES}
    concluded = tuple(
        replace(each, conclusion=conclusion(undecided, each.name), finding=noted(found[each.name]))
        if each.name in found
        else each
        for each in methods
    )
    whole = noted(together(found))
    return replace(undecided, finding=whole, methods=concluded, caveats=whole.caveats)


def over_sets(results: Sequence[UnlearnResult]) -> Finding:
    """One finding for all methods and sets to forget."""
    if len(results) == 1:
        return results[0].finding
    every = [(index, each) for index, result in enumerate(results) for each in result.methods]
    return together({f"{each.name}, set {index}": each.finding for index, each in every if each.finding is not None})


def conclusion(result: UnlearnResult, name: str) -> Conclusion:
    """The conclusion on a method from all of its scores.

    `distinguishable` if at least one score distinguishes it from retrained models. `inconclusive` if there are too few
    seeds, or no score distinguishes even the original from retrained models. Else `not distinguishable`.
    """
    if any(where.differs for where in result[name].places.values()):
        return "distinguishable"
    sighted = any(where.differs for where in result[ORIGINAL].places.values())
    return "not distinguishable" if sighted else "inconclusive"


def informative(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that distinguish the original, which forgot nothing, from retraining."""
    compared = result[ORIGINAL].places
    return tuple(name for name in FORGETTING if name in compared and compared[name].differs)


def blind(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that do not distinguish even the original, which forgot nothing.

    If such a score does not distinguish a method from retraining, this is no evidence that the method forgets.
    """
    compared, told = result[ORIGINAL].places, informative(result)
    return tuple(name for name in FORGETTING if name in compared and name not in told)


def find(result: UnlearnResult, name: str) -> Finding:
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
        confidence = Confidence("none", "There are too few seeds.")
        return Finding(verdict, "open", f"{words}.", (words,), confidence, checks, caveats, more)
    sentence = "No score distinguishes its models, nor the original, from retrained models."
    why = "On these data the scores cannot show what was not forgotten."
    reasons = ("no score distinguishes even the original, which forgot nothing, from retraining",)
    more = ("Train more seeds, or forget more records, to distinguish the original.", *more)
    return Finding(verdict, "open", sentence, reasons, Confidence("none", why), checks, caveats, more)


def together(findings: Mapping[str, Finding]) -> Finding:
    """One finding for several methods, given by name: the worst verdict, with a clause for each method.

    The worst verdict is `distinguishable`, then `inconclusive`. A single method gives its own finding, no method
    `inconclusive`.
    """
    if not findings:
        said = "Only reference models were trained."
        more = ("Name methods to judge, such as retraining or amnesiac.",)
        return undecided(said, (), "There is no method to judge.", would_change=more)
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
    """A verdict in words that say what is compared.

    >>> clause("distinguishable"), clause("inconclusive")
    ('distinguishable from retraining', 'inconclusive')
    """
    return verdict if verdict == "inconclusive" else f"{verdict} from retraining"


def _differences(result: UnlearnResult, name: str) -> tuple[str, tuple[str, ...]]:
    """A sentence on the scores above and below those of retrained models, and the p-value of each."""
    compared, said = result[name].places, []
    for position, word in (("below", "lower"), ("above", "higher")):
        scores = [score for score, where in compared.items() if where.verdict == position]
        if scores:
            one = len(scores) == 1
            those = "that" if one else "those"
            said.append(f"{_sentence(scores, 'are')} {word} than {those} of retrained models.")
    if any(score in compared and compared[score].verdict == "below" for score in OVER):
        said.append(f"So the records are {OVER_FORGOTTEN}, which is no evidence of memory.")
    reasons = (
        f"{SCORES[score]} {where.verdict} retrained models (p = {where.p_value:.2g})"
        for score, where in compared.items()
        if where.differs
    )
    return " ".join(said), tuple(reasons)


def _checks(result: UnlearnResult) -> tuple[Checked, ...]:
    protocol, seeds = result.protocol, f"{result.protocol.seeds} seeds"
    perfect = [
        each.name
        for each in result.methods
        if each.scores.efficacy is not None and any(map(math.isinf, each.scores.efficacy.values))
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
    found, seeds = [], result.protocol.seeds
    unseeing = [f"`{SCORES[name]}`" for name in blind(result)]
    if unseeing and result.protocol.enough_seeds:
        so = "it is" if len(unseeing) == 1 else "they are"
        found.append(
            f"{_join(unseeing)} cannot distinguish even the original model from retraining, so {so} uninformative here."
        )
    if verdict == "not distinguishable":
        found.append("Not distinguishable is not a proof of forgetting: another score may distinguish the method.")
    if result.of_texts:
        found.append(
            "Texts have no classes, so there are no accuracies, no attack network, and of the unlearning challenge's "
            "score its forgetting quality alone: a record's number is the mean log-likelihood of its tokens."
        )
    found.append(
        "An epsilon of few models is biased upward, so even retrained models are far from the challenge's best score: "
        "compare a method with `retraining` here, and with no score of another number of models."
        if result.compared
        else f"The unlearning challenge's score and U-LiRA need {LEAST_SEEDS} seeds; there are {seeds}."
    )
    return tuple(found)


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
