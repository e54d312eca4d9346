"""Records of known memory, deals of them to models, and slow twins of attacks on records, written from the formulas."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special, stats

from jaxaudit import Bank
from jaxaudit.attacks.records import BASE, RMIA, AttackP, BaVarIAt, LiRA, RecordAttack, ShadowScores
from jaxaudit.attacks.records.attack import FixedDesign
from jaxaudit.audits import RecordTarget, target_log_odds

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


def world(
    seed: int = 0, models: int = MODELS, views: int = 1, records: int = RECORDS, memory: float = 2.0
) -> ShadowScores:
    """Records that differ in difficulty, spread and memory; half of the models have each."""
    random = np.random.default_rng(seed)
    membership = np.stack([random.permutation(models) < models // 2 for _ in range(records)], axis=1)
    centre, width = random.normal(2, 2, records), np.exp(random.normal(0, 0.4, records))
    gap = np.abs(random.normal(0, memory, records))
    log_odds = centre + width * random.normal(size=(models, views, records)) + gap * membership[:, None]
    return ShadowScores(log_odds, membership)


def planned_for(shadowed: ShadowScores) -> FixedDesign:
    """As if four more models had been planned: numbers that are fixed, of which some models are finished."""
    rows, records = shadowed.membership.shape
    inside = np.full(records, (rows + 4) // 2)
    return np.stack([inside, rows + 4 - inside, np.arange(records) * 0.37 % 1])


def partner_of(shadowed: ShadowScores, model: int, record: int) -> int | None:
    """The next model of the other kind, in a circle, if it is this record's turn."""
    own, dealt = shadowed.membership[:, record], shadowed.design
    circle = [*range(model + 1, len(own)), *range(model)]
    others = [other for other in circle if own[other] != own[model]]
    if dealt is None or not others:
        return None
    planned = dealt[int(own[model]), record]
    due = (dealt[2, record] + model * 0.5698402909980532) % 1 < len(others) / planned
    return others[0] if due else None


def in_turn(shadowed: ShadowScores, twin: Twin) -> np.ndarray:
    """The twin's scores of each model from all others, without its partner, if it has one."""
    found = []
    for model in range(len(shadowed.models)):
        columns: list[tuple[np.ndarray, np.ndarray]] = []
        for record, own in enumerate(shadowed.membership.T):
            partner = partner_of(shadowed, model, record)
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
            a0, typical = 1e6 / 2, np.exp(np.mean(logs))
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
    "rmia": (RMIA(), rmia(True)),
    "rmia, gamma 1": (RMIA(gamma=1.0), rmia(True, 1.0)),
    "rmia-offline": (RMIA(False), rmia(False)),
    "rmia-offline, scale 1": (RMIA(False, scale=1.0), rmia(False, scale=1.0)),
    "base": (BASE(), base(True)),
    "base-offline": (BASE(False), base(False)),
    "attack-p": (AttackP(), lambda x, models, membership: x.mean(axis=0)),
    "bavaria-t": (BaVarIAt(), bavaria),
}


def dealt_rows(how: str, models: int, records: int, seed: int = 8) -> np.ndarray:
    """Rows of planned models: a fixed number a record, or a coin, or half of all records in a third of the models."""
    random = np.random.default_rng(seed)
    if how == "fixed":
        return np.stack([random.permutation(models) < models // 2 for _ in range(records)], axis=1)
    if how == "coins":
        return random.random((models, records)) < 0.5
    rows = np.stack([random.permutation(records) < records // 2 for _ in range(models)])
    rows[::3], rows[1::3] = True, False
    return rows


def target_of(path: Path, values: np.ndarray, bank: Bank) -> RecordTarget:
    """A target whose outputs are in this file."""
    np.save(path, values)
    odds, stored = target_log_odds(path, bank)
    return RecordTarget(path.stem, odds, None, stored)
