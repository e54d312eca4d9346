"""The result of scoring unlearned models of your own by their outputs, which is its JSON, and its verdicts.

One number decides: the accuracy of U-LiRA, with its 95% interval over models. On simulated log-odds of models that
forgot perfectly, correlated over records, at most 2% of 60 methods of 5 to 32 models were called distinguishable. With
4 or 5 models on a side even a perfect attack's interval reaches 0.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order, undecided
from jaxaudit.audits.unlearn.given_models import AGAIN, RETRAINED, GivenModels
from jaxaudit.audits.unlearn.result import LEAST_SEEDS, ORIGINAL, check_methods
from jaxaudit.json_types import Count, StrictStruct, demand
from jaxaudit.metrics import ChallengeScore, Estimate
from jaxaudit.metrics.over_models import FEWEST, LEAST_EXPECTED, LOW
from jaxaudit.metrics.usage import OVER_FORGOTTEN


class OutputsProtocol(StrictStruct, frozen=True):
    """Numbers of records to forget, and of models.

    Attributes:
        compared: models of each method that are compared: the first ones of its file, equally many of all methods, and
            of retrained models as if retraining were a method. All are compared with as many retrained models, those
            after these. 0: there are too few, and nothing is compared.
        false_positive_rate: the share of retrained models' pairs that may be called unlearned.
    """

    records: int
    classes: int
    compared: Count
    level: float
    false_positive_rate: float


class AccuracyOfModels(StrictStruct, frozen=True):
    """The accuracy of all models of a file, from 0 to 1: the mean, with Student's t interval, and of each `value`."""

    mean: Estimate
    values: tuple[float, ...]


class ScoredMethod(StrictStruct, frozen=True):
    """The numbers of one method, or of a reference.

    Attributes:
        name: `retrained again`, `original` (nothing was forgotten), or the name given to it.
        models: in its file.
        forgotten_accuracy, remaining_accuracy, test_accuracy: on the records to forget, on the remaining training
            records, and on test records; None if unknown.
        challenge: the unlearning challenge's score; None if its models were not compared.
        u_lira: the accuracy of U-LiRA, on the same models.
        true_positive_rate: of U-LiRA at `OutputsProtocol.false_positive_rate`; None also if there are fewer than 1,000
            pairs of a reference and a record.
        finding: the conclusion; None for a reference.
    """

    name: str
    models: int
    forgotten_accuracy: AccuracyOfModels
    remaining_accuracy: AccuracyOfModels | None
    test_accuracy: AccuracyOfModels | None
    challenge: ChallengeScore | None
    u_lira: Estimate | None
    true_positive_rate: Estimate | None
    finding: Finding | None


class UnlearnOutputsResult(StrictStruct, frozen=True, kw_only=True):
    """The numbers of all methods, whose models were trained elsewhere: `retrained again`, `original` if it was given,
    then the methods. `finding` is the worst verdict; `shortfalls` say in sentences what cannot be said with so few
    models, each with the number that is needed.
    """

    finding: Finding
    protocol: OutputsProtocol
    shortfalls: tuple[str, ...]
    methods: tuple[ScoredMethod, ...]

    def __getitem__(self, name: str) -> ScoredMethod:
        return next(method for method in self.methods if method.name == name)


@dataclass(frozen=True, eq=False)
class UnlearnOutputsAudit:
    """The numbers of all methods, the accuracy of U-LiRA on each record, by method (empty if no models were compared),
    and the papers that the numbers rest on.
    """

    result: UnlearnOutputsResult
    u_lira: Mapping[str, Float[np.ndarray, " records"]]
    sources: tuple[str, ...]

    @property
    def finding(self) -> Finding:
        """The conclusion on all methods."""
        return self.result.finding


def check_unlearn_outputs(result: UnlearnOutputsResult, arrays: Mapping[str, np.ndarray]) -> None:
    for method in result.methods:
        decided = method.finding is not None and method.finding.verdict != "inconclusive"
        demand(not decided or method.challenge is not None, "a verdict is of models that were not compared")
    check_methods(result.methods, (AGAIN, ORIGINAL), result.finding)


