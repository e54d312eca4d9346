"""The result of the `unlearn` audit, which is its JSON, the value that it returns, and its verdicts, by one rule."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
from jaxtyping import Float
from msgspec import field
from msgspec.structs import replace

from jaxaudit.audits.finding import UNDECIDED, Checked, Confidence, Finding, assumed, in_order, trained_here, undecided
from jaxaudit.errors import check_among
from jaxaudit.json_types import Extended, Number, NumberOrNaN, StrictStruct, demand
from jaxaudit.metrics import ChallengeScore, Estimate, Place
from jaxaudit.metrics.arrays import Mask
from jaxaudit.metrics.over_models import LOW
from jaxaudit.metrics.usage import OVER_FORGOTTEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxaudit.plots import charts as plot

UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC = "untrained", "original", "retraining", "amnesiac"
REFERENCES = (UNTRAINED, ORIGINAL, RETRAINING)
"""Names of the models that methods are compared with."""
RESERVED = (UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC)
LEAST_SEEDS = 16
"""The least number of seeds at which the unlearning challenge's score and U-LiRA are computed: eight models a side."""

OfClasses = Literal["efficacy", "bound", "remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"]
OfTexts = Literal["remaining_log_likelihood", "forgotten_log_likelihood", "test_log_likelihood"]
Score = Literal["information"] | OfClasses | OfTexts
Conclusion = Literal["distinguishable", "not distinguishable", "inconclusive"]

FORGETTING: tuple[Score, ...] = ("efficacy", "bound", "forgotten_accuracy", "attack", "forgotten_log_likelihood")
"""The scores about the forgotten records."""
COMPARED: tuple[Score, ...] = get_args(OfClasses)
"""The scores that are compared with retrained models (information has the ranks of efficacy, reversed)."""
OF_TEXTS: tuple[Score, ...] = ("efficacy", "bound", *get_args(OfTexts))
"""Those of records of text, which have no classes."""


class Protocol(StrictStruct, frozen=True):
    """Numbers of records and models, and requirements of the test over seeds.

    Attributes:
        attack_nonmembers: number of test records that attack networks learned from, beside all members, whose share of
            these is `members_share`.
        seeds: models per method, one per seed.
        p_value_threshold: the largest p-value of a difference: 0.05, divided by the number of a method's scores.
        enough_seeds: whether there are enough seeds to show a difference: the smallest possible p-value is 2 / 2^seeds.
    """

    training_records: int
    forgotten_records: int
    test_records: int
    attack_nonmembers: int
    seeds: int
    level: float
    p_value_threshold: float
    enough_seeds: bool
    members_share: Number


class ScoreSpread(StrictStruct, frozen=True, omit_defaults=True):
    """A score of a method's models: `values` of each; their median, smallest, largest and mean.

    `interval` is Student's t interval of the mean, NaN of one model; None of models that were trained here, which are
    compared seed by seed.
    """

    median: Extended
    low: Extended
    high: Extended
    mean: Extended
    values: tuple[Extended, ...]
    interval: tuple[NumberOrNaN, NumberOrNaN] | None = None


MethodScores = dict[Score, ScoreSpread]
"""The scores of one method's models, as far as they were measured.

The gradients of `efficacy`, `information` and `bound` (`jaxaudit.metrics.Efficacy`) are of the log-probability of a
record's class; of records of text, of the mean log-likelihood of its tokens. `attack` is the mean probability of
membership that a learned attack gives the records to forget; without information it is `Protocol.members_share`, and a
low value alone is no proof of forgetting: see `attack_each` of `compare_unlearning`. Log-likelihoods are of records of
text, which have no accuracy and no attack: the mean over records of their tokens' mean, in nats.
"""


class MethodResult(StrictStruct, frozen=True, kw_only=True):
    """The results of one method, or of a reference.

    Attributes:
        name: `untrained`, `original` (nothing was forgotten), `retraining`, `amnesiac`, or the name given to it; of
            outputs `retrained again`, `original`, or a given name.
        models: how many have the scores.
        places: rank of each of `COMPARED` among retrained models; empty for `retraining`, and of outputs.
        finding: the conclusion on the method; None for a reference.
        challenge: the unlearning challenge's score, of the method's models of the first half of the seeds against
            retrained models of the other half; None for `untrained`, and with fewer than `LEAST_SEEDS` seeds. Compare
            it with that of `retraining` (other retrained models) and `original`. Of outputs: of the models that were
            compared, None if there are none.
        u_lira: the accuracy of U-LiRA, on the same models.
        true_positive_rate: of U-LiRA at `UnlearnOutputsResult.false_positive_rate`; None also if there are fewer than
            1,000 pairs of a reference and a record.
    """

    name: str
    models: int
    scores: MethodScores
    places: dict[Score, Place] = field(default_factory=dict)
    finding: Finding | None = None
    challenge: ChallengeScore | None = None
    u_lira: Estimate | None = None
    true_positive_rate: Estimate | None = None


