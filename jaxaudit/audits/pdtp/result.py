"""The results of the `pdtp` audit."""

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
"""Edges in nats for counting records: exactly 0, then above one edge and not above the next."""


class Bar(NamedTuple):
    """The number of records with a PDTP above one edge and not above the next; the first bar counts exact zeros.

    Attributes:
        name: the edges in words.
        above, up_to: the edges, nats; both 0 in the first.
        breaks_dtp_1: whether such a PDTP breaks the DTP-1 rule.
        records: the count by PDTP.
        by_seed_floor: the count by mean seed floor.
    """

    name: str
    above: float
    up_to: float
    breaks_dtp_1: bool
    records: int
    by_seed_floor: int


@dataclass(frozen=True, eq=False)
class PDTPAudit:
    """The measurements of each record; larger PDTP means more exposed.

    Attributes:
        records: indices of the measured records.
        values: PDTP of each in nats, the mean over measurements, with bins.
        exact: the same without bins.
        dtp_bound: an upper bound in nats of the change of any output on any input, without bins, as proven for the
            learner (`BoundsDTP`); the mean over measurements. None if there is no proof.
        classes: the class with the largest change, in the measurement with the record's largest value.
        directions: +1 if the model with the record gives that class more, -1 if less, 0 if the value is 0.
        floor: the seed floor: PDTP if nothing is removed and only the seed differs; 0 for a learner without a seed.
        duplicates: the number of records with the same input and label, itself included.
        only_member: whether it is the only record of its class, which the model without it has never seen.
        measurements: PDTP of each record in each measurement; each measurement has its own key.
        train_accuracy: the share of measured records that A(T) classifies as labelled.
        examples: the number of training records.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        seeded: whether the learner's result depends on its key.
        largest_possible: an upper bound in nats of the change of any output of this learner by any record of any
            training set, without bins; None if there is none.
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
        """The largest PDTP of any record, in nats."""
        return float(self.values.max())

    @property
    def publish(self) -> bool | None:
        """The DTP-1 rule: False if a value is above 1 nat, True if none of all records is.

        None if not all records were measured, or if the values above 1 are so because of bins alone.
        """
        if not publishable(self.max_pdtp):
            return None if self.binning_artefacts == self.above_1 else False
        return True if len(self.records) == self.examples else None

    @property
    def above_floor(self) -> int:
        """The number of records that move the outputs more than any other seed tried."""
        return int((self.values > self.floor.largest).sum())

    @property
    def risky(self) -> Bool[np.ndarray, " records"]:
        """Which records have a PDTP above 1 nat."""
        return self.values > 1

    @property
    def above_1(self) -> int:
        """The number of records with a PDTP above 1 nat."""
        return int(self.risky.sum())

    @property
    def above_1_without_bins(self) -> int:
        """The number of records with a PDTP above 1 nat without bins."""
        return int((self.exact > 1).sum())

    @property
    def above_1_within_floor(self) -> int:
        """The number of records above 1 nat that are not above the maximum of their seed floor."""
        return int((self.risky & (self.values <= self.floor.largest)).sum())

    @property
    def binning_artefacts(self) -> int:
        """The number of records above 1 nat that are not above it without bins."""
        return int((self.risky & (self.exact <= 1)).sum())

    @property
    def copies(self) -> int:
        """The number of measured records with the same input and label as another training record."""
        return int((self.duplicates > 1).sum())

    @property
    def lone_members(self) -> int:
        """The number of measured records that are the only one of their class."""
        return int(self.only_member.sum())

    @property
    def largest_dtp_bound(self) -> float | None:
        """A bound in nats of the change by any measured record on any input, without bins; None if not proven."""
        return None if self.dtp_bound is None else float(self.dtp_bound.max())

    @property
    def distribution(self) -> tuple[Bar, ...]:
        """The number of records by PDTP and by seed floor."""
        return distribution(self.values, self.floor.mean)

    def plot(self) -> "Figure":
        """The distribution of PDTP, and the riskiest records with their seed floor, as a Matplotlib figure."""
        from jaxaudit.audits.pdtp.figure import plot_pdtp

        return plot_pdtp(self)


class Reduction(NamedTuple):
    """The largest PDTP as the riskiest record is removed repeatedly.

    Attributes:
        removed: the record removed at each step, as an index into the examples at the start.
        max_pdtp: the largest PDTP of the remaining records, in nats: before the first step and after each.
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
