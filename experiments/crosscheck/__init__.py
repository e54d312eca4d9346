"""What cross-checks say: `python -m experiments.crosscheck NAME` makes one."""

from typing import NamedTuple


class Check(NamedTuple):
    """One number of ours against another tool's.

    Attributes:
        ours: the function of jaxaudit.
        theirs: the other tool's.
        what: what was compared on what, and, where the definitions are not the same, how they were made so.
        difference: the largest, in the unit that `what` names.
        tolerance: what it may be, and
        because: why so much.
    """

    ours: str
    theirs: str
    what: str
    difference: float
    tolerance: float
    because: str

    @property
    def holds(self) -> bool:
        return bool(self.difference <= self.tolerance)
