"""The probability that the members test gives the verdict `forgotten` for a target that never used the query set.

That requires that use of the stated fraction is ruled out, which depends on how much higher the target's scores are on
records that it did use. This memory is measured on models of known membership: each model's training records take the
role of known members, other records that of the holdout. A real target may remember less (`remembering`).
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from msgspec.structs import replace
from scipy import special

from jaxaudit.json_types import StrictStruct
from jaxaudit.metrics.difficulty import residual_scores, residual_scores_of_models
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.power import Separation, as_of_own_data, pooled_variance, separation_of
from jaxaudit.metrics.profile import profiles_of_others
from jaxaudit.metrics.scores import cut, evenly_spaced
from jaxaudit.metrics.usage import STATED_FRACTION

STEPS, FARTHEST = 4_000, 8.0
"""Steps and lower limit (standard errors below 0) of the integral over the difference of query set and holdout."""


class Memory(StrictStruct, frozen=True):
    """How far the score of the members test separates records in training from others.

    Attributes:
        alone: the separation without shadow models, as if only known members are given.
        helped: the separation if shadow models' outputs also predict each record's difficulty; else equal to `alone`.
        units: the number of groups divided by the number of records; 1 without groups.
    """

    alone: Separation
    helped: Separation
    units: float = 1.0


def memory_of_models(
    log_odds: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
    predictors: Float[np.ndarray, "n kinds"],
    designs: Int[np.ndarray, " models"] | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    stretch: float = 1.0,
    helped: bool = True,
) -> Memory:
    """Measures memory on models that were each trained on a random choice of the records.

    With shadow models, a model's deviation from them is stretched before it is scored, by the factor `stretch` that
    `separation` found. If there are very many models and records, only some models are measured (`evenly_spaced`).
    `helped` says whether the members test will have shadow models with outputs on the known members. The predictors are
    those of `difficulty`; the rest as for `separation`.
    """
    odds, rows = cut(log_odds), np.asarray(membership)
    designs = np.zeros(len(odds), int) if designs is None else designs
    measured, moved = evenly_spaced(odds), odds
    if helped and stretch > 1:
        moved, _ = as_of_own_data(odds, rows, designs, stretch)

    scores = scores_beside = np.stack([residual_scores(odds[model], predictors) for model in measured])
    if helped:
        profiles = profiles_of_others(odds, rows, measured)
        scores_beside = residual_scores_of_models(moved[measured], profiles, predictors)
    units = 1.0 if groups is None else len(np.unique(groups)) / len(groups)
    alone, beside = (separation_of(column, rows[measured], groups) for column in (scores, scores_beside))
    return Memory(alone, beside, units)


def remembering(measured: Separation, factor: float) -> Separation:
    """The separation for a target that remembers `factor` times as much; its members' variance is interpolated."""
    return replace(
        measured,
        difference=factor * measured.difference,
        inside=measured.outside + factor * (measured.inside - measured.outside),
        between=factor**2 * measured.between,
    )


def memory_in_errors(measured: Separation, holdout: int, members: int) -> float:
    """The mean score difference between known members and a holdout, in standard errors; infinite without variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(measured.difference, np.sqrt(measured.inside / members + measured.outside / holdout)))


def forgotten_probability(
    measured: Separation,
    query: int,
    holdout: int,
    members: int,
    stated: float = STATED_FRACTION,
    units: float = 1.0,
) -> float:
    """The probability that the members test gives the verdict `forgotten` for a target that never used the query set.

    With a the difference of mean scores between query set and holdout, and b that between members and holdout, the
    verdict requires

        a at most its critical value (p_never > 5%), b above its own (p_memory <= 5%), and
        stated b - a > t sqrt(outside / n + stated^2 inside / k + (1 - stated)^2 outside / m)

    for n query, m holdout and k member records: the upper limit is then at most the stated share (Fieller 1954). Here a
    and b are normal with means 0 and the measured difference, variances outside / n + outside / m and inside / k +
    outside / m + between, and covariance outside / m. The permutation tests' critical values are those of pooled
    variances. All other checks of the audit are assumed to pass. The degrees of freedom are those of the smallest set,
    with `units` as in `Memory`.
    """
    of_query, of_holdout = (max(measured.outside / size, 1e-18) for size in (query, holdout))
    of_members = max(measured.inside / members, 1e-18)
    freedom = max(1, round(units * min(query, holdout, members)) - 1)
    quantile, normal = float(special.stdtrit(freedom, 1 - ALPHA)), float(-special.ndtri(ALPHA))
    required = quantile * np.sqrt(of_query + stated**2 * of_members + (1 - stated) ** 2 * of_holdout)
    pooled = pooled_variance(measured, members, holdout, measured.inside, measured.difference)
    least = max(quantile * np.sqrt(of_members + of_holdout), normal * np.sqrt(pooled))
    # Integrate over a, up to its critical value, the probability that b is as large as required for this a.
    edges = np.linspace(-FARTHEST, normal, STEPS + 1)
    middle, error = (edges[1:] + edges[:-1]) / 2, np.sqrt(of_query + of_holdout)
    part = of_holdout / (of_query + of_holdout)
    rest = np.sqrt(of_members + of_holdout * (1 - part) + measured.between)
    threshold = np.maximum(least, (middle * error + required) / stated)
    chance = special.ndtr((measured.difference + part * middle * error - threshold) / rest)
    return float((np.diff(special.ndtr(edges)) * chance).sum())
