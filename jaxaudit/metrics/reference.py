"""Was the query set used? A test with a reference: records that the target is known not to have used.

The reference need not come from the query set's provider: it can be the calibration set, or other data kept from the
target. The target's design, length of training and other data affect its outputs on the reference, too, so the
statistic is a difference in differences: the used share of the query set minus that of the reference (`linear_share`).

Two things can make the test wrong. First, a reference that is unlike the target's other data, or that the target did
use; both are checked with the target's outputs on it. Second, training on other records of the query set's provider:
that looks like use of the query set, and no reference shows it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, LEVEL, Effect, limits_of
from jaxaudit.metrics.resemblance import reference_used
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.shadow import check_shadows
from jaxaudit.metrics.shares import used_shares
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, conclude

LEAST_RECORDS = 50
"""The least number of reference records; with fewer, the scatter is too uncertain."""


class ReferenceAnswer(NamedTuple):
    """The result of `reference_test`, and numbers that were measured on the reference.

    Attributes:
        usage: the verdict and its numbers.
        accuracy, accuracies: of the target and of each shadow model, on reference records that it was not trained on.
        scatter: the target's scatter on the reference relative to that of the shadow models, at least 1.
    """

    usage: Usage
    accuracy: float
    accuracies: Float[np.ndarray, " models"]
    scatter: float


def reference_test(
    target: Float[Array | np.ndarray, " n_plus_m"],
    shadows: Float[Array | np.ndarray, "models n_plus_m"],
    membership: Bool[Array | np.ndarray, "models n_plus_m"],
    queried: int,
    *,
    unseen: Bool[np.ndarray, " n_plus_m"] | None = None,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> ReferenceAnswer:
    """Was the query set used by the target, how much of it, and what is the minimum detectable fraction?

    - The statistic of a model is its used share of the query set minus its used share of the reference records that it
      was not trained on (`linear_share`, with the other models as shadow models).
    - `p_never`: the rank of the target's statistic among shadow models that used none of the query set. Before that,
      its distance from their mean is divided by the scatter, since a target with other data than the shadow models
      deviates more: the root mean square deviation of its outputs on the reference, divided by the median of the shadow
      models', at least 1.
    - `p_fully`: the same rank among shadow models that used all of the query set.
    - `fraction`, `upper` and `detectable`: see `Effect`; models of partial use show the effect of partial use.

    The verdict is never `forgotten` if the reference looks used (`reference_used`): use of both sets shows no
    difference. Shadow models of several designs include the error of not knowing the target's design.

    Args:
        target, shadows: log-odds of each record's own class: of `queried` query records, then of the reference.
        membership: the shadow models' membership masks: none, a part, or all of the query set, and a random share of
            the reference.
        unseen: which records the target is known not to have used; None: all of the reference.
        level, stated, recipe: as for `holdout_test`.

    Raises:
        InputError: shapes disagree, an output is NaN, fewer than 50 reference records are left, or there are too few
            shadow models of no use or of full use for a p-value to ever reach 5%.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    never, fully = check_shadows(target, shadows, membership, queried)
    refuse_few(len(target) - queried if unseen is None else int(unseen[queried:].sum()))
    used = used_shares(target, shadows, membership, queried, unseen)
    scatter = max(1.0, used.target_scatter / float(np.median(used.scatter[never])))
    statistic = used.query - used.reference
    own_difference = used.target_query - used.target_reference
    base = statistic[never] - statistic[never].mean()
    noise, centre = float(np.var(base, ddof=1)), float(statistic[never].mean())
    some, parts = ~never & ~fully, membership[:, :queried]
    effect = Effect(
        difference=own_difference - centre,
        variance=scatter**2 * noise,
        full=statistic[fully] - centre,
        noise=noise,
        critical=scatter * float(np.sort(base)[-int(np.floor(ALPHA * (1 + never.sum()) + 1e-9))]),
        partly=(float(parts[some].mean()), float(statistic[some].mean() - centre)) if some.any() else None,
    )
    reference = np.arange(len(target)) >= queried
    kept = reference if unseen is None else reference & unseen
    accuracy = float((target[kept] > 0).mean())
    accuracies = np.array([(row[reference & ~used] > 0).mean() for row, used in zip(shadows, membership, strict=True)])
    usage = conclude(
        "reference",
        _rank(statistic[never], own_difference, scatter, larger=True),
        _rank(statistic[fully], own_difference, scatter, larger=False),
        limits_of(effect, level),
        doubts=reference_used(used.target_reference, used.reference, accuracy, accuracies),
        recipe=recipe,
        stated=stated,
    )
    return ReferenceAnswer(usage, accuracy, accuracies, scatter)


def refuse_few(records: int) -> None:
    """Refuses (`InputError`) a reference with fewer than 50 records that the target is known not to have used."""
    if records < LEAST_RECORDS:
        raise InputError(
            f"the reference has {records} records that the target is known not to have used; the reference test needs "
            f"at least {LEAST_RECORDS}: give its outputs on more of them."
        )


def _rank(of_shadows: np.ndarray, own_statistic: float, scatter: float, *, larger: bool) -> float:
    """The one-sided p-value of the target's statistic among those of `of_shadows`, after dividing by the scatter."""
    sign = 1 if larger else -1
    distance = sign * (own_statistic - of_shadows.mean()) / scatter
    return float((1 + (sign * (of_shadows - of_shadows.mean()) >= distance - 1e-12).sum()) / (1 + len(of_shadows)))
