"""The roles of sets of records in an audit, and one value for each role.

Every set that an audit compares has a role: the query set, records that were certainly not used, records that were
certainly used, and data of the same domain. What an audit holds of the sets (records, a target's outputs, numbers of
records) is one `Sets`, from the public functions, whose keyword arguments are the roles, to the tests.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

Value = TypeVar("Value")
Changed = TypeVar("Changed")


class Role(StrEnum):
    """The role of a set of records. The value is its key in files and results, and its keyword argument.

    Attributes:
        QUERY: the records in question.
        CALIBRATION: data of the same domain without any query record, on which shadow models are trained.
        HOLDOUT: records of the query set's provider that the target was not trained on.
        MEMBERS: known members: records that the target was trained on, sampled as the query set was.
        REFERENCE: known non-members: the calibration set, or a separate set.
    """

    QUERY = "query"
    CALIBRATION = "calibration"
    HOLDOUT = "holdout"
    MEMBERS = "members"
    REFERENCE = "reference"

    @property
    def words(self) -> str:
        """The set's name in messages."""
        return {Role.QUERY: "query set", Role.CALIBRATION: "calibration set"}.get(self, self.value)


class Sets(Mapping[Role, Value], Generic[Value]):
    """One value for each role that is present, in the order of `Role`.

    >>> sizes = Sets(query=300, holdout=200, members=None)
    >>> sizes[Role.QUERY], sizes.get(Role.MEMBERS), Role.HOLDOUT in sizes, sum(sizes.values())
    (300, None, True, 500)
    """

    def __init__(
        self,
        *,
        query: Value | None = None,
        calibration: Value | None = None,
        holdout: Value | None = None,
        members: Value | None = None,
        reference: Value | None = None,
    ) -> None:
        values = (query, calibration, holdout, members, reference)
        present = {role: value for role, value in zip(Role, values, strict=True) if value is not None}
        self._values: Mapping[Role, Value] = MappingProxyType(present)

    def __getitem__(self, role: Role) -> Value:
        return self._values[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Sets({', '.join(f'{role}={value!r}' for role, value in self.items())})"

    def map(self, function: Callable[[Role, Value], Changed | None]) -> "Sets[Changed]":
        """The results of a function of role and value; a role whose result is None is absent."""
        return Sets(**{role.value: function(role, value) for role, value in self.items()})

    def only(self, *roles: Role) -> "Sets[Value]":
        """The values of these roles."""
        return Sets(**{role.value: value for role, value in self.items() if role in roles})
