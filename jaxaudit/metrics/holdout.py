"""Was the query set used? An exact test against a holdout: records of the same provider that nobody trained on.

If the target never used the query set, and the provider chose at random which records to share, query and holdout
records are exchangeable. Scores that do not use which set a record is in can then be permuted: the test keeps its level
in finite samples, for any target and any other training data. If whole groups were chosen at random, groups are
exchangeable and records are not: with `groups`, whole groups are permuted, and variances are taken over groups.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import (
    AnyIntegers,
    AnyNumbers,
    AnyOthers,
    Integers,
    Mask,
    Members,
    Numbers,
    OneKey,
    PerModel,
    Scores,
    units_of_records,
)
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.difficulty import residual_scores_among, residual_scores_of_models
from jaxaudit.metrics.permutation import PERMUTATIONS, check_groups, permutation_test
from jaxaudit.metrics.scores import check_models, cut, membership_scores, profile, scores_among
from jaxaudit.metrics.shadow import holdout_used
from jaxaudit.metrics.usage import (
    ALPHA,
    STATED_FRACTION,
    WORDING,
    Effect,
    Question,
    Usage,
    conclude,
    less_used,
    limits_of,
)

BETTER = 1.5
"""The learned score is taken if it separates records in training from others so many times as far."""
MOST_TIED = 0.5
"""The largest share of equal outputs of a model that raises no doubt."""


def holdout_test(
    key: OneKey,
    query: AnyNumbers,
    holdout: AnyOthers,
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[Array | np.ndarray, "models n_plus_m"],
    *,
    groups: Int[Array | np.ndarray, " n_plus_m"] | None = None,
    predictors: Float[np.ndarray, "n_plus_m kinds"] | None = None,
    permutations: int = PERMUTATIONS,
    stated: float = STATED_FRACTION,
    printed: bool = False,
    own_recipe: bool = False,
    recipe: str = "",
) -> Usage:
    """Was the query set used by the target, how much of it, and what is the minimum detectable fraction?

    The score (`residual_scores_of_models`) is what the difficulty of records leaves of the outputs.

    - `p_never`: a permutation test of the mean score of query against holdout records. Exact: if the target never used
      the query set, it is at most u with probability at most u, for any target.
    - `p_fully`: the rank of the target's difference of mean scores (records in its training set minus the others) among
      those of the shadow models. Exact if the target is trained like them, other data included; too small if all shadow
      models share calibration data and the target has other data.
    - `fraction`: the target's difference divided by the shadow models' mean difference, with the interval of an
      `Effect`. It assumes that the target is trained like the shadow models. The variance of the target's scores is
      taken as at least that of the shadow models: outputs that hardly vary carry less information.

    The verdict is never `forgotten` if most of the target's outputs are the same value, or if the holdout looks used,
    too (`holdout_used`), since use of both sets shows no difference.

    Args:
        query, holdout: the target's log-odds of each record's own class (`log_odds`).
        shadows: log-odds of the shadow models; columns are the query set, then the holdout.
        membership: of the shadow models, at random. Each has about `n` records (`dealt_alike`), all choices of that
            number equally likely; with groups, about as many whole groups as the query set has.
        groups: the group of each record, if the provider chose whole groups at random.
        predictors: of each record's difficulty (`jaxaudit.metrics.difficulty`), which do not use the split.
        stated, recipe: as for `conclude`; no verdict depends on the recipe.
        printed: whether the target's log-odds come from a file of rounded probabilities.
        own_recipe: whether the shadow models have the target's recipe: a score learned from them may then be taken.
    """
    query, holdout, membership = np.asarray(query), np.asarray(holdout), np.asarray(membership)
    size, target = len(query), np.concatenate([query, holdout])
    group_numbers = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    is_query = np.arange(len(target)) < size
    _check_rows(membership, size, len(target), group_numbers)
    models = np.asarray(shadows, np.float64)
    check_models(target, models, membership)
    # Of the target, and of each shadow model beside all others.
    by_all = profile(cut(models), membership)
    scores = np.concatenate(
        [
            residual_scores_of_models(np.asarray(target, np.float64)[None], [by_all], predictors),
            residual_scores_among(models, membership, predictors),
        ]
    )
    learned = False
    if own_recipe:
        fitted = membership_scores(target, models, membership)
        every = np.concatenate([fitted.target[None], fitted.shadows])
        learned_scores = without_difficulty(every, fitted.shadows, membership)
        learned = learned_is_better(scores[1:], learned_scores[1:], membership, group_numbers)
        scores = learned_scores if learned else scores
    supposed = np.concatenate([membership, is_query[None]])
    with ThreadPoolExecutor(1) as beside:
        testing = beside.submit(
            permutation_test,
            key,
            *np.split(scores[0], [size]),
            groups=group_numbers,
            permutations=permutations,
        )
        every = np.concatenate([np.asarray(shadows), target[None]])
        among = scores_among(every, supposed) if learned else residual_scores_among(every, supposed, predictors)
        among = without_difficulty(among, among, supposed) if learned else among
        test = testing.result()
    full = mean_differences(among, supposed)
    p_fully = float((1 + (full[:-1] <= full[-1]).sum()) / len(full))
    unseen = np.mean([mean_variance(s, group_numbers, ~m) for s, m in zip(scores[1:], membership, strict=True)])
    least = float(unseen * (1 / size + 1 / len(holdout)))
    effect = Effect(
        difference=test.difference,
        variance=max(sampling_variance(scores[0], is_query, group_numbers), least),
        full=mean_differences(scores[1:], membership),
        noise=_mean_variance_of_models(scores[1:], membership, group_numbers),
        critical=max(test.critical, float(-special.ndtri(ALPHA)) * np.sqrt(least)),
    )
    limits = limits_of(effect)
    # A larger limit rules out `forgotten` anyway, so the doubt would change no verdict.
    narrow = limits.upper <= stated
    doubts = (
        *swapped(test.p_smaller),
        *(holdout_used(membership_scores(target, shadows, membership), membership, size, stated) if narrow else ()),
        *_one_value(cut(target), cut(shadows), printed),
    )
    return conclude("holdout", test.p_larger, p_fully, limits, doubts, stated=stated, recipe=recipe)


def learned_is_better(
    residuals: Scores,
    learned: Scores,
    membership: Members,
    groups: Integers | None,
) -> bool:
    """Whether `membership_scores` separate the records of models of known membership `BETTER` times as far.

    They do of models that know their records by heart (in standard errors: 112 against 54 of forests on 1,000 digits,
    9.5 against 9.5 of convolutional networks). No output of the target enters, so the test stays exact.
    """

    def apart(scores: Scores) -> float:
        variance = _mean_variance_of_models(scores, membership, groups)
        return float(mean_differences(scores, membership).mean() / np.sqrt(max(variance, 1e-300)))

    return apart(learned) > BETTER * max(apart(residuals), 0.0)


def without_difficulty(
    scores: Scores,
    shadows: Float[np.ndarray, "shadows n"],
    membership: Bool[np.ndarray, "shadows n"],
) -> Scores:
    """Residuals of scores after a least-squares fit on each record's mean scores with it and without it."""
    without = (shadows * ~membership).sum(axis=0) / np.maximum((~membership).sum(axis=0), 1)
    within = (shadows * membership).sum(axis=0) / np.maximum(membership.sum(axis=0), 1)
    difficulty = np.stack([np.ones_like(without), without, without**2, within, within**2], axis=1)
    return scores - (difficulty @ np.linalg.lstsq(difficulty, scores.T, rcond=None)[0]).T


