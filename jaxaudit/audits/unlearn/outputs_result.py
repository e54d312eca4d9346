"""What unlearned models of your own say of the records, and the result of scoring them, which is its JSON.

Arrays may be of an untrusted file: they are read one model at a time, after their shapes were held against the labels.
Log-odds of logits need no normalisation, and log-probabilities are logits. One number decides: the accuracy of U-LiRA,
with its 95% interval over models. On simulated log-odds of models that forgot perfectly, correlated over records, at
most 2% of 60 methods of 5 to 32 models were called distinguishable. With 4 or 5 models on a side even a perfect
attack's interval reaches 0.5.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxaudit.audits.finding import Checked, Confidence, Finding, assumed, in_order, plural, undecided
from jaxaudit.audits.unlearn.result import (
    LEAST_SEEDS,
    ORIGINAL,
    RETRAINING,
    UNTRAINED,
    MethodResult,
    Score,
    check_methods,
)
from jaxaudit.data.outputs.kinds import (
    Found,
    Kind,
    decimals_of,
    inside,
    kind_of_outputs,
    of_infinite,
    refuse_bits,
    refuse_hard_labels,
    rounding_of_sums,
    span_of,
)
from jaxaudit.errors import InputError
from jaxaudit.json_types import Count, StrictStruct, demand
from jaxaudit.metrics import Estimate
from jaxaudit.metrics.arrays import Integers, Numbers, PerModel, Scores
from jaxaudit.metrics.over_models import FEWEST, LARGEST, LEAST_EXPECTED, LOW, mean_of_models
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.usage import OVER_FORGOTTEN

FORGET, OTHERS = "forget", ("retain", "test")
FALSE_POSITIVE_RATE = 0.01
MOST_MODELS = 2_000
"""Work and memory grow with the square of their number."""
RETRAINED, AGAIN = "retrained", "retrained again"
TAKEN = (RETRAINED, AGAIN, RETRAINING, ORIGINAL, UNTRAINED)
"""Names of references, which no method may have."""


class GivenModels(NamedTuple):
    """What the models of one file say.

    Attributes:
        log_odds: of the class of each record to forget, in nats.
        forgotten_accuracy, remaining_accuracy, test_accuracy: of each model; NaN if not given.
        commonest: the share of the records to forget that are of their commonest class: the accuracy of a guess.
        digests: of each model's outputs on the records to forget: equal outputs have equal ones.
    """

    log_odds: Scores
    forgotten_accuracy: PerModel
    remaining_accuracy: PerModel
    test_accuracy: PerModel
    commonest: float
    classes: int
    kind: Literal["probabilities", "logits"]
    dtype: str
    digests: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def cut(self) -> float:
        """The share of log-odds that are cut at 103.6 nats, as those of a probability of 0 or 1 are."""
        return float((np.abs(self.log_odds) >= LARGEST).mean())

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of all outputs on the records to forget, and of the accuracies."""
        digest = hashlib.blake2b("".join(self.digests).encode(), digest_size=16)
        for accuracies in (self.remaining_accuracy, self.test_accuracy):
            digest.update(b"none" if np.isnan(accuracies).any() else np.ascontiguousarray(accuracies, "<f8").tobytes())
        return f"blake2b:{digest.hexdigest()}"


def checked_classes(labels: Any) -> Integers:
    """The class of each record to forget, from 0."""
    array = np.asarray(labels)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError(
            f"labels: have shape {array.shape} and type {array.dtype}, but must be the number of the class of each "
            "record to forget, from 0, at least one: save an array of integers, one for each record."
        )
    return array.astype(np.int64)


