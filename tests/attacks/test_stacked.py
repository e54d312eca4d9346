"""Our own score of records against a slow twin, and on records without memory."""

import numpy as np
import pytest
from support.record_attacks import MODELS, RECORDS, base, bavaria, dealt_rows, in_turn, partner_of, planned_for, world

from jaxaudit.attacks.records import BASE, BaVarIAt, ShadowScores, Stacked
from jaxaudit.attacks.records.attack import fixed_design, left_out
from jaxaudit.attacks.records.stacked import FEW, FOLDS
from jaxaudit.kernels.ranking import auc
from jaxaudit.metrics.profile import PRIOR_MODELS, Profile
from jaxaudit.metrics.scores import EVIDENCE_LIMIT, fit_weights, membership_evidence


@pytest.mark.parametrize("paired", [False, True])
def test_our_own_score_is_a_regression_on_evidence_from_others(paired: bool):
    """Evidence from all but the model and its partners; weights from models of other folds, without that fold.

    No record of a partner is among those that weights are fitted to. A target's evidence is from all models, with the
    weights of all.
    """
    shadowed = world(views=2)
    shadowed = shadowed._replace(design=planned_for(shadowed) if paired else None)
    models, membership = shadowed.models.mean(axis=1), shadowed.membership
    evidence, found = slow_evidence_of_each(shadowed), Stacked().scores(shadowed)
    # Every other fold: the twin is slow.
    for fold in np.array_split(np.arange(MODELS), FOLDS)[::2]:
        rest = np.setdiff1d(np.arange(MODELS), fold)
        others = shadowed._replace(models=shadowed.models[rest], membership=membership[rest])
        weights = slow_weights(shadowed, fold, rest, slow_evidence_of_each(others))
        np.testing.assert_allclose(found[fold], evidence[fold] @ weights, rtol=1e-5, atol=1e-5)
    outside = shadowed._replace(targets=world(1, models=1, views=2).models)
    target, every = outside.attacked[0].mean(axis=0), np.ones_like(membership)
    both = [twin(outside.attacked[0], shadowed.models, membership) for twin in (base(True), bavaria)]
    slow = slow_evidence(models, target, membership, every, slow_further(*both)) @ fit_weights(evidence, membership)
    np.testing.assert_allclose(Stacked().scores(outside)[0], slow, rtol=1e-5, atol=1e-5)


def first(count: int) -> ShadowScores:
    """A bank of so many models."""
    whole = world(views=2)
    return ShadowScores(whole.models[:count], whole.membership[:count])


