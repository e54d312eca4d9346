"""Was the query set used? A comparison with shadow models, without a holdout or a reference.

Shadow models are trained on calibration data with none, a part and all of the query set. The test assumes that the
target's other data have the same source as the calibration data, and that the shadow models include its design and
recipe. The data cannot test this: training on *other* records of the query set's provider looks like use, too. Prefer a
holdout or a reference.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, LEVEL, Effect, limits_of
from jaxaudit.metrics.profile import Profile, profile, profiles_of_others
from jaxaudit.metrics.scores import check_outputs, cut
from jaxaudit.metrics.shares import Spread, spread, used_shares
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, conclude

SHARE = 2 / 3
LEAST_LOG_DENSITY = -25.0
"""Log-densities of single records are cut here, so that no single record fails the check of `mixture_likeness`."""
MIXTURES = np.linspace(0, 1, 21)


def shadow_test(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
    designs: Int[np.ndarray, " models"] | None = None,
    *,
    share: float = SHARE,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> Usage:
    """Was the query set used by the target, how much of it, and what is the minimum detectable fraction?

    The statistic is a model's used share of the query set (`linear_share`), computed with the other shadow models.

    - Shadow models that share calibration data differ less from one another than from a target with its own data. If
      each was trained on a random `share` of the calibration set, the variance between models of one design is too
      small by a factor of up to (1 + share) / (1 - share) (as in the delete-d jackknife), and the variance between
      designs is not. An analysis of variance separates the two (`Spread`).
    - `p_never`: the larger of two p-values. One is the rank of the target's distance from the mean, divided by the
      square root of the ratio of these variances, among shadow models that used none of the query set. The other, if
      there are several designs, is Student's t of the distance, with Satterthwaite's degrees of freedom.
    - `p_fully`: the same among shadow models that used all of the query set.
    - `fraction`, `upper` and `detectable`: see `Effect`; models of partial use show the effect of partial use.

    The verdict is `inconclusive` if no mixture of shadow models reproduces the target's outputs (`mixture_likeness`).

    Args:
        target, shadows: log-odds of each query record's own class (`log_odds`), of the target and of the shadow models.
        membership: the shadow models' membership masks: none, a part, or all of the query set.
        designs: the design of each shadow model, as a number; None if all have the same.
        share: the random share of the calibration set that each shadow model was trained on.
        level, stated, recipe: as for `holdout_test`.

    Raises:
        InputError: shapes disagree, an output is NaN, `share` is not in [0, 1), or there are too few shadow models of
            no use or of full use for a p-value to ever reach 5%.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    if not 0 <= share < 1:
        raise InputError(
            f"the share of the calibration set of each shadow model must be at least 0 and below 1; got {share:g}."
        )
    never, fully = check_shadows(target, shadows, membership, len(target))
    designs = np.zeros(len(shadows), int) if designs is None else np.asarray(designs)
    stretch = float(np.sqrt((1 + share) / (1 - share)))
    used = used_shares(target, shadows, membership, len(target))
    without, within = used.query[never], used.query[fully]
    centre = float(without.mean())
    base = spread(without, designs[never])
    some = ~never & ~fully
    error = float(np.sqrt(base.error(stretch)))
    effect = Effect(
        difference=used.target_query - centre,
        variance=base.error(stretch),
        full=within - centre,
        noise=base.total,
        critical=error * float(-special.stdtrit(base.freedom(stretch), ALPHA)),
        partly=(float(membership[some].mean()), float(used.query[some].mean() - centre)) if some.any() else None,
    )
    p_of_likeness = mixture_likeness(target, shadows, membership, stretch=stretch)
    invalid = ()
    if p_of_likeness <= ALPHA:
        invalid = (
            f"the target does not resemble the shadow models (p = {p_of_likeness:.3g}): its other data, network or "
            "training differ from theirs, and this cannot be distinguished from use of the query set",
            *((recipe,) if recipe else ()),
        )
    return conclude(
        "shadow",
        _p_value(used.target_query, without, base, stretch),
        _p_value(-used.target_query, -within, spread(within, designs[fully]), stretch),
        limits_of(effect, level),
        invalid=invalid,
        recipe=recipe,
        stated=stated,
    )


