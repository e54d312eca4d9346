"""The power of the holdout test, by a normal approximation without a target, and of `forgotten` by the members test.

Numbers are measured on models of known membership. Each takes the role of the target, its training records that of
known members, and other records that of the holdout. Records are assumed to be equally exposed in sets of other sizes.
"""

import numpy as np
from msgspec.structs import replace
from scipy import special

from jaxaudit.errors import check_ranges
from jaxaudit.json_types import StrictStruct
from jaxaudit.metrics.arrays import (
    AnyMembers,
    AnyScores,
    Integers,
    Kinds,
    Members,
    ModelNumbers,
    Scores,
    units_of_records,
)
from jaxaudit.metrics.difficulty import residual_scores, residual_scores_of_models
from jaxaudit.metrics.holdout import learned_is_better, mean_differences, mean_variance, without_difficulty
from jaxaudit.metrics.scores import (
    Profile,
    cut,
    evenly_spaced,
    evidence_among,
    membership_evidence,
    profile,
    profiles_of_others,
)
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import ALPHA, POWER, STATED_FRACTION, Effect, detectable_fraction

MOST_RECORDS = 10_000_000


class Separation(StrictStruct, frozen=True):
    """How far the score of a test separates records in training from other records.

    Attributes:
        difference: the mean score of records in training minus that of other records, averaged over models.
        inside, outside: variance of the scores within a model, of records in training and of other records; with whole
            groups, the variance of the mean score times the number of records.
        between: variance of the difference between models, beyond the sampling variance.
        stretch: the factor of `own_data_stretch` by which deviations from the shadow models were multiplied.
    """

    difference: float
    inside: float
    outside: float
    between: float
    models: int
    stretch: float = 1.0


def separation(
    log_odds: AnyScores,
    membership: AnyMembers,
    draws: ModelNumbers | None = None,
    groups: Integers | None = None,
    predictors: Kinds | None = None,
) -> Separation:
    """Measures how far the score of the holdout test separates records in training from others, on models that were
    each trained on a random choice of the records (`membership`).

    Each model is scored with the other models as shadow models. Before that, its deviation from their mean is
    multiplied by `own_data_stretch`: models share a calibration set, but a real target has other data. `draws` numbers
    each model's part of the calibration set; if no two models share one, nothing is stretched.

    >>> random = np.random.default_rng(1)
    >>> membership = random.random((20, 400)) < 0.5
    >>> found = separation(random.normal(size=(20, 400)) + 2 * membership, membership)
    >>> bool(found.difference > 1), bool(found.between < 0.001), found.stretch
    (True, True, 1.0)
    """
    log_odds, membership = cut(log_odds), np.asarray(membership)
    fewest = int(min(membership.sum(axis=1).min(), (~membership).sum(axis=1).min()))
    check_ranges("[2, inf)", records_in_or_out=fewest)
    stretch = 1.0 if draws is None else own_data_stretch(log_odds, membership, draws)
    evidence, weights = evidence_among(log_odds, membership)
    shadow_scores = special.expit(evidence @ weights)
    moved, profiles = log_odds, list(profiles_of_others(log_odds, membership))
    if stretch > 1:
        moved, profiles = as_of_own_data(log_odds, membership, stretch)
        evidence = np.stack([membership_evidence(*pair) for pair in zip(moved, profiles, strict=True)])
    learned = without_difficulty(special.expit(evidence @ weights), shadow_scores, membership)
    scores = residual_scores_of_models(moved, profiles, predictors)
    if learned_is_better(scores, learned, membership, groups):
        scores = learned
    return separation_of(scores, membership, groups, stretch)


def separation_of(
    scores: Scores,
    membership: Members,
    groups: Integers | None = None,
    stretch: float = 1.0,
) -> Separation:
    """How far any kind of score separates records in training from others, over at least two models.

    >>> scores = np.array([[1.0, 3.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    >>> separation_of(scores, scores > 0)
    Separation(difference=1.5, inside=1.0, outside=0.0, between=0.0, models=2, stretch=1.0)
    """
    variances = np.array(
        [[mean_variance(s, groups, side) for side in (m, ~m)] for s, m in zip(scores, membership, strict=True)]
    )
    inside, outside = variances.T
    gaps = mean_differences(scores, membership)
    of_records = inside / membership.sum(axis=1) + outside / (~membership).sum(axis=1)
    between = max(float(gaps.var(ddof=1) - of_records.mean()), 0.0)
    return Separation(float(gaps.mean()), float(inside.mean()), float(outside.mean()), between, len(scores), stretch)


def own_data_stretch(
    log_odds: Scores,
    membership: Members,
    draws: ModelNumbers,
) -> float:
    """The factor (>= 1) by which a target with its own data deviates more from the shadow models' mean than they do.

    An analysis of variance tells what the shares (`draws`) of one calibration set contribute, and what seeds do.
    """
    mean = np.full((len(draws), len(draws)), 1 / len(draws))
    # Per record, least squares fit a mean and a gap between models with and without the record.
    odds, used = (table - mean @ table for table in (log_odds, 1.0 * membership))
    gap = (odds * used).sum(axis=0) / np.maximum((used**2).sum(axis=0), 1e-9)
    residuals = odds - gap * used
    common = (residuals / profile(log_odds, membership).variance) @ residuals.T
    same = (draws[:, None] == draws) & ~np.eye(len(draws), dtype=bool)
    apart = draws[:, None] != draws
    if not same.any() or not apart.any():
        return 1.0
    whole, base = float(np.trace(common)) / len(common), float(common[apart].mean())
    part = float(np.clip((common[same].mean() - base) / (whole - base), 0, 1)) if whole > base else 0.0
    return float(np.sqrt(1 - part + part * (1 + SHARE) / (1 - SHARE)))


