"""Our own score: several kinds of evidence of membership, weighted by a regression over all shadow models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records.attack import Least, Shadowed, left_out
from jaxaudit.errors import InputError
from jaxaudit.metrics.profile import profile, profiles_without
from jaxaudit.metrics.scores import cut, evenly_spaced, evidence_weights, fit_weights, membership_evidence

LEAST = 4


@dataclass(frozen=True)
class Stacked:
    """The logarithm of membership odds, by the regression that the tests of `ks` use; see `metrics.membership_scores`.

    Variances and gaps of a record are shrunk towards those of all records, so few shadow models are enough, and a
    record that every model was trained on, or none, still has a score. Where each model is attacked by the others, the
    weights are fitted without its own evidence. Log-odds are averaged over views, and cut at 20 nats.
    """

    name = "stacked"
    meaning = "Several likelihood ratios, weighted by a regression over the shadow models."
    source = "jaxaudit"
    least = Least(together=LEAST)

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target.

        Raises:
            InputError: fewer than 4 shadow models attack a target.
        """
        if shadowed.references < LEAST:
            raise InputError(
                f"{self.name} needs {LEAST} shadow models to attack another; there are {shadowed.references}."
            )
        models, membership = cut(shadowed.models.mean(axis=1)), shadowed.membership
        if shadowed.targets is not None:
            known, weights = profile(models, membership), evidence_weights(models, membership)
            targets = cut(shadowed.targets.mean(axis=1))
            return np.stack([membership_evidence(own, known) @ weights for own in targets])
        without, some = left_out(shadowed), evenly_spaced(models)
        evidence = np.stack(list(_evidence(models, membership, without, some.tolist())))
        together, own = fit_weights(evidence, membership[some]), {}
        for place, model in enumerate(some.tolist()):
            rest = np.arange(len(some)) != place
            if rest.any():
                own[model] = fit_weights(evidence[rest], membership[some[rest]], together)
        del evidence
        every = enumerate(_evidence(models, membership, without, range(len(models))))
        return np.stack([each @ own.get(model, together) for model, each in every])


def _evidence(
    models: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    without: tuple[Int[np.ndarray, "models n"], ...],
    places: Sequence[int],
) -> Iterable[Float[np.ndarray, "n kinds"]]:
    """The evidence of the models at these places, each from all but those that are left out for it."""
    profiles = profiles_without(models, membership, (np.stack([side[place] for side in without]) for place in places))
    return (membership_evidence(models[place], known) for place, known in zip(places, profiles, strict=True))
