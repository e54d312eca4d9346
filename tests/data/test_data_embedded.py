"""The digits that come with scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits

from jaxaudit.data.sets.embedded import digits


def test_digits_keep_every_gray_level():
    examples = digits()
    levels, labels = load_digits(return_X_y=True)
    assert examples.inputs.dtype == np.uint8
    assert examples.class_names == tuple("0123456789")
    np.testing.assert_array_equal(np.rint(examples.inputs.astype(float) * 16 / 255).reshape(-1, 64), levels)
    np.testing.assert_array_equal(examples.labels, labels)
    assert examples.inputs.max() == 255
