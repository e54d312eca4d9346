"""The result of the `power` audit, which is its JSON, and the probable conclusions on a target before there is one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from msgspec import field

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Extended, Number, StrictStruct, demand
from jaxaudit.metrics.members import LEAST_MEMBERS
from jaxaudit.metrics.power import Separation, detection_probability
from jaxaudit.metrics.power_members import Memory, forgotten_probability, memory_in_errors, remembering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRACTIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Used fractions of the query set for which the detection probability is given."""
By = Literal["members and shadow models", "members", "holdout"]
"""The available evidence beside query set and holdout: known members and a calibration set, so that shadow models are
trained; known members without shadow models; or shadow models without known members."""
REMEMBERS = (1.0, 0.5, 0.25)
"""How much a target memorises, as a multiple of what the shadow models memorise; unknown beforehand."""
ALL, PART = 1.0, 0.25


class Chance(StrictStruct, frozen=True):
    """The probability that use of this fraction is detected at the 5% level; `chance_noticed` in JSON."""

    fraction: float
    probability: float = field(name="chance_noticed")


class Size(StrictStruct, frozen=True):
    """The power of an audit of so many query and holdout records.

    Attributes:
        given: whether these are the requested sizes.
        chances: the probability of detection for each of `FRACTIONS`.
        min_detectable: the smallest used fraction detected with 95% probability, if any; `least_noticed` in JSON.
    """

    query: int
    holdout: int
    given: bool
    chances: tuple[Chance, ...]
    min_detectable: Number = field(name="least_noticed")


class ByModels(StrictStruct, frozen=True):
    """The minimum detectable fraction at the given sizes with this many shadow models; None if there is none."""

    models: int
    min_detectable: Number = field(name="least_noticed")


class Conclusion(StrictStruct, frozen=True):
    """The probable conclusions on a target, at these sizes.

    Attributes:
        by: the available evidence.
        query, holdout, members: numbers of records; 0 members without known members.
        remembers: how much the target memorises, as a multiple of what the shadow models memorise.
        memory: the expected difference between known members and holdout, in standard errors; None without known
            members, infinite if scores have no spread.
        forgotten: the probability that a target that never used the query set is called `forgotten`; None if that is
            impossible: without known members, or with fewer than the members test needs.
        all_used, part_used: the probability that a target that used all of the query set, or a quarter of it, is called
            `not forgotten`.
    """

    by: By
    query: int
    holdout: int
    members: int
    remembers: float
    memory: Extended | None
    forgotten: Number
    all_used: float
    part_used: float


class PowerResult(StrictStruct, frozen=True, kw_only=True):
    """How well an audit of this size would notice that a target model used the query set.

    The holdout test compares a target's outputs on the query set with outputs on a holdout that the target never saw.
    The members test compares the query set with records that the target is known to have used.

    Attributes:
        finding: whether the given sizes suffice to detect use of `fraction` of the query set.
        separation: difference and spread of the holdout test's score, between records that a model used and others.
        sizes: power at the given sizes, and at smaller and larger sizes in the same proportion.
        holdouts: power with the given query set, and a holdout of 1, 2, 3 and 4 times its size.
        by_models: the smallest detectable fraction for each number of shadow models; `shadow_models` in JSON.
        fraction: the share of the query set, from 0 to 1, whose use is to be detected.
        records_needed: the number of query records that detect use of `fraction` with 95% probability, given as many
            holdout records; None if no number does.
        memory: as `separation`, of the members test's score.
        conclusions: the probabilities of each verdict, with and without known members, at each of `sizes`.
        enlarged: the same for the given query set, with the given holdout and known members, and with more of either.
    """

    finding: Finding
    separation: Separation
    sizes: tuple[Size, ...]
    holdouts: tuple[Size, ...]
    by_models: tuple[ByModels, ...] = field(name="shadow_models")
    fraction: float
    records_needed: int | None
    memory: Memory
    conclusions: tuple[Conclusion, ...]
    enlarged: tuple[Conclusion, ...]

    @property
    def given(self) -> Size:
        """Power at the given sizes."""
        return next(size for size in self.sizes if size.given)

    @property
    def concluded(self) -> tuple[Conclusion, ...]:
        """The probable conclusions at the given sizes."""
        size = self.given
        return tuple(
            conclusion
            for conclusion in self.conclusions
            if (conclusion.query, conclusion.holdout) == (size.query, size.holdout)
        )

    def plot(self) -> "Figure":
        """A Matplotlib figure: detection probability by used fraction, one line for each size."""
        from jaxaudit.plots import power as plot
        from jaxaudit.plots.style import canvas

        figure, axes = canvas()
        lines = [
            plot.Line(
                size.query,
                size.holdout,
                np.array([chance.fraction for chance in size.chances]),
                np.array([chance.probability for chance in size.chances]),
                size.given,
            )
            for size in self.sizes
        ]
        plot.draw_probabilities(axes, lines, self.fraction)
        return figure