GUESS, FALSE_POSITIVE_RATE = 0.5, 0.01
LEAST_REACH = 0.1
"""How much of the way from guessing to no mistake models come whose outputs and labels are in one order."""
MISLABELLED = 0.3
"""The share of a guess's accuracy below which records have wrong labels by design, which no model finds by itself."""
RESOLVING = 6
"""The least number of models on a side with which a method can be distinguishable."""
CAVEATS = (
    "Distinguishable models may remember records, or have another trace of the method, such as more epochs than "
    "retraining.",
    "F depends on the number of models, and even retrained models are far from 1: compare a method with "
    f"`{AGAIN}` here, and with no value of another number of models, attack or program.",
    "Models are assumed to be independent: no model that is compared shares a seed with a retrained one, unless both "
    "stand in the same row of their files.",
)


def models_compared(sides: Mapping[str, GivenModels], retrained: GivenModels) -> int:
    """How many models of each side, which is a method or the original, are compared: as many as the smallest side with
    enough has, and at most half of the retrained ones; 0 if there are too few.
    """
    enough = [len(side) for side in sides.values() if len(side) >= FEWEST]
    return min(*enough, len(retrained) // 2) if enough and len(retrained) >= 2 * FEWEST else 0


def shortfalls_of(sides: Mapping[str, GivenModels], retrained: GivenModels, compared: int) -> tuple[str, ...]:
    """What so few models cannot show, in sentences, each with the number that is needed."""
    lines = [
        f"`{name}` has {_models(len(side))}: U-LiRA, F and the challenge's score need {FEWEST} unlearned models, and "
        f"{LEAST_SEEDS} are better. Of fewer models there are accuracies alone."
        for name, side in sides.items()
        if len(side) < FEWEST
    ]
    if len(retrained) < 2 * FEWEST:
        lines.append(
            f"There {'is' if len(retrained) == 1 else 'are'} {_models(len(retrained), 'retrained model')}: U-LiRA, F "
            f"and the challenge's score need {2 * FEWEST}, half of them as a method, and {2 * LEAST_SEEDS} are better."
        )
    if not compared:
        return tuple(lines)
    better = f"{LEAST_SEEDS} unlearned and {2 * LEAST_SEEDS} retrained models are better."
    if compared < RESOLVING:
        lines.append(
            f"With {compared} models on a side no method can be distinguishable, even one that forgot nothing: that "
            f"needs {RESOLVING} unlearned and {2 * RESOLVING} retrained models, and {better}"
        )
    elif compared < LEAST_SEEDS:
        lines.append(f"{compared} models on a side give wide intervals: {better}")
    used = {**dict.fromkeys(sides, compared), RETRAINED: 2 * compared}
    unused = [f"`{name}`" for name, side in {**sides, RETRAINED: retrained}.items() if len(side) > used[name]]
    if unused:
        lines.append(
            f"Of {', '.join(unused)} the first models alone are used, {compared} of a method and {2 * compared} "
            "retrained ones: F of other numbers of models is not comparable."
        )
    pairs = compared * retrained.log_odds.shape[1]
    if pairs * FALSE_POSITIVE_RATE < LEAST_EXPECTED - 1e-9:
        lines.append(
            f"The true positive rate at {FALSE_POSITIVE_RATE:.0%} needs {LEAST_EXPECTED / FALSE_POSITIVE_RATE:,.0f} "
            f"pairs of a retrained model and a record; there are {pairs:,}."
        )
    return tuple(lines)


def scored_finding(
    method: ScoredMethod,
    protocol: OutputsProtocol,
    original: Estimate | None,
    retrained: ScoredMethod,
    checks: tuple[Checked, ...],
) -> Finding:
    """The finding on one method. `distinguishable` if the whole 95% interval of U-LiRA lies above 0.5. `not
    distinguishable` if the `original` is distinguishable, and the method's interval reaches 0.5 and lies below the
    original's and below `LOW`. Else `inconclusive`.
    """
    lira = method.u_lira
    if lira is None:
        needed = f"Give {FEWEST} unlearned and {2 * FEWEST} retrained models, better {LEAST_SEEDS} and "
        return undecided(
            "There are too few models to compare with retrained ones; accuracies alone decide nothing.",
            ("too few models",),
            "Too few models were compared.",
            CAVEATS,
            (f"{needed}{2 * LEAST_SEEDS}.",),
            checks,
        )
    number = f"{lira.value:.2f} ({lira.low:.2f} to {lira.high:.2f})"
    if lira.low > GUESS:
        few = protocol.compared < LEAST_SEEDS
        why = f"The interval is over {protocol.compared} models{', which are few' if few else ' on a side'}."
        sentence = f"U-LiRA distinguishes its models from retrained ones: accuracy {number}, above a guess (0.5)."
        if _over_forgotten(method, retrained):
            sentence += f" It classifies the records worse than they do: {OVER_FORGOTTEN}, which is no sign of memory."
        reasons = (f"accuracy of U-LiRA {number}",)
        word = "weak" if few else "fair"
        return Finding("distinguishable", "bad", sentence, reasons, Confidence(word, why), checks, CAVEATS)
    reason = f"the interval of U-LiRA's accuracy, {number}, reaches a guess (0.5)"
    if original is not None and original.low > GUESS and lira.high < min(original.low, LOW):
        sentence = f"U-LiRA distinguishes the original from retrained models, but not these: accuracy {number}."
        caveats = ("Not distinguishable is not a proof of forgetting: another attack may distinguish it.", *CAVEATS)
        confidence = Confidence("fair", f"The original's accuracy is higher: {original.low:.2f} or more.")
        return Finding("not distinguishable", "good", sentence, (reason,), confidence, checks, caveats)
    advice = [] if protocol.compared >= 2 * LEAST_SEEDS else ["Give more models, unlearned and retrained."]
    if original is None:
        advice.append(
            "Give the original's models, too: if U-LiRA distinguishes them, it can see what is not forgotten."
        )
    sentence = f"U-LiRA shows no difference from retrained models: accuracy {number}, and 0.5 is a guess."
    return undecided(
        sentence,
        (reason,),
        "No difference was shown, which is no proof that there is none.",
        CAVEATS,
        tuple(advice) or ("Forget more records, or records that are harder to forget.",),
        checks,
    )


def checks_of(name: str, side: GivenModels, retrained: GivenModels, protocol: OutputsProtocol) -> tuple[Checked, ...]:
    compared = bool(protocol.compared) and len(side) >= FEWEST
    enough = compared and protocol.compared >= LEAST_SEEDS
    cut = max(side.cut, retrained.cut)
    best = max(float(accuracies.mean()) for accuracies in (side.forgotten_accuracy, retrained.forgotten_accuracy))
    guess = retrained.commonest
    return in_order(
        (
            assumed(
                "enough models",
                enough,
                f"{protocol.compared} models on a side",
                f"{protocol.compared} models on a side are few"
                if compared
                else f"{_models(len(side))} of `{name}` and {len(retrained)} retrained",
                decisive=not compared,
            ),
            assumed(
                "labels of these records",
                not MISLABELLED * guess <= best < guess + LEAST_REACH * (1 - guess) or guess == 1,
                f"accuracy on the records to forget: {best:.1%} (guessing: {guess:.1%})",
                f"neither `{name}` nor `{RETRAINED}` classifies the records to forget better than guessing "
                f"({best:.1%}, guessing: {guess:.1%}): if no class was forgotten whole, and none is far commoner "
                "than the others, the labels may be of other records or in another order, and the numbers then say "
                "nothing of memory",
            ),
            assumed(
                "one form of outputs",
                side.dtype == retrained.dtype,
                f"all outputs are {side.kind} of type {side.dtype}",
                f"`{name}` has outputs of type {side.dtype}, and `{RETRAINED}` of {retrained.dtype}: rounding alone "
                "may distinguish them; save all in one type",
            ),
            assumed(
                "whole log-odds",
                cut == 0,
                "no probability is exactly 0 or 1",
                f"{cut:.1%} of log-odds are of a probability of exactly 0 or 1, and were cut at 103.6 nats: save "
                "logits, which tell small probabilities apart",
            ),
        )
    )


def _over_forgotten(method: ScoredMethod, retrained: ScoredMethod) -> bool:
    return method.forgotten_accuracy.mean.high < retrained.forgotten_accuracy.mean.low


def _models(count: int, noun: str = "model") -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
