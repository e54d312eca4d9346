"""A set without a target: dealt here into query set, holdout and known members, for three targets of known truth.

Nothing but the set is given, so it can be dealt as `jaxaudit deal` would deal it. Then the members test decides, which
is exact and needs no shadow model. A small set has too few records to tell a model that never used the query set from
one that used a fourth of it, unless shadow models of the targets' own recipe tell how difficult each record is: limits
of the never-used model of 599 digits were 7% to 25% beside 40 of them, and 24% to 28% without, of three deals.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.cli.progress import say
from jaxaudit.data.roles import Role, Sets
from jaxaudit.metrics.deal import deal, deal_members
from jaxaudit.randomness import stream

if TYPE_CHECKING:
    from jaxaudit.data import Examples

THIRD, FOURTH = 1 / 3, 1 / 4
"""A third is held out, and another third are known members: the three means of the test are as certain."""
MANY = 3_000
"""With so many query records or more, no shadow model is trained beside the members test."""


def tests_of_dealt(query: int) -> tuple[str, ...]:
    """The tests of a dealt set with so many query records."""
    return ("members",) if query >= MANY else ("members", "holdout")


def dealt_set(key: Key[Array, ""], whole: "Examples", *, with_calibration: bool = False) -> Sets["Examples"]:
    """The records of a set dealt at random, a third each, into query set, holdout and known members.

    With a calibration set each part is a fourth: for a set that has no other split. A copy of a record is left out,
    since it would stand in two sets.

    Raises:
        InputError: there are too few records for any test.
    """
    key, calibration = stream(key, "dealt set"), None
    if with_calibration:
        whole, calibration = with_calibration_set(key, whole, FOURTH)
    else:
        whole = _without_copies(whole)
    held = deal(key, len(whole), THIRD)
    members = deal_members(key, held, THIRD)
    rows = {Role.QUERY: ~(held | members), Role.HOLDOUT: held, Role.MEMBERS: members}
    parts = {role.value: whole.take(part, f"{whole.name} ({role.words})") for role, part in rows.items()}
    return Sets(**parts, calibration=calibration)


def with_calibration_set(key: Key[Array, ""], whole: "Examples", share: float) -> tuple["Examples", "Examples"]:
    """The records of a set without copies, of which a random share is put aside as its calibration set.

    Raises:
        InputError: there are too few records.
    """
    whole = _without_copies(whole)
    apart = deal(stream(key, "calibration"), len(whole), share)
    return whole.take(~apart, whole.name), whole.take(apart, f"{whole.name} ({Role.CALIBRATION.words})")


def _without_copies(whole: "Examples") -> "Examples":
    first = np.sort(np.unique(whole.record_hashes, return_index=True)[1])
    if len(first) == len(whole):
        return whole
    say(f"{whole.name}: {len(whole) - len(first):,} copies of other records are left out of the deal")
    return whole.take(first, whole.name)
