"""The results of the `unlearn` audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.learned import SOURCE as ATTACK
from jaxaudit.audits.finding import Finding
from jaxaudit.audits.unlearn.finding import Conclusion, Position, find, together
from jaxaudit.metrics import ChallengeScore, ULira
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.efficacy import SOURCE as EFFICACY
from jaxaudit.metrics.forgetting_quality import SOURCE as CHALLENGE
from jaxaudit.metrics.retrained_band import Place
from jaxaudit.metrics.u_lira import SOURCE as U_LIRA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC = "untrained", "original", "retraining", "amnesiac"
REFERENCES = (UNTRAINED, ORIGINAL, RETRAINING)
"""The scores that methods are judged by."""
RESERVED = (UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC)


class Scores(NamedTuple):
    """The scores of one method's models: one row per set to forget, one column per seed.

    Attributes:
        efficacy: 1 / information about the forgotten records; infinite if that is 0. Large where the parameters fit the
            records, as after training on them; small where they fit badly, as records that they never saw.
        information: trace of the empirical Fisher information, the mean squared gradient norm, in nats squared.
        bound: 1 / squared norm of the mean gradient, never below the efficacy.
        remaining_accuracy: accuracy on the remaining training records.
        forgotten_accuracy: accuracy on the records to forget.
        test_accuracy: accuracy on the test records.
        attack: mean probability of membership that a learned attack gives the records to forget; NaN for untrained
            models. The baseline without information is `UnlearnAudit.members_share`. A low value alone is no proof of
            forgetting: see `attack_each` of `audit_unlearn`.
    """

    efficacy: Float[np.ndarray, "sets seeds"]
    information: Float[np.ndarray, "sets seeds"]
    bound: Float[np.ndarray, "sets seeds"]
    remaining_accuracy: Float[np.ndarray, "sets seeds"]
    forgotten_accuracy: Float[np.ndarray, "sets seeds"]
    test_accuracy: Float[np.ndarray, "sets seeds"]
    attack: Float[np.ndarray, "sets seeds"]


FORGETTING = ("efficacy", "bound", "forgotten_accuracy", "attack")
"""The scores about the forgotten records."""

COMPARED = ("efficacy", "bound", "remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack")
"""The scores that are compared with retrained models (information has the ranks of efficacy, reversed)."""


Layers = Mapping[str, Float[np.ndarray, "sets seeds"]]
"""Information of every layer of a method's models; of all layers it adds up to `Scores.information`."""


