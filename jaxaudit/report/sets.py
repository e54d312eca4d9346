"""The sets and models that the provenance of a run names: a run that was read may have anything there."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from jaxaudit.json_types import Count
from jaxaudit.report.kinds import demand

Facts = TypeVar("Facts", bound=msgspec.Struct)


class NamedSet(msgspec.Struct, frozen=True):
    """A set of records; what else is said of it is only listed."""

    name: str
    records: Count


class UsedBank(msgspec.Struct, frozen=True):
    """A bank, and how many shadow models of it were used."""

    name: str
    models: Count


class UsedScores(msgspec.Struct, frozen=True):
    """A table of scores, and how many models of each role it has."""

    name: str
    models: dict[str, Count]


class ComparedSets(msgspec.Struct, frozen=True):
    """What a run of `ks` or `power` compared; None for what the run did not have.

    Attributes:
        query, calibration, holdout, members, reference: the sets of records. The reference are known non-members. Runs
            without shadow models have no calibration set.
        shadows: the bank whose shadow models were used.
        scores: the table of scores that was used in place of models.
    """

    query: NamedSet
    calibration: NamedSet | None
    holdout: NamedSet | None
    members: NamedSet | None
    reference: NamedSet | None
    shadows: UsedBank | None
    scores: UsedScores | None


def sets_of(data: Mapping[str, Any]) -> ComparedSets:
    """The sets and models that these facts of a run name.

    Raises:
        ValueError: a set or the models are missing, or are said in another form.
    """

    def read(role: str, kind: type[Facts], called: str = "set") -> Facts | None:
        if data.get(role) is None:
            return None
        try:
            return msgspec.convert(data[role], kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"it has no {role} {called} ({error})") from error

    query, scores, shadows = (
        read("query", NamedSet),
        read("scores", UsedScores, "table"),
        read("shadows", UsedBank, "bank"),
    )
    sets_by_role = {role: read(role, NamedSet) for role in ("calibration", "holdout", "members", "reference")}
    # What takes the place of shadow models is compared with a holdout.
    needed = ["calibration"] if sets_by_role["holdout"] is None else ["holdout"]
    for role in () if scores or shadows or sets_by_role["calibration"] else needed:
        demand(sets_by_role[role] is not None, f"it has no {role} set")
    if query is None:
        raise ValueError("it has no query set")
    return ComparedSets(query=query, scores=scores, shadows=shadows, **sets_by_role)
