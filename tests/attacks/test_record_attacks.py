"""Attacks on records against slow twins written from the formulas, and what they refuse.

Our own score of records against a slow twin, and on records without memory.
"""

import numpy as np
import pytest
from support.record_attacks import (
    MODELS,
    RECORDS,
    TWINS,
    base,
    bavaria,
    dealt_rows,
    in_turn,
    partner_of,
    planned_for,
    ratios,
    world,
)

from jaxaudit.attacks.records import BASE, RECORD_ATTACKS, RMIA, BaVarIAt, LiRA, RecordAttack, ShadowScores, Stacked
from jaxaudit.attacks.records.attack import check_shadow_scores, counts, fixed_design, left_out, unused_records
from jaxaudit.audits import ATTACKS
from jaxaudit.cli.attack import ON_RECORDS, ON_TARGETS
from jaxaudit.errors import InputError
from jaxaudit.kernels import auc
from jaxaudit.metrics import Profile
from jaxaudit.metrics.scores import EVIDENCE_LIMIT, PRIOR_MODELS, fit_weights, membership_evidence

FEW, FOLDS = 4, 8
"""As `Stacked` has them."""


@pytest.mark.parametrize(
    ("name", "paired", "views"), [*((name, True, 2) for name in TWINS), ("lira", False, 1), ("bavaria-t", False, 1)]
)
def test_an_attack_is_its_formula(name: str, paired: bool, views: int):
    """Each model attacked by the others, and targets that are none of them."""
    attack, twin = TWINS[name]
    shadowed = world(views=views)
    shadowed = shadowed._replace(design=planned_for(shadowed) if paired else None)
    slow = in_turn(shadowed, twin)
    np.testing.assert_allclose(attack.scores(shadowed), slow, rtol=1e-11, atol=1e-12)
    targets = world(1, models=2, views=views).models
    whole = shadowed._replace(targets=targets)
    slow = np.stack([twin(x, shadowed.models, shadowed.membership) for x in targets])
    np.testing.assert_allclose(attack.scores(whole), slow, rtol=1e-11, atol=1e-12)


def test_blocks_of_records_change_nothing(monkeypatch: pytest.MonkeyPatch):
    shadowed = world(views=2)
    before = {attack.name: attack.scores(shadowed) for attack in RECORD_ATTACKS}
    monkeypatch.setattr("jaxaudit.attacks.records.attack.BLOCK", 5 * MODELS * 2)
    assert len(list(shadowed.blocks())) == 8
    for attack in RECORD_ATTACKS:
        np.testing.assert_allclose(attack.scores(shadowed), before[attack.name], rtol=1e-12, err_msg=attack.name)


@pytest.mark.parametrize(("online", "gamma"), [(True, 2.0), (False, 1.0)])
def test_rmia_compares_with_records_that_nobody_used(online: bool, gamma: float):
    """So no score depends on how many of the bank's other records a target used."""
    shadowed = world(records=120)
    unused = np.arange(120) < 100
    rows = shadowed.membership & ~unused
    shadowed = shadowed._replace(membership=rows, unused=unused, targets=world(1, models=2, records=120).models)
    found, attack = RMIA(online, gamma).scores(shadowed), RMIA(online, gamma)
    for x, scores in zip(shadowed.attacked, found, strict=True):
        own = ratios(x, shadowed.models, rows, online, attack.scale)[0]
        np.testing.assert_allclose(scores, [np.mean([of_x / z > gamma for z in own[:100]]) for of_x in own], atol=1e-12)
    assert not attack.relative(shadowed)
    assert attack.relative(shadowed._replace(unused=None))
    shadowed.attacked[:, :, 101:] += 5.0
    np.testing.assert_array_equal(attack.scores(shadowed)[:, :101], found[:, :101])


@pytest.mark.parametrize(
    ("models", "records", "without", "found"),
    [
        (16, 400, 0, 0),
        (16, 400, 150, 150),
        (16, 400, 90, 0),
        (3, 20_000, 0, 0),
        (3, 2000, 2000, 0),
        (4, 9000, 6000, None),
    ],
)
def test_records_left_out_by_chance_are_no_population(models: int, records: int, without: int, found: int | None):
    """With three models a record in eight is in none; it is not known that a target has none of them."""
    rows = np.random.default_rng(0).random((models, records)) < 0.5
    rows[:, :without] = False
    unused = unused_records(rows)
    assert (0 if unused is None else unused.sum()) == ((~rows.any(axis=0)).sum() if found is None else found)


@pytest.mark.parametrize(
    ("how", "planned", "models", "saturated"),
    [
        *(("fixed", 6, 6, True), ("fixed", 12, 12, False), ("fixed", 16, 12, True), ("fixed", 32, 8, False)),
        *(("coins", 12, 12, True), ("turns", 12, 12, False)),
    ],
)
def test_a_model_without_memory_gives_nothing_away(how: str, planned: int, models: int, saturated: bool):
    """The area under the ROC curve is one half within 5 standard errors, however records were dealt to models.

    Numbers of models with a record tell nothing: not where some of the planned models are finished, and not even where
    half of the outputs are cut at the same number.
    """
    rows = dealt_rows(how, planned, 2000)
    shadowed = world(7, models=models, records=2000, memory=0.0)
    shadowed = shadowed._replace(membership=rows[:models], design=fixed_design(rows))
    if saturated:
        shadowed.models[:, :, ::2] = 20.0
    assert shadowed.references == models - 1 - (how == "fixed")
    for attack in RECORD_ATTACKS:
        if shadowed.references < attack.least.together:
            continue
        found = attack.scores(shadowed)
        kept = np.isfinite(found)
        pairs = [
            (own[seen], row[seen])
            for own, row, seen in zip(found, shadowed.membership, kept, strict=True)
            if 0 < row[seen].sum() < seen.sum()
        ]
        if not pairs:
            continue
        error = 1 / np.sqrt(3 * sum(len(own) for own, _ in pairs))
        assert abs(np.mean([auc(*pair) for pair in pairs]) - 0.5) < 5 * error, attack.name


