"""What `deal.json` says of the files beside it. It is the owner's own file, and read as any other one of a user."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from jaxaudit.data.challenge import file_hash
from jaxaudit.data.paths import exists, read_small

DEAL_RECORD, HOME = "deal.json", "groups.csv"
"""What documents a deal, and what says which records of its source each group has; both stay at home."""
LARGEST = 1 << 20


class _Side(msgspec.Struct):
    sha256: str


class _Facts(msgspec.Struct):
    by_groups: bool = False
    within_groups: bool = False
    query: _Side | None = None
    members: _Side | None = None
    holdout: _Side | None = None


class DealtSide(NamedTuple):
    """A file that is a side of a random deal, as the record beside it says.

    Attributes:
        name: of the side, one of `query`, `members` and `holdout`.
        deal: SHA-256 of the record, the same for all sides of a deal.
        has_groups: whether its groups are random numbers, and nobody's names.
    """

    name: str
    deal: str
    has_groups: bool


def dealt_side(path: Path) -> DealtSide | None:
    """The side of a deal that a file is; None without a readable record beside it that has the file's hash."""
    record = path.parent / DEAL_RECORD
    # An `InputError`, msgspec's, and that of bytes that are no UTF-8 are all of this kind.
    with suppress(ValueError, RecursionError):
        if exists(record):
            facts = msgspec.json.decode(read_small(record, LARGEST), type=_Facts)
            sides = {"query": facts.query, "members": facts.members, "holdout": facts.holdout}
            sha256 = file_hash(path)
            for name, side in sides.items():
                if side is not None and side.sha256 == sha256:
                    return DealtSide(name, file_hash(record), facts.by_groups or facts.within_groups)
    return None
