"""Was the query set used? An exact test against a holdout: records of the same provider that nobody trained on.

If the target never used the query set, and the provider chose at random which records to share, query and holdout
records are exchangeable. Any score that treats all of them alike can then be permuted among them. The test keeps its
level in finite samples, whatever the target is and whatever else it was trained on.

The score (`membership_scores`) comes from shadow models. Each was trained on a random choice of query *and* holdout
records, as many as the query set has. They treat both sets alike, so the test is exact, and they show what each
record's output looks like with and without the record in training. A target that used all of the query set is
exchangeable with them if it is otherwise like them. That is an assumption: `p_fully`, the used fraction and the minimum
detectable fraction need it; the p-value of "never used" does not.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Key
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import MembershipScores, cut, membership_scores, scores_among
from jaxaudit.metrics.usage import ALPHA, LEVEL, STATED_FRACTION, Effect, Usage, conclude
from jaxaudit.randomness import generator_of

PERMUTATIONS = 1999
CHUNK = 1 << 22
MOST_TIED = 0.5
"""Largest share of a model's outputs that may be the same value."""


class Permuted(NamedTuple):
    """A permutation test of the difference of two means.

    Attributes:
        difference: the mean of the first sample minus that of the second.
        p_larger: one-sided p-value for a larger difference than by chance; `p_smaller` for a smaller one.
        critical: the critical value: `p_larger` is at most alpha exactly if `difference` is above it.
    """

    difference: float
    p_larger: float
    p_smaller: float
    critical: float