def _check_rows(membership: Members, size: int, records: int, groups: Integers | None) -> None:
    """Refuses membership masks that split a group, or differ too much in size from the query set (`dealt_alike`)."""
    whole = membership.shape[1:] == (records,)
    size_planned, of, counts, of_all = size, "records", membership.sum(axis=1), records
    if groups is not None and whole:
        size_planned, of = check_groups(groups, size, records), "whole groups"
        counts, units_outside = (
            np.array([len(np.unique(groups[row])) for row in rows]) for rows in (membership, ~membership)
        )
        of_all = int(groups.max()) + 1
        whole = bool((counts + units_outside == of_all).all())
    if not whole or not np.all(dealt_alike(counts, size_planned, of_all)):
        raise InputError(
            f"each shadow model must be trained on about {size_planned} {of} of the {records} query and holdout "
            f"records, as many as the query set has; membership has shape {membership.shape} and rows with "
            f"{counts.min() if counts.size else 0} to {counts.max() if counts.size else 0} {of}."
        )


def mean_variance(scores: Numbers, groups: Integers | None, side: Mask) -> float:
    """The variance of the mean score of the records in `side`, times their number; with groups, taken over groups.

    It is G / (G - 1) * (sum over groups of (sum of residuals)^2) / n (Liang & Zeger 1986).
    """
    scores = scores[side]
    if groups is None:
        return float(np.var(scores, ddof=1)) if len(scores) > 1 else 0.25
    _, group_numbers = np.unique(groups[side], return_inverse=True)
    sums = np.bincount(group_numbers, scores - scores.mean())
    count = len(sums)
    return float(count / (count - 1) * (sums**2).sum() / len(scores)) if count > 1 else 0.25 * len(scores)


