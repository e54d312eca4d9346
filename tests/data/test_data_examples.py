"""`Examples` keeps its promises and its hash tells data apart; labels in every form people store them."""

import hashlib

import numpy as np
import pytest

from jaxaudit.data import Examples, concatenate, encode_labels
from jaxaudit.errors import InputError


def make(inputs, labels=None, class_names=("a", "b"), name="set"):
    inputs = np.asarray(inputs)
    return Examples(inputs, np.zeros(len(inputs), int) if labels is None else np.asarray(labels), class_names, name)


@pytest.mark.parametrize(
    ("inputs", "labels", "class_names", "message"),
    [
        (np.zeros((0, 2)), [], ("a",), "set: there are no records"),
        (np.zeros((2, 2)), [0], ("a",), r"2 inputs but int64 labels of shape \(1,\)"),
        (np.zeros((2, 2)), [0.0, 0.0], ("a",), "2 inputs but float64 labels"),
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


def test_content_hash_sees_records_labels_names_and_order():
    base = make([[1], [2]], [0, 1])
    assert base.content_hash == make([[1], [2]], [0, 1], name="other").content_hash
    others = [
        make([[1], [3]], [0, 1]),
        make([[1], [2]], [1, 1]),
        make([[2], [1]], [1, 0]),
        make([[1], [2]], [0, 1], ("a", "c")),
    ]
    assert base.content_hash not in {other.content_hash for other in others}


def test_concatenate_keeps_order():
    both = concatenate([make([[1], [2]], [0, 1]), make([[3]], [1])], "both")
    assert (both.inputs.tolist(), both.labels.tolist(), both.name) == ([[1], [2], [3]], [0, 1, 1], "both")


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


@pytest.mark.parametrize(
    ("labels", "given", "codes", "names"),
    [
        ([0, 2, 1], None, [0, 2, 1], ("0", "1", "2")),
        ([0, 2], None, [0, 2], ("0", "1", "2")),
        ([-1, 1, 1], None, [0, 1, 1], ("-1", "1")),
        ([[1], [0]], None, [1, 0], ("0", "1")),
        (["dog", "cat", "dog"], None, [1, 0, 1], ("cat", "dog")),
        (["10", "9"], None, [1, 0], ("9", "10")),
        ([1, 0], ["n", "y", "?"], [1, 0], ("n", "y", "?")),
        (np.array([1, 0], np.float16), None, [1, 0], ("0", "1")),
        (np.array([2**64 - 1, 0], np.uint64) // 2**63, None, [1, 0], ("0", "1")),
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
        *(([0, one], None, "is it an identifier") for one in (123456, 1e300, np.uint64(2**64 - 1))),
        ([1, 2], ["a", "b"], r"that of record 1 is not from 0 to 1"),
        (["a", "c"], ["a", "b"], "labels are texts, which name their classes; leave the class names out"),
        (["1.5", "3"], None, "that of record 0 is no whole number; is this column a measurement"),
        ([["a", "b"]], None, r"labels have shape \(1, 2\)"),
        (np.eye(3), None, r"labels have shape \(3, 3\).*labels\.argmax\(axis=1\)"),
        (np.array(["2020-01-01"], "M8[D]"), None, r"labels are of type datetime64\[D\]"),
    ],
)
def test_labels_that_are_refused(labels, given, message):
    with pytest.raises(InputError, match=message):
        encode_labels(np.array(labels), given, "y")


def test_no_label_is_quoted():
    for labels, names in ((["a", "secret"], ["a", "b"]), ([1.5, 2], None), ([5, 777], ["a"]), ([1, 777_777], None)):
        with pytest.raises(InputError) as caught:
            encode_labels(np.array(labels), names, "y")
        assert not any(value in str(caught.value) for value in ("secret", "1.5", "777"))
