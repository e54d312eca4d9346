"""The digits that come with scikit-learn, and printed ones: deterministic, balanced, all different, and digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from jaxaudit.data.images import prepare_images
from jaxaudit.data.sets.embedded import digits
from jaxaudit.data.sets.printed import printed_digits
from jaxaudit.errors import InputError


@pytest.fixture(scope="module")
def printed():
    return printed_digits()


def test_default_set(printed):
    assert printed.inputs.shape == (2000, 28, 28)
    assert printed.inputs.dtype == np.uint8
    assert printed.class_names == digits().class_names
    np.testing.assert_array_equal(np.bincount(printed.labels), np.full(10, 200))
    assert len(np.unique(printed.record_hashes)) == 2000
    # Shuffled: runs of one class are 200 expected in 2,000 records, standard deviation 13.
    assert 130 < (np.diff(printed.labels) == 0).sum() < 270
    for records, size in ((9, 28), (10, 7)):
        with pytest.raises(InputError, match="at least 10 records"):
            printed_digits(records, size)


def test_same_arguments_same_bytes_other_seed_other_bytes(printed):
    assert printed_digits().content_hash == printed.content_hash
    assert not set(printed_digits(100, seed=1).record_hashes.tolist()) & set(printed.record_hashes.tolist())


def test_digits_can_be_told_apart(printed):
    # A linear model learns them; on digits in the wrong font or cut off it would not.
    from sklearn.linear_model import RidgeClassifier

    flat = prepare_images(printed, (14, 14)).inputs.reshape(2000, -1)
    model = RidgeClassifier().fit(flat[:1000], printed.labels[:1000])
    assert model.score(flat[1000:], printed.labels[1000:]) > 0.8


def test_digits_keep_every_gray_level():
    examples = digits()
    levels, labels = load_digits(return_X_y=True)
    assert examples.inputs.dtype == np.uint8
    assert examples.class_names == tuple("0123456789")
    np.testing.assert_array_equal(np.rint(examples.inputs.astype(float) * 16 / 255).reshape(-1, 64), levels)
    np.testing.assert_array_equal(examples.labels, labels)
    assert examples.inputs.max() == 255
