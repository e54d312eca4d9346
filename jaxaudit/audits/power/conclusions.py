"""Probabilities of each verdict before there is a target: with known members, and with a holdout alone."""

from collections.abc import Iterable
from typing import Literal

from jaxaudit.json_types import Extended, Number, StrictStruct
from jaxaudit.metrics.members import LEAST_MEMBERS
from jaxaudit.metrics.power import Separation, detection_probability
from jaxaudit.metrics.power_members import Memory, forgotten_probability, memory_in_errors, remembering

By = Literal["members and shadow models", "members", "holdout"]
"""The available evidence beside query set and holdout: known members and a calibration set, so that shadow models are
trained; known members without shadow models; or shadow models without known members."""
REMEMBERS = (1.0, 0.5, 0.25)
"""How much a target memorises, as a multiple of what the shadow models memorise; unknown beforehand."""
ALL, PART = 1.0, 0.25


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


def conclusions(measured: Separation, memory: Memory, sizes: Iterable[tuple[int, int, int]]) -> tuple[Conclusion, ...]:
    """The probable conclusions at these sizes of query set, holdout and known members.

    Args:
        measured: how far the score of the holdout test separates members from non-members. If there are shadow models,
            that test detects use, also beside known members.
        memory: the same for the members test.
        sizes: numbers of records.
    """
    known = {
        "members and shadow models": (memory.helped, measured),
        "members": (memory.alone, memory.alone),
        "holdout": (None, measured),
    }

    def one(by: By, query: int, holdout: int, members: int, factor: float) -> Conclusion:
        limited, testing = known[by]
        limited = limited and remembering(limited, factor)
        testing = remembering(testing, factor)
        possible = limited is not None and members >= LEAST_MEMBERS
        return Conclusion(
            by,
            query,
            holdout,
            0 if limited is None else members,
            factor,
            None if limited is None else memory_in_errors(limited, holdout, members),
            forgotten_probability(limited, query, holdout, members, units=memory.units)
            if limited and possible
            else None,
            *(detection_probability(testing, query, holdout, used) for used in (ALL, PART)),
        )

    every: tuple[By, ...] = ("members and shadow models", "members", "holdout")
    return tuple(one(by, *each, factor) for each in sizes for by in every for factor in REMEMBERS)
