"""Was the query set used? A likelihood ratio against shadow models, where there is no holdout.

Shadow models are trained on calibration data with none, a part and all of the query set. Assume that the target's other
data have the same source as the calibration data, and that it is designed and trained like the shadow models. Then a
target that never used the query set is exchangeable with the models of the first kind, and one that used all of it with
those of the last kind: ranks among them are p-values. The assumption is about data that are not available here.
Membership in the query set and similarity to it look alike: a target trained on *other* records of the query set's
provider fits the query set better, too. The test therefore first checks that the target resembles the shadow models,
and is `inconclusive` if it does not. That check is not enough: on targets of known truth the test does not keep its
level (`experiments/results`). Prefer a holdout.
"""

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import Profile, cut, membership_scores, profile, profiles_of_others, scores_among
from jaxaudit.metrics.usage import ALPHA, LEVEL, STATED_FRACTION, Effect, Usage, conclude

SHARE = 2 / 3


def shadow_test(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
    *,
    share: float = SHARE,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> Usage:
    """Did the target use the query set, how much of it, and what is the minimum detectable fraction?

    The statistic is the mean membership score (`membership_scores`) over the query set.

    - `p_never`: the rank of the target's statistic among shadow models that used nothing; `p_fully`: among those that
      used everything. Exact if the target is exchangeable with them, which requires fresh calibration data for each
      shadow model: `share` 0.
    - Shadow models that share calibration data differ less from one another than from a target with its own data. If
      each was trained on a random `share` of the calibration set, the variance between them is too small by a factor of
      up to (1 + share) / (1 - share) (as in the delete-d jackknife). The target's distance from their mean is divided
      by the square root of this factor before it is ranked.
    - `fraction` and `detectable`: see `Effect`; models of partial use show the effect of a part.

    The verdict is `inconclusive` if the target's outputs fit the shadow models worse than they fit one another
    (`likeness`).

    Args:
        target: its log-odds of each query record's own class (`log_odds`).
        shadows: the same of the shadow models.
        membership: which query records each was trained on: none, a part, or all.
        share: the random share of the calibration set that each shadow model was trained on.
        alpha: the level of all tests.
        level: confidence level of the interval.
        stated: `forgotten` requires a minimum detectable fraction of at most this.
        recipe: advice if the shadow models fit their own data badly.

    Raises:
        InputError: shapes disagree, an output is NaN, `share` is not in [0, 1), or there are too few shadow models of
            no use or of full use for a p-value to ever reach `alpha`.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    never, fully = np.asarray(~membership.any(axis=1)), np.asarray(membership.all(axis=1))
    _check(never, fully, share, alpha)
    stretch = float(np.sqrt((1 + share) / (1 - share)))
    scores = membership_scores(target, shadows, membership)
    means = scores.shadows.mean(axis=1)
    base = means[never] - means[never].mean()
    some = ~never & ~fully
    effect = Effect(
        difference=float(scores.target.mean() - means[never].mean()),
        variance=stretch**2 * float(np.var(base, ddof=1)),
        full=means[fully] - means[never].mean(),
        noise=float(np.var(base, ddof=1)),
        critical=stretch * float(np.sort(base)[-int(np.floor(alpha * (1 + never.sum()) + 1e-9))]),
        partly=(float(membership[some].mean()), float(means[some].mean() - means[never].mean()))
        if some.any()
        else None,
    )
    p_never = _rank(-_supposing(False, target, shadows, membership, scores.weights), never, stretch)
    p_fully = _rank(_supposing(True, target, shadows, membership, scores.weights), fully, stretch)
    like = likeness(target, shadows, membership)
    invalid = ()
    if like <= alpha:
        invalid = (
            f"the target does not resemble the shadow models (p = {like:.3g}): its other data, network or training "
            "differ from theirs, and without a holdout this cannot be distinguished from use of the query set",
            *((recipe,) if recipe else ()),
        )
    how = {"alpha": alpha, "level": level, "stated": stated}
    return conclude("shadow", p_never, p_fully, effect, doubts=(), invalid=invalid, recipe=recipe, **how)


def likeness(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
) -> float:
    """p-value of "the target resembles the shadow models": the pre-flight check of the shadow test's assumption.

    The rank of the target's `misfit` among those of the shadow models, each measured against the others.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    others = profiles_of_others(shadows, membership)
    theirs = np.array([misfit(model, each) for model, each in zip(shadows, others, strict=True)])
    return float((1 + (theirs >= misfit(target, profile(shadows, membership))).sum()) / (1 + len(theirs)))


def misfit(outputs: Float[np.ndarray, " n"], shadows: Profile) -> float:
    """How far log-odds lie from the best mixture of models with and without the records.

    The mean squared distance, in units of each record's variance, from outside + f (inside - outside), minimised over
    f in [0, 1].

    >>> flat = np.ones(3)
    >>> misfit(np.array([1.0, 1.0, 4.0]), Profile(0 * flat, 2 * flat, flat, flat, flat))
    2.0
    """
    gap, distance = shadows.inside - shadows.outside, outputs - shadows.outside
    weighted = gap / shadows.variance
    reach = float(weighted @ gap)
    used = float(np.clip(weighted @ distance / reach, 0, 1)) if reach > 0 else 0.0
    return float(np.mean((distance - used * gap) ** 2 / shadows.variance))


def _supposing(
    used: bool, target: np.ndarray, shadows: np.ndarray, membership: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Mean scores of the shadow models and, last, of the target, as if it had used all or nothing."""
    supposed = np.concatenate([membership, np.full((1, membership.shape[1]), used)])
    return scores_among(np.concatenate([shadows, target[None]]), supposed, start).mean(axis=1)


def _rank(means: np.ndarray, of_a_kind: np.ndarray, stretch: float) -> float:
    """The one-sided p-value for the last of `means` being smaller than the others of its kind."""
    others = means[:-1][of_a_kind]
    centre = others.mean()
    return float((1 + (others - centre <= (means[-1] - centre) / stretch).sum()) / (1 + len(others)))


def _check(never: np.ndarray, fully: np.ndarray, share: float, alpha: float) -> None:
    if not 0 <= share < 1:
        raise InputError(
            f"the share of the calibration set of each shadow model must be at least 0 and below 1; got {share:g}."
        )
    least = int(np.ceil(1 / alpha - 1e-9)) - 1
    if never.sum() < least or fully.sum() < least:
        raise InputError(
            f"{never.sum()} shadow models were trained on none of the query set and {fully.sum()} on all of it; a "
            f"p-value of {alpha:g} requires at least {least} of each."
        )