class MethodResult(NamedTuple):
    """One method.

    Attributes:
        name: `untrained`, `original` (nothing was forgotten), `retraining`, `amnesiac`, or the name given to it.
        scores: the scores of its models.
        places: for each score in `COMPARED`, one place per set; empty for `retraining`, and without `attack` for
            `untrained`.
        params: the models' parameters, as the learner returned them; the leading axes are sets and seeds, for
            `untrained` and `original` only seeds.
        challenge: for each set, the unlearning challenge's score of the models of the first half of the seeds among
            retrained models of the other half; empty for `untrained`, and with fewer than 16 seeds. For `retraining` it
            is what other retrained models score, for `original` what forgetting nothing scores.
        u_lira: the same for the accuracy of U-LiRA.
        source: the papers that it rests on.
        layers: the information about the forgotten records, layer by layer.
    """

    name: str
    scores: Scores
    places: dict[str, tuple[Place, ...]]
    params: Any
    challenge: tuple[ChallengeScore, ...] = ()
    u_lira: tuple[ULira, ...] = ()
    source: str = ""
    layers: Layers = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class UnlearnAudit:
    """All methods on all sets to forget.

    Attributes:
        methods: `untrained`, `original`, `retraining`, then the methods judged.
        forget: the records of each set to forget.
        forgotten: the number of records of each set.
        seeds: models per method and set, one per seed.
        examples: number of training records.
        test_examples: number of test records.
        nonmembers: number of test records that attack networks learned from, beside all members.
        members_share: share of members among the records that an attack on the original learned from.
        level: confidence level of the intervals that are shown; no verdict depends on it.
        models_per_batch: models trained at the same time.
    """

    methods: tuple[MethodResult, ...]
    forget: Bool[np.ndarray, "sets n"]
    forgotten: Int[np.ndarray, " sets"]
    seeds: int
    examples: int
    test_examples: int
    nonmembers: int
    members_share: float
    level: float
    models_per_batch: int | None

    @property
    def sources(self) -> tuple[str, ...]:
        """The papers that its numbers rest on, as methods and metrics name them."""
        measured = [EFFICACY, *([ATTACK] if self.nonmembers else [])]
        compared = [CHALLENGE, U_LIRA] if self.compared else []
        return (*measured, *(each.source for each in self.methods), *compared)

    def __getitem__(self, name: str) -> MethodResult:
        """The method of this name."""
        return next(method for method in self.methods if method.name == name)

    @cached_property
    def finding(self) -> Finding:
        """What the audit concludes over all methods and sets: the worst verdict."""
        sets = range(len(self.forget))
        return together(
            {
                name if len(sets) == 1 else f"{name}, set {place}": finding
                for place in sets
                for name, finding in self.findings(place).items()
            }
        )

    def findings(self, forget_set: int = 0) -> dict[str, Finding]:
        """What the audit concludes of each judged method about one set to forget."""
        return {each.name: find(self, each.name, forget_set) for each in self.methods if each.name not in REFERENCES}

    def plot(self, forget_set: int = 0) -> "Figure":
        """Efficacy and attacks of each method for one set to forget, as a Matplotlib figure."""
        from jaxaudit.audits.unlearn.figure import plot_unlearn

        return plot_unlearn(self, forget_set)

    @property
    def threshold(self) -> float:
        """The largest p-value of a difference: 0.05, divided among all scores and sets of a method."""
        return ALPHA / (len(COMPARED) * len(self.forget))

    @property
    def enough_seeds(self) -> bool:
        """Whether there are enough seeds to show a difference: the smallest possible p-value is 2 / 2^seeds."""
        return 2.0 ** (1 - self.seeds) <= self.threshold

    @property
    def compared(self) -> bool:
        """Whether models were told from retrained ones, by the unlearning challenge's score and U-LiRA."""
        return any(method.challenge for method in self.methods)

    def blind(self, forget_set: int = 0) -> tuple[str, ...]:
        """The scores about forgotten records that do not distinguish even the original, which forgot nothing.

        If such a score does not distinguish a method from retraining, this is no evidence.
        """
        places, informative = self[ORIGINAL].places, self.informative(forget_set)
        return tuple(name for name in FORGETTING if name in places and name not in informative)

    def informative(self, forget_set: int = 0) -> tuple[str, ...]:
        """The scores about forgotten records that distinguish the original, which forgot nothing, from retraining."""
        places = self[ORIGINAL].places
        return tuple(name for name in FORGETTING if name in places and self._differs(places[name][forget_set]))

    def conclusion(self, name: str, forget_set: int = 0) -> Conclusion:
        """The conclusion from all scores of a method together.

        `distinguishable` from the retrained models by at least one score; `not distinguishable`; or `inconclusive`:
        there are too few seeds, or no score distinguishes even the original from them.
        """
        if any(self._differs(where[forget_set]) for where in self[name].places.values()):
            return "distinguishable"
        sighted = any(self._differs(where[forget_set]) for where in self[ORIGINAL].places.values())
        return "not distinguishable" if sighted else "inconclusive"

    def verdict(self, where: Place) -> Position:
        """`above` or `below` the retrained models, `not distinguishable` from them, or `too few seeds`."""
        if where.p_value <= self.threshold:
            return "above" if where.direction > 0 else "below"
        return "not distinguishable" if self.enough_seeds else "too few seeds"

    def _differs(self, where: Place) -> bool:
        return self.verdict(where) in ("above", "below")
