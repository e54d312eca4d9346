"""The results of the `power` audit."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.power.conclusions import Conclusion
from jaxaudit.audits.power.finding import find
from jaxaudit.metrics.power import Separation
from jaxaudit.metrics.power_members import Memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRACTIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Used fractions of the query set for which the detection probability is given."""


@dataclass(frozen=True)
class Size:
    """What an audit of this size would detect.

    Attributes:
        query, holdout: numbers of records.
        probabilities: for each of `FRACTIONS`, the probability that its use is detected at the 5% level.
        min_detectable: the smallest used fraction detected with 95% probability; None if not even 1 is.
    """

    query: int
    holdout: int
    probabilities: tuple[float, ...]
    min_detectable: float | None


@dataclass(frozen=True)
class Power:
    """What the holdout test would detect, the records it needs, and what could be concluded of a target.

    Attributes:
        separation: how far membership scores separate query records in training from others.
        sizes: for the sizes given (`given`, its index) and for smaller and larger ones in proportion.
        given: index of the sizes given among `sizes`.
        holdouts: for the query set given and holdouts of 1, 2, 3 and 4 times its size.
        by_models: numbers of shadow models, and for each the minimum detectable fraction at the sizes given.
        fraction: the fraction to detect.
        records_needed: the number of query records, with as many holdout records, that detect it with 95%
            probability; None if no number does.
        models_per_batch: how many models were trained at the same time; None if none was trained here, but those of a
            bank were measured: then `separation.stretch` is not known.
        memory: how far the score of the members test separates query records in training from others.
        conclusions: what would be concluded with known members and without, at each of `sizes`.
        reduced: what was measured with less than was asked for, in words.
    """

    separation: Separation
    sizes: tuple[Size, ...]
    given: int
    holdouts: tuple[Size, ...]
    by_models: tuple[tuple[int, float | None], ...]
    fraction: float
    records_needed: int | None
    models_per_batch: int | None = None
    memory: Memory | None = None
    conclusions: tuple[Conclusion, ...] = ()
    reduced: tuple[str, ...] = ()

    @cached_property
    def finding(self) -> Finding:
        """Whether the sizes given suffice for the fraction."""
        return find(self)

    @property
    def concluded(self) -> tuple[Conclusion, ...]:
        """What would be concluded at the sizes given."""
        size = self.sizes[self.given]
        return tuple(each for each in self.conclusions if (each.query, each.holdout) == (size.query, size.holdout))

    def plot(self) -> "Figure":
        """Detection probability by used fraction, a line for each size, as a Matplotlib figure."""
        from jaxaudit.audits.power.figure import plot_power

        return plot_power(self)