def permutation_test(
    key: Key[Array, ""],
    first: Float[Array | np.ndarray, " n"],
    second: Float[Array | np.ndarray, " m"],
    *,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
) -> Permuted:
    """A permutation test of the difference of two means; p = (1 + #{as extreme}) / (1 + permutations).

    If the numbers are exchangeable, each p-value is at most u with probability u at most, for every u and any sizes,
    ties included. Memory is bounded: about 32 MB.

    Raises:
        InputError: a sample is empty, a number is not finite, or there are too few permutations to ever reach `alpha`.

    >>> import jax, numpy as np
    >>> test = permutation_test(jax.random.key(1), np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    >>> test.difference, round(test.p_larger, 2), test.p_smaller
    (3.0, 0.05, 1.0)
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    values = np.concatenate([first, second])
    if not len(first) or not len(second) or not np.isfinite(values).all():
        raise InputError(
            f"a permutation test needs finite numbers in both samples; got {len(first)} and {len(second)} numbers, "
            f"{int((~np.isfinite(values)).sum())} of them not finite."
        )
    allowed = int(np.floor(alpha * (1 + permutations) + 1e-9))
    if allowed < 1:
        raise InputError(
            f"{permutations} permutations cannot give a p-value of {alpha:g} or less; use {1 / alpha:.0f} or more."
        )
    generator = generator_of(key)
    # Sums of one sample order the differences of means, and are the cheaper statistic.
    fewer, flip = (first, 1.0) if len(first) <= len(second) else (second, -1.0)
    centred = values - values.mean()
    sums = []
    rows = max(1, CHUNK // len(values))
    for start in range(0, permutations, rows):
        tiled = np.tile(centred, (min(rows, permutations - start), 1))
        sums.append(generator.permuted(tiled, axis=1, out=tiled)[:, : len(fewer)].sum(axis=1))
    per_sum = flip * (1 / len(first) + 1 / len(second))
    permuted = per_sum * np.concatenate(sums)
    observed = float(first.mean() - second.mean())
    # Sums of the same numbers in another order differ by rounding; counting them as equal errs on the safe side.
    slack = 1e-12 * (1 + np.abs(centred).sum()) * abs(per_sum)
    return Permuted(
        observed,
        float((1 + (permuted >= observed - slack).sum()) / (1 + permutations)),
        float((1 + (permuted <= observed + slack).sum()) / (1 + permutations)),
        float(np.partition(permuted, permutations - allowed)[permutations - allowed]) + slack,
    )


def holdout_test(
    key: Key[Array, ""],
    query: Float[Array | np.ndarray, " n"],
    holdout: Float[Array | np.ndarray, " m"],
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[Array | np.ndarray, "models n_plus_m"],
    *,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    printed: bool = False,
    recipe: str = "",
) -> Usage:
    """Did the target use the query set, how much of it, and what is the minimum detectable fraction?

    - `p_never`: a permutation test of the mean membership score of query against holdout records. Exact: under "the
      target never used the query set" it is at most u with probability u at most, whatever the target is.
    - `p_fully`: a target that used all of the query set is one more row of `shadows`. Its difference of mean scores
      (records in its training set minus others) is ranked among theirs. Exact if the target is trained like them, other
      data included; too small if they share calibration data and the target has its own.
    - `fraction`: the target's difference divided by the shadow models' mean difference. The interval inverts a t-test
      with the variances of the scores and of the shadow models' differences (`Effect`). Needs the same assumption.
    - `detectable`: from the same numbers and the critical value of the permutation test. For `fraction` and
      `detectable`, the variance of the target's scores is taken as at least that of the shadow models: outputs that
      hardly vary carry less information, not more.

    The verdict is never `forgotten` if the target's outputs on the holdout look as if the holdout was used, too (a
    target trained on both sets shows no difference), or if most of its outputs are the same value.

    Args:
        key: random key of the permutations.
        query, holdout: the target's log-odds of each record's own class (`log_odds`).
        shadows: the same of the shadow models; columns are the query set, then the holdout.
        membership: which of these records each shadow model was trained on: `n` of them, all choices equally likely.
        permutations: random permutations.
        alpha: the level of both tests.
        level: confidence level of the interval.
        stated: `forgotten` requires a minimum detectable fraction of at most this.
        printed: whether the target's log-odds come from a file of rounded probabilities.
        recipe: advice if the shadow models fit their own data badly. It changes no verdict: `p_never` is exact whatever
            they are, and the other numbers are measured on them.

    Raises:
        InputError: shapes disagree, an output is NaN, there are fewer than 4 shadow models, or a row of `membership`
            does not have `n` records.
    """
    query, holdout, membership = np.asarray(query), np.asarray(holdout), np.asarray(membership)
    size = len(query)
    counts = membership.sum(axis=1)
    if membership.shape[1:] != (size + len(holdout),) or (counts != size).any():
        raise InputError(
            f"each shadow model must be trained on exactly {size} of the {size + len(holdout)} query and holdout "
            f"records, the size of the query set; membership has shape {membership.shape} and rows with "
            f"{counts.min() if counts.size else 0} to {counts.max() if counts.size else 0} records."
        )
    target = np.concatenate([query, holdout])
    found = membership_scores(target, shadows, membership)
    scores = _adjusted(np.concatenate([found.target[None], found.shadows]), found.shadows, membership)
    mine, others = scores[0, :size], scores[0, size:]
    test = permutation_test(key, mine, others, permutations=permutations, alpha=alpha)
    unseen = np.mean([_variance(s[~m]) for s, m in zip(scores[1:], membership, strict=True)])
    least = float(unseen * (1 / size + 1 / len(others)))
    effect = Effect(
        difference=test.difference,
        variance=max(_variance(mine) / size + _variance(others) / len(others), least),
        full=_differences(scores[1:], membership),
        noise=float(np.mean(_sampling_variances(scores[1:], membership))),
        critical=max(test.critical, float(stats.norm.isf(alpha)) * np.sqrt(least)),
    )
    doubts = (
        *_swapped(test, alpha),
        *_holdout_used(found, membership, size, stated),
        *_one_value(cut(target), cut(shadows), printed),
    )
    supposed = np.concatenate([membership, (np.arange(len(target)) < size)[None]])
    among = scores_among(np.concatenate([np.asarray(shadows), target[None]]), supposed, found.weights)
    full = _differences(_adjusted(among, among, supposed), supposed)
    p_fully = float((1 + (full[:-1] <= full[-1]).sum()) / len(full))
    how = {"alpha": alpha, "level": level, "stated": stated}
    return conclude("holdout", test.p_larger, p_fully, effect, doubts=doubts, invalid=(), recipe=recipe, **how)


def _adjusted(
    scores: Float[np.ndarray, "models n"],
    shadows: Float[np.ndarray, "shadows n"],
    membership: Bool[np.ndarray, "shadows n"],
) -> Float[np.ndarray, "models n"]:
    """Scores minus what each record's difficulty explains.

    The residual of a least-squares fit over all query and holdout records. The predictors are the mean scores of each
    record among shadow models with and without it. This removes the variance of unevenly spread hard records. The fit
    is symmetric, so exchangeable records stay exchangeable.
    """
    without = (shadows * ~membership).sum(axis=0) / np.maximum((~membership).sum(axis=0), 1)
    within = (shadows * membership).sum(axis=0) / np.maximum(membership.sum(axis=0), 1)
    difficulty = np.stack([np.ones_like(without), without, without**2, within, within**2], axis=1)
    return scores - (difficulty @ np.linalg.lstsq(difficulty, scores.T, rcond=None)[0]).T


def _variance(scores: np.ndarray) -> float:
    return float(np.var(scores, ddof=1)) if len(scores) > 1 else 0.25


def _differences(scores: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, " models"]:
    """Each model's mean score of the records in its training set minus that of the others."""
    inside, outside = membership.sum(axis=1), (~membership).sum(axis=1)
    return (scores * membership).sum(axis=1) / inside - (scores * ~membership).sum(axis=1) / outside


