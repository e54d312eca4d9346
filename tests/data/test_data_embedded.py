"""The sets that come with the package are those of the UCI repository, as scikit-learn has them, too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from jaxaudit.data.sets.embedded import digits
from jaxaudit.data.sets.embedded_tables import breast_cancer, wine
from jaxaudit.data.tables.table import Table


def test_digits_keep_every_gray_level():
    examples = digits()
    levels, labels = load_digits(return_X_y=True)
    assert examples.inputs.dtype == np.uint8
    assert examples.class_names == tuple("0123456789")
    np.testing.assert_array_equal(np.rint(examples.inputs.astype(float) * 16 / 255).reshape(-1, 64), levels)
    np.testing.assert_array_equal(examples.labels, labels)
    assert examples.inputs.max() == 255
    # The same as when scikit-learn was asked for them: runs are compared by it.
    assert examples.content_hash == "blake2b:276de49c99e33ca38e0a5a5a5630c550"


@pytest.mark.parametrize(
    ("table", "theirs", "content_hash"),
    [
        (breast_cancer, load_breast_cancer, "blake2b:52e99d61b9c5df5bb8d87227dc02a80b"),
        (wine, load_wine, "blake2b:b6ba6e9658ef4e455c5a1ab2547fa2c3"),
    ],
)
def test_tables_are_those_of_the_source(table: Callable[[], Table], theirs: Callable[[], Any], content_hash: str):
    made, bunch = table(), theirs()
    np.testing.assert_array_equal(made.values, bunch.data)
    np.testing.assert_array_equal(made.labels, bunch.target)
    assert [column.name for column in made.columns] == list(bunch.feature_names)
    assert made.class_names == tuple(bunch.target_names)
    assert made.content_hash == content_hash
