"""What the `pdtp` audit answers."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.pdtp.finding import find
from jaxaudit.metrics.pdtp import SeedFloor, publishable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EDGES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, math.inf)
"""Nats. Records are counted between them: those of exactly 0, then those above one edge and not above the next."""


class Bar(NamedTuple):
    """How many records have a PDTP above one edge and not above the next; the first counts those of exactly 0.

    Attributes:
        name: the edges in words.
        above, up_to: the edges, nats; both 0 in the first.
        breaks_dtp_1: whether such a PDTP breaks the DTP-1 rule.
        records: by their PDTP, and
        by_seed_floor: by the mean of their seed floor.
    """

    name: str
    above: float
    up_to: float
    breaks_dtp_1: bool
    records: int
    by_seed_floor: int


@dataclass(frozen=True, eq=False)
class PDTPAudit:
    """What was measured of each record; larger PDTP means more exposed.

    Attributes:
        records: indices of the measured records.
        values: PDTP of each in nats, the mean over measurements, of outputs put into bins.
        exact: the same of outputs as they are, without bins.
        dtp_bound: nats that no output moves by more on any input, without bins, the mean over measurements of what is
            proven for the learner (`BoundsDTP`); None where nothing is.
        classes: the class that attains it, in the measurement where the record's value is largest.
        directions: +1 where the model with the record gives that class more, -1 where less, 0 where the value is 0.
        floor: the same number where nothing was removed and only the seed differs; 0 for a learner without a seed.
        duplicates: how many records have the same input and label, itself included.
        only_member: whether it is the only record of its class, which the model without it has never seen.
        measurements: PDTP of each record in each measurement, which has a key of its own.
        train_accuracy: the share of measured records that A(T) classifies as labelled.
        examples: records of the training set.
        bins: equal bins of [0, 1] that outputs were put into; 0 for none.
        seeded: whether the learner's result depends on its key at all.
        largest_possible: nats that no record of any training set moves any output of this learner by, without bins;
            None where there is no such number.
    """

    records: Int[np.ndarray, " records"]
    values: Float[np.ndarray, " records"]
    exact: Float[np.ndarray, " records"]
    dtp_bound: Float[np.ndarray, " records"] | None
    classes: Int[np.ndarray, " records"]
    directions: Int[np.ndarray, " records"]
    floor: SeedFloor
    duplicates: Int[np.ndarray, " records"]
    only_member: Bool[np.ndarray, " records"]
    measurements: Float[np.ndarray, "measurements records"]
    train_accuracy: float
    examples: int
    bins: int
    seeded: bool
    largest_possible: float | None

    @cached_property
    def finding(self) -> Finding:
        """What the audit concludes."""
        return find(self)

    @property
    def max_pdtp(self) -> float:
        """The largest value, in nats: the classifier's."""
        return float(self.values.max())

    @property
    def publish(self) -> bool | None:
        """The DTP-1 rule: False where a value is above 1 nat; None where none is, but not every record was measured."""
        if not publishable(self.max_pdtp):
            return False
        return True if len(self.records) == self.examples else None

    @property
    def above_floor(self) -> int:
        """How many records move the outputs more than any other seed that was tried does."""
        return int((self.values > self.floor.largest).sum())

    @property
    def risky(self) -> Bool[np.ndarray, " records"]:
        """Which records have a PDTP above 1 nat."""
        return self.values > 1

    @property
    def above_1(self) -> int:
        """How many records have a PDTP above 1 nat."""
        return int(self.risky.sum())

    @property
    def above_1_without_bins(self) -> int:
        """The same of outputs compared as they are."""
        return int((self.exact > 1).sum())

    @property
    def above_1_within_floor(self) -> int:
        """How many of those above 1 nat another seed moves as far: they are not above the largest of their floor."""
        return int((self.risky & (self.values <= self.floor.largest)).sum())

    @property
    def binning_artefacts(self) -> int:
        """How many of those above 1 nat are not without bins."""
        return int((self.risky & (self.exact <= 1)).sum())

    @property
    def copies(self) -> int:
        """How many measured records have the same input and label as another of the training set."""
        return int((self.duplicates > 1).sum())

    @property
    def lone_members(self) -> int:
        """How many measured records are the only one of their class."""
        return int(self.only_member.sum())

    @property
    def largest_dtp_bound(self) -> float | None:
        """Nats that no measured record moves any output by on any input, without bins; None where nothing is proven."""
        return None if self.dtp_bound is None else float(self.dtp_bound.max())

    @property
    def distribution(self) -> tuple[Bar, ...]:
        """How many records have which PDTP, and which seed floor."""
        return distribution(self.values, self.floor.mean)

    def plot(self) -> "Figure":
        """How many records have which PDTP, and the riskiest beside their seed floor, as a Matplotlib figure."""
        from jaxaudit.audits.pdtp.figure import plot_pdtp

        return plot_pdtp(self)


class Reduction(NamedTuple):
    """What became of the largest PDTP as the riskiest record was removed, again and again.

    Attributes:
        removed: the record removed at each step, as an index into the examples at the start.
        max_pdtp: the largest PDTP of the records that remain, in nats: before the first step and after each.
    """

    removed: Int[np.ndarray, " steps"]
    max_pdtp: Float[np.ndarray, " steps_and_start"]


def distribution(values: Float[np.ndarray, " records"], floors: Float[np.ndarray, " records"]) -> tuple[Bar, ...]:
    """Counts of records by PDTP and by seed floor, nats, between `EDGES`.

    >>> bars = distribution(np.array([0.0, 0.003, 1.0, 1.01, np.inf]), np.zeros(5))
    >>> [(bar.name, bar.records) for bar in bars if bar.records]
    [('0', 1), ('0-0.003', 1), ('0.3-1', 1), ('1-3', 1), ('above 3', 1)]
    """
    between = [(0.0, 0.0), *pairwise(EDGES)]
    names = ("0", *(f"{low:g}-{high:g}" for low, high in between[1:-1]), f"above {EDGES[-2]:g}")
    counts = zip(_counts(values), _counts(floors), strict=True)
    return tuple(
        Bar(name, low, high, not publishable(high), *of_bar)
        for name, (low, high), of_bar in zip(names, between, counts, strict=True)
    )


def _counts(values: Float[np.ndarray, " records"]) -> list[int]:
    return np.bincount(np.searchsorted(EDGES, values, side="left"), minlength=len(EDGES)).tolist()
