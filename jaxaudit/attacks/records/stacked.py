"""Our own score: several kinds of evidence of membership, weighted by a regression over all shadow models."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.attacks.records.attack import Least, Shadowed
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import PAIRS, cut, evidence_weights, membership_evidence

PAIRS_OF_EACH = 1 << 17
"""Models times records that the weights are fitted to where each model is left out in turn: one fit a model."""


@dataclass(frozen=True)
class Stacked:
    """The logarithm of membership odds, by the regression that the tests of `ks` use; see `metrics.membership_scores`.

    Variances and gaps of a record are shrunk towards those of all records, so few shadow models are enough, and a
    record that every model was trained on, or none, still has a score. Where each model is attacked by the others, the
    weights, too, are those of the others alone. Log-odds are averaged over views, and cut at 20 nats.
    """

    name = "stacked"
    meaning = "Several likelihood ratios, weighted by a regression over the shadow models."
    source = "jaxaudit"
    least = Least(together=4)

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target.

        Raises:
            InputError: fewer than 4 shadow models attack a target, or they were all trained on all records, or on none.
        """
        models, membership = cut(shadowed.models.mean(axis=1)), shadowed.membership
        if shadowed.targets is not None:
            return _lines(models, membership, cut(shadowed.targets.mean(axis=1)), PAIRS, None)[0]
        found, weights = np.empty(models.shape), None
        for place, own in enumerate(models):
            rest = np.arange(len(models)) != place
            (found[place],), weights = _lines(models[rest], membership[rest], own[None], PAIRS_OF_EACH, weights)
        return found


def _lines(
    models: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    targets: Float[np.ndarray, "targets n"],
    pairs: int,
    start: Float[np.ndarray, " kinds"] | None,
) -> tuple[Float[np.ndarray, "targets n"], Float[np.ndarray, " kinds"]]:
    """Scores of targets by these models, and the weights of the kinds of evidence."""
    weights, known = evidence_weights(models, membership, pairs, start), profile(models, membership)
    return np.stack([membership_evidence(own, known) @ weights for own in targets]), weights
