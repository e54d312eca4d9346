"""Was the query set used? A likelihood ratio against shadow models, where there is no holdout.

Shadow models are trained on calibration data with none, a part and all of the query set. If the target's other data
come from where the calibration data come from, and it is designed and trained like them, then a target that never used
the query set is one more model of the first kind, and one that used all of it one more of the last: ranks among them
are p-values. That is an assumption about data nobody has seen, and membership in the query set and mere likeness to it
look alike: a target trained on *other* records of the query set's provider fits the query set better, too. So the
test first asks whether the target is like any of the shadow models, and says nothing where it is not. That does not
save it: on targets of known truth it does not keep its level (`experiments/results`). Prefer a holdout.
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
    """Did the target use the query set, how much of it, and how little of it would have been noticed?

    The statistic is the mean membership score (`membership_scores`) over the query set.

    - `p_never`: supposing that the target used nothing, it is one more shadow model of that kind; the rank of its
      statistic among theirs. `p_fully` alike, among those that used everything. Exact where the target is exchangeable
      with them, which takes fresh calibration data for each shadow model: `share` 0.
    - Shadow models that share calibration data differ less from one another than from a target with data of its own. If
      each was trained on a random `share` of the calibration set, the variance between them is short by a factor of
      up to (1 + share) / (1 - share) (as in the jackknife that leaves out many), so the target's distance from their
      mean is divided by its root before it is ranked.
    - `fraction` and `detectable`: see `Effect`; models of partial use show how much of the effect that has.

    Nothing is said where the target's outputs fit the shadow models' worse than theirs fit one another's (`likeness`).

    Args:
        target: its log-odds of each query record's own class (`log_odds`).
        shadows: the shadow models'.
        membership: which query records each was trained on; of none, of all, and of a part there must be some.
        share: the share of the calibration set that each shadow model was trained on, drawn anew.
        alpha: the level of all tests.
        level: confidence level of the interval.
        stated: `forgotten` is said where a used fraction of at most this would have been detected.
        recipe: where the shadow models are known to fit their own data badly, what to change about them.

    Raises:
        InputError: where shapes disagree, an output is NaN, `share` is not in [0, 1), or there are too few shadow
            models with nothing or with everything for a p-value to ever reach `alpha`.
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
            f"the target fits the shadow models worse than they fit one another (p = {like:.3g}): its other data, "
            "design or training are not like theirs, and without a holdout that looks like use of the query set",
            *((recipe,) if recipe else ()),
        )
    how = {"alpha": alpha, "level": level, "stated": stated}
    return conclude("shadow", p_never, p_fully, effect, doubts=(), invalid=invalid, recipe=recipe, **how)


def likeness(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
) -> float:
    """p-value of "the target is one of the shadow models": the pre-flight check of the shadow test's assumption.

    The rank of the target's `misfit` among those of the shadow models, each against the others.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    others = profiles_of_others(shadows, membership)
    theirs = np.array([misfit(model, each) for model, each in zip(shadows, others, strict=True)])
    return float((1 + (theirs >= misfit(target, profile(shadows, membership))).sum()) / (1 + len(theirs)))


def misfit(outputs: Float[np.ndarray, " n"], shadows: Profile) -> float:
    """How far log-odds lie from the best mixture of what models with and without the records say.

    The mean squared distance, in units of each record's variance, from outside + f (inside - outside), at the f in
    [0, 1] where it is least.

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
    """Mean scores of the shadow models and, last, of the target, had it used all or nothing."""
    supposed = np.concatenate([membership, np.full((1, membership.shape[1]), used)])
    return scores_among(np.concatenate([shadows, target[None]]), supposed, start).mean(axis=1)


def _rank(means: np.ndarray, of_a_kind: np.ndarray, stretch: float) -> float:
    """p-value against the last of `means` being smaller than the others of its kind."""
    others = means[:-1][of_a_kind]
    centre = others.mean()
    return float((1 + (others - centre <= (means[-1] - centre) / stretch).sum()) / (1 + len(others)))


def _check(never: np.ndarray, fully: np.ndarray, share: float, alpha: float) -> None:
    if not 0 <= share < 1:
        raise InputError(
            f"each shadow model is trained on a share of the calibration set from 0 to below 1, got {share:g}."
        )
    least = int(np.ceil(1 / alpha - 1e-9)) - 1
    if never.sum() < least or fully.sum() < least:
        raise InputError(
            f"{never.sum()} shadow models have none of the query set and {fully.sum()} have all of it: a p-value of "
            f"{alpha:g} takes at least {least} of each."
        )
