"""Was the query set used? An exact test against a holdout: records of the same provider that nobody trained on.

If the target never used the query set, and the provider chose at random which records to share, query and holdout
records are exchangeable. Any score that treats all of them alike can then be permuted among them. The test keeps its
level in finite samples, whatever the target is and whatever else it was trained on.

The score (`membership_scores`) comes from shadow models. Each was trained on a random choice of query *and* holdout
records, about as many as the query set has (`dealt_alike`). They treat both sets alike, so the test is exact, and they
show what each record's output looks like with and without the record in training. A target that used all of the query
set is exchangeable with them if it is otherwise like them. That is an assumption: `p_fully`, the used fraction and the
minimum detectable fraction need it; the p-value of "never used" does not.

Where the provider chose among whole groups (a patient's records, near-copies), the groups are exchangeable and their
records are not: `groups` has whole groups permuted, and variances taken over groups.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.difficulty import residual_scores
from jaxaudit.metrics.effect import ALPHA, LEVEL, Effect
from jaxaudit.metrics.looks_used import holdout_used
from jaxaudit.metrics.permutation import PERMUTATIONS, Permuted, check_groups, permutation_test
from jaxaudit.metrics.scores import MembershipScores, cut, membership_scores, scores_among
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Question, Usage, conclude, limits_of

MOST_TIED = 0.5
"""Largest share of a model's outputs that may be the same value."""


def holdout_test(
    key: Key[Array, ""],
    query: Float[Array | np.ndarray, " n"],
    holdout: Float[Array | np.ndarray, " m"],
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[Array | np.ndarray, "models n_plus_m"],
    *,
    groups: Int[Array | np.ndarray, " n_plus_m"] | None = None,
    predictors: Float[np.ndarray, "n_plus_m kinds"] | None = None,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    printed: bool = False,
    recipe: str = "",
) -> Usage:
    """Did the target use the query set, how much of it, and what is the minimum detectable fraction?

    - `p_never`: a permutation test of the mean score of query against holdout records. Exact: under "the target never
      used the query set" it is at most u with probability u at most, whatever the target is. The score is the
      membership score; with `predictors`, that of `residual_scores`, which finds more of the targets that are unlike
      the shadow models.
    - `p_fully`: a target that used all of the query set is one more row of `shadows`. Its difference of mean scores
      (records in its training set minus others) is ranked among theirs. Exact if the target is trained like them, other
      data included; too small if they share calibration data and the target has its own.
    - `fraction`: the target's difference divided by the shadow models' mean difference. The interval inverts a t-test
      with the variances of the scores and of the shadow models' differences (`Effect`). Needs the same assumption.
    - `detectable`: from the same numbers and the critical value of the permutation test. For `fraction` and
      `detectable`, the variance of the target's scores is taken as at least that of the shadow models: outputs that
      hardly vary carry less information, not more.

    The verdict is never `forgotten` if the target's outputs on the holdout look as if the holdout was used, too
    (`holdout_used`: a target trained on both sets shows no difference), or if most of its outputs are the same value.

    Args:
        key: random key of the permutations.
        query, holdout: the target's log-odds of each record's own class (`log_odds`).
        shadows: the same of the shadow models; columns are the query set, then the holdout.
        membership: which of these records each shadow model was trained on: `n` of them, or about as many, see
            `dealt_alike`, all choices of that number equally likely; with groups, about as many whole groups as the
            query set has.
        groups: the group of each record, where the provider dealt whole groups: they are permuted, and variances are
            those of means over groups.
        predictors: of how difficult each record is (`jaxaudit.metrics.difficulty`), blind to the two sets.
        permutations: random permutations.
        alpha: the level of both tests.
        level: confidence level of the interval.
        stated: `forgotten` requires an upper limit of the used fraction of at most this.
        printed: whether the target's log-odds come from a file of rounded probabilities.
        recipe: advice if the shadow models fit their own data badly. It changes no verdict: `p_never` is exact whatever
            they are, and the other numbers are measured on them.

    Raises:
        InputError: shapes disagree, an output is NaN, there are fewer than 4 shadow models, or a row of `membership`
            does not have about `n` records, or whole groups, about as many as the query set; with groups, as
            `check_groups`.
    """
    query, holdout, membership = np.asarray(query), np.asarray(holdout), np.asarray(membership)
    size, target = len(query), np.concatenate([query, holdout])
    own = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    found, scores = adjusted_scores(target, size, shadows, membership, own)
    mine, others = scores[0, :size], scores[0, size:]
    asked = np.arange(len(target)) < size
    supposed = np.concatenate([membership, asked[None]])
    with ThreadPoolExecutor(1) as beside:
        testing = beside.submit(permutation_test, key, mine, others, groups=own, permutations=permutations, alpha=alpha)
        among = scores_among(np.concatenate([np.asarray(shadows), target[None]]), supposed, found.weights)
        test = testing.result()
    p_never = test.p_larger
    if predictors is not None:
        left = residual_scores(target, predictors)
        p_never = permutation_test(
            key, left[:size], left[size:], groups=own, permutations=permutations, alpha=alpha
        ).p_larger
    full = differences(without_difficulty(among, among, supposed), supposed)
    p_fully = float((1 + (full[:-1] <= full[-1]).sum()) / len(full))
    unseen = np.mean([mean_variance(s, own, ~m) for s, m in zip(scores[1:], membership, strict=True)])
    least = float(unseen * (1 / size + 1 / len(others)))
    effect = effect_of(test, scores, size, membership, own)
    effect = effect._replace(
        variance=max(effect.variance, least),
        critical=max(test.critical, float(-special.ndtri(alpha)) * np.sqrt(least)),
    )
    limits = limits_of(effect, alpha, level)
    # A wider limit does not allow `forgotten` anyway.
    narrow = limits.upper <= stated
    doubts = (
        *swapped(test.p_smaller, alpha),
        *(holdout_used(found, membership, size, stated, alpha) if narrow else ()),
        *_one_value(cut(target), cut(shadows), printed),
    )
    return conclude("holdout", p_never, p_fully, limits, doubts, alpha=alpha, stated=stated, recipe=recipe)


