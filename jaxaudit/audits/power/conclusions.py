"""What could be concluded of a target before there is one: with known members, and with a holdout alone."""

from collections.abc import Iterable
from typing import Literal

from jaxaudit.json_types import Extended, Number, StrictStruct
from jaxaudit.metrics.members import LEAST_MEMBERS
from jaxaudit.metrics.power import Separation, detection_probability
from jaxaudit.metrics.power_members import Memory, forgotten_probability, memory_in_errors, remembering

By = Literal["members and shadow models", "members", "holdout"]
"""What is there: known members and a calibration set, so that shadow models are trained; known members and nothing is
trained; or no known members. A holdout is always there."""
REMEMBERS = (1.0, 0.5, 0.25)
"""How much of what the shadow models remember a target remembers: nobody knows it beforehand."""
ALL, PART = 1.0, 0.25


class Conclusion(StrictStruct, frozen=True):
    """What would be concluded of a target, at these sizes.

    Attributes:
        by: what is there beside query set and holdout.
        query, holdout, members: numbers of records; no members are 0.
        remembers: how many times as much as the shadow models the target remembers.
        memory: how far the target tells known members from the holdout, on average, in standard errors; None without
            known members, infinite where scores have no spread.
        forgotten: the probability that a target that never used the query set is called `forgotten`; None where it
            cannot be: without known members, or with fewer than the members test takes.
        all_used, part_used: the probability that one that used all of the query set, or a quarter of it, is called
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
    """What would be concluded at these sizes: of query set, holdout and known members.

    Args:
        measured: how far the score of the holdout test separates records in training from others. Where there are
            shadow models, that test says whether any of the query set was used, with known members, too.
        memory: the same of the members test.
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
