"""Which side of a deal a file is, by the record beside it; a damaged record says nothing of a file, and makes a folder
no deal.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import jaxaudit as ja
from jaxaudit.data import dealt_side, file_hash
from jaxaudit.errors import InputError

HASH = hashlib.sha256(b"records").hexdigest()


@pytest.fixture
def side(tmp_path: Path) -> Path:
    (tmp_path / "query.jsonl").write_bytes(b"records")
    return tmp_path / "query.jsonl"


def test_a_side_is_known_by_its_hash(side: Path):
    record = {"query": {"sha256": "0" * 64}, "holdout": {"sha256": HASH}, "by_groups": True}
    side.with_name("deal.json").write_text(json.dumps(record))
    found = dealt_side(side)
    assert found is not None
    assert (found.name, found.has_groups) == ("holdout", True)
    assert found.deal == hashlib.sha256(side.with_name("deal.json").read_bytes()).hexdigest()
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
    side.with_name("deal.json").write_bytes(DAMAGED[name])
    assert dealt_side(side) is None


def test_a_folder_in_place_of_a_record_says_nothing(side: Path):
    side.with_name("deal.json").mkdir()
    assert dealt_side(side) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deal with its record."""
    folder = ja.deal(ja.load("digits").take(np.arange(300)), holdout=0.3, members=0.4, seed=1).save(tmp_path / "deal")
    record = {path.stem: {"file": path.name, "sha256": file_hash(path)} for path in folder.iterdir()}
    (folder / "deal.json").write_text(json.dumps(record))
    return folder


def test_a_deal_is_opened_as_it_was_dealt(folder: Path):
    assert [*map(str, ja.open_deal(folder).sets)] == ["query", "holdout", "members"]


def test_sets_that_changed_their_names_or_their_records_are_refused(folder: Path):
    query, holdout = folder / "query.npz", folder / "holdout.npz"
    for name, content in ((query, holdout.read_bytes()), (query, b"others")):
        kept = name.read_bytes()
        name.write_bytes(content)
        with pytest.raises(InputError):
            ja.open_deal(folder)
        name.write_bytes(kept)
    ja.open_deal(folder)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_folder_with_a_damaged_record_is_no_deal(name: str, folder: Path):
    (folder / "deal.json").write_bytes(DAMAGED[name])
    with pytest.raises(InputError, match=r"deal\.json"):
        ja.open_deal(folder)