class UnlearnResult(StrictStruct, frozen=True, kw_only=True):
    """The results of all methods: `untrained`, `original`, `retraining`, then the judged ones. `finding` is on all of
    them: the worst verdict; `forgotten` is the set to forget, in words.
    """

    finding: Finding
    forgotten: str
    protocol: Protocol
    methods: tuple[MethodResult, ...]

    def __getitem__(self, name: str) -> MethodResult:
        return next(method for method in self.methods if method.name == name)

    @property
    def of_texts(self) -> bool:
        """Whether the records are texts, which have no classes."""
        return "forgotten_log_likelihood" in self[ORIGINAL].scores

    @property
    def compared(self) -> bool:
        """Whether the challenge's score and U-LiRA were computed."""
        return any(method.challenge for method in self.methods)

    @property
    def band(self) -> tuple[float, float] | None:
        """The range of the efficacies of retrained models."""
        spread = self[RETRAINING].scores.get("efficacy")
        return (spread.low, spread.high) if spread else None

    def drawn(self) -> "list[plot.MethodMarks]":
        """The methods whose efficacy was measured, as charts take them."""
        from jaxaudit.plots import charts as plot

        marks = []
        for method in self.methods:
            values = {name: np.array(spread.values) for name, spread in method.scores.items()}
            if {"efficacy", "bound"} <= values.keys():
                marks.append(plot.MethodMarks(method.name, values["efficacy"], values["bound"], values.get("attack")))
        return marks


@dataclass(frozen=True, eq=False)
class UnlearnAudit:
    """The results of all methods, the records to forget, and by a method's name the parameters of its models, as the
    learner returned them with seeds as the leading axis, and the accuracy of U-LiRA on each record to forget.

    `sources` are the papers that the numbers rest on; `form` is how convolutions were computed
    (`kernels.convolutions`), None: as JAX has them, or there are none.
    """

    result: UnlearnResult
    forget: Mask
    models: Mapping[str, Any]
    u_lira: Mapping[str, Float[np.ndarray, " records"]]
    sources: tuple[str, ...] = ()
    models_per_batch: int | None = None
    form: str | None = None

    @property
    def finding(self) -> Finding:
        """The conclusion on all methods: the worst verdict."""
        return self.result.finding

    def scores(self, name: str, score: Score) -> Float[np.ndarray, " seeds"]:
        """A score of each of a method's models; NaN: no value."""
        check_among((*COMPARED, *OF_TEXTS, "information"), score=score)
        spread = self.result[name].scores.get(score)
        return np.array(spread.values) if spread else np.full(self.result.protocol.seeds, np.nan)

    def plot(self) -> "Figure":
        """Efficacy by method, with a band of retrained models, and any attack against efficacy."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import panels

        result, drawn = self.result, self.result.drawn()
        attacked = any(method.attack is not None for method in drawn)
        figure, (efficacies, *attacks) = panels(2 if attacked else 1)
        plot.draw_efficacies(efficacies, drawn, result.band)
        if attacked:
            plot.draw_attacks(attacks[0], drawn, result.protocol.members_share)
        return figure


def check_unlearn_result(result: UnlearnResult) -> None:
    check_methods(result.methods, REFERENCES, result.finding)
    demand(
        {method.models for method in result.methods} == {result.protocol.seeds}, "a method has not a model of each seed"
    )
    demand(len(result.drawn()) > 0, "no method has an efficacy and its bound")
    for method in result.methods:
        finding, differs = method.finding, any(place.differs for place in method.places.values())
        decided = not finding or (finding.verdict == "distinguishable") == differs
        demand(decided, "a verdict is not that of its places")


def check_methods(methods: Sequence[MethodResult], references: Sequence[str], whole: Finding) -> None:
    """Every method, and no reference, has a verdict, and the finding on all methods is that of one."""
    for method in methods:
        demand(bool(method.finding) != (method.name in references), "a finding is missing or out of place")
        demand(bool(method.challenge) == bool(method.u_lira), "the challenge's score and U-LiRA go together")
        models = {len(spread.values) for spread in method.scores.values()} - {method.models}
        demand(method.models > 0 and not models, "scores are of another number of models")
        demand("information" not in method.places, "information has no place")
    verdicts = [method.finding.verdict for method in methods if method.finding]
    demand(set(verdicts) <= {*get_args(Conclusion)}, "a verdict is none of a method")
    demand(not verdicts or whole.verdict in verdicts, "its finding is that of no method")


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
    return lira.high if lira else 0.0


def informative(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that distinguish the original, which forgot nothing, from retraining."""
    compared = result[ORIGINAL].places
    return tuple(name for name in FORGETTING if name in compared and compared[name].differs)


def blind(result: UnlearnResult) -> tuple[str, ...]:
    """The scores about forgotten records that do not distinguish even the original: no evidence of forgetting."""
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
    # In words that say what is compared.
    clauses = [
        f"{name}: {finding.verdict}{'' if finding.verdict == 'inconclusive' else ' from retraining'}"
        for name, finding in findings.items()
    ]
    alike = [finding.confidence for finding in findings.values() if finding.verdict == worst.verdict]
    return Finding(
        worst.verdict,
        worst.tone,
        f"{'; '.join(clauses)}.",
        tuple(f"{name}: {reason}" for name, finding in findings.items() for reason in finding.reasons),
        min(alike, key=lambda confidence: LEAST_FIRST.index(confidence.word)),
        in_order(_once(check for finding in findings.values() for check in finding.checks)),
        _once(caveat for finding in findings.values() for caveat in finding.caveats),
        _once(more for finding in findings.values() for more in finding.would_change),
    )


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
        if "efficacy" in method.scores and any(map(math.isinf, method.scores["efficacy"].values))
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
