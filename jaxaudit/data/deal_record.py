"""What `deal.json` says of the files beside it. It is the owner's own file, and read as any other one of a user."""

from contextlib import suppress
from pathlib import Path

import msgspec

from jaxaudit.data.challenge import file_hash
from jaxaudit.data.paths import exists, read_small
from jaxaudit.errors import InputError

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


def has_random_groups(path: Path) -> bool:
    """Whether the groups of a file are random numbers of a deal, and nobody's names: a record beside it says so.

    False where there is no such record, where it cannot be read, or where the file is not the one that was dealt.
    """
    facts = _facts_of(path)
    return facts is not None and (facts.by_groups or facts.within_groups)


def is_dealt(path: Path) -> bool:
    """Whether a record beside a file says that it is a side of a random deal, as for `has_random_groups`."""
    return _facts_of(path) is not None


def _facts_of(path: Path) -> _Facts | None:
    """What the record beside a file says of the deal, if the file is one of its sides."""
    record = path.parent / DEAL_RECORD
    with suppress(InputError, msgspec.MsgspecError, RecursionError):
        if exists(record):
            facts = msgspec.json.decode(read_small(record, LARGEST), type=_Facts)
            sides = [side for side in (facts.query, facts.members, facts.holdout) if side is not None]
            return facts if file_hash(path) in [side.sha256 for side in sides] else None
    return None