def conclusions(measured: Separation, memory: Memory, sizes: Iterable[tuple[int, ...]]) -> tuple[Conclusion, ...]:
    """The probable conclusions at these sizes of query set, holdout and known members.

    `measured` says how far the score of the holdout test separates members from non-members, `memory` the same for the
    members test. If there are shadow models, the holdout test detects use, also beside known members.
    """
    separations: dict[By, tuple[Separation | None, Separation]] = {
        "members and shadow models": (memory.helped, measured),
        "members": (memory.alone, memory.alone),
        "holdout": (None, measured),
    }

    def one(by: By, factor: float, query: int, holdout: int, members: int) -> Conclusion:
        limited, testing = separations[by]
        limited, testing = limited and remembering(limited, factor), remembering(testing, factor)
        errors = forgotten = None
        if limited is not None:
            errors = memory_in_errors(limited, holdout, members)
            if members >= LEAST_MEMBERS:
                forgotten = forgotten_probability(limited, query, holdout, members, units=memory.units)
        used = (detection_probability(testing, query, holdout, used) for used in (ALL, PART))
        return Conclusion(by, query, holdout, 0 if limited is None else members, factor, errors, forgotten, *used)

    return tuple(one(by, factor, *pair) for pair in sizes for by in separations for factor in REMEMBERS)


@dataclass(frozen=True)
class PowerAudit:
    """The result of the `power` audit.

    `models_per_batch` models were trained at the same time; None if none was, and `separation.stretch` is unknown.
    `form` is how convolutions were computed (`kernels.convolutions`); None: as JAX has them, or there are none.
    """

    result: PowerResult
    models_per_batch: int | None = None
    form: str | None = None

    @property
    def finding(self) -> Finding:
        """Whether the given sizes suffice for the fraction."""
        return self.result.finding

    def plot(self) -> "Figure":
        """The chart of the result; see `PowerResult.plot`."""
        return self.result.plot()


def check_power_result(result: PowerResult, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError if parts of a result read from a file contradict one another. `arrays` is not used."""
    demand(sum(size.given for size in result.sizes) == 1, "not one of its sizes is the one given")
    fractions = {tuple(chance.fraction for chance in size.chances) for size in (*result.sizes, *result.holdouts)}
    demand(len(fractions) == 1 and fractions != {()}, "its sizes have different fractions, or none")
    every = [result.fraction, *fractions.pop()]
    demand(all(0 < fraction <= 1 for fraction in every), "a fraction is not above 0 and at most 1")
    chances = [chance.probability for size in (*result.sizes, *result.holdouts) for chance in size.chances]
    chances += [
        chance
        for conclusion in (*result.conclusions, *result.enlarged)
        for chance in (conclusion.all_used, conclusion.part_used, conclusion.forgotten or 0)
    ]
    demand(all(0 <= chance <= 1 for chance in chances), "a probability is not between 0 and 1")
    planned = {
        (conclusion.query, conclusion.holdout, conclusion.by, conclusion.remembers) for conclusion in result.conclusions
    }
    of_sizes = {
        (size.query, size.holdout, by, factor) for size in result.sizes for by in get_args(By) for factor in REMEMBERS
    }
    demand(planned == of_sizes, "its conclusions are not those of its sizes")
    queries = {conclusion.query for conclusion in result.enlarged}
    demand(queries == {result.given.query}, "its query set is not the one given")
