"""The interface of a per-record attack with a bank of shadow models, its input, and what several attacks take of it.

Statistics leave each model out in turn, which costs no more than leaving out none: a median without a model follows
from the model's rank, and a sum without it from the sums before and after it, so that no precision is lost.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.metrics.arrays import Mask, Members

BLOCK = 1 << 18
"""Log-odds that are processed at a time, over all models, views and the records of a block."""
LEAST_UNUSED = 100
"""The least number of records that no model used, to compare other records with; with fewer, many scores tie."""
SPREAD = (0.7548776662466927, 0.5698402909980532)
"""Multiples of these, modulo 1, cover the unit square evenly (1 / g and 1 / g^2, where g^3 = g + 1)."""


ModelViews = Float[np.ndarray, "models views n"]
PerView = Float[np.ndarray, "targets views n"]
PerTarget = Float[np.ndarray, "targets n"]
IntegersPerTarget = Int[np.ndarray, "targets n"]
FixedDesign = Float[np.ndarray, "3 n"]
"""Numbers of planned models with each record and without it, if the design fixed them; infinite if coins decided. The
last row, in [0, 1), says which records have a finished partner (`left_out`) if models are missing.
"""


class ShadowScores(NamedTuple):
    """The input of a per-record attack: log-odds (nats) of each record's own class, for each view (augmented query).

    Attributes:
        models, membership: the shadow models' log-odds and membership masks.
        targets: the attacked models' log-odds; None: each shadow model is attacked with the other shadow models.
        design: in how many planned training sets each record is, if the design fixed that number. A partner model is
            then left out when shadow models attack each other (`left_out`). None: independent coins decided.
        unused: records that neither a shadow model nor a target was trained on, for comparison (`unused_records`).
    """

    models: ModelViews
    membership: Members
    targets: PerView | None = None
    design: FixedDesign | None = None
    unused: Mask | None = None

    @property
    def attacked(self) -> PerView:
        """The log-odds of the models that are attacked."""
        return self.models if self.targets is None else self.targets

    @property
    def alone(self) -> Mask:
        """The records that all models or none were trained on: scores of them would only show how masks were drawn."""
        return np.asarray(self.membership.all(axis=0) | ~self.membership.any(axis=0))

    @property
    def references(self) -> int:
        """The least number of shadow models with which a target is attacked."""
        fixed = self.design is not None and bool(np.isfinite(self.design[0]).any())
        return len(self.models) - (1 + fixed if self.targets is None else 0)

    def blocks(self) -> Iterator[tuple[slice, "ShadowScores"]]:
        """Blocks of records, and the input restricted to each, so that memory does not grow with their number."""
        models, views, records = self.models.shape
        size = max(1, BLOCK // (models * views))
        for start in range(0, records, size):
            part = slice(start, start + size)
            yield part, self._make(None if array is None else array[..., part] for array in self)


class Least(NamedTuple):
    """The least numbers of shadow models, without the target, that an attack needs to score a record.

    Models trained with the record (`inside`), without it, and both together.
    """

    inside: int = 0
    outside: int = 0
    together: int = 1


@runtime_checkable
class RecordAttack(Protocol):
    """An attack that scores each record for each target; a larger score means a member.

    Attributes:
        name: letters, digits and hyphens.
        meaning, source: what the attack does, in one sentence, and the paper or code that proposes it.
        least: how many shadow models it needs.

    If its score of a record depends on other records, a method `relative` returns, for a given input, whether the
    target may have used those: the false positive rate on a target that used none of the records can then not be
    calibrated with shadow models that used half of them. An attack that compares probabilities themselves sets
    `of_likelihoods`: it is not made with scores of any unit.
    """

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def least(self) -> Least: ...

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """The score of each record for each target; NaN with too few shadow models (`least`)."""
        ...


def fixed_design(planned: Members) -> FixedDesign:
    """Infers from the membership masks of all planned models whether the design fixed the number of models per record.

    Over `rows` of `size` models of a fixed number, its variance is (size - rows) / (size - 1) times that of coins. Less
    than three standard errors below that of coins counts as coins.

    >>> fixed_design(np.array([[True, False, True], [False, True, False]]))[0]
    array([1., 1., 1.])
    """
    records, share = planned.shape[1], planned.mean(axis=1)
    of_coins = share * (1 - share)
    rows, coins = np.count_nonzero(of_coins), float(of_coins.sum())
    ratio = float(planned.sum(axis=0).var()) / coins if coins else np.inf
    size = (rows - ratio) / (1 - ratio) if ratio <= max(0.0, 1 - 3 * np.sqrt(2 / records)) else np.inf
    inside = float(share[share < 1].sum()) / max(rows, 1) * size
    turn = np.arange(records) * SPREAD[0] % 1
    return np.stack([np.full(records, inside), np.full(records, size - inside if np.isfinite(size) else np.inf), turn])


def unused_records(planned: Members) -> Mask | None:
    """The records that no planned model is trained on, if they were left out on purpose; otherwise None.

    That is if there are at least `LEAST_UNUSED`, and ten times as many as coins would leave out. RMIA compares with
    them: a score that ranks among records that the target may have used depends on how many it used.

    >>> unused_records(np.arange(300) < np.array([[150], [200]])).sum()
    np.int64(100)
    """
    unused = np.asarray(planned.sum(axis=0) == 0)
    count = int(unused.sum())
    none = float(np.prod(1 - planned[:, ~unused].mean(axis=1))) if count < len(unused) else 1.0
    by_chance = (len(unused) - count) * none / (1 - none) if none < 1 else np.inf
    return unused if count >= max(LEAST_UNUSED, 10 * by_chance) else None


def left_out(shadowed: ShadowScores) -> tuple[IntegersPerTarget, IntegersPerTarget]:
    """For each target and record, the models that are left out of the attack: one with the record, and one without it.

    They are the target itself and, if the design is fixed, a partner of the other kind; -1 for none. Otherwise the
    number of models with the record would tell which of the two has it: areas of .53 came out of outputs without any
    memory. The partner is drawn among all planned models, and need not be left out if it is not finished: to leave one
    out always gave areas of .51 where 16 of 32 models were finished and .54 where 8 were. Where coins decided, a
    partner would itself tell.

    >>> member = np.array([[True, False], [False, True], [True, False], [False, True]])
    >>> dealt = fixed_design(member)
    >>> [each.T.tolist() for each in left_out(ShadowScores(np.zeros((4, 1, 2)), member, design=dealt))]
    [[[0, 2, 2, 0], [1, 1, 3, 3]], [[1, 1, 3, 3], [0, 2, 2, 0]]]
    >>> [each.T.tolist() for each in left_out(ShadowScores(np.zeros((2, 1, 2)), member[:2], design=dealt))]
    [[[0, -1], [-1, 1]], [[1, 1], [0, 0]]]
    """
    membership = shadowed.membership
    models, records = membership.shape
    if shadowed.targets is not None:
        none = np.full((1, records), -1)
        return none, none
    alone, partner = np.arange(models)[:, None], np.full((models, records), -1)
    if shadowed.design is not None and np.isfinite(shadowed.design[0]).any():
        inside, outside, turn = shadowed.design
        with_it = membership.sum(axis=0)
        last = np.full((2, records), -1)
        for step in range(2 * models - 1, -1, -1):
            row = membership[step % models]
            if step < models:
                finished, planned = np.where(row, [models - with_it, outside], [with_it, inside])
                # Of records that were dealt by coins, beside others that were not, no partner is due.
                finite = np.isfinite(planned)
                due = finite & ((turn + step * SPREAD[1]) % 1 * np.where(finite, planned, 0) < finished)
                partner[step] = np.where(due, np.where(row, last[0], last[1]), -1)
            last[0][~row] = last[1][row] = step % models
    return np.where(membership, alone, partner), np.where(membership, partner, alone)


def counts(shadowed: ShadowScores) -> tuple[IntegersPerTarget, IntegersPerTarget]:
    """For each target and record, how many shadow models of the attack were trained with the record, and without it."""
    inside = shadowed.membership.sum(axis=0)
    of_in, of_out = (without >= 0 for without in left_out(shadowed))
    return inside - of_in, len(shadowed.models) - inside - of_out


def enough(shadowed: ShadowScores, least: Least) -> Bool[np.ndarray, "targets n"]:
    """For each target and record, whether there are as many shadow models as the attack needs."""
    inside, outside = counts(shadowed)
    return (inside >= least.inside) & (outside >= least.outside) & (shadowed.references >= least.together)


def scored(shadowed: ShadowScores, least: Least, score: Callable[[ShadowScores], PerView]) -> PerTarget:
    """The mean over views of what `score` gives a block of records at a time; NaN with too few shadow models."""
    scores = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
    for part, block in shadowed.blocks():
        scores[:, part] = np.where(enough(block, least), score(block).mean(axis=1), np.nan)
    return scores


def check_shadow_scores(shadowed: ShadowScores) -> None:
    """Refuses (`InputError`) inconsistent shapes, numbers that are not finite, and targets without a shadow model."""
    models, views, records = shadowed.models.shape
    check_shapes((models, records), membership=shadowed.membership)
    check_shapes((len(shadowed.attacked), views, records), targets=shadowed.attacked)
    if shadowed.references < 1:
        raise InputError(
            f"{len(shadowed.models)} shadow models leave none to attack another; train at least 4, preferably 32."
        )
    check_ranges("(-inf, inf)", models=shadowed.models, targets=shadowed.attacked)


class SideStatistics(NamedTuple):
    """Statistics over the models trained with a record, or over those without it, for each target (or one row for all).

    `variance` is the mean squared distance from `mean`. NaN without a model.
    """

    count: IntegersPerTarget
    median: PerView
    mean: PerView
    variance: PerView


def in_out_statistics(shadowed: ShadowScores) -> tuple[SideStatistics, SideStatistics]:
    """The statistics of models with each record, and of models without it."""
    membership, (inside, outside) = shadowed.membership, left_out(shadowed)
    return _side(shadowed.models, membership, inside), _side(shadowed.models, ~membership, outside)


def _side(
    models: ModelViews,
    membership: Members,
    without: IntegersPerTarget,
) -> SideStatistics:
    """The statistics of the models in `membership`, leaving out the model `without` for each target."""
    held = np.broadcast_to(membership[:, None], models.shape)
    ordered = np.sort(np.where(held, models, np.inf), axis=0)
    whole = membership.sum(axis=0)[None]
    count = whole - (without >= 0)
    # The log-odds of the models that are left out; infinity if none is.
    taken = np.where((without >= 0)[:, None], np.take_along_axis(models, without[:, None], axis=0), np.inf)
    median = _median(ordered, count[:, None], taken)
    centre = _median(ordered, whole[:, None], np.full((1, *models.shape[1:]), np.inf))
    apart = np.where(held, models - np.where(np.isnan(centre), 0.0, centre), 0.0)
    times, none = np.maximum(count, 1)[:, None], (count == 0)[:, None]
    first, second = (sum_without(power, without) / times for power in (apart, apart**2))
    return SideStatistics(
        count,
        np.where(none, np.nan, median),
        np.where(none, np.nan, centre + first),
        np.where(none, np.nan, np.maximum(second - first**2, 0.0)),
    )


def _median(ordered: np.ndarray, count: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The median of the `count` sorted numbers that remain without the number `taken` (infinity: none is taken)."""
    middle_values = []
    for middle in ((count - 1) // 2, count // 2):
        places = np.clip(middle, 0, len(ordered) - 1)
        number = np.take_along_axis(ordered, places, axis=0)
        after = np.take_along_axis(ordered, np.minimum(places + 1, len(ordered) - 1), axis=0)
        middle_values.append(np.where(number < taken, number, after))
    with np.errstate(invalid="ignore"):  # infinity minus infinity, if count is 0
        return np.where(count > 0, (middle_values[0] + middle_values[1]) / 2, np.nan)


def sum_without(numbers: ModelViews, without: IntegersPerTarget) -> PerView:
    """The sum over models, leaving out the model `without` for each target; -1 leaves out none."""
    whole = numbers.sum(axis=0, keepdims=True)
    if (without < 0).all():
        return np.repeat(whole, len(without), axis=0)
    sums = np.take_along_axis(others_sum(numbers), without[:, None], axis=0)
    return np.where((without >= 0)[:, None], sums, whole)


def others_sum(numbers: Float[np.ndarray, "models *rest"]) -> Float[np.ndarray, "models *rest"]:
    """For each model, the sum over all other models, computed without a subtraction that would lose precision.

    >>> others_sum(np.array([1e20, 1.0, 2.0]))
    array([3.e+00, 1.e+20, 1.e+20])
    """
    before, after = np.zeros_like(numbers), np.zeros_like(numbers)
    np.cumsum(numbers[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(numbers[:0:-1], axis=0)[::-1]
    return before + after