def _sampling_variances(scores: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, " models"]:
    """The variance of each model's difference that comes from the choice of records alone."""
    return np.array(
        [_variance(s[m]) / m.sum() + _variance(s[~m]) / (~m).sum() for s, m in zip(scores, membership, strict=True)]
    )


def _swapped(test: Permuted, alpha: float) -> tuple[str, ...]:
    """A doubt if the holdout scores higher than the query set."""
    if test.p_smaller > alpha / 2:
        return ()
    return (
        f"the holdout looks more used than the query set (p = {test.p_smaller:.3g}): query set and holdout may be "
        "swapped, or the holdout may have another source",
    )


def _holdout_used(
    found: MembershipScores, membership: Bool[np.ndarray, "models n"], size: int, stated: float
) -> tuple[str, ...]:
    """A doubt if the target's mean score of holdout records is high.

    High: at least `stated` of the way from the shadow models' mean score of others' records to that of their own.
    """
    inside, outside = (
        float(np.mean([scores[row].mean() for scores, row in zip(found.shadows, rows, strict=True)]))
        for rows in (membership, ~membership)
    )
    if not float(found.target[size:].mean()) - outside >= stated * (inside - outside) > 0:
        return ()
    return (
        "the target's outputs on the holdout resemble those of models trained on it: the target may have been trained "
        "on the holdout or on similar records, and use of the query set would then not be detected",
    )


def _one_value(
    target: Float[np.ndarray, " n"], shadows: Float[np.ndarray, "models n"], printed: bool
) -> tuple[str, ...]:
    """A doubt if most of the target's outputs are the same value, and no shadow model's are."""
    most, theirs = _tied(target), max(_tied(each) for each in shadows)
    if most <= MOST_TIED or theirs > MOST_TIED:
        return ()
    return (
        f"{most:.0%} of the target's outputs are the same value, but at most {theirs:.0%} of any shadow model's: "
        f"rounded or sharpened outputs hide use{'; request logits or more decimals' if printed else ''}",
    )


def _tied(outputs: Float[np.ndarray, " n"]) -> float:
    return float(np.unique(outputs, return_counts=True)[1].max() / len(outputs))