def as_of_own_data(
    log_odds: Scores,
    membership: Members,
    stretch: float,
) -> tuple[Scores, list[Profile]]:
    """Each model's log-odds (cut) with its own deviation stretched, and the profile of all other models."""
    profiles = list(profiles_of_others(log_odds, membership))
    usual = [
        np.where(row, other_profile.inside, other_profile.outside)
        for row, other_profile in zip(membership, profiles, strict=True)
    ]
    away = log_odds - np.stack(usual)
    # What the models have in common does not depend on their data, so it is not stretched.
    common = (~np.eye(len(away), dtype=bool) @ away) / (len(away) - 1)
    return cut(log_odds + (stretch - 1) * (away - common)), profiles


def detection_probability(measured: Separation, query: int, holdout: int, fraction: float) -> float:
    """The probability that the holdout test at 5% detects use of this fraction of the query set.

    The difference of mean scores is taken as normal with mean f d, where d is the measured difference, and variance

        (f inside + (1 - f) outside + f (1 - f) d^2) / n + outside / m + f^2 between

    for n query and m holdout records. The critical value of the permutation test is taken as the normal quantile of
    95% times the standard error of all n + m scores pooled.

    >>> measured = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> [round(detection_probability(measured, 100, 100, f), 3) for f in (0.0, 0.1, 0.25, 1.0)]
    [0.05, 0.463, 0.965, 1.0]
    """
    within = (
        fraction * measured.inside
        + (1 - fraction) * measured.outside
        + fraction * (1 - fraction) * measured.difference**2
    )
    expected = fraction * measured.difference
    of_records = within / query + measured.outside / holdout
    critical = special.ndtri(1 - ALPHA) * np.sqrt(pooled_variance(measured, query, holdout, within, expected))
    spread = np.sqrt(of_records + fraction**2 * measured.between)
    if spread == 0:
        return float(expected > critical)
    return float(special.ndtr(-((critical - expected) / spread)))


def pooled_variance(measured: Separation, records: int, holdout: int, variance: float, apart: float) -> float:
    """The variance of the difference of two means under permutation; the first is `apart` and has `variance`.

    >>> round(pooled_variance(Separation(0.5, 0.04, 0.04, 0.0, 31), 100, 100, 0.04, 0.2), 6)
    0.001
    """
    all_records = records + holdout
    mixed = (
        records * variance + holdout * measured.outside
    ) / all_records + records * holdout / all_records**2 * apart**2
    return mixed * (1 / records + 1 / holdout)


def min_detectable_fraction(measured: Separation, query: int, holdout: int, models: int) -> float | None:
    """The minimum detectable fraction of an audit with `models` shadow models; None if not even 1 is detectable.

    The formula is that of `detectable_fraction`, which the audit reports: fewer shadow models make it larger.

    >>> measured = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> [round(min_detectable_fraction(measured, n, n, 31), 3) for n in (100, 1000, 10000)]
    [0.189, 0.06, 0.019]
    """
    variance = measured.outside * (1 / query + 1 / holdout)
    # The formula depends only on the mean and the variance of these numbers.
    shape = np.linspace(-1, 1, models)
    full = measured.difference + np.sqrt(measured.between) * shape / shape.std(ddof=1)
    critical = float(special.ndtri(1 - ALPHA) * np.sqrt(variance))
    return detectable_fraction(Effect(0.0, variance, full, 0.0, critical))


def records_needed(
    measured: Separation,
    fraction: float,
    most: int = MOST_RECORDS,
    *,
    models: int | None = None,
) -> int | None:
    """The least number of query records, with equally many in the holdout, that detect a used fraction with 95%
    probability; None if `most` records do not suffice, for example because between-model variance is too large.

    `models` is the number of shadow models, for `min_detectable_fraction`; None: use `detection_probability`. The two
    approximations differ by some percent.

    >>> known = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> records_needed(known, 0.1), records_needed(known, 0.05), records_needed(known, 0.05, models=31)
    (447, 1594, 1430)
    """

    def enough(records: int) -> bool:
        if models is None:
            return detection_probability(measured, records, records, fraction) >= POWER
        least = min_detectable_fraction(measured, records, records, models)
        return least is not None and least <= fraction

    high = 2
    while not enough(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


STEPS, FARTHEST = 4_000, 8.0
"""Steps and lower limit (standard errors below 0) of the integral over the difference of query set and holdout."""


class Memory(StrictStruct, frozen=True):
    """The separation by the members test: `alone`, and `helped` by shadow models' outputs that predict difficulty;
    `units` is the number of groups a record.
    """

    alone: Separation
    helped: Separation
    units: float = 1.0


def memory_of_models(
    log_odds: AnyScores,
    membership: AnyMembers,
    predictors: Kinds,
    groups: Integers | None = None,
    *,
    stretch: float = 1.0,
    helped: bool = True,
) -> Memory:
    """The memory of models that were each trained on a random choice of the records; arguments as for `separation`.
    `helped`: the members test will have shadow models with outputs on the known members.
    """
    odds, rows = cut(log_odds), np.asarray(membership)
    measured, moved = evenly_spaced(odds), odds
    if helped and stretch > 1:
        moved, _ = as_of_own_data(odds, rows, stretch)

    scores = scores_beside = np.stack([residual_scores(odds[model], predictors) for model in measured])
    if helped:
        profiles = profiles_of_others(odds, rows, measured)
        scores_beside = residual_scores_of_models(moved[measured], profiles, predictors)
    units = len(np.unique(units_of_records(groups, odds.shape[1]))) / odds.shape[1]
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

    Differences of mean scores are taken as normal, as in `members_test`, and all other checks as passed.
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