def adjusted_scores(
    target: Float[Array | np.ndarray, " n_plus_m"],
    size: int,
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[np.ndarray, "models n_plus_m"],
    groups: Int[np.ndarray, " n_plus_m"] | None = None,
) -> tuple[MembershipScores, Float[np.ndarray, "all_models n_plus_m"]]:
    """Membership scores, and the same adjusted for each record's difficulty: first of the target, then of each model.

    Args:
        target: its log-odds of each record's own class: `size` query records, then the holdout.
        size: the number of query records.
        shadows: the same of the shadow models.
        membership: which records each was trained on.
        groups: the group of each record, numbered from 0, where whole groups were dealt.

    Raises:
        InputError: as `holdout_test`.
    """
    _check_rows(membership, size, len(target), groups)
    found = membership_scores(target, shadows, membership)
    return found, without_difficulty(np.concatenate([found.target[None], found.shadows]), found.shadows, membership)


def effect_of(
    test: Permuted,
    scores: Float[np.ndarray, "all_models n_plus_m"],
    size: int,
    membership: Bool[np.ndarray, "models n_plus_m"],
    groups: Int[np.ndarray, " n_plus_m"] | None = None,
) -> Effect:
    """The difference of the first row's means with its sampling variance, beside those of the shadow models.

    Args:
        test: of the first row of `scores`, query records against holdout records.
        scores: of what is judged, and then of each shadow model.
        size, membership, groups: as for `adjusted_scores`.
    """
    asked = np.arange(scores.shape[1]) < size
    return Effect(
        difference=test.difference,
        variance=sum(mean_variance(scores[0], groups, side) / int(side.sum()) for side in (asked, ~asked)),
        full=differences(scores[1:], membership),
        noise=float(np.mean(_sampling_variances(scores[1:], membership, groups))),
        critical=test.critical,
    )


def without_difficulty(
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


def _check_rows(
    membership: Bool[np.ndarray, "models n"], size: int, records: int, groups: Int[np.ndarray, " n"] | None
) -> None:
    """Refuses training sets that are not dealt as the query set was."""
    whole = membership.shape[1:] == (records,)
    wanted, of, counts, of_all = size, "records", membership.sum(axis=1), records
    if groups is not None and whole:
        wanted, of = check_groups(groups, size, records), "whole groups"
        counts, others = (np.array([len(np.unique(groups[row])) for row in rows]) for rows in (membership, ~membership))
        of_all = int(groups.max()) + 1
        whole = bool((counts + others == of_all).all())
    if not whole or not np.all(dealt_alike(counts, wanted, of_all)):
        raise InputError(
            f"each shadow model must be trained on about {wanted} {of} of the {records} query and holdout records, "
            f"as many as the query set has; membership has shape {membership.shape} and rows with "
            f"{counts.min() if counts.size else 0} to {counts.max() if counts.size else 0} {of}."
        )


def mean_variance(
    scores: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"] | None, side: Bool[np.ndarray, " n"]
) -> float:
    """The variance of the mean score of one side, times its number of records; with groups, taken over groups.

    The mean over n records of G groups has variance G / (G - 1) * (sum over groups of (sum of residuals)^2) / n^2
    (Liang & Zeger 1986).
    """
    scores = scores[side]
    if groups is None:
        return float(np.var(scores, ddof=1)) if len(scores) > 1 else 0.25
    _, own = np.unique(groups[side], return_inverse=True)
    sums = np.bincount(own, scores - scores.mean())
    count = len(sums)
    return float(count / (count - 1) * (sums**2).sum() / len(scores)) if count > 1 else 0.25 * len(scores)


def differences(scores: np.ndarray, membership: np.ndarray) -> Float[np.ndarray, " models"]:
    """Each model's mean score of the records in its training set minus that of the others."""
    inside, outside = membership.sum(axis=1), (~membership).sum(axis=1)
    return (scores * membership).sum(axis=1) / inside - (scores * ~membership).sum(axis=1) / outside


def _sampling_variances(
    scores: np.ndarray, membership: np.ndarray, groups: np.ndarray | None
) -> Float[np.ndarray, " models"]:
    """The variance of each model's difference that comes from the choice of records, or groups, alone."""
    sides = ((s, side) for s, m in zip(scores, membership, strict=True) for side in (m, ~m))
    found = [mean_variance(s, groups, side) / side.sum() for s, side in sides]
    return np.array(found).reshape(-1, 2).sum(axis=1)


def swapped(p_smaller: float, alpha: float, question: Question = "used") -> tuple[str, ...]:
    """A doubt if the holdout scores higher than the query set."""
    if p_smaller > alpha / 2:
        return ()
    return (
        f"the holdout {WORDING[question].more} the query set (p = {p_smaller:.3g}): query set and holdout may be "
        "swapped, or the holdout may have another source",
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