def mixture_likeness(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
    *,
    stretch: float = 1.0,
) -> float:
    """The p-value of "some mixture of shadow models reproduces the target's outputs", an assumption of the shadow test.

    It is the rank of the target's `mixture_log_likelihood` among those of the shadow models. Each is computed with the
    profile of the other models, and the shadow models' deviations are multiplied by `stretch`, the factor by which a
    target with its own data deviates more.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    likelihoods = []
    for model, members, other_profile in zip(shadows, membership, profiles_of_others(shadows, membership), strict=True):
        centre = np.where(members, other_profile.inside, other_profile.outside)
        likelihoods.append(mixture_log_likelihood(centre + stretch * (model - centre), other_profile, stretch))
    own_likelihood = mixture_log_likelihood(target, profile(shadows, membership), stretch)
    return float((1 + (np.array(likelihoods) <= own_likelihood).sum()) / (1 + len(likelihoods)))


def mixture_log_likelihood(outputs: Float[np.ndarray, " n"], shadows: Profile, stretch: float = 1.0) -> float:
    """The mean log-likelihood (nats per record) of log-odds under the best mixture of used and unused records.

    It is the maximum, over 21 used fractions f from 0 to 1, of the mean of
    log[(1 - f) N(outside, s v_out) + f N(inside, s v_in)], where s is the squared stretch.

    >>> flat = np.ones(2)
    >>> bool(np.isclose(mixture_log_likelihood(flat, Profile(flat, flat, flat, flat, flat)), -np.log(2 * np.pi) / 2))
    True
    """
    parts = []
    for mean, variance in ((shadows.outside, shadows.outside_variance), (shadows.inside, shadows.inside_variance)):
        deviation = np.sqrt(stretch**2 * variance)
        parts.append(-(((outputs - mean) / deviation) ** 2) / 2 - np.log(np.sqrt(2 * np.pi)) - np.log(deviation))
    with np.errstate(divide="ignore"):
        mixtures = np.logaddexp(np.log(1 - MIXTURES)[:, None] + parts[0], np.log(MIXTURES)[:, None] + parts[1])
    return float(np.maximum(mixtures, LEAST_LOG_DENSITY).mean(axis=1).max())


def _p_value(own_statistic: float, of_shadows: Float[np.ndarray, " models"], base: Spread, stretch: float) -> float:
    """The one-sided p-value for a used share that is larger than those of `of_shadows`."""
    distance, total = own_statistic - float(of_shadows.mean()), base.total
    factor = np.sqrt(base.error(stretch) / total) if total > 0 else 1.0
    factor = max(1.0, float(factor) / np.sqrt(1 + 1 / base.models))
    rank = float((1 + (of_shadows - of_shadows.mean() >= distance / factor - 1e-12).sum()) / (1 + len(of_shadows)))
    if base.designs == 1:
        return rank
    errors = distance / max(np.sqrt(base.error(stretch)), 1e-12)
    return max(rank, float(special.stdtr(base.freedom(stretch), -errors)))


def check_shadows(
    target: np.ndarray, shadows: np.ndarray, membership: np.ndarray, queried: int
) -> tuple[Bool[np.ndarray, " models"], Bool[np.ndarray, " models"]]:
    """Which shadow models were trained on none, and which on all, of the first `queried` records; see `shadow_test`.

    Raises:
        InputError: shapes disagree, or there are too few such models for a p-value of 5%.
    """
    check_outputs(target, shadows, membership)
    used = membership[:, :queried].sum(axis=1)
    never, fully = used == 0, used == queried
    least = int(np.ceil(1 / ALPHA - 1e-9)) - 1
    if never.sum() < least or fully.sum() < least:
        raise InputError(
            f"{never.sum()} shadow models were trained on none of the query set and {fully.sum()} on all of it; a "
            f"p-value of {ALPHA:g} requires at least {least} of each."
        )
    return never, fully
