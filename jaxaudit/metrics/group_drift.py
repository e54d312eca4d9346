"""Which groups a target scores higher than models without the query set do, by more than such models drift apart.

The mean score of group g under model k is taken as

    group g's difficulty + a shift of model k + a drift of model k in group g

with normal drifts, independent of each other. The target is one more such model, but for the groups that it used: these
raise their own means, and the means of all other groups by one shift. A model that was trained on more texts of a kind
does that, so no group is compared with its own mean under other models alone: by such t-tests without a holdout, eight
models accused an innocent patient in 25% of tables where a quarter of the patients was used, and suspected one in 72%
(`experiments/group_suspects.py`).

*The shift* of the target is read where nobody was used: from the groups of the holdout; else from the lower third of
the query set's groups, as if all of these were innocent. Groups that were used raise this reading: fewer are found, and
no innocent one is accused for them. Where nearly all groups were used, none stands out.

*The spread.* Few models say little of the drift in one group, and all groups together much. The variance of a group's
drift is the mean of both, weighed by degrees of freedom (Smyth 2004, equation 6): `PRIOR` of all groups, and one less
than the number of models of its own. Estimated from the groups, as Smyth does, the weight of all groups was so large by
chance that 11% to 19% of tables with a few groups of much larger drift (3 and 2 models) accused one. A target of
another recipe drifts further than the models: without a holdout its own spread, in the lower third of groups, widens
that of the models, and never narrows it.

*Degrees of freedom* are at most `MOST_FREE`, so that drifts of heavier tails do no harm (Student's t with 3 of them).
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

SOURCE = "Smyth 2004"
PRIOR = 2
"""The degrees of freedom that the mean variance of all groups has in that of each."""
MOST_FREE = 5
FEWEST_MODELS, FEWEST_HOLDOUT, FEWEST_QUERY = 3, 3, 7
"""Models, groups of a holdout, and groups of a query set without such a holdout. With two models, a group that drifts
far more than all others was accused in up to 8% of tables."""
OF_CENTRE = 2.0
"""The variance of the lower third's reading of the centre of n normal numbers is at most this over n of theirs."""


def drift_test(
    target: Float[np.ndarray, " groups"],
    unused: Float[np.ndarray, "models groups"],
    in_holdout: Bool[np.ndarray, " groups"],
) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
    """How much higher the target scores each group than the models do, beyond its shift, and the p-value of each.

    Args:
        target: the target's mean score of each group, higher for records that were used.
        unused: those of at least `FEWEST_MODELS` models without the query set.
        in_holdout: which groups are of the holdout: at least `FEWEST_HOLDOUT`; or none, and at least `FEWEST_QUERY`
            groups.

    Returns:
        The effects, and p-values of "this group was not used", whatever was used of others. Both are of all groups.
    """
    models, count = unused.shape
    of_target = target - unused.mean(axis=0)
    drifts = unused - unused.mean(axis=0)
    drifts = drifts - drifts.mean(axis=1, keepdims=True)
    of_group = (drifts**2).sum(axis=0) / (models - 1) * count / (count - 1)
    # Of the target's drift from the mean of the models.
    pooled = float(of_group.mean()) * (1 + 1 / models)
    variance = (PRIOR * pooled + (models - 1) * of_group * (1 + 1 / models)) / (PRIOR + models - 1)
    if in_holdout.any():
        centre, of_centre, widening = float(of_target[in_holdout].mean()), 1 / int(in_holdout.sum()), 1.0
    else:
        lower = np.sort(of_target)[: -(-count // 3)]
        normal = special.ndtri((np.arange(1, len(lower) + 1) - 0.375) / (count + 0.25))
        slope = float(np.polyfit(normal, lower, 1)[0])
        centre, of_centre = float(lower.mean() - normal.mean() * np.sqrt(pooled)), OF_CENTRE / count
        widening = max(1.0, slope**2 / max(pooled, 1e-300))
    effects = of_target - centre
    errors = np.sqrt(np.maximum(widening * (variance + of_centre * pooled), 1e-300))
    return effects, special.stdtr(min(PRIOR + models - 1, MOST_FREE), -effects / errors)
