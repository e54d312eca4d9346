"""An estimate of the used share of a set of records that is linear in a model's outputs.

With out, in and v the means and the variance of a record's log-odds over models without and with it in training
(`Profile`), the gap in - out, and the weight w = gap / v, a model's outputs x give

    share = sum w (x - out) / sum w gap.

It is 0 on average for models that were not trained on the records and 1 for those that were trained on all of them. The
outputs of a target with other data deviate more, which raises the variance of the share but does not change its mean. A
membership score, which is not linear, would be biased upward.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.metrics.profile import Profile, profile, profiles_of_others

Records = Bool[np.ndarray, " n"]


class Spread(NamedTuple):
    """How much an estimate varies between models that used the same fraction of the query set.

    Attributes:
        within, between: variance between models of one design, and the additional variance between designs.
        models, designs: the numbers of models and designs.
    """

    within: float
    between: float
    models: int
    designs: int

    @property
    def total(self) -> float:
        """The variance between models of any design."""
        return self.within + self.between

    def error(self, stretch: float = 1.0) -> float:
        """The variance of one more model's distance from the mean, if its deviation is `stretch` times as large.

        The factor applies only to the variance within designs: the effect of a design does not depend on the data.
        """
        return sum(self._parts(stretch))

    def freedom(self, stretch: float = 1.0) -> float:
        """Satterthwaite's (1946) degrees of freedom of `error`, at least 1."""
        counts = max(self.models - self.designs, 1), max(self.designs - 1, 1)
        shared = sum(part**2 / count for part, count in zip(self._parts(stretch), counts, strict=True))
        return max(1.0, self.error(stretch) ** 2 / shared) if shared > 0 else float(self.models - 1)

    def _parts(self, stretch: float) -> tuple[float, float]:
        return self.within * (stretch**2 + 1 / self.models), self.between * (1 + 1 / self.designs)


def linear_share(outputs: Float[np.ndarray, " n"], shadows: Profile, records: Records) -> float:
    """The used share of the records selected by `records`, not cut to [0, 1]; 0 if shadow models remember none of them.

    `outputs` are a model's log-odds of all records, and `shadows` is their profile.

    >>> flat = np.ones(4)
    >>> shadows = Profile(0 * flat, 2 * flat, flat, flat, flat)
    >>> linear_share(np.array([2.0, 2.0, 0.0, 0.0]), shadows, np.ones(4, bool))
    0.5
    """
    gap = np.maximum(shadows.inside - shadows.outside, 0)[records]
    weight = gap / shadows.variance[records]
    reach = float(weight @ gap)
    return float(weight @ (outputs - shadows.outside)[records]) / reach if reach > 0 else 0.0


def own_scatter(outputs: Float[np.ndarray, " n"], shadows: Profile, records: Records) -> float:
    """The root mean square distance of outputs from the mean of models without the record, in standard deviations.

    >>> flat = np.ones(4)
    >>> own_scatter(np.array([3.0, -3.0, 3.0, -3.0]), Profile(0 * flat, flat, flat, flat, flat), np.ones(4, bool))
    3.0
    """
    return float(np.sqrt(np.mean((outputs - shadows.outside)[records] ** 2 / shadows.variance[records])))


class Shares(NamedTuple):
    """Used shares and scatter of each shadow model (computed with the other models) and of the target (with all).

    Attributes:
        query, target_query: the used share of the query set.
        reference, target_reference: the used share of reference records that the model was not trained on; 0 without
            a reference.
        scatter, target_scatter: `own_scatter` on the same reference records; 1 without a reference.
    """

    query: Float[np.ndarray, " models"]
    reference: Float[np.ndarray, " models"]
    scatter: Float[np.ndarray, " models"]
    target_query: float
    target_reference: float
    target_scatter: float


def used_shares(
    target: Float[np.ndarray, " n"],
    shadows: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    queried: int,
    unseen: Records | None = None,
) -> Shares:
    """The used shares and the scatter of a target and of its shadow models.

    `target` holds the target's log-odds of `queried` query records, then of the reference, if any. `unseen` says which
    records the target is known not to have used; None: all of the reference.
    """
    index = np.arange(len(target))
    query, reference = index < queried, index >= queried
    unseen = reference if unseen is None else reference & unseen

    def of(outputs: np.ndarray, other_profile: Profile, kept: np.ndarray) -> tuple[float, float, float]:
        share = linear_share(outputs, other_profile, query)
        if not kept.any():
            return share, 0.0, 1.0
        return share, linear_share(outputs, other_profile, kept), own_scatter(outputs, other_profile, kept)

    profiles = profiles_of_others(shadows, membership)
    rows = [
        of(model, other_profile, reference & ~member)
        for model, other_profile, member in zip(shadows, profiles, membership, strict=True)
    ]
    query_shares, reference_shares, scatters = np.array(rows).T
    return Shares(query_shares, reference_shares, scatters, *of(target, profile(shadows, membership), unseen))


def spread(values: Float[np.ndarray, " models"], designs: np.ndarray) -> Spread:
    """The variances of an estimate within and between designs: a one-way analysis of variance.

    The estimates are of at least two models that used the same fraction of the query set. With one design, or one model
    per design, all variance is within.

    >>> found = spread(np.array([0.0, 2.0, 10.0, 12.0]), np.array([0, 0, 1, 1]))
    >>> found.within, found.between
    (2.0, 49.0)
    """
    names, design, counts = np.unique(designs, return_inverse=True, return_counts=True)
    models, groups = len(values), len(names)
    if groups == 1 or groups == models:
        return Spread(float(np.var(values, ddof=1)), 0.0, models, 1)
    means = np.bincount(design, values) / counts
    within = float(((values - means[design]) ** 2).sum() / (models - groups))
    mean_square = float((counts * (means - values.mean()) ** 2).sum() / (groups - 1))
    size = (models - (counts**2).sum() / models) / (groups - 1)
    return Spread(within, max(0.0, (mean_square - within) / float(size)), models, groups)
