"""Our own score: several kinds of evidence of membership, weighted by a regression over all shadow models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records.attack import Least, Shadowed, left_out
from jaxaudit.attacks.records.base import BASE
from jaxaudit.attacks.records.bavaria import BaVarIAt
from jaxaudit.errors import InputError
from jaxaudit.metrics.profile import profile, profiles_without
from jaxaudit.metrics.scores import EVIDENCE_LIMIT, cut, evenly_spaced, fit_weights, membership_evidence

LEAST = 2
FOLDS = 8
"""Parts of the models that share weights; the weights of each are fitted to the others."""


@dataclass(frozen=True)
class Stacked:
    """The logarithm of membership odds, by a logistic regression over the shadow models of known membership.

    Its evidence is that of the tests of `ks` (`metrics.membership_scores`: likelihood ratios with normal and with heavy
    tails, and context), `BASE` and `BaVarIAt`. Variances and gaps of a record are shrunk towards those of all records,
    so few shadow models are enough. Where each model is attacked by the others, its weights come from models of other
    folds alone, measured without any of its own fold: even a trace of its membership there would lift the area under
    the ROC curve above one half. Log-odds are averaged over views, and cut at 20 nats.
    """

    name = "stacked"
    meaning = "Several likelihood ratios and BASE, weighted by a regression over the shadow models."
    source = "jaxaudit; Carlini et al. 2022; Lassila et al. 2025; Brännvall 2026"
    least = Least(together=LEAST)

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target.

        Raises:
            InputError: fewer than 2 shadow models attack a target.
        """
        if shadowed.references < LEAST:
            raise InputError(
                f"{self.name} needs {LEAST} shadow models to attack another; there are {shadowed.references}."
            )
        models, membership = cut(shadowed.models.mean(axis=1)), shadowed.membership
        among = shadowed._replace(targets=None)
        if shadowed.targets is not None:
            weights = _weights(among)
            known = profile(models, membership)
            targets = zip(cut(shadowed.targets.mean(axis=1)), _further(shadowed), strict=True)
            return np.stack([_joined(membership_evidence(own, known), more) @ weights for own, more in targets])
        further, without = _further(among), left_out(among)
        found, numbers = np.empty(models.shape), np.arange(len(models))
        evidence = _evidence(models, membership, without, further, numbers.tolist())
        for fold in np.array_split(numbers, min(FOLDS, len(models))):
            rest = np.setdiff1d(numbers, fold)
            weights = _weights(among._replace(models=among.models[rest], membership=membership[rest]))
            for model in fold:
                found[model] = next(evidence) @ weights
        return found


def _weights(among: Shadowed) -> Float[np.ndarray, " all"]:
    """The weights of the kinds of evidence, from models of known membership, each measured by the others."""
    models, membership = cut(among.models.mean(axis=1)), among.membership
    some = evenly_spaced(models)
    evidence = _evidence(models, membership, left_out(among), _further(among), some.tolist())
    return fit_weights(np.stack(list(evidence)), membership[some])


def _further(shadowed: Shadowed) -> Float[np.ndarray, "targets n further"]:
    """BASE and BaVarIA-t, cut as all evidence is; 0 where they say nothing."""
    found = np.stack([np.nan_to_num(attack.scores(shadowed)) for attack in (BASE(), BaVarIAt())], axis=-1)
    return np.clip(found, -EVIDENCE_LIMIT, EVIDENCE_LIMIT)


def _joined(
    evidence: Float[np.ndarray, "n kinds"], further: Float[np.ndarray, "n further"]
) -> Float[np.ndarray, "n all"]:
    return np.concatenate([evidence, further], axis=1)


def _evidence(
    models: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    without: tuple[Int[np.ndarray, "models n"], ...],
    further: Float[np.ndarray, "models n further"],
    places: Sequence[int],
) -> Iterator[Float[np.ndarray, "n kinds"]]:
    """The evidence of the models at these places, each from all but those that are left out for it."""
    profiles = profiles_without(models, membership, (np.stack([side[place] for side in without]) for place in places))
    each = zip(places, profiles, strict=True)
    return (_joined(membership_evidence(models[place], known), further[place]) for place, known in each)