def read_models_of(name: str, arrays: Mapping[str, Any], labels: Integers, kind: Kind) -> GivenModels:
    """What the models of one side say, from arrays (or stored arrays), as for `score_unlearning`."""
    names = [str(part)[:40] for part in arrays]
    if FORGET not in names or not set(names) <= {FORGET, *OTHERS}:
        raise InputError(
            f"{name}: has the arrays {', '.join(map(repr, names[:10])) or '(none)'}; that of the records to forget is "
            f"named {FORGET!r}, accuracies {' and '.join(map(repr, OTHERS))}, and no more are read. Is there a typing "
            "error?"
        )
    forget = arrays[FORGET]
    _check_shape(f"{name}[{FORGET}]", forget, labels)
    models, classes, digests = forget.shape[0], forget.shape[2], []
    odds = np.empty(forget.shape[:2], np.float32 if forget.dtype == np.float32 else np.float64)
    forgotten, kinds = np.empty(models), set[Found]()
    for model in range(models):
        values, found_kind = _of_model(forget, model, f"{name}[{FORGET}], model {model}", kind)
        kinds.add(found_kind)
        if found_kind == "probabilities":
            with np.errstate(divide="ignore"):
                odds[model] = log_odds(np.log(values.astype(np.float64).clip(0, 1)), labels)
        else:
            odds[model] = log_odds(values, labels)
        forgotten[model] = (values.argmax(axis=1) == labels).mean()
        digests.append(hashlib.blake2b(np.ascontiguousarray(values, "<f8").data, digest_size=16).hexdigest())
    if len(kinds) > 1:
        raise InputError(
            f"{name}[{FORGET}]: some models have probabilities and others logits; save all of them in one form."
        )
    for model, digest in enumerate(digests):
        if digest in digests[:model]:
            raise InputError(
                f"{name}[{FORGET}]: models {digests.index(digest)} and {model} have the same outputs; was one saved "
                "twice, or trained from one seed? Give models that were trained independently."
            )
    remaining, test = (
        _accuracies(f"{name}[{part}]", arrays[part], models) if part in arrays else np.full(models, np.nan)
        for part in OTHERS
    )
    commonest = float(np.bincount(labels).max() / len(labels))
    return GivenModels(
        odds, forgotten, remaining, test, commonest, classes, kinds.pop(), str(forget.dtype), tuple(digests)
    )


def check_together(sides: Mapping[str, GivenModels], retrained: GivenModels) -> None:
    """Refuses sides that cannot be compared: other classes or forms of outputs."""
    for name, side in sides.items():
        if (side.classes, side.kind) != (retrained.classes, retrained.kind):
            raise InputError(
                f"{name}[{FORGET}] has {side.classes} classes and {side.kind}, but {RETRAINED}[{FORGET}] has "
                f"{retrained.classes} classes and {retrained.kind}: give the outputs of models of the same classes, "
                "all in one form, best as logits; rounding alone could distinguish them."
            )


def check_names(names: Iterable[str], taken: Sequence[str] = TAKEN) -> None:
    """Refuses a method's name that is empty or a reference's."""
    for name in names:
        if not name.strip() or name.strip().lower() in taken:
            raise InputError(
                f"a method cannot be named {name!r}: the names {', '.join(taken)} are of references; give it another."
            )


def _check_shape(source: str, array: Any, labels: np.ndarray) -> None:
    shape = tuple(array.shape)
    classes = max(2, int(labels.max()) + 1)
    fits = len(shape) == 3 and 1 <= shape[0] <= MOST_MODELS and shape[1] == len(labels) and shape[2] >= classes
    if not fits or array.dtype.kind not in "fiu":
        raise InputError(
            f"{source}: has shape {shape} and type {array.dtype}, but outputs are numbers [models, records, classes]: "
            f"1 to {MOST_MODELS:,} models, the {len(labels)} labelled records in their order, and at least {classes} "
            "classes, as their labels have; for two classes save both columns, of a single logit 0 and the logit."
        )


def _of_model(array: Any, model: int, source: str, kind: Kind) -> tuple[np.ndarray, Found]:
    stored = np.asarray(array[model : model + 1])[0]
    refuse_bits(stored, source)
    values = stored if stored.dtype in (np.float32, np.float64) else stored.astype(np.float64)
    if of_infinite(values, source) is not None:
        return values, "logits"
    span = span_of(values, source)
    refuse_hard_labels(values, source)
    decimals = decimals_of(values, str(stored.dtype)) if inside(span) else None
    tolerance = rounding_of_sums(values.shape[1], decimals, None, str(stored.dtype))
    return values, kind_of_outputs(values, kind, span, tolerance, source)


def _accuracies(source: str, array: Any, models: int) -> PerModel:
    """The accuracy of each model on other records."""
    shares = np.asarray(array[:]) if tuple(array.shape) == (models,) else np.zeros(0)
    if not len(shares) or shares.dtype.kind != "f" or not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(
            f"{source}: has shape {tuple(array.shape)} and type {array.dtype}, but must be the accuracy of each of the "
            f"{models} models in their order, from 0 to 1."
        )
    return shares.astype(np.float64)


class UnlearnOutputsResult(StrictStruct, frozen=True, kw_only=True):
    """The numbers of all methods, whose models were trained elsewhere: `retrained again`, `original` if it was given,
    then the methods. `finding` is the worst verdict.

    Attributes:
        records, classes: of the set to forget.
        compared: models of each method that are compared: the first ones of its file, equally many of all methods, and
            of retrained models as if retraining were a method. All are compared with as many retrained models, those
            after these. 0: there are too few, and nothing is compared.
        false_positive_rate: the share of retrained models' pairs that may be called unlearned.
        shortfalls: what cannot be said with so few models, in sentences, each with the number that is needed.
    """

    finding: Finding
    records: int
    classes: int
    compared: Count
    level: float
    false_positive_rate: float
    shortfalls: tuple[str, ...]
    methods: tuple[MethodResult, ...]

    def __getitem__(self, name: str) -> MethodResult:
        return next(method for method in self.methods if method.name == name)


