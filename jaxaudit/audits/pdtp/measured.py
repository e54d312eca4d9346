"""Each record's PDTP (how far leaving it out moves the output on it) and seed floor (how far another seed does)."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec.structs import replace

from jaxaudit.audits.finding import UNDECIDED, Finding
from jaxaudit.audits.pdtp.finding import pdtp_finding
from jaxaudit.audits.pdtp.result import Floor, GroupRisk, PDTPResult, Reduction, Risk, TextRisk, distribution
from jaxaudit.metrics.pdtp import DTP_1, SeedFloor, publishable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTILES = (0.5, 0.9, 0.99)
OF_OTHERS = ("group", "per_token")
"""Columns that only some audits have."""
LISTED = 100_000
"""The most records that a result lists."""
DRAWN = 10


@dataclass(frozen=True, eq=False)
class PDTPAudit:
    """The measurements of each record; larger PDTP means more exposed.

    Attributes:
        records: indices of the measured records.
        values: PDTP of each record in nats, the mean over measurements, with bins.
        exact: the same without bins.
        dtp_bound: an upper bound in nats of the change of any output on any input, without bins, as proven for the
            learner (`BoundsDTP`); the mean over measurements. None if there is no proof.
        classes: the class with the largest change, in the measurement with the record's largest value.
        directions: +1 if the model with the record gives that class a higher probability, -1 if lower, 0 if the value
            is 0.
        floor: the seed floor: PDTP if nothing is removed and only the seed differs; 0 for a learner without a seed.
        duplicates: the number of records with the same input and label, the record itself included.
        only_member: whether it is the only record of its class, so that the model without it was not trained on that
            class.
        measurements: PDTP of each record in each measurement; each measurement has its own key.
        class_names: in label order.
        train_accuracy: the share of measured records that A(T) classifies as labelled; None for texts.
        examples: the number of training records.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        seeded: whether the learner's result depends on its key.
        largest_possible: an upper bound in nats of the change of any output of this learner by any record of any
            training set, without bins; None if there is none.
        reduction: the result of `reduce_pdtp`; None unless requested.
        groups: the group of each record, numbered from 0, if whole groups were left out; the largest has
            `largest_group` records.
        tokens: of records of text, how many tokens of each count; their mean log-likelihoods (nats a token) under A(T)
            and under the models without the record are `log_likelihoods`.
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
    class_names: tuple[str, ...]
    train_accuracy: float | None
    examples: int
    bins: int
    seeded: bool
    largest_possible: float | None
    reduction: Reduction | None = None
    groups: Int[np.ndarray, " records"] | None = None
    largest_group: int = 1
    tokens: Int[np.ndarray, " records"] | None = None
    log_likelihoods: tuple[float, ...] | None = None

    @property
    def finding(self) -> Finding:
        """The verdict of the audit."""
        return self.result.finding

    @cached_property
    def result(self) -> PDTPResult:
        """The result computed from the measurements."""
        values, exact, floor, bound = self.values, self.exact, self.floor, self.dtp_bound
        seed_floor = float(np.mean(floor.mean)), float(np.max(floor.largest)), int((values > floor.largest).sum())
        risky, largest = values > DTP_1, float(values.max())
        with_and_without_bins = int((risky & (exact > DTP_1)).sum())
        passes = True if len(values) == self.examples else None
        breaks = False if with_and_without_bins else None
        quantiles = {f"{share:g}": float(np.quantile(values, share, method="inverted_cdf")) for share in QUANTILES}
        undecided = PDTPResult(
            finding=UNDECIDED,
            max_pdtp=largest,
            median_pdtp=float(np.median(values)),
            publish=passes if publishable(largest) else breaks,
            bound=self.largest_possible,
            dtp_bound=None if bound is None else float(bound.max()),
            seed_floor=Floor(self.seeded, *seed_floor),
            quantiles=quantiles,  # pyright: ignore[reportArgumentType]
            distribution=distribution(values, floor.mean),
            above_1=int(risky.sum()),
            above_1_without_bins=int((exact > DTP_1).sum()),
            above_1_within_floor=int((risky & (values <= floor.largest)).sum()),
            copies=int((self.duplicates > 1).sum()),
            lone_members=int(self.only_member.sum()),
            training_records=self.examples,
            records_measured=len(values),
            train_accuracy=self.train_accuracy,
            records=self._risks(),
            reduction=self.reduction,
            groups=self._group_risks(),
            largest_group=self.largest_group,
            texts=None if self.tokens is None else TextRisk(int(self.tokens.sum()), *self.log_likelihoods or ()),
        )
        finding = pdtp_finding(undecided, self.bins, with_and_without_bins)
        return replace(undecided, finding=finding)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A table with one row for each measured record; NaN where there is no number."""
        return {
            "index": self.records.astype(np.int64),
            "pdtp": self.values,
            "exact_pdtp": self.exact,
            "dtp_bound": np.full(len(self.records), np.nan) if self.dtp_bound is None else self.dtp_bound,
            "seed_floor": self.floor.mean,
            "seed_floor_max": self.floor.largest,
            "class": np.array(self.class_names)[self.classes],
            "direction": self.directions.astype(np.int8),
            "duplicates": self.duplicates.astype(np.int64),
            "only_member_of_its_class": self.only_member,
            **({} if self.groups is None else {"group": self.groups.astype(np.int64)}),
            **({} if self.tokens is None else {"per_token": self.values / np.maximum(self.tokens, 1)}),
        }

    def _group_risks(self) -> tuple[GroupRisk, ...] | None:
        if self.groups is None:
            return None
        numbers, first, group_of_record, counts = np.unique(
            self.groups, return_index=True, return_inverse=True, return_counts=True
        )
        largest, floors = np.zeros(len(numbers)), np.zeros(len(numbers))
        np.maximum.at(largest, group_of_record, self.values)
        np.maximum.at(floors, group_of_record, self.floor.largest)
        rows = zip(self.records[first].tolist(), counts.tolist(), largest.tolist(), floors.tolist(), strict=True)
        return tuple(GroupRisk(*row) for row in rows)

    def _risks(self) -> tuple[Risk, ...]:
        listed = np.sort(np.argsort(-self.values, kind="stable")[:LISTED])
        columns = {name: column[listed].tolist() for name, column in self.columns.items() if name not in OF_OTHERS}
        columns["class"] = [self.class_names[number] for number in self.classes[listed]]
        if self.dtp_bound is None:
            columns["dtp_bound"] = [None] * len(listed)
        return tuple(Risk(*row) for row in zip(*columns.values(), strict=True))

    def plot(self) -> "Figure":
        """The distribution of PDTP, and the riskiest records with their seed floor, as a Matplotlib figure."""
        from jaxaudit.audits.pdtp.charts import draw_bars, draw_riskiest
        from jaxaudit.plots.style import panels

        figure, (bars, risks) = panels(2)
        draw_bars(bars, self.result)
        draw_riskiest(risks, self.result, DRAWN)
        return figure