@pytest.mark.parametrize("missing", [0, 20])
def test_how_records_were_dealt_is_told_from_their_rows(missing: int):
    """Of a fixed deal to 40 models, all rows or half: the size is within 3 of 40 (ten standard errors)."""
    inside, outside, _ = fixed_design(dealt_rows("fixed", 40, 20_000)[: 40 - missing])
    assert np.ptp(inside) == np.ptp(outside) == 0
    assert inside[0] + outside[0] == pytest.approx(40, abs=3 if missing else 1e-9)
    for how in ("coins", "turns"):
        assert np.isinf(fixed_design(dealt_rows(how, 40, 20_000))[:2]).all()


def test_sets_that_were_dealt_in_two_ways_leave_out_what_each_would_alone():
    """Of a fixed number of models a record a partner is left out, of coins none; the sets do not mix."""
    sets = [dealt_rows(how, 12, 400) for how in ("fixed", "coins")]
    deals = [fixed_design(rows) for rows in sets]
    assert [bool(np.isfinite(each[0]).all()) for each in deals] == [True, False]
    none = np.zeros((12, 1, 400))
    apart = [left_out(ShadowScores(none, rows, design=deal)) for rows, deal in zip(sets, deals, strict=True)]
    both = np.concatenate(deals, axis=1)
    whole = ShadowScores(np.zeros((12, 1, 800)), np.concatenate(sets, axis=1), design=both)
    for found, parts in zip(left_out(whole), zip(*apart, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(parts, axis=1))


def test_too_few_models_give_no_score():
    shadowed = ShadowScores(np.random.default_rng(0).normal(size=(5, 1, 4)), np.zeros((5, 4), bool))
    shadowed.membership[:, 0] = True
    shadowed.membership[0, 1] = True
    shadowed.membership[:3, 2] = True
    fixed = shadowed._replace(design=np.stack([np.ones(4), np.ones(4), np.zeros(4)]))
    for each, outer in ((shadowed, [0, 4, 2, 4]), (fixed, [0, 3, 1, 4])):
        inside, outside = counts(each)
        assert (inside[0].tolist(), outside[0].tolist()) == ([4, 0, 2, 0], outer)
    assert np.isnan(LiRA().scores(shadowed)).all()
    known = np.isfinite(BaVarIAt().scores(shadowed))
    assert known.tolist() == [[False, row > 0, True, False] for row in range(5)]
    assert np.isfinite(LiRA(False).scores(shadowed))[0].tolist() == [False, True, False, True]
    assert np.isfinite(BASE().scores(shadowed)).all()
    with pytest.raises(InputError, match="there are 1"):
        Stacked().scores(ShadowScores(shadowed.models[:2], world().membership[:2, :4]))


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"membership": np.ones((MODELS, 3), bool)}, ["13, 37", "13, 3"]),
        ({"targets": np.ones((2, 2, RECORDS))}, ["2, 2, 37"]),
        ({"targets": np.full((1, 1, RECORDS), np.nan)}, ["targets", "37 of 37"]),
        ({"models": np.full((MODELS, 1, RECORDS), np.inf)}, ["models"]),
    ],
)
def test_arrays_that_disagree_are_refused(change: dict, numbers: list[str]):
    with pytest.raises(InputError) as refused:
        check_shadow_scores(world()._replace(**change))
    assert all(each in str(refused.value) for each in numbers)


def test_one_model_and_numbers_out_of_range_are_refused():
    with pytest.raises(InputError, match="1 shadow models"):
        check_shadow_scores(ShadowScores(np.ones((1, 1, 3)), np.ones((1, 3), bool)))
    for gamma, scale in ((0.0, 0.3), (float("nan"), 0.3), (2.0, 1.5)):
        with pytest.raises(InputError):
            RMIA(gamma=gamma, scale=scale)


def test_every_attack_is_named_on_the_command_line():
    assert tuple(attack.name for attack in RECORD_ATTACKS) == ON_RECORDS
    assert len(set(ON_RECORDS)) == len(ON_RECORDS)
    assert tuple(attack.name for attack in ATTACKS) == ON_TARGETS
    assert all(isinstance(attack, RecordAttack) for attack in RECORD_ATTACKS)


def test_our_own_score_is_a_regression_on_evidence_from_others():
    """Evidence from all but the model and its partners; weights from models of other folds, without that fold.

    No record of a partner is among those that weights are fitted to. A target's evidence is from all models, with the
    weights of all.
    """
    shadowed = world(views=2)
    shadowed = shadowed._replace(design=planned_for(shadowed))
    models, membership = shadowed.models.mean(axis=1), shadowed.membership
    evidence, found = slow_evidence_of_each(shadowed), Stacked().scores(shadowed)
    # Of two folds: the twin is slow.
    for fold in np.array_split(np.arange(MODELS), FOLDS)[::5]:
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
