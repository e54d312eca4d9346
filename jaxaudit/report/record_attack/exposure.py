"""How far records are given away, as JSON, and where they are in a bank."""

from typing import NamedTuple

import numpy as np

from jaxaudit.audits.record_attack.result import RecordAudit
from jaxaudit.report.record import Number, Part, number

LISTED = 100
"""The riskiest records that the result lists; records.csv has all."""
BINS = 20
"""Of the histogram of separations."""


class Riskiest(Part):
    """A record that is given away; places count from 0 in its set.

    `saturated` is the share of shadow models whose log-odds lie where their files can say no more, so that the gap is
    not known.
    """

    set: str
    place: int
    label: str
    named: float
    named_low: float
    named_high: float
    models: int
    gap: Number
    gap_low: Number
    gap_high: Number
    saturated: float
    separation: Number
    revealing: str | None
    copies: int


class Exposure(Part):
    """How far records are given away over models; log-odds in nats.

    `at_fpr` is the false positive rate that records are named at, null if none can be told; `surely_named` counts the
    records that are named more often than chance explains; `exposed` is the share of records that are named in half or
    more of the models trained on them.
    """

    at_fpr: Number
    surely_named: int
    exposed: Number
    judged: int
    copies: int
    separation_edges: list[float]
    separation_counts: list[int]
    riskiest: list[Riskiest]


class Names(NamedTuple):
    """Where the records of a bank are: names and sizes of its sets in order, the class of each record, class names."""

    sets: dict[str, int]
    labels: list[int]
    classes: list[str]

    def of(self, column: int) -> tuple[str, int]:
        """The set of a column, and its place there."""
        for name, count in self.sets.items():
            if column < count:
                return name, column
            column -= count
        raise IndexError(column)

    def class_of(self, number: int) -> str:
        """The name of a class."""
        return self.classes[number] if self.classes else str(number)


def riskiest_order(audit: RecordAudit) -> np.ndarray:
    """Places of the judged records, the riskiest first: by the share of models that name them, then by separation."""
    found = audit.vulnerability
    judged = np.flatnonzero(np.isfinite(found.named))
    separation = np.nan_to_num(found.separation[judged])
    gap = np.nan_to_num(found.gap_low[judged], nan=-np.inf)
    return judged[np.lexsort((-gap, -separation, -found.named[judged]))]


def exposure_of(audit: RecordAudit, names: Names) -> Exposure:
    """What a result says of the records that models give away."""
    found = audit.vulnerability
    known = found.separation[np.isfinite(found.separation)]
    counts, edges = np.histogram(known, bins=BINS, range=(0, 1))
    riskiest = []
    for at in riskiest_order(audit)[:LISTED].tolist():
        of, place = names.of(int(audit.columns[at]))
        revealing = None if audit.revealing is None or audit.revealing[at] < 0 else int(audit.revealing[at])
        group = int(audit.copies[at])
        riskiest.append(
            Riskiest(
                set=of,
                place=place,
                label=names.class_of(names.labels[int(audit.columns[at])]),
                named=float(found.named[at]),
                named_low=float(found.named_low[at]),
                named_high=float(found.named_high[at]),
                models=int(found.inside[at]),
                gap=number(found.gap[at]),
                gap_low=number(found.gap_low[at]),
                gap_high=number(found.gap_high[at]),
                saturated=float(audit.saturated[at]),
                separation=number(found.separation[at]),
                revealing=None if revealing is None else names.class_of(revealing),
                copies=0 if group < 0 else int((audit.copies == group).sum()) - 1,
            )
        )
    return Exposure(
        at_fpr=number(audit.named_at),
        surely_named=audit.surely_named,
        exposed=number(audit.exposed),
        judged=int(np.isfinite(found.named).sum()),
        copies=int((audit.copies >= 0).sum()),
        separation_edges=edges.tolist(),
        separation_counts=counts.tolist(),
        riskiest=riskiest,
    )
