"""The result of the `unlearn` audit, which is its JSON, and the value that the audit returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Extended, Number, StrictStruct, demand
from jaxaudit.metrics import ChallengeScore, Estimate, Place, ULira

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxaudit.plots import charts as plot

UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC = "untrained", "original", "retraining", "amnesiac"
REFERENCES = (UNTRAINED, ORIGINAL, RETRAINING)
"""Names of the models that methods are compared with."""
RESERVED = (UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC)
LEAST_SEEDS = 16
"""The least number of seeds at which the unlearning challenge's score and U-LiRA are computed: eight models a side."""

LEVEL = 0.95
"""The confidence level of all intervals."""

OfClasses = Literal["efficacy", "bound", "remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"]
OfTexts = Literal["remaining_log_likelihood", "forgotten_log_likelihood", "test_log_likelihood"]
Score = OfClasses | OfTexts
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


class ScoreSpread(StrictStruct, frozen=True):
    """A score of a method's models: `values` by training seed; their median, smallest, largest and mean."""

    median: Extended
    low: Extended
    high: Extended
    mean: Extended
    values: tuple[Extended, ...]


class MethodScores(StrictStruct, frozen=True, omit_defaults=True):
    """The scores of one method's models; None where they were not measured.

    The gradients of `efficacy`, `information` and `bound` (`jaxaudit.metrics.Efficacy`) are of the log-probability of a
    record's class; of records of text, of the mean log-likelihood of its tokens. `attack` is the mean probability of
    membership that a learned attack gives the records to forget; without information it is `Protocol.members_share`,
    and a
    low value alone is no proof of forgetting: see `attack_each` of `compare_unlearning`. Log-likelihoods are of records
        of
    text, which have no accuracy and no attack: the mean over records of their tokens' mean, in nats.
    """

    efficacy: ScoreSpread | None
    information: ScoreSpread | None
    bound: ScoreSpread | None
    remaining_accuracy: ScoreSpread | None
    forgotten_accuracy: ScoreSpread | None
    test_accuracy: ScoreSpread | None
    attack: ScoreSpread | None
    remaining_log_likelihood: ScoreSpread | None = None
    forgotten_log_likelihood: ScoreSpread | None = None
    test_log_likelihood: ScoreSpread | None = None


class Tofu(StrictStruct, frozen=True):
    """Numbers of two benchmarks of language models, each the median over pairs of a model and a retrained model of
    another
    seed: TOFU's forget quality, None without the other answers to the questions, or if a truth ratio is not finite; and
    MUSE's privleak, in percent, by the mean log-likelihood, with the test records as holdout.
    """

    forget_quality: Number
    privleak: Number


class MethodResult(StrictStruct, frozen=True, omit_defaults=True):
    """The results of one method.

    Attributes:
        name: `untrained`, `original` (nothing was forgotten), `retraining`, `amnesiac`, or the name given to it.
        places: rank of each of `COMPARED` among retrained models; empty for `retraining`.
        finding: the conclusion on the method; None for a reference.
        challenge: the unlearning challenge's score, of the method's models of the first half of the seeds against
            retrained models of the other half; None for `untrained`, and with fewer than `LEAST_SEEDS` seeds. Compare
            it with that of `retraining` (other retrained models) and `original`.
        u_lira: the accuracy of U-LiRA, on the same models; `tofu`, too, of texts.
        layers: the information about the forgotten records, layer by layer, the median of its models.
    """

    name: str
    scores: MethodScores
    places: dict[Score, Place]
    finding: Finding | None
    challenge: ChallengeScore | None
    u_lira: Estimate | None
    layers: dict[str, float]
    tofu: Tofu | None = None


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
        return self[ORIGINAL].scores.forgotten_log_likelihood is not None

    @property
    def compared(self) -> bool:
        """Whether the challenge's score and U-LiRA were computed."""
        return any(method.challenge for method in self.methods)

    @property
    def band(self) -> tuple[float, float] | None:
        """The range of the efficacies of retrained models."""
        spread = self[RETRAINING].scores.efficacy
        return None if spread is None else (spread.low, spread.high)

    def drawn(self) -> "list[plot.MethodMarks]":
        """The methods whose efficacy was measured, as charts take them."""
        from jaxaudit.plots import charts as plot

        def values(spread: ScoreSpread | None) -> Any:
            return None if spread is None else np.array(spread.values)

        method_rows = [
            (method.name, method.scores.efficacy, method.scores.bound, method.scores.attack) for method in self.methods
        ]
        return [
            plot.MethodMarks(name, *map(values, of))
            for name, *of in method_rows
            if of[0] is not None and of[1] is not None
        ]

    def plot(self) -> "Figure":
        """Efficacy by method, with a band of retrained models, and any attack against efficacy."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import panels

        drawn = self.drawn()
        attacked = any(method.attack is not None for method in drawn)
        figure, (efficacies, *attacks) = panels(2 if attacked else 1)
        plot.draw_efficacies(efficacies, drawn, self.band)
        if attacked:
            plot.draw_attacks(attacks[0], drawn, self.protocol.members_share)
        return figure


@dataclass(frozen=True, eq=False)
class MethodModels:
    """The models of one method, and measurements that the results only summarise.

    Attributes:
        params: their parameters, as the learner returned them; the leading axis is seeds.
        layers: the information of every layer about the records to forget; the layers add up to
            `MethodScores.information`.
        u_lira: as `jaxaudit.metrics.u_lira` returns it; None if models were not compared.
    """

    params: Any
    layers: Mapping[str, Float[np.ndarray, " seeds"]]
    u_lira: ULira | None = None


@dataclass(frozen=True, eq=False)
class UnlearnAudit:
    """The results of all methods, the records to forget, and the models of each method, by its name.

    `sources` are the papers that the numbers rest on; `form` is how convolutions were computed
    (`kernels.convolutions`), None: as JAX has them, or there are none.
    """

    result: UnlearnResult
    forget: Bool[np.ndarray, " n"]
    models: Mapping[str, MethodModels]
    sources: tuple[str, ...] = ()
    models_per_batch: int | None = None
    form: str | None = None

    @property
    def finding(self) -> Finding:
        """The conclusion on all methods: the worst verdict."""
        return self.result.finding

    def scores(self, name: str, score: str) -> Float[np.ndarray, " seeds"]:
        """`score`, an attribute of `MethodScores`, of each of a method's models; NaN: no value."""
        spread = getattr(self.result[name].scores, score)
        return np.full(self.result.protocol.seeds, np.nan) if spread is None else np.array(spread.values)

    def plot(self) -> "Figure":
        return self.result.plot()


def check_unlearn_result(result: UnlearnResult, arrays: Mapping[str, np.ndarray]) -> None:
    check_methods(result.methods, REFERENCES, result.finding)
    demand(len(result.drawn()) > 0, "no method has an efficacy and its bound")
    for method in result.methods:
        finding, differs = method.finding, any(place.differs for place in method.places.values())
        decided = finding is None or (finding.verdict == "distinguishable") == differs
        demand(decided, "a verdict is not that of its places")


def check_methods(methods: Sequence[Any], references: Sequence[str], whole: Finding) -> None:
    """Every method, and no reference, has a verdict, and the finding on all methods is that of one."""
    for method in methods:
        demand((method.finding is None) == (method.name in references), "a finding is missing or out of place")
    verdicts = [method.finding.verdict for method in methods if method.finding is not None]
    demand(set(verdicts) <= {*get_args(Conclusion)}, "a verdict is none of a method")
    demand(not verdicts or whole.verdict in verdicts, "its finding is that of no method")