@dataclass(frozen=True, eq=False)
class UnlearnOutputsAudit:
    """The numbers of all methods, the accuracy of U-LiRA on each record, by method (empty if no models were compared),
    and the papers that the numbers rest on.
    """

    result: UnlearnOutputsResult
    u_lira: Mapping[str, Numbers]
    sources: tuple[str, ...]

    @property
    def finding(self) -> Finding:
        """The conclusion on all methods."""
        return self.result.finding


ACCURACIES: tuple[Score, ...] = ("forgotten_accuracy", "remaining_accuracy", "test_accuracy")


def check_unlearn_outputs(result: UnlearnOutputsResult) -> None:
    for method in result.methods:
        decided = method.finding and method.finding.verdict != "inconclusive"
        demand(not decided or bool(method.challenge), "a verdict is of models that were not compared")
        demand(ACCURACIES[0] in method.scores and {*method.scores} <= {*ACCURACIES}, "a method has other scores")
        for spread in method.scores.values():
            shares = all(0 <= share <= 1 for share in (spread.mean, *spread.values))
            demand(shares and spread.interval is not None, "an accuracy is none, or has no interval")
        demand(not method.places, "outputs have no place among retrained models")
    check_methods(result.methods, (AGAIN, ORIGINAL), result.finding)


GUESS = 0.5
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
        f"`{name}` has {plural(len(side), 'model')}: U-LiRA, F and the challenge's score need {FEWEST} unlearned "
        f"models, and {LEAST_SEEDS} are better. Of fewer models there are accuracies alone."
        for name, side in sides.items()
        if len(side) < FEWEST
    ]
    if len(retrained) < 2 * FEWEST:
        lines.append(
            f"There {'is' if len(retrained) == 1 else 'are'} {plural(len(retrained), 'retrained model')}: U-LiRA, F "
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
    name: str,
    side: GivenModels,
    retrained: GivenModels,
    compared: int,
    lira: Estimate | None,
    original: Estimate | None,
) -> Finding:
    """The finding on one method, by the accuracy of U-LiRA on it (`lira`), and on the `original`. `distinguishable` if
    its whole 95% interval lies above 0.5. `not distinguishable` if the original is distinguishable, and the method's
    interval reaches 0.5 and lies below the original's and below `LOW`. Else `inconclusive`.
    """
    checks = _checks(name, side, retrained, compared)
    if not lira:
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
        few = compared < LEAST_SEEDS
        why = f"The interval is over {compared} models{', which are few' if few else ' on a side'}."
        sentence = f"U-LiRA distinguishes its models from retrained ones: accuracy {number}, above a guess (0.5)."
        if mean_of_models(side.forgotten_accuracy).high < mean_of_models(retrained.forgotten_accuracy).low:
            sentence += f" It classifies the records worse than they do: {OVER_FORGOTTEN}, which is no sign of memory."
        reasons = (f"accuracy of U-LiRA {number}",)
        word = "weak" if few else "fair"
        return Finding("distinguishable", "bad", sentence, reasons, Confidence(word, why), checks, CAVEATS)
    reason = f"the interval of U-LiRA's accuracy, {number}, reaches a guess (0.5)"
    if original and original.low > GUESS and lira.high < min(original.low, LOW):
        sentence = f"U-LiRA distinguishes the original from retrained models, but not these: accuracy {number}."
        caveats = ("Not distinguishable is not a proof of forgetting: another attack may distinguish it.", *CAVEATS)
        confidence = Confidence("fair", f"The original's accuracy is higher: {original.low:.2f} or more.")
        return Finding("not distinguishable", "good", sentence, (reason,), confidence, checks, caveats)
    advice = [] if compared >= 2 * LEAST_SEEDS else ["Give more models, unlearned and retrained."]
    if not original:
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


def _checks(name: str, side: GivenModels, retrained: GivenModels, compared: int) -> tuple[Checked, ...]:
    is_compared = compared > 0 and len(side) >= FEWEST
    cut = max(side.cut, retrained.cut)
    best = max(float(accuracies.mean()) for accuracies in (side.forgotten_accuracy, retrained.forgotten_accuracy))
    guess = retrained.commonest
    return in_order(
        (
            assumed(
                "enough models",
                is_compared and compared >= LEAST_SEEDS,
                f"{compared} models on a side",
                f"{compared} models on a side are few"
                if is_compared
                else f"{plural(len(side), 'model')} of `{name}` and {len(retrained)} retrained",
                decisive=not is_compared,
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
