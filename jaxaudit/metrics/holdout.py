"""Was the query set used? An exact test against a holdout: records of the same provider that were never shared.

If the target never used the query set, nothing tells its query records from holdout records: which of them the
provider shared is a coin's doing. So any score that treats all of them alike may be permuted among them, and the test
keeps its level in finite samples, whatever the target is, was trained on, and resembles.

The score (`membership_scores`) comes from shadow models that were each trained on a random choice of query *and*
holdout records, as many as the query set has. They treat the two alike, so the test stays exact; they know what each
record's output looks like with it and without it in training; and a target that used all of the query set, and
is otherwise like them, is one of them. That last clause is an assumption: `p_fully`, the used fraction and the smallest
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
"""Share of a model's outputs that may be one value."""


class Permuted(NamedTuple):
    """A permutation test of the difference of two means.

    Attributes:
        difference: the mean of the first sample less that of the second.
        p_larger: p-value against a larger difference than chance makes, `p_smaller` against a smaller one.
        critical: the test finds a larger difference exactly where `difference` is above this.
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
    """Random permutations of which numbers are the first sample's; p = (1 + #{as extreme}) / (1 + permutations).

    Where the numbers are exchangeable, each p-value is at most u with a probability of at most u, for every u and any
    sizes, ties included. Memory is bounded: about 32 MB.

    Raises:
        InputError: where a sample is empty, a number is not finite, or there are too few permutations to ever reach
            `alpha`.

    >>> import jax, numpy as np
    >>> test = permutation_test(jax.random.key(1), np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    >>> test.difference, round(test.p_larger, 2), test.p_smaller
    (3.0, 0.05, 1.0)
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    values = np.concatenate([first, second])
    if not len(first) or not len(second) or not np.isfinite(values).all():
        raise InputError(
            f"a permutation test needs finite numbers on both sides, got {len(first)} and {len(second)} with "
            f"{int((~np.isfinite(values)).sum())} that are not finite."
        )
    allowed = int(np.floor(alpha * (1 + permutations) + 1e-9))
    if allowed < 1:
        raise InputError(
            f"{permutations} permutations give no p-value of {alpha:g} or less; use {1 / alpha:.0f} or more."
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
    """Did the target use the query set, how much of it, and how little of it would have been noticed?

    - `p_never`: the permutation test of the mean membership score of query against holdout records. Exact: under "the
      target never used the query set" it is at most u with a probability of at most u, whatever the target is.
    - `p_fully`: supposing that the target used all of the query set, it is one more row of `shadows`; the rank of its
      difference of mean scores (records it has less records it has not) among theirs. Exact where the target is made
      like them, other data included; too often small where they share calibration data and the target has its own.
    - `fraction`: the target's difference over the shadow models' mean difference, with an interval by inverting a
      t-test whose variance is that of the scores and of the shadow models' differences (`Effect`). Needs the same.
    - `detectable`: from the same numbers and the permutation test's own critical value. For both the target's scores
      count as varying at least as much as the shadow models' do: outputs that hardly vary tell less, not more.

    `forgotten` is not said where the target gives holdout records outputs as if they, too, had been used (a target
    trained on both sets shows no difference), or most of its outputs are one value.

    Args:
        key: random key of the permutations.
        query, holdout: the target's log-odds of each record's own class (`log_odds`).
        shadows: the shadow models', columns in the order of the query set, then the holdout.
        membership: which of these records each shadow model was trained on: `n` of them, every choice equally likely.
        permutations: random permutations.
        alpha: the level of both tests.
        level: confidence level of the interval.
        stated: `forgotten` is said where a used fraction of at most this would have been detected.
        printed: whether the target's log-odds are of probabilities that a file rounds.
        recipe: where the shadow models are known to fit their own data badly, what to change about them. `p_never` is
            exact whatever they are, and the rest is measured on them, so no verdict depends on it.

    Raises:
        InputError: where shapes disagree, an output is NaN, there are fewer than 4 shadow models, or a row of
            `membership` does not have `n` records.
    """
    query, holdout, membership = np.asarray(query), np.asarray(holdout), np.asarray(membership)
    size = len(query)
    counts = membership.sum(axis=1)
    if membership.shape[1:] != (size + len(holdout),) or (counts != size).any():
        raise InputError(
            f"each shadow model must be trained on as many of the {size + len(holdout)} query and holdout records as "
            f"the query set has ({size}), whichever they are; membership has shape {membership.shape} and rows of "
            f"{counts.min() if counts.size else 0} to {counts.max() if counts.size else 0}."
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
    """Scores less what each record's difficulty alone explains of them.

    The residual of a least-squares fit, over query and holdout records alike, on the mean score of each record among
    the shadow models without it and among those with it: the test then does not wait for chance to deal hard records
    evenly. A symmetric fit, so that exchangeable records stay exchangeable.
    """
    without = (shadows * ~membership).sum(axis=0) / np.maximum((~membership).sum(axis=0), 1)
    within = (shadows * membership).sum(axis=0) / np.maximum(membership.sum(axis=0), 1)
    difficulty = np.stack([np.ones_like(without), without, without**2, within, within**2], axis=1)
    return scores - (difficulty @ np.linalg.lstsq(difficulty, scores.T, rcond=None)[0]).T


def _variance(scores: np.ndarray) -> float:
    return float(np.var(scores, ddof=1)) if len(scores) > 1 else 0.25


def _differences(scores: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, " models"]:
    """Each model's mean score of the records it has, less that of those it has not."""
    inside, outside = membership.sum(axis=1), (~membership).sum(axis=1)
    return (scores * membership).sum(axis=1) / inside - (scores * ~membership).sum(axis=1) / outside


def _sampling_variances(scores: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, " models"]:
    """What the choice of records alone adds to the variance of each model's difference."""
    return np.array(
        [_variance(s[m]) / m.sum() + _variance(s[~m]) / (~m).sum() for s, m in zip(scores, membership, strict=True)]
    )


def _swapped(test: Permuted, alpha: float) -> tuple[str, ...]:
    """Why a large p-value is no evidence of no use."""
    if test.p_smaller > alpha / 2:
        return ()
    return (
        f"the holdout looks more used than the query set (p = {test.p_smaller:.3g}): were the two swapped, or does the "
        "holdout come from elsewhere?",
    )


def _holdout_used(
    found: MembershipScores, membership: Bool[np.ndarray, "models n"], size: int, stated: float
) -> tuple[str, ...]:
    """A doubt where the target's mean score of holdout records lies `stated` of the way from those the shadow models
    give records they have not to those they give records they have."""
    inside, outside = (
        float(np.mean([scores[row].mean() for scores, row in zip(found.shadows, rows, strict=True)]))
        for rows in (membership, ~membership)
    )
    if not float(found.target[size:].mean()) - outside >= stated * (inside - outside) > 0:
        return ()
    return (
        "the target's outputs on the holdout, too, are like those of models trained on it: was it trained on the "
        "holdout, or on other records much like it? Then a used query set does not stand out",
    )


def _one_value(
    target: Float[np.ndarray, " n"], shadows: Float[np.ndarray, "models n"], printed: bool
) -> tuple[str, ...]:
    """A doubt where most of the target's outputs are one value, and no shadow model's are."""
    most, theirs = _tied(target), max(_tied(each) for each in shadows)
    if most <= MOST_TIED or theirs > MOST_TIED:
        return ()
    return (
        f"{most:.0%} of the target's outputs are one and the same value, and at most {theirs:.0%} of a shadow model's: "
        f"rounded or sharpened outputs hide use{'; ask for logits or more decimals' if printed else ''}",
    )


def _tied(outputs: Float[np.ndarray, " n"]) -> float:
    return float(np.unique(outputs, return_counts=True)[1].max() / len(outputs))
