"""What the `unlearn` audit found."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.unlearn.finding import Conclusion, Position, find, together
from jaxaudit.metrics.retrained_band import Place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC = "untrained", "original", "retraining", "amnesiac"
REFERENCES = (UNTRAINED, ORIGINAL, RETRAINING)
"""What methods are judged by."""
RESERVED = (UNTRAINED, ORIGINAL, RETRAINING, AMNESIAC)


class Scores(NamedTuple):
    """The scores of one method's models: a row a set to forget, a column a seed.

    Attributes:
        efficacy: 1 / information about the forgotten records; infinite where that is 0. Lower: less is exposed.
        information: trace of the empirical Fisher information, the mean squared gradient norm, in nats squared.
        bound: 1 / squared norm of the mean gradient, never below the efficacy.
        remaining_accuracy: share of the remaining training records classified as labelled.
        forgotten_accuracy: share of the records to forget.
        test_accuracy: share of the test records.
        attack: mean probability, over the records to forget, that the model was trained on them, as a learned attack
            sees it; NaN for untrained models. What an attacker who knows nothing says is
            `UnlearnAudit.members_share`. A low one alone proves no forgetting: see `attack_each` of `audit_unlearn`.
    """

    efficacy: Float[np.ndarray, "sets seeds"]
    information: Float[np.ndarray, "sets seeds"]
    bound: Float[np.ndarray, "sets seeds"]
    remaining_accuracy: Float[np.ndarray, "sets seeds"]
    forgotten_accuracy: Float[np.ndarray, "sets seeds"]
    test_accuracy: Float[np.ndarray, "sets seeds"]
    attack: Float[np.ndarray, "sets seeds"]


FORGETTING = ("efficacy", "bound", "forgotten_accuracy", "attack")
"""Those of them that are about the forgotten records."""

COMPARED = ("efficacy", "bound", "remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack")
"""The scores that are placed among the retrained models' (information has the ranks of efficacy, reversed)."""


class MethodResult(NamedTuple):
    """One method.

    Attributes:
        name: `untrained`, `original` (nothing was forgotten), `retraining`, `amnesiac`, or the name it was given.
        scores: of its models.
        places: of each score in `COMPARED`, a place a set; empty for `retraining`, and without `attack` for
            `untrained`.
        params: the models' parameters, as the learner made them; leading axes sets and seeds, for `untrained` and
            `original` seeds alone.
    """

    name: str
    scores: Scores
    places: dict[str, tuple[Place, ...]]
    params: Any


@dataclass(frozen=True, eq=False)
class UnlearnAudit:
    """All methods on all sets to forget.

    Attributes:
        methods: `untrained`, `original`, `retraining`, then the methods judged.
        forget: the records each set names.
        forgotten: how many they are.
        seeds: models of each method and set.
        examples: records of the training set.
        test_examples: records of the test set.
        nonmembers: how many test records the attack networks learned from, beside all members.
        members_share: the share of members among the records an attack on the original learned from.
        level: with this probability a method that is as good as retraining has no place called `above` or `below`.
        models_per_batch: models trained side by side.
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
        """What is left of one set to forget, method by method, as a Matplotlib figure."""
        from jaxaudit.audits.unlearn.figure import plot_unlearn

        return plot_unlearn(self, forget_set)

    @property
    def threshold(self) -> float:
        """The p-value from which on a place is called: 1 - level, shared among all scores and sets of a method."""
        return (1 - self.level) / (len(COMPARED) * len(self.forget))

    @property
    def enough_seeds(self) -> bool:
        """Whether so many seeds can show a difference at all: the smallest possible p-value is 2 / 2^seeds."""
        return 2.0 ** (1 - self.seeds) <= self.threshold

    def blind(self, forget_set: int = 0) -> tuple[str, ...]:
        """The scores about forgotten records that do not distinguish even the original, which forgot nothing.

        That such a score does not distinguish a method from retraining says nothing.
        """
        places, informative = self[ORIGINAL].places, self.informative(forget_set)
        return tuple(name for name in FORGETTING if name in places and name not in informative)

    def informative(self, forget_set: int = 0) -> tuple[str, ...]:
        """The scores about forgotten records that distinguish the original, which forgot nothing, from retraining."""
        places = self[ORIGINAL].places
        return tuple(name for name in FORGETTING if name in places and self._differs(places[name][forget_set]))

    def conclusion(self, name: str, forget_set: int = 0) -> Conclusion:
        """What all scores of a method say together.

        `distinguishable` from the retrained models by a score or more; `not distinguishable`; or `inconclusive`: too
        few seeds, or no score distinguishes even the original from them.
        """
        if any(self._differs(where[forget_set]) for where in self[name].places.values()):
            return "distinguishable"
        sighted = any(self._differs(where[forget_set]) for where in self[ORIGINAL].places.values())
        return "not distinguishable" if sighted else "inconclusive"

    def verdict(self, where: Place) -> Position:
        """`above` or `below` the retrained models, `not distinguishable` from them, or `too few seeds` to tell."""
        if where.p_value <= self.threshold:
            return "above" if where.direction > 0 else "below"
        return "not distinguishable" if self.enough_seeds else "too few seeds"

    def _differs(self, where: Place) -> bool:
        return self.verdict(where) in ("above", "below")
