"""Records that stay in their file: what a slice reads, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxaudit.data import Records, must_be_opened, open_records, unpack_records
from jaxaudit.errors import InputError

RANDOM = np.random.default_rng(1)
IDS, AGES, TARGETS = RANDOM.integers(0, 9, (7, 2, 3)), RANDOM.normal(size=7), RANDOM.normal(size=(7, 2))
ARRAYS: dict[str, Any] = {"ids": IDS, "ages": np.asfortranarray(AGES), "y": TARGETS}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("stored.npz", **ARRAYS)
    np.savez_compressed("packed.npz", **ARRAYS)
    Path("folder").mkdir()
    for name, array in ARRAYS.items():
        np.save(f"folder/{name}.npy", array)
    return tmp_path


def opened(path: str) -> Records:
    found = open_records(Path(path))
    assert found is not None
    return found


@pytest.mark.parametrize("source", ["stored.npz", "packed.npz", "folder"])
def test_a_slice_is_all_arrays_side_by_side(source: str):
    found = opened(source)
    assert (len(found), found.by_name, found.inputs.shape) == (7, True, (7, 7))
    np.testing.assert_array_equal(found.labels, TARGETS)
    parts = {field.name: field for field in found.fields or ()}
    assert (parts["ids"].shape, parts["ids"].whole, parts["ages"].whole) == ((2, 3), True, False)
    apart = unpack_records(found.fields or (), found.inputs[2:5], lambda part: part.astype(int))
    np.testing.assert_array_equal(apart["ids"], IDS[2:5])
    np.testing.assert_array_equal(apart["ages"], AGES[2:5].astype(np.float32))
    assert found.content_hash == opened("stored.npz").content_hash


def test_one_array_of_a_usual_name_is_the_records():
    np.savez("usual.npz", x=IDS, y=TARGETS, patients=AGES)
    found = opened("usual.npz")
    assert (found.by_name, found.fields, found.inputs.shape) == (False, None, (7, 2, 3))
    np.testing.assert_array_equal(found.inputs[:2], IDS[:2])


def test_the_hash_is_of_all_that_is_there(monkeypatch: pytest.MonkeyPatch):
    whole = opened("stored.npz").content_hash
    monkeypatch.setattr("jaxaudit.data.records.BLOCK", 50)
    assert opened("stored.npz").content_hash == whole
    for name in ARRAYS:
        np.savez("other.npz", **{**ARRAYS, name: ARRAYS[name] + 1})
        assert opened("other.npz").content_hash != whole


def test_what_is_opened_and_what_is_read(monkeypatch: pytest.MonkeyPatch):
    """Several arrays, or more than memory; nothing else changes its way."""
    np.savez("usual.npz", x=IDS, y=TARGETS, patients=AGES)
    np.savez("splits.npz", x_train=IDS, y_train=AGES)
    Path("text.npz").write_text("none")
    names = ("stored.npz", "folder", "usual.npz", "splits.npz", "text.npz", "gone.npz")
    assert [must_be_opened(Path(name)) for name in names] == [True, True, False, False, False, False]
    monkeypatch.setattr("jaxaudit.data.records.MAX_BYTES", 100)
    assert [must_be_opened(Path(name)) for name in ("usual.npz", "splits.npz")] == [True, False]
    assert open_records(Path("text.csv")) is None


CHANGED: dict[str, dict[str, Any]] = {
    "found 0 arrays of labels": {"ids": IDS},
    "found 2 arrays of labels": {"ids": IDS, "y": AGES, "labels": AGES},
    "there are 5 labels, and records of ids: 7": {"ids": IDS, "y": AGES[:5]},
    "there are 0 labels": {"ids": IDS[:0], "y": AGES[:0]},
    "bad.npz: .*there are 0 labels": {"ids": IDS, "y": np.array(1.0)},
    "ids has values of type float128": {"ids": IDS.astype(np.longdouble), "y": AGES},
    "ids has values of type <U1": {"ids": np.array(["a"] * 7), "y": AGES},
    "pickled objects": {"ids": np.array([{}] * 7), "y": AGES},
}


@pytest.mark.parametrize("message", CHANGED)
def test_arrays_that_are_no_records_say_why(message: str):
    np.savez("bad.npz", **CHANGED[message])
    with pytest.raises(InputError, match=message):
        open_records(Path("bad.npz"))


@pytest.mark.parametrize(("ids", "message"), [(IDS + 2**24, "16,777,216 or more"), (IDS * np.nan, "NaN")])
def test_a_slice_says_what_is_wrong_with_it(ids: np.ndarray, message: str):
    with pytest.raises(InputError, match=message):
        Records({"ids": ids}, AGES, "records").inputs[:3]


def test_what_would_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Of a file with holes, which is larger than what it takes on the disk."""
    monkeypatch.setattr("jaxaudit.data.records.MAX_BYTES", 50)
    with pytest.raises(InputError, match="1,024 records: takes"):
        Records({"ids": IDS, "ages": AGES}, AGES, "records")
    with pytest.raises(InputError, match="y: takes"):
        open_records(Path("folder"))
