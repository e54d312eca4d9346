"""Attacks on records against slow twins written from the formulas, analytic cases, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from jaxaudit.attacks.records import (
    BASE,
    RECORD_ATTACKS,
    RMIA,
    AttackP,
    AttackR,
    BaVarIAt,
    LiRA,
    LiRACode,
    RecordAttack,
    Shadowed,
    Stacked,
)
from jaxaudit.attacks.records.attack import Dealt, check, counts, deal_of, left_out, unused_records
from jaxaudit.attacks.records.bavaria import MOST_FREEDOM
from jaxaudit.attacks.records.rmia import share_exceeded
from jaxaudit.attacks.records.sides import sides
from jaxaudit.attacks.records.stacked import FOLDS
from jaxaudit.cli.attack.command import ON_RECORDS
from jaxaudit.errors import InputError
from jaxaudit.kernels.ranking import auc
from jaxaudit.metrics.profile import PRIOR_MODELS, Profile
from jaxaudit.metrics.scores import EVIDENCE_LIMIT, fit_weights, membership_evidence

MODELS, RECORDS = 13, 37


class Ragged(list[np.ndarray]):
    """An array whose last axis is records; each record has its own number of models."""

    def __getitem__(self, place: Any) -> Any:
        *rest, record = place
        return super().__getitem__(record)[tuple(rest)]

    def __invert__(self) -> "Ragged":
        return Ragged(~each for each in self)


Twin = Callable[[np.ndarray, Any, Any], np.ndarray]
"""Of a target's log-odds, and the models and their membership, as arrays or ragged."""


