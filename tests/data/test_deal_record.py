"""Which side of a deal a file is, by the record beside it; a damaged record says nothing."""

import hashlib
import json
from pathlib import Path

import pytest

from jaxaudit.data.challenge import DEAL_RECORD, dealt_side

HASH = hashlib.sha256(b"records").hexdigest()


@pytest.fixture
def side(tmp_path: Path) -> Path:
    (tmp_path / "query.jsonl").write_bytes(b"records")
    return tmp_path / "query.jsonl"


def test_a_side_is_known_by_its_hash(side: Path):
    record = {"query": {"sha256": "0" * 64}, "holdout": {"sha256": HASH}, "by_groups": True}
    side.with_name(DEAL_RECORD).write_text(json.dumps(record))
    found = dealt_side(side)
    assert found is not None
    assert (found.name, found.has_groups) == ("holdout", True)
    assert found.deal == hashlib.sha256(side.with_name(DEAL_RECORD).read_bytes()).hexdigest()
    side.write_bytes(b"others")
    assert dealt_side(side) is None


RECORD = json.dumps({"query": {"sha256": HASH}}).encode()
DAMAGED = {
    "nothing": b"",
    "cut": RECORD[:-5],
    "no UTF-8": RECORD.replace(b"query", b"\xff"),
    "no UTF-8 in a hash": RECORD.replace(HASH[:4].encode(), b"\xff\xff"),
    "half a surrogate": RECORD.replace(HASH[:4].encode(), b"\\ud800"),
    "another kind": b'{"query": 7}',
    "a list": b"[]",
    "nested": b'{"more": ' + b"[" * 100_000,
    "larger than a record": RECORD + b" " * (1 << 20),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_says_nothing(name: str, side: Path):
    side.with_name(DEAL_RECORD).write_bytes(DAMAGED[name])
    assert dealt_side(side) is None


def test_a_folder_in_place_of_a_record_says_nothing(side: Path):
    side.with_name(DEAL_RECORD).mkdir()
    assert dealt_side(side) is None