@pytest.mark.parametrize(("references", "paired"), [(3, True), (FEW, False)])
def test_among_few_models_evidence_is_by_as_many_as_the_weights_saw(references: int, paired: bool):
    """The mean over which shadow model is not asked; each model's weights are those of a bank without it."""
    count = references + 1 + paired
    shadowed = first(count)
    shadowed = shadowed._replace(design=planned_for(shadowed) if paired else None)
    assert shadowed.references == references

    def without(number: int) -> ShadowScores:
        models, membership = (np.delete(each, number, axis=0) for each in (shadowed.models, shadowed.membership))
        return shadowed._replace(models=models, membership=membership)

    found, evidence = Stacked().scores(shadowed), {}
    for out in range(count):
        rest = [number for number in range(count) if number != out]
        evidence[out] = dict(zip(rest, slow_evidence_of_each(without(out), further_of(without(out))), strict=True))
    for model in range(count):
        rest = np.array([number for number in range(count) if number != model])
        weights = slow_weights(shadowed, np.array([model]), rest, np.stack(list(evidence[model].values())))
        mean = np.mean([evidence[out][model] for out in range(count) if out != model], axis=0)
        np.testing.assert_allclose(found[model], mean @ weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("references", [2, FEW])
def test_among_few_models_a_target_is_asked_about_as_one_of_them_is(references: int):
    """A model of the bank, handed over as a target of the others."""
    shadowed = first(references + 1)
    others = ShadowScores(shadowed.models[1:], shadowed.membership[1:], targets=shadowed.models[:1])
    np.testing.assert_allclose(Stacked().scores(others)[0], Stacked().scores(shadowed)[0], rtol=1e-9, atol=1e-9)


def slow_weights(shadowed: ShadowScores, fold: np.ndarray, rest: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """Fitted to the evidence of the others, but for records of which one is a partner of a model of the fold."""
    seen, places = [], range(shadowed.membership.shape[1])
    for place, other in enumerate(rest):
        for record in places:
            if all(partner_of(shadowed, model, record) != other for model in fold):
                seen.append((evidence[place, record], shadowed.membership[other, record]))
    kinds, truth = zip(*seen, strict=True)
    return fit_weights(np.stack(kinds), np.array(truth))


def further_of(shadowed: ShadowScores) -> np.ndarray:
    """Of models with none on one side, too, of which the twins know nothing."""
    return slow_further(*(np.nan_to_num(attack.scores(shadowed)) for attack in (BASE(), BaVarIAt())))


def slow_evidence_of_each(shadowed: ShadowScores, further: np.ndarray | None = None) -> np.ndarray:
    """The evidence of every model from the others."""
    models, membership = shadowed.models.mean(axis=1), shadowed.membership
    found = []
    if further is None:
        further = slow_further(in_turn(shadowed, base(True)), in_turn(shadowed, bavaria))
    for model, own in enumerate(models):
        left = [side[model] for side in left_out(shadowed)]
        kept = [[row not in (left[0][n], left[1][n]) for n in range(RECORDS)] for row in range(len(models))]
        found.append(slow_evidence(models, own, membership, np.array(kept), further[model]))
    return np.stack(found)


def slow_further(surer: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    return np.clip(np.stack([surer, ratio], axis=-1), -EVIDENCE_LIMIT, EVIDENCE_LIMIT)


def slow_evidence(
    models: np.ndarray, x: np.ndarray, membership: np.ndarray, kept: np.ndarray, further: np.ndarray
) -> np.ndarray:
    """The evidence of log-odds from the models that are kept for each record."""
    sides = [membership & kept, ~membership & kept]
    count = [side.sum(axis=0) for side in sides]
    mean = [np.where(side, models, 0).sum(axis=0) / np.maximum(side.sum(axis=0), 1) for side in sides]
    squares = [
        np.where(side, (models - of_side) ** 2, 0).sum(axis=0) for side, of_side in zip(sides, mean, strict=True)
    ]
    freedom = [np.maximum(each - 1, 0) for each in count]

    def shrunk(squares: np.ndarray, freedom: np.ndarray) -> np.ndarray:
        return (squares + PRIOR_MODELS * (squares.sum() / freedom.sum())) / (freedom + PRIOR_MODELS)

    variance = shrunk(squares[0] + squares[1], freedom[0] + freedom[1])
    error = variance * (1 / np.maximum(count[0], 1) + 1 / np.maximum(count[1], 1))
    gap, known = mean[0] - mean[1], (count[0] > 0) & (count[1] > 0)
    typical = gap[known].mean()
    spread = max(gap[known].var() - error[known].mean(), 0)
    gap = typical + np.where(known, (gap - typical) * spread / (spread + error), 0)
    base = (count[1] * mean[1] + count[0] * (mean[0] - gap)) / (count[0] + count[1])
    known_of = Profile(base, base + gap, shrunk(squares[1], freedom[1]), shrunk(squares[0], freedom[0]), variance)
    return np.concatenate([membership_evidence(x, known_of), further], axis=1)


@pytest.mark.outer
def test_weights_that_fit_few_records_too_well_tell_nothing():
    """Areas under the ROC curve of 60 banks of 8 models average to one half within 4 standard errors.

    Were the weights of a model fitted to its partners' records, too, they would average to .487.
    """
    areas = []
    for seed in range(60):
        rows = dealt_rows("fixed", 8, 200, seed)
        shadowed = world(seed, models=8, records=200, memory=0.0)._replace(membership=rows, design=fixed_design(rows))
        areas.append(np.mean([auc(*pair) for pair in zip(Stacked().scores(shadowed), rows, strict=True)]))
    assert abs(np.mean(areas) - 0.5) < 4 * np.std(areas, ddof=1) / np.sqrt(len(areas))
