"""Labelled records: their guarantees and hashes; and records of several arrays, read from disk on access."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxaudit.data import Examples, Records, concatenate, encode_labels, must_be_opened, open_records, unpack_records
from jaxaudit.errors import InputError


def make(inputs, labels=None, class_names=("a", "b"), name="set"):
    inputs = np.asarray(inputs)
    return Examples(inputs, np.zeros(len(inputs), int) if labels is None else np.asarray(labels), class_names, name)


@pytest.mark.parametrize(
    ("inputs", "labels", "class_names", "message"),
    [
        (np.zeros((0, 2)), [], ("a",), "set: there are no records"),
        (np.zeros((2, 2)), [0], ("a",), r"2 inputs but int64 labels of shape \(1,\)"),
        (np.zeros((2, 2)), [0, 2], ("a", "b"), "1 labels are outside the 2 classes"),
        (np.zeros((2, 2)), [-1, 0], ("a", "b"), "1 labels are outside the 2 classes"),
        (np.array([[1.0], [np.nan]]), [0, 0], ("a",), "NaN or infinite"),
        (np.zeros((2, 2)), [0, 1], ("a", "a"), "two classes have one name"),
    ],
)
def test_broken_records_are_refused(inputs, labels, class_names, message):
    with pytest.raises(InputError, match=message):
        make(inputs, labels, class_names)


def test_record_hashes_are_those_of_each_record_alone():
    inputs = np.random.default_rng(0).integers(0, 256, (50, 3, 4), dtype=np.uint8)
    prefix = b"|u1(3, 4)"
    slow = [hashlib.blake2b(prefix + row.tobytes(), digest_size=16).digest() for row in inputs]
    assert make(inputs).record_hashes.tolist() == slow
    # In memory order, too, they are the same.
    assert make(np.asfortranarray(inputs)).record_hashes.tolist() == slow


def test_equal_values_have_equal_hashes_and_others_not():
    floats = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.5]], np.float32)
    first, second, third = make(floats).record_hashes.tolist()
    assert first == second != third
    assert make(floats.astype(">f4")).record_hashes.tolist()[2] == third
    assert make(floats.astype(np.float64)).record_hashes.tolist()[2] != third
    assert make(floats.reshape(3, 1, 2)).record_hashes.tolist()[2] != third


def test_gaps_are_nan_and_equal_to_each_other():
    inputs = np.array([[1.0, np.nan], [1.0, np.nan], [1.0, 0.0]])
    gaps = replace(make(np.zeros((3, 2))), gaps=("b",), inputs=inputs)
    assert gaps.record_hashes.tolist()[0] == gaps.record_hashes.tolist()[1] != gaps.record_hashes.tolist()[2]
    both = concatenate([make(np.zeros((1, 2))), gaps, replace(gaps, gaps=("b", "a"))], "both")
    assert both.gaps == ("b", "a")
    with pytest.raises(InputError, match="NaN or infinite"):
        replace(gaps, inputs=np.array([[1.0, np.inf]] * 3))


def test_content_hash_sees_records_labels_names_and_order():
    base = make([[1], [2]], [0, 1])
    assert base.content_hash == make([[1], [2]], [0, 1], name="other").content_hash
    others = [make([[1], [3]], [0, 1]), make([[1], [2]], [1, 1]), make([[2], [1]], [1, 0])]
    others.append(make([[1], [2]], [0, 1], ("a", "c")))
    assert base.content_hash not in {other.content_hash for other in others}


@pytest.mark.parametrize(
    ("inputs", "class_names", "message"),
    [
        ([[1, 2]], ("a", "b"), r"differ in the shape of records \(\(2,\) and \(1,\)\)"),
        ([[1.0]], ("a", "b"), r"type of numbers \(float64 and int64\)"),
        ([[1]], ("b", "a"), "other and set differ in classes"),
    ],
)
def test_concatenate_refuses_unlike_parts(inputs, class_names, message):
    with pytest.raises(InputError, match=message):
        concatenate([make([[1]]), make(inputs, class_names=class_names, name="other")], "both")


def test_tables_in_a_row_keep_the_names_and_words_of_their_columns():
    first = replace(make([[1, 2]]), titles=("a", "b"), words={"a": ("x",), "b": ()})
    both = concatenate([first, replace(first, words={"a": ("y", "x"), "b": ()})], "both")
    assert (both.titles, both.words) == (("a", "b"), {"a": ("x", "y"), "b": ()})
    assert concatenate([first, make([[1, 2]])], "both").titles == ()
    for before in ([], [make([[1, 2]])]):
        with pytest.raises(InputError, match="differ in columns, or their order"):
            concatenate([*before, first, replace(first, titles=("b", "a"))], "both")


@pytest.mark.parametrize(
    ("labels", "given", "codes", "names"),
    [
        ([0, 2], None, [0, 2], ("0", "1", "2")),
        ([-1, 1, 1], None, [0, 1, 1], ("-1", "1")),
        ([[1], [0]], None, [1, 0], ("0", "1")),
        (["dog", "cat", "dog"], None, [1, 0, 1], ("cat", "dog")),
        (["10", "9"], None, [1, 0], ("9", "10")),
        ([1, 0], ["n", "y", "?"], [1, 0], ("n", "y", "?")),
        (np.array([1, 0], np.float16), None, [1, 0], ("0", "1")),
    ],
)
def test_forms(labels, given, codes, names):
    got, got_names = encode_labels(np.array(labels), given, "y")
    assert got.dtype == np.int32
    assert got.tolist() == codes
    assert got_names == names


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        *((np.zeros(shape), None, "y: there are no labels") for shape in ((0,), (0, 0), (3, 0))),
        ([0.5, 1], None, "that of record 0 is no whole number"),
        *(([0, one], None, "is it an identifier") for one in (777_777, 1e300, np.uint64(2**64 - 1))),
        ([1, 777], ["a", "b"], r"that of record 1 is not from 0 to 1"),
        (["a", "secret"], ["a", "b"], "labels are texts, which name their classes; leave the class names out"),
        (["1.5", "3"], None, "that of record 0 is no whole number; is this column a measurement"),
        ([["a", "b"]], None, r"labels have shape \(1, 2\)"),
        (np.eye(3), None, r"labels have shape \(3, 3\).*labels\.argmax\(axis=1\)"),
        (np.array(["2020-01-01"], "M8[D]"), None, r"labels are of type datetime64\[D\]"),
    ],
)
def test_labels_that_are_refused(labels, given, message):
    with pytest.raises(InputError, match=message) as caught:
        encode_labels(np.array(labels), given, "y")
    assert not any(value in str(caught.value) for value in ("secret", "0.5", "777"))


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
    "ids has values of type <U1": {"ids": np.array(["a"] * 7), "y": AGES},
    "there are 5 labels, and records of ids: 7": {"ids": IDS, "y": AGES[:5]},
    "bad.npz: .*there are 0 labels": {"ids": IDS, "y": np.array(1.0)},
    "ids has values of type float128": {"ids": IDS.astype(np.longdouble), "y": AGES},
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
