"""Labels in every form people store them."""

import numpy as np
import pytest

from jaxaudit.data.labels import encode_labels
from jaxaudit.errors import InputError


@pytest.mark.parametrize(
    ("labels", "given", "codes", "names"),
    [
        ([0, 2, 1], None, [0, 2, 1], ("0", "1", "2")),
        ([0, 2], None, [0, 2], ("0", "1", "2")),
        ([-1, 1, 1], None, [0, 1, 1], ("-1", "1")),
        ([True, False], None, [1, 0], ("0", "1")),
        ([[1], [0]], None, [1, 0], ("0", "1")),
        (["dog", "cat", "dog"], None, [1, 0, 1], ("cat", "dog")),
        (["10", "9"], None, [1, 0], ("9", "10")),
        (["nan", "a"], None, [1, 0], ("a", "nan")),
        ([[0, 1, 0], [1, 0, 0]], None, [1, 0], ("0", "1", "2")),
        ([[0.0, 1.0], [1.0, 0.0]], ["n", "y"], [1, 0], ("n", "y")),
        ([1, 0], ["n", "y", "?"], [1, 0], ("n", "y", "?")),
        (["y", "n"], ["y", "n"], [0, 1], ("y", "n")),
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
        (np.array(["a" * 2000, "b"]), None, "texts of more than 1000 characters"),
        ([0.5, 1], None, "whole numbers or text, but that of record 0 is not"),
        *(([1, one], None, "that of record 1 is not") for one in (np.nan, np.inf)),
        *(([0, one], None, "look like identifiers") for one in (123456, 1e300, np.uint64(2**64 - 1))),
        ([1, 2], ["a", "b"], r"outside the 2 named classes \(first: record 1\)"),
        (["a", "c"], ["a", "b"], r"1 of the different labels \(first: record 1\) are not among the class names"),
        (["1.5", "3"], None, "that of record 0 is not; is this column a measurement"),
        ([[0, 1], [1, 1]], None, r"not one-hot \(first: record 1\)"),
        ([["a", "b"]], None, r"labels have shape \(1, 2\)"),
        (np.zeros((2, 2, 2)), None, r"labels have shape \(2, 2, 2\)"),
        (np.eye(1, 100_001), None, "at most 100,000 classes"),
        (np.array(["2020-01-01"], "M8[D]"), None, r"labels are of type datetime64\[D\]"),
    ],
)
def test_refused(labels, given, message):
    with pytest.raises(InputError, match=message):
        encode_labels(np.array(labels), given, "y")


def test_no_label_is_quoted():
    for labels, names in ((["a", "secret"], ["a", "b"]), ([1.5, 2], None), ([5, 777], ["a"]), ([1, 777_777], None)):
        with pytest.raises(InputError) as caught:
            encode_labels(np.array(labels), names, "y")
        assert not any(value in str(caught.value) for value in ("secret", "1.5", "777"))
