"""This package's own attack: a regression on shadow models combines several kinds of evidence of membership."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.attacks.records.attack import Least, PerTarget, ShadowScores, left_out
from jaxaudit.attacks.records.lira import BaVarIAt
from jaxaudit.attacks.records.rmia import BASE
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import Indices, Kinds, Members
from jaxaudit.metrics.scores import (
    EVIDENCE_LIMIT,
    cut,
    evenly_spaced,
    fit_weights,
    membership_evidence,
    profile,
    profiles_without,
)

LEAST = 2
FOLDS = 8
"""The number of folds of models; the weights for a fold are fitted to the models of the other folds."""
FEW = 4
"""With at most this many shadow models, evidence changes notably if one more is left out; see `Stacked`."""


@dataclass(frozen=True)
class Stacked:
    """The score is the log-odds of membership, by a logistic regression on shadow models of known membership.

    Its evidence is that of `metrics.membership_scores` (likelihood ratios with normal and with heavy tails, and
    context), `BASE` and `BaVarIAt`. Variances and gaps of a record are shrunk towards those of all records, so few
    shadow models are enough. Log-odds are averaged over views, and cut at 20 nats.

    If shadow models attack each other, a model's weights are fitted to other folds only, and use none of its partner's
    records (`left_out`): any trace of membership would move the area under the ROC curve of outputs without memory.
    """

    name = "stacked"
    meaning = "Several likelihood ratios and BASE, weighted by a regression over the shadow models."
    source = "jaxaudit; Carlini et al. 2022; Lassila et al. 2025; Brännvall 2026"
    least = Least(together=LEAST)

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`; an `InputError` if fewer than 2 shadow models attack a target."""
        if shadowed.references < LEAST:
            raise InputError(
                f"{self.name} needs {LEAST} shadow models to attack another; there are {shadowed.references}."
            )
        if shadowed.references <= FEW:
            return _scores_by_few(shadowed)
        among = shadowed._replace(targets=None)
        if shadowed.targets is not None:
            weights = _weights(among)
            return np.stack([evidence @ weights for evidence in _evidence_of_targets(shadowed)])
        numbers = np.arange(len(shadowed.models))
        scores, evidence = np.empty(shadowed.membership.shape), _evidence_among(shadowed, numbers.tolist())
        for fold in np.array_split(numbers, min(FOLDS, len(numbers))):
            weights = _weights(_without(shadowed, fold), _no_partner(shadowed, fold))
            for model in fold:
                scores[model] = next(evidence) @ weights
        return scores


def _scores_by_few(shadowed: ShadowScores) -> PerTarget:
    """Means over leaving out one model at a time, so that a target's evidence is of as many models as the weights'."""
    numbers = np.arange(len(shadowed.models))
    less = [_without(shadowed, one) for one in numbers[:, None]]
    scores = np.zeros(shadowed.attacked[:, 0].shape)
    if shadowed.targets is not None:
        weights = _weights(shadowed._replace(targets=None))
        for part in less:
            scores += np.stack([evidence @ weights for evidence in _evidence_of_targets(part)])
        return scores / len(less)
    part_weights = [
        _weights(part, _no_partner(shadowed, one)) for part, one in zip(less, numbers[:, None], strict=True)
    ]
    for number, part in enumerate(less):
        other_numbers = np.delete(numbers, number)
        for model, evidence in zip(other_numbers, _evidence_among(part, range(len(other_numbers))), strict=True):
            scores[model] += evidence @ part_weights[model]
    return scores / (len(less) - 1)


def _without(shadowed: ShadowScores, numbers: Indices) -> ShadowScores:
    """The input without these shadow models, as if they were not finished."""
    models, membership = (np.delete(array, numbers, axis=0) for array in (shadowed.models, shadowed.membership))
    return shadowed._replace(models=models, membership=membership)


def _no_partner(shadowed: ShadowScores, fold: Indices) -> Bool[np.ndarray, "others n"]:
    """For each model outside the fold, the records for which it is no partner (`left_out`) of a model in the fold."""
    partners = [np.where(side[fold] == fold[:, None], -1, side[fold]) for side in left_out(shadowed)]
    rest = np.setdiff1d(np.arange(len(shadowed.models)), fold)
    return ~(rest[:, None, None] == np.concatenate(partners)).any(axis=1)


def _weights(among: ShadowScores, seen: Members | None = None) -> Float[np.ndarray, " all"]:
    """The weights of the kinds of evidence, fitted to models of known membership, each attacked with the others."""
    some = evenly_spaced(among.models[:, 0])
    evidence, membership = np.stack(list(_evidence_among(among, some.tolist()))), among.membership[some]
    if seen is None:
        return fit_weights(evidence, membership)
    return fit_weights(evidence[seen[some]], membership[seen[some]])


def _further(shadowed: ShadowScores) -> Float[np.ndarray, "targets n further"]:
    """The scores of BASE and BaVarIA-t, cut like all evidence; 0 if they are NaN."""
    further_scores = np.stack([np.nan_to_num(attack.scores(shadowed)) for attack in (BASE(), BaVarIAt())], axis=-1)
    return np.clip(further_scores, -EVIDENCE_LIMIT, EVIDENCE_LIMIT)


def _evidence_of_targets(shadowed: ShadowScores) -> Iterator[Kinds]:
    """The evidence of each target, computed with all shadow models."""
    assert shadowed.targets is not None
    shadow_profile = profile(cut(shadowed.models.mean(axis=1)), shadowed.membership)
    targets = zip(cut(shadowed.targets.mean(axis=1)), _further(shadowed), strict=True)
    return (np.hstack([membership_evidence(odds, shadow_profile), more]) for odds, more in targets)


def _evidence_among(among: ShadowScores, places: Sequence[int]) -> Iterator[Kinds]:
    """The evidence of the models with these indices, each computed without the models that are left out for it."""
    models, without, further = cut(among.models.mean(axis=1)), left_out(among), _further(among)
    profiles = profiles_without(models, among.membership, (np.stack([side[p] for side in without]) for p in places))
    pairs = zip(places, profiles, strict=True)
    return (
        np.hstack([membership_evidence(models[place], of_membership), further[place]]) for place, of_membership in pairs
    )


ATTACKS = (Stacked(),)