def world(seed: int = 0, models: int = MODELS, views: int = 1, records: int = RECORDS, memory: float = 2.0) -> Shadowed:
    """Records that differ in difficulty, spread and memory; half of the models have each."""
    random = np.random.default_rng(seed)
    membership = np.stack([random.permutation(models) < models // 2 for _ in range(records)], axis=1)
    centre, width = random.normal(2, 2, records), np.exp(random.normal(0, 0.4, records))
    gap = np.abs(random.normal(0, memory, records))
    log_odds = centre + width * random.normal(size=(models, views, records)) + gap * membership[:, None]
    return Shadowed(log_odds, membership)


def planned_for(shadowed: Shadowed, more: int = 4) -> Dealt:
    """As if so many more models had been planned: numbers that are fixed, of which some models are finished."""
    rows, records = shadowed.membership.shape
    inside = np.full(records, (rows + more) // 2)
    return Dealt(inside * 1.0, (rows + more - inside) * 1.0, np.arange(records) * 0.37 % 1)


def partner_of(shadowed: Shadowed, model: int, record: int) -> int | None:
    """The next model of the other kind, in a circle, if it is this record's turn."""
    own, dealt = shadowed.membership[:, record], shadowed.dealt
    circle = [*range(model + 1, len(own)), *range(model)]
    others = [other for other in circle if own[other] != own[model]]
    if dealt is None or not others:
        return None
    planned = (dealt.outside if own[model] else dealt.inside)[record]
    due = (dealt.turn[record] + model * 0.5698402909980532) % 1 < len(others) / planned
    return others[0] if due else None


def in_turn(shadowed: Shadowed, twin: Twin, paired: bool = True) -> np.ndarray:
    """The twin's scores of each model from all others; if paired, without its partner, too."""
    found = []
    for model in range(len(shadowed.models)):
        columns: list[tuple[np.ndarray, np.ndarray]] = []
        for record, own in enumerate(shadowed.membership.T):
            partner = partner_of(shadowed, model, record) if paired else None
            others = [other for other in range(len(own)) if other not in (model, partner)]
            columns.append((shadowed.models[others, :, record], own[others]))
        models, membership = zip(*columns, strict=True)
        found.append(twin(shadowed.models[model], Ragged(models), Ragged(membership)))
    return np.array(found)


# Twins: one target, record by record, from the formulas


def lira(online: bool, fixed: bool) -> Twin:
    def scores(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
        views, records = x.shape
        least = 1 if fixed else 3
        squares, freedom = np.zeros(2), np.zeros(2)
        for n in range(records):
            for side, own in enumerate((membership[:, n], ~membership[:, n])):
                for v in range(views):
                    values = models[own, v, n]
                    squares[side] += ((values - values.mean()) ** 2).sum()
                    freedom[side] += len(values) - 1
        pooled = np.sqrt(squares / freedom)
        found = np.full(records, np.nan)
        for n in range(records):
            inner, outer = models[membership[:, n], :, n], models[~membership[:, n], :, n]
            if len(outer) < least or (online and len(inner) < least):
                continue
            ratios = []
            for v in range(views):
                widths = pooled if fixed else (inner[:, v].std(), outer[:, v].std())
                of_in, of_out = [
                    (np.median(side[:, v]), width + 1e-30) for side, width in zip((inner, outer), widths, strict=True)
                ]
                value = x[v, n]
                if online:
                    ratios.append(stats.norm.logpdf(value, *of_in) - stats.norm.logpdf(value, *of_out))
                else:
                    ratios.append(-stats.norm.logsf(value, *of_out))
            found[n] = np.mean(ratios)
        return found

    return scores


def lira_code(online: bool, fixed: bool) -> Twin:
    """As the authors' code does it: of each side the first k models, k the smallest number over records."""

    def scores(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
        records = x.shape[1]
        inner = [models[membership[:, n], :, n] for n in range(records)]
        outer = [models[~membership[:, n], :, n] for n in range(records)]
        inside = np.array([each[: min(map(len, inner))] for each in inner])
        outside = np.array([each[: min(map(len, outer))] for each in outer])
        if fixed:
            of_in = of_out = inside.std() if online else outside.std()
        else:
            of_in, of_out = inside.std(axis=1), outside.std(axis=1)
        out = stats.norm.logpdf(x.T, np.median(outside, axis=1), of_out + 1e-30)
        if not online:
            return -out.mean(axis=1)
        return (stats.norm.logpdf(x.T, np.median(inside, axis=1), of_in + 1e-30) - out).mean(axis=1)

    return scores


def ratios(x: np.ndarray, models: Any, membership: Any, online: bool, scale: float) -> np.ndarray:
    found = np.empty(x.shape)
    for v, n in np.ndindex(*x.shape):
        said = special.expit(models[:, v, n])
        mean = said.mean() if online else ((1 + scale) * said[~membership[:, n]].mean() + 1 - scale) / 2
        found[v, n] = special.expit(x[v, n]) / mean
    return found


def rmia(online: bool, gamma: float = 2.0, scale: float = 0.3) -> Twin:
    def scores(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
        own = ratios(x, models, membership, online, scale)
        return np.array(
            [
                np.mean(
                    [np.mean([of_x / of_z > gamma for of_z in view]) for view, of_x in zip(own, column, strict=True)]
                )
                for column in own.T
            ]
        )

    return scores


def base(online: bool) -> Twin:
    def scores(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
        found = np.empty(x.shape)
        for v, n in np.ndindex(*x.shape):
            said = models[:, v, n] if online else models[~membership[:, n], v, n]
            found[v, n] = np.log(special.expit(x[v, n])) - np.log(np.mean(special.expit(said)))
        return found.mean(axis=0)

    return scores


def attack_r(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
    found = np.empty(x.shape)
    for v, n in np.ndindex(*x.shape):
        others = models[~membership[:, n], v, n]
        found[v, n] = np.mean([(value < x[v, n]) + (value == x[v, n]) / 2 for value in others])
    return found.mean(axis=0)


def bavaria(x: np.ndarray, models: Any, membership: Any) -> np.ndarray:
    """The posterior predictive by its definition, with SciPy's Student t; priors by their moments."""
    densities = []
    for rows in (membership, ~membership):
        values = {(v, n): models[rows[:, n], v, n] for v, n in np.ndindex(*x.shape)}
        means = np.array([each.mean() for each in values.values()])
        sizes = np.array([len(each) for each in values.values()])
        logs, halves = [], []
        for each in values.values():
            if len(each) > 1:
                half = (len(each) - 1) / 2
                logs.append(np.log(each.var(ddof=1)) - special.digamma(half) + np.log(half))
                halves.append(half)
        excess = np.var(logs) - np.mean(special.polygamma(1, np.array(halves)))
        if excess > 0:
            # trigamma(d0 / 2) = excess, by bisection
            low, high = 1e-8, 1e8
            for _ in range(300):
                middle = np.sqrt(low * high)
                low, high = (middle, high) if special.polygamma(1, middle) > excess else (low, middle)
            a0 = np.sqrt(low * high)
            typical = np.exp(np.mean(logs) + special.digamma(a0) - np.log(a0))
        else:
            a0, typical = MOST_FREEDOM / 2, np.exp(np.mean(logs))
        b0, mu0 = a0 * typical, means.mean()
        k0 = np.clip(typical / (means.var() - np.mean(typical / sizes)), 1e-6, 1e6)
        found = np.empty(x.shape)
        for (v, n), each in values.items():
            k, mean = len(each), each.mean()
            kappa, alpha = k0 + k, a0 + k / 2
            beta = b0 + ((each - mean) ** 2).sum() / 2 + k0 * k * (mean - mu0) ** 2 / (2 * kappa)
            centre = (k0 * mu0 + k * mean) / kappa
            scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
            found[v, n] = stats.t.logpdf(x[v, n], 2 * alpha, centre, scale)
        densities.append(found)
    return (densities[0] - densities[1]).mean(axis=0)


TWINS: dict[str, tuple[RecordAttack, Twin]] = {
    **{LiRA(o, f).name: (LiRA(o, f), lira(o, f)) for o in (True, False) for f in (True, False)},
    **{LiRACode(o, f).name: (LiRACode(o, f), lira_code(o, f)) for o in (True, False) for f in (True, False)},
    "rmia": (RMIA(), rmia(True)),
    "rmia, gamma 1": (RMIA(gamma=1.0), rmia(True, 1.0)),
    "rmia-offline": (RMIA(False), rmia(False)),
    "rmia-offline, scale 1": (RMIA(False, scale=1.0), rmia(False, scale=1.0)),
    "base": (BASE(), base(True)),
    "base-offline": (BASE(False), base(False)),
    "attack-r": (AttackR(), attack_r),
    "attack-p": (AttackP(), lambda x, models, membership: x.mean(axis=0)),
    "bavaria-t": (BaVarIAt(), bavaria),
}


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("name", TWINS)
def test_an_attack_is_its_formula(name: str, paired: bool, views: int):
    """Each model attacked by the others, and targets that are none of them."""
    attack, twin = TWINS[name]
    shadowed = world(views=views)
    shadowed = shadowed._replace(dealt=planned_for(shadowed) if paired else None)
    # The authors' code leaves out the model alone.
    slow = in_turn(shadowed, twin, not isinstance(attack, LiRACode))
    np.testing.assert_allclose(attack.scores(shadowed), slow, rtol=1e-11, atol=1e-12)
    targets = world(1, models=2, views=views).models
    whole = shadowed._replace(targets=targets)
    slow = np.stack([twin(x, shadowed.models, shadowed.membership) for x in targets])
    np.testing.assert_allclose(attack.scores(whole), slow, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("paired", [False, True])
def test_our_own_score_is_a_regression_on_evidence_from_others(paired: bool):
    """Evidence from all but the model and its partners; weights from models of other folds, without that fold.

    A target's evidence is from all models, with the weights of all.
    """
    shadowed = world(views=2)
    shadowed = shadowed._replace(dealt=planned_for(shadowed) if paired else None)
    models, membership = shadowed.models.mean(axis=1), shadowed.membership
    evidence, found = slow_evidence_of_each(shadowed), Stacked().scores(shadowed)
    for fold in np.array_split(np.arange(MODELS), FOLDS):
        rest = np.setdiff1d(np.arange(MODELS), fold)
        others = shadowed._replace(models=shadowed.models[rest], membership=membership[rest])
        weights = fit_weights(slow_evidence_of_each(others), membership[rest])
        np.testing.assert_allclose(found[fold], evidence[fold] @ weights, rtol=1e-5, atol=1e-5)
    outside = shadowed._replace(targets=world(1, models=1, views=2).models)
    target, every = outside.attacked[0].mean(axis=0), np.ones_like(membership)
    both = [twin(outside.attacked[0], shadowed.models, membership) for twin in (base(True), bavaria)]
    slow = slow_evidence(models, target, membership, every, slow_further(*both)) @ fit_weights(evidence, membership)
    np.testing.assert_allclose(Stacked().scores(outside)[0], slow, rtol=1e-5, atol=1e-5)


def slow_evidence_of_each(shadowed: Shadowed) -> np.ndarray:
    """The evidence of every model from the others."""
    models, membership = shadowed.models.mean(axis=1), shadowed.membership
    further, found = slow_further(in_turn(shadowed, base(True)), in_turn(shadowed, bavaria)), []
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


def test_blocks_of_records_change_nothing(monkeypatch: pytest.MonkeyPatch):
    shadowed = world(views=2)
    before = {attack.name: attack.scores(shadowed) for attack in RECORD_ATTACKS}
    monkeypatch.setattr("jaxaudit.attacks.records.attack.BLOCK", 5 * MODELS * 2)
    assert len(list(shadowed.blocks())) == 8
    for attack in RECORD_ATTACKS:
        np.testing.assert_allclose(attack.scores(shadowed), before[attack.name], rtol=1e-12, err_msg=attack.name)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_sides_are_those_of_the_other_models(seed: int, paired: bool):
    """Medians, means and variances, with ties, one model or none on a side."""
    random = np.random.default_rng(seed)
    models = random.integers(-3, 4, (6, 2, 20)).astype(float)
    membership = random.random((6, 20)) < 0.3
    shadowed = Shadowed(models, membership)
    shadowed = shadowed._replace(dealt=planned_for(shadowed, 2) if paired else None)
    for place, (side, without) in enumerate(zip(sides(shadowed), left_out(shadowed), strict=True)):
        own = membership if place == 0 else ~membership
        for model, view, record in np.ndindex(*models.shape):
            rows = own[:, record].copy()
            assert rows[model] == (without[model, record] == model)
            rows[model] = False
            partner = None if own[model, record] else partner_of(shadowed, model, record)
            if partner is not None:
                assert rows[partner]
                rows[partner] = False
            assert own[model, record] or without[model, record] == (-1 if partner is None else partner)
            values = models[rows, view, record]
            at = model, view, record
            assert side.count[model, record] == len(values)
            for found, slow in ((side.median[at], np.median), (side.mean[at], np.mean), (side.variance[at], np.var)):
                if len(values):
                    assert found == pytest.approx(slow(values), abs=1e-12)
                else:
                    assert np.isnan(found)


def test_a_model_left_out_leaves_no_trace():
    """A huge number of one model does not blur the others' spread."""
    shadowed = world()
    shadowed.models[3] = 1e9
    found = LiRA().scores(shadowed)
    np.testing.assert_allclose(found[3], in_turn(shadowed, lira(True, False), False)[3], rtol=1e-9)


def test_lira_of_two_known_normals():
    """With many models, the log-ratio of the densities that they are drawn from, and never better than its accuracy."""
    random = np.random.default_rng(4)
    membership = np.arange(4000)[:, None] % 2 == 0
    models = random.normal(size=(4000, 1, 1)) * np.where(membership, 2.0, 1.0)[:, None] + 3.0 * membership[:, None]
    targets = np.array([-1.0, 0.5, 3.0, 6.0])[:, None, None]
    shadowed = Shadowed(models, membership, targets)
    exact = stats.norm.logpdf(targets, 3, 2) - stats.norm.logpdf(targets, 0, 1)
    for attack in (LiRA(), BaVarIAt()):
        np.testing.assert_allclose(attack.scores(shadowed), exact[:, :, 0], rtol=0.1, atol=0.1)
    upper = -stats.norm.logsf(targets, 0, 1)
    np.testing.assert_allclose(LiRA(online=False).scores(shadowed), upper[:, :, 0], rtol=0.1)


def test_base_orders_records_as_rmia_with_gamma_1_does():
    shadowed = world(records=200)
    for first, second in zip(BASE().scores(shadowed), RMIA(gamma=1.0).scores(shadowed), strict=True):
        # RMIA's share of others below is the rank.
        np.testing.assert_array_equal(np.argsort(first), np.argsort(second, kind="stable"))


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("gamma", [1.0, 2.0])
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


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_counted_as_quotients_round(seed: int):
    random = np.random.default_rng(seed)
    values = random.integers(1, 9, 300) / random.integers(1, 9, 300)
    for gamma in (1.0, 1.5, 2.0, 1 / 3):
        slow = [np.mean([x / z > gamma for z in values]) for x in values]
        np.testing.assert_array_equal(share_exceeded(values, values, gamma), slow)


def dealt_rows(how: str, models: int, records: int) -> np.ndarray:
    """Rows of planned models: a fixed number a record, or a coin, or half of all records in a third of the models."""
    random = np.random.default_rng(8)
    if how == "fixed":
        return np.stack([random.permutation(models) < models // 2 for _ in range(records)], axis=1)
    if how == "coins":
        return random.random((models, records)) < 0.5
    rows = np.stack([random.permutation(records) < records // 2 for _ in range(models)])
    rows[::3], rows[1::3] = True, False
    return rows


@pytest.mark.parametrize("saturated", [False, True])
@pytest.mark.parametrize(
    ("how", "planned", "models"),
    [
        *(("fixed", 6, 6), ("fixed", 12, 12), ("fixed", 16, 12), ("fixed", 32, 8)),
        *(("coins", 6, 6), ("coins", 12, 12), ("turns", 12, 12)),
    ],
)
def test_a_model_without_memory_gives_nothing_away(how: str, planned: int, models: int, saturated: bool):
    """The area under the ROC curve is one half within 5 standard errors, however records were dealt to models.

    Numbers of models with a record tell nothing: not where some of the planned models are finished, and not even where
    half of the outputs are cut at the same number.
    """
    rows = dealt_rows(how, planned, 4000)
    shadowed = world(7, models=models, records=4000, memory=0.0)
    shadowed = shadowed._replace(membership=rows[:models], dealt=deal_of(rows))
    if saturated:
        shadowed.models[:, :, ::2] = 20.0
    assert shadowed.references == models - 1 - (how == "fixed")
    for attack in RECORD_ATTACKS:
        if shadowed.references < attack.least.together or (isinstance(attack, LiRACode) and models < planned):
            continue  # the authors' code leaves out no partner
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
    found = deal_of(dealt_rows("fixed", 40, 20_000)[: 40 - missing])
    assert np.ptp(found.inside) == np.ptp(found.outside) == 0
    assert found.inside[0] + found.outside[0] == pytest.approx(40, abs=3 if missing else 1e-9)
    for how in ("coins", "turns"):
        assert np.isinf(deal_of(dealt_rows(how, 40, 20_000))[:2]).all()


def test_too_few_models_give_no_score():
    shadowed = Shadowed(np.random.default_rng(0).normal(size=(5, 1, 4)), np.zeros((5, 4), bool))
    shadowed.membership[:, 0] = True
    shadowed.membership[0, 1] = True
    shadowed.membership[:3, 2] = True
    inside, outside = counts(shadowed)
    assert inside[0].tolist() == [4, 0, 2, 0]
    assert outside[0].tolist() == [0, 4, 2, 4]
    inside, outside = counts(shadowed._replace(dealt=Dealt(np.full(4, 1.0), np.full(4, 1.0), np.zeros(4))))
    assert inside[0].tolist() == [4, 0, 2, 0]
    assert outside[0].tolist() == [0, 3, 1, 4]
    assert np.isnan(LiRA().scores(shadowed)).all()
    assert np.isnan(LiRACode().scores(shadowed)).all()
    known = np.isfinite(BaVarIAt().scores(shadowed))
    assert known.tolist() == [[False, row > 0, True, False] for row in range(5)]
    assert np.isfinite(LiRA(False).scores(shadowed))[0].tolist() == [False, True, False, True]
    assert np.isfinite(BASE().scores(shadowed)).all()
    with pytest.raises(InputError, match="there are 1"):
        Stacked().scores(Shadowed(shadowed.models[:2], world().membership[:2, :4]))


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"membership": np.ones((MODELS, 3), bool)}, ["13, 1, 37", "13, 3"]),
        ({"targets": np.ones((2, 2, RECORDS))}, ["2, 2, 37"]),
        ({"targets": np.full((1, 1, RECORDS), np.nan)}, ["37 log-odds"]),
        ({"models": np.full((MODELS, 1, RECORDS), np.inf)}, ["962 log-odds"]),
    ],
)
def test_arrays_that_disagree_are_refused(change: dict, numbers: list[str]):
    with pytest.raises(InputError) as refused:
        check(world()._replace(**change))
    assert all(each in str(refused.value) for each in numbers)


def test_one_model_is_refused():
    with pytest.raises(InputError, match="1 shadow models"):
        check(Shadowed(np.ones((1, 1, 3)), np.ones((1, 3), bool)))


@pytest.mark.parametrize("change", [{"gamma": 0.0}, {"gamma": float("nan")}, {"scale": 1.5}])
def test_rmia_refuses_numbers_out_of_range(change: dict):
    with pytest.raises(InputError):
        RMIA(**change)


def test_every_attack_is_named_on_the_command_line():
    assert tuple(attack.name for attack in RECORD_ATTACKS) == ON_RECORDS
    assert len(set(ON_RECORDS)) == len(ON_RECORDS)
    assert all(isinstance(attack, RecordAttack) for attack in RECORD_ATTACKS)
