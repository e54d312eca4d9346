"""Was the query set used? A comparison with shadow models, without a holdout.

Shadow models are trained on calibration data with none, a part and all of the query set, and are assumed to have the
target's network, recipe and source of other data. Network, length of training and other data move a target's outputs on
all records that it did not use. Its outputs on the calibration set, if it used none of it, show by how much: the
statistic is then a difference in differences of used shares (`linear_share`). That training on *other* records of the
query set's provider looks like use, neither way can show. Prefer a holdout.
"""

import numpy as np
from jaxtyping import Bool
from scipy import special

from jaxaudit.errors import check_ranges
from jaxaudit.metrics.arrays import AnyMembers, AnyNumbers, AnyScores, Numbers, PerModel
from jaxaudit.metrics.behaviour import calibration_used
from jaxaudit.metrics.effect import ALPHA, LEVEL, Effect, limits_of
from jaxaudit.metrics.scores import check_outputs, cut
from jaxaudit.metrics.shares import Profile, profile, profiles_of_others, used_shares
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, conclude

SHARE = 2 / 3
LEAST_LOG_DENSITY = -25.0
"""Log-densities of single records are cut here, so that no single record fails the check of `mixture_likeness`."""
MIXTURES = np.linspace(0, 1, 21)
LEAST_RECORDS = 50
"""The least number of calibration records that the target is known not to have used; with fewer, the scatter is too
uncertain."""