def mean_differences(scores: np.ndarray, membership: np.ndarray) -> PerModel:
    """Each model's mean score over the records in its training set, minus its mean score over the other records."""
    inside, outside = membership.sum(axis=1), (~membership).sum(axis=1)
    return (scores * membership).sum(axis=1) / inside - (scores * ~membership).sum(axis=1) / outside


def sampling_variance(scores: Numbers, side: Mask, groups: Integers | None) -> float:
    """The variance of a difference of mean scores that is due to the choice of records or groups."""
    return sum(mean_variance(scores, groups, half) / int(half.sum()) for half in (side, ~side))


def _mean_variance_of_models(scores: Scores, membership: Members, groups: Integers | None) -> float:
    """The mean over models of `sampling_variance`."""
    return float(np.mean([sampling_variance(*pair, groups) for pair in zip(scores, membership, strict=True)]))


def freedom_of_means(sides: Sequence[Mask], groups: AnyIntegers | None) -> int:
    """The degrees of freedom of a t-test of means: the records, or groups, of the smallest side but one; at least 1."""
    units = units_of_records(groups, len(sides[0]))
    return max(1, min(len(np.unique(units[side])) for side in sides) - 1)


def swapped(p_smaller: float, question: Question = "used") -> tuple[str, ...]:
    """A doubt if the query set scores significantly lower than the holdout."""
    if p_smaller > ALPHA / 2:
        return ()
    return (
        f"the query set {WORDING[question].less} than the holdout (p = {p_smaller:.3g}): {less_used(p_smaller)}, and "
        "no evidence of use; or query set and holdout are exchanged, or have different sources, which looks the same",
    )


def _one_value(target: Numbers, shadows: Scores, printed: bool) -> tuple[str, ...]:
    """A doubt if most of the target's outputs are the same value, and no shadow model's are."""
    most, *rest = (float(np.unique(values, return_counts=True)[1].max() / len(values)) for values in (target, *shadows))
    of_shadows = max(rest)
    if most <= MOST_TIED or of_shadows > MOST_TIED:
        return ()
    return (
        f"{most:.0%} of the target's outputs are the same value, but at most {of_shadows:.0%} of any shadow model's: "
        f"rounded or sharpened outputs hide use{'; request logits or more decimals' if printed else ''}",
    )
