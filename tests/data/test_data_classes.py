"""Classes are matched by name, or refused with the names."""

import numpy as np
import pytest

from jaxaudit.data.classes import align_classes, align_target_data, drop_unshared
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError


def make(records, class_names, name):
    """`records` is a text with one letter, the class, a record; a record's input is its place."""
    labels = np.array([class_names.index(letter) for letter in records])
    return Examples(np.arange(len(records), dtype=np.float32)[:, None], labels, tuple(class_names), name)


def letters(examples):
    return "".join(examples.class_names[label] for label in examples.labels)


def test_aligned_by_name():
    other = align_classes(make("abc", "abc", "query"), make("ccab", "cab", "other"))
    assert other.class_names == ("a", "b", "c")
    assert letters(other) == "ccab"
    assert other.inputs.ravel().tolist() == [0, 1, 2, 3]


def test_names_without_records_do_not_matter():
    other = align_classes(make("ab", "abx", "query"), make("ba", "yba", "other"))
    assert other.class_names == ("a", "b", "x")
    assert letters(other) == "ba"


@pytest.mark.parametrize(
    ("query", "other", "message"),
    [
        (("ab", "ab"), ("cd", "cd"), "differ: only query has 'a', 'b' and only other has 'c', 'd'"),
        (("abc", "abc"), ("ab", "ab"), "differ: only query has 'c'"),
        (("abc", "abc"), ("ab", "abc"), "other has no record of class 'c', which query has"),
        (("ab", "abc"), ("abc", "abc"), "query has none; use --drop-unshared"),
        (("ab", "ab"), ("abc", "abc"), "other has records of class 'c'"),
        (("abcdefg", "abcdefg"), ("h", "h"), "'a', 'b', 'c', 'd', 'e' and 2 more"),
    ],
)
def test_refused(query, other, message):
    query, other = make(query[0], query[1], "query"), make(other[0], other[1], "other")
    with pytest.raises(InputError, match=message):
        align_classes(query, other)


def test_drop_unshared():
    calibration = drop_unshared(make("ab", "abc", "query"), make("cxabxa", "xcba", "calibration"))
    assert letters(calibration) == "aba"
    assert calibration.inputs.ravel().tolist() == [2, 3, 5]
    assert calibration.class_names == ("a", "b", "c")


def test_drop_unshared_cannot_make_up_records():
    with pytest.raises(InputError, match="calibration has no record of class 'b'"):
        drop_unshared(make("ab", "ab", "query"), make("aac", "abc", "calibration"))
    with pytest.raises(InputError, match="calibration and query share no class: query has 'a', 'b'"):
        drop_unshared(make("ab", "ab", "query"), make("c", "c", "calibration"))


def test_align_target_data():
    other = align_target_data(make("ab", "abc", "query"), make("yx", "xy", "other"))
    assert other.class_names == ("a", "b", "c")
    assert letters(other) == "ba"
    with pytest.raises(InputError, match="other has 3 classes"):
        align_target_data(make("ab", "ab", "query"), make("x", "xyz", "other"))
