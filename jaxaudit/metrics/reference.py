"""Was the query set used? A test with outputs on records that the target is known not to have used.

No holdout of the query's provider, but what an auditor nearly always has: the calibration set itself, or other data
kept from the target, with one more file of outputs. What the target's design, length of training and data of its own do
to its outputs shows on these records, too, and is taken off: the statistic is the used share of the query set less that
of the reference (`linear_share`), a difference in differences. A target with data of its own scatters more around the
shadow models than they among themselves. How much is measured on the reference, and its distance is divided by it.

Two things can make it wrong. A reference that is unlike the target's other data, or that the target did use: both show
in its outputs there, and are checked. And training on other records of the query set's provider, which no reference
shows: it looks like use of the query set.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, LEVEL, Effect
from jaxaudit.metrics.looks_used import reference_used
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.shadow import check_shadows
from jaxaudit.metrics.shares import shares
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, conclude, limits_of

LEAST_RECORDS = 50
"""Reference records: fewer hardly tell how far a target scatters."""


class ReferenceAnswer(NamedTuple):
    """What the test says, and what was measured on the reference.

    Attributes:
        usage: the answer.
        accuracy: the target's on the reference; `accuracies`: each shadow model's on what it was not trained on.
        scatter: how many times as much as the shadow models the target scatters there, at least 1.
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
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> ReferenceAnswer:
    """Did the target use the query set, how much of it, and what is the minimum detectable fraction?

    - The statistic of a model is its used share of the query set less that of the reference records that it was not
      trained on, each measured against the other models.
    - `p_never`: the rank of the target's statistic among shadow models that used none of the query set, after its
      distance from their mean is divided by its scatter: the root mean square distance of its outputs on the reference,
      over the median of theirs, at least 1. `p_fully`: the same among models that used all.
    - `fraction`, `upper` and `detectable`: see `Effect`; models of partial use show the effect of a part.

    The verdict is never `forgotten` if the reference looks used (`reference_used`): use of both sets shows no
    difference.

    Shadow models of several designs, mixed, make the error of a design that nobody knows part of their spread.

    Args:
        target: its log-odds of each query and then each reference record's own class (`log_odds`).
        shadows: the same of the shadow models.
        membership: which of these records each was trained on: none, a part, or all of the query set, and a random
            share of the reference.
        queried: the size of the query set.
        unseen: which records the target is known not to have used; None: all of the reference.
        alpha: the level of the tests.
        level: confidence level of the interval.
        stated: `forgotten` requires an upper limit of the used fraction of at most this.
        recipe: advice if the shadow models fit their own data badly.

    Raises:
        InputError: shapes disagree, an output is NaN, fewer than 50 reference records are left, or there are too few
            shadow models of no use or of full use for a p-value to ever reach `alpha`.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    never, fully = check_shadows(target, shadows, membership, queried, alpha)
    refuse_few(len(target) - queried if unseen is None else int(unseen[queried:].sum()))
    found = shares(target, shadows, membership, queried, unseen)
    scatter = max(1.0, found.target_scatter / float(np.median(found.scatter[never])))
    statistic = found.query - found.reference
    own = found.target_query - found.target_reference
    base = statistic[never] - statistic[never].mean()
    noise = float(np.var(base, ddof=1))
    centre = float(statistic[never].mean())
    some = ~never & ~fully
    parts = membership[:, :queried]
    effect = Effect(
        difference=own - centre,
        variance=scatter**2 * noise,
        full=statistic[fully] - centre,
        noise=noise,
        critical=scatter * float(np.sort(base)[-int(np.floor(alpha * (1 + never.sum()) + 1e-9))]),
        partly=(float(parts[some].mean()), float(statistic[some].mean() - centre)) if some.any() else None,
    )
    place = np.arange(len(target)) >= queried
    kept = place if unseen is None else place & unseen
    accuracy = float((target[kept] > 0).mean())
    accuracies = np.array(
        [float((row[place & ~used] > 0).mean()) for row, used in zip(shadows, membership, strict=True)]
    )
    usage = conclude(
        "reference",
        _rank(statistic[never], own, scatter, larger=True),
        _rank(statistic[fully], own, scatter, larger=False),
        limits_of(effect, alpha, level),
        doubts=reference_used(found.target_reference, found.reference, accuracy, accuracies, alpha),
        recipe=recipe,
        alpha=alpha,
        stated=stated,
    )
    return ReferenceAnswer(usage, accuracy, accuracies, scatter)


def refuse_few(records: int) -> None:
    """Checks that a reference is large enough.

    Args:
        records: how many of it the target is known not to have used.

    Raises:
        InputError: there are fewer than 50.
    """
    if records < LEAST_RECORDS:
        raise InputError(
            f"the reference has {records} records that the target is known not to have used; the reference test needs "
            f"at least {LEAST_RECORDS}: give its outputs on more of them."
        )


def _rank(others: np.ndarray, own: float, scatter: float, *, larger: bool) -> float:
    """The one-sided p-value of the target's statistic among others, its distance from their mean divided."""
    sign = 1 if larger else -1
    distance = sign * (own - others.mean()) / scatter
    return float((1 + (sign * (others - others.mean()) >= distance - 1e-12).sum()) / (1 + len(others)))