def shadow_test(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
    queried: int | None = None,
    *,
    unseen: Bool[np.ndarray, " n"] | None = None,
    share: float = SHARE,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> Usage:
    """Was the query set used by the target, how much of it, and what is the minimum detectable fraction?

    The statistic is a model's used share of the query set (`linear_share`), computed with the other shadow models. If
    calibration records follow the `queried` query records, it is that share minus the used share of the calibration
    records that the model was not trained on.

    - `p_never`: the rank of the target's distance from the mean among shadow models that used none of the query set.
    - `p_fully`: the same among shadow models that used all of the query set.
    - `fraction`, `upper` and `detectable`: see `Effect`; models of partial use show the effect of partial use.

    A target with other data than the shadow models deviates more than they do, so its distance is divided first:

    - By the query set alone: shadow models that share calibration data differ less from one another than from a target
      with its own data. If each was trained on a random `share` of the calibration set, the variance between models is
      too small by a factor of up to (1 + share) / (1 - share) (as in the delete-d jackknife). The verdict is
      `inconclusive` if no mixture of shadow models reproduces the target's outputs (`mixture_likeness`).
    - By both sets, by the scatter: the root mean square deviation of the target's outputs on the calibration set,
      divided by the median of the shadow models', at least 1. The verdict is never `forgotten` if the calibration set
      looks used (`calibration_used`): use of both sets shows no difference.

    Args:
        target, shadows: log-odds of each record's own class (`log_odds`), of the target and of the shadow models.
        membership: the shadow models' membership masks: none, a part, or all of the query set, and a random share of
            the calibration set.
        queried: the number of query records, which come first; None: all are.
        unseen: which records the target is known not to have used; None: all of the calibration set.
        level, stated, recipe: as for `holdout_test`.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    check_ranges("[0, 1)", share=share)
    queried = len(target) if queried is None else queried
    never, fully = check_shadows(target, shadows, membership, queried)
    used = used_shares(target, shadows, membership, queried, unseen)
    statistic, own_statistic = used.query - used.calibration, used.target_query - used.target_calibration
    without, within = statistic[never], statistic[fully]
    doubts: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    if queried == len(target):
        stretch = float(np.sqrt((1 + share) / (1 - share)))
        noise = float(np.var(without, ddof=1))
        # The variance of one more model's distance from the mean, which deviates by `stretch` times as much.
        variance = noise * (stretch**2 + 1 / len(without))
        critical = float(np.sqrt(variance)) * float(-special.stdtrit(len(without) - 1, ALPHA))
        widths = [np.sqrt((stretch**2 + 1 / len(models)) / (1 + 1 / len(models))) for models in (without, within)]
        p_of_likeness = mixture_likeness(target, shadows, membership, stretch=stretch)
        if p_of_likeness <= ALPHA:
            invalid = (
                f"the target does not resemble the shadow models (p = {p_of_likeness:.3g}): its other data, network or "
                "training differ from theirs, and this cannot be distinguished from use of the query set",
                *((recipe,) if recipe else ()),
            )
    else:
        refuse_few(len(target) - queried if unseen is None else int(unseen[queried:].sum()))
        scatter = max(1.0, used.target_scatter / float(np.median(used.scatter[never])))
        base = without - without.mean()
        noise = float(np.var(base, ddof=1))
        variance = scatter**2 * noise
        critical = scatter * float(np.sort(base)[-int(np.floor(ALPHA * (1 + never.sum()) + 1e-9))])
        widths = [scatter, scatter]
        accuracies = accuracies_on_unused(target, shadows, membership, queried, unseen)
        doubts = calibration_used(used.target_calibration, used.calibration, *accuracies)
    centre, some = float(without.mean()), ~never & ~fully
    partly = (float(membership[some, :queried].mean()), float(statistic[some].mean() - centre)) if some.any() else None
    effect = Effect(
        difference=own_statistic - centre,
        variance=variance,
        full=within - centre,
        noise=noise,
        critical=critical,
        partly=partly,
    )
    return conclude(
        "shadow",
        _rank(without, own_statistic, widths[0], larger=True),
        _rank(within, own_statistic, widths[1], larger=False),
        limits_of(effect, level),
        doubts,
        invalid,
        stated=stated,
        recipe=recipe,
    )


def accuracies_on_unused(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
    queried: int,
    unseen: Bool[np.ndarray, " n"] | None = None,
) -> tuple[float, PerModel]:
    """The accuracy of the target and of each shadow model on calibration records that it was not trained on."""
    of_calibration = np.arange(len(target)) >= queried
    kept = of_calibration if unseen is None else of_calibration & unseen
    accuracies = [(odds[of_calibration & ~used] > 0).mean() for odds, used in zip(shadows, membership, strict=True)]
    return float((target[kept] > 0).mean()), np.array(accuracies)


def refuse_few(records: int) -> None:
    """Refuses (`InputError`) fewer than 50 calibration records that the target is known not to have used."""
    check_ranges(
        f"[{LEAST_RECORDS}, inf)",
        "use more of them, or leave the target's outputs on them out",
        calibration_records_not_used=records,
    )


def mixture_likeness(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
    *,
    stretch: float = 1.0,
) -> float:
    """The p-value of "some mixture of shadow models reproduces the target's outputs", which the shadow test assumes."""
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    likelihoods = []
    for model, members, other_profile in zip(shadows, membership, profiles_of_others(shadows, membership), strict=True):
        centre = np.where(members, other_profile.inside, other_profile.outside)
        likelihoods.append(mixture_log_likelihood(centre + stretch * (model - centre), other_profile, stretch))
    own_likelihood = mixture_log_likelihood(target, profile(shadows, membership), stretch)
    return float((1 + (np.array(likelihoods) <= own_likelihood).sum()) / (1 + len(likelihoods)))


def mixture_log_likelihood(outputs: Numbers, shadows: Profile, stretch: float = 1.0) -> float:
    """The mean log-likelihood (nats per record) of log-odds under the best mixture of used and unused records.

    With s the squared stretch, a share f has log[(1 - f) N(outside, s v_out) + f N(inside, s v_in)].
    """
    parts = []
    for mean, variance in ((shadows.outside, shadows.outside_variance), (shadows.inside, shadows.inside_variance)):
        deviation = np.sqrt(stretch**2 * variance)
        parts.append(-(((outputs - mean) / deviation) ** 2) / 2 - np.log(np.sqrt(2 * np.pi)) - np.log(deviation))
    with np.errstate(divide="ignore"):
        mixtures = np.logaddexp(np.log(1 - MIXTURES)[:, None] + parts[0], np.log(MIXTURES)[:, None] + parts[1])
    return float(np.maximum(mixtures, LEAST_LOG_DENSITY).mean(axis=1).max())


def _rank(of_shadows: PerModel, own_statistic: float, width: float, *, larger: bool) -> float:
    """The one-sided p-value of the target's statistic among those of `of_shadows`, its distance divided by `width`."""
    sign = 1 if larger else -1
    distance = sign * (own_statistic - of_shadows.mean()) / width
    return float((1 + (sign * (of_shadows - of_shadows.mean()) >= distance - 1e-12).sum()) / (1 + len(of_shadows)))


def check_shadows(
    target: np.ndarray, shadows: np.ndarray, membership: np.ndarray, queried: int
) -> tuple[Bool[np.ndarray, " models"], Bool[np.ndarray, " models"]]:
    """Which shadow models were trained on none, and which on all, of the first `queried` records; refuses too few."""
    check_outputs(target, shadows, membership)
    used = membership[:, :queried].sum(axis=1)
    never, fully = used == 0, used == queried
    least = int(np.ceil(1 / ALPHA - 1e-9)) - 1
    enough = f"a p-value of {ALPHA:g} needs so many shadow models of each kind; train more"
    check_ranges(f"[{least}, inf)", enough, models_of_no_use=never.sum(), models_of_full_use=fully.sum())
    return never, fully
