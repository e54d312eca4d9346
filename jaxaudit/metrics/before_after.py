"""Did a deletion change a model's use of the query set? Compares its outputs before and after, with one holdout.

What is common to both scores of a record, its difficulty and the random split, cancels in their difference. The
difference of two separate audits would contain it twice.

Before and after are one sample. Outputs of a model before a deletion are subtracted record by record from those after.
Both files and the shadow models are first brought to the coarser resolution of the two. The change decides nothing.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.metrics.effect import LEVEL, share_of_effect
from jaxaudit.metrics.holdout import effect_of, scores_by_shadows
from jaxaudit.metrics.permutation import PERMUTATIONS, permutation_test


class Change(StrictStruct, frozen=True):
    """The used fraction before the deletion minus the used fraction after it.

    Attributes:
        fraction: the estimated difference, in [-1, 1]; None if full use makes no difference to the scores.
        low, high: the interval of the difference; -1 and 1 if the data do not determine it.
        p_value: two-sided p-value of "the use did not change".
        p_never_before: p-value of "the model before never used the query set"; a small value is evidence of use.
    """

    fraction: Number
    low: float
    high: float
    p_value: float
    p_never_before: float


def before_after(
    key: Key[Array, ""],
    before: Float[Array | np.ndarray, " n_plus_m"],
    after: Float[Array | np.ndarray, " n_plus_m"],
    size: int,
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[Array | np.ndarray, "models n_plus_m"],
    *,
    groups: Int[Array | np.ndarray, " n_plus_m"] | None = None,
    predictors: Float[np.ndarray, "n_plus_m kinds"] | None = None,
    permutations: int = PERMUTATIONS,
    level: float = LEVEL,
) -> Change:
    """How much more of the query set was used by the model before a deletion than by the model after it.

    Each record's score is that of `holdout_test` for shadow models of the target's own recipe. With D the score before
    minus the score after, the statistic is the mean of D over query records minus its mean over holdout records.

    - `fraction`: the statistic divided by the shadow models' mean statistic, with an interval as in `used_fraction`.
      Its variance is that of D within query set and holdout, plus the variance between models for the difference alone.
      It assumes that shadow models have the architecture and recipe of both models, and that full use has the same
      effect on both. If both were trained from scratch, each on a part of the query set, the interval is too narrow.
    - `p_value`: a permutation test of D among query and holdout records. Exact if neither model used the query set or
      the holdout. If both used the same part of it, D may vary more among query records; the p-value is then
      approximate, best for a holdout as large as the query set.

    Args:
        key: random key of the permutations.
        before, after: each model's log-odds of each record's own class: `size` query records, then the holdout.
        shadows: the shadow models' log-odds of the same records, at the same resolution.
        membership, groups, predictors, permutations, level: as for `holdout_test`.

    Raises:
        InputError: as `holdout_test`.
    """
    membership = np.asarray(membership)
    group_numbers = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    first, second = (
        scores_by_shadows(np.asarray(outputs), size, shadows, membership, group_numbers, predictors, own_recipe=True)[0]
        for outputs in (before, after)
    )
    paired = first[0] - second[0]
    how = {"groups": group_numbers, "permutations": permutations}
    test = permutation_test(key, paired[:size], paired[size:], **how)
    effect = effect_of(test, np.concatenate([paired[None], second[1:]]), size, membership, group_numbers)
    fraction, low, high = (float(np.clip(end, -1, 1)) for end in share_of_effect(effect, level))
    p_value = min(1.0, 2 * min(test.p_larger, test.p_smaller))
    before_alone = permutation_test(key, first[0, :size], first[0, size:], **how)
    return Change(number(fraction), low, high, p_value, before_alone.p_larger)
