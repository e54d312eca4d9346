"""Printed digits: deterministic, balanced, all different, and digits."""

import time

import numpy as np
import pytest

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


def test_same_arguments_same_bytes_other_seed_other_bytes(printed):
    start = time.perf_counter()
    again = printed_digits()
    assert time.perf_counter() - start < 10  # half a second on an idle machine
    assert again.content_hash == printed.content_hash
    assert not set(printed_digits(100, seed=1).record_hashes.tolist()) & set(printed.record_hashes.tolist())


def test_shuffled(printed):
    # Runs of one class: 200 expected in 2,000 records, standard deviation 13.
    repeats = int((np.diff(printed.labels) == 0).sum())
    assert 130 < repeats < 270


def test_digits_can_be_told_apart(printed):
    # A linear model learns them; on digits in the wrong font or cut off it would not.
    from sklearn.linear_model import RidgeClassifier

    flat = prepare_images(printed, (14, 14)).inputs.reshape(2000, -1)
    model = RidgeClassifier().fit(flat[:1000], printed.labels[:1000])
    assert model.score(flat[1000:], printed.labels[1000:]) > 0.8


def test_no_image_is_blank_and_ink_stays_inside(printed):
    spread = printed.inputs.max(axis=(1, 2)).astype(int) - printed.inputs.min(axis=(1, 2))
    assert spread.min() > 60
    border = np.concatenate([printed.inputs[:, 0], printed.inputs[:, -1]], axis=1)
    assert (border > 128).mean() < 0.05


@pytest.mark.parametrize("size", [8, 32])
def test_other_sizes_and_uneven_numbers(size):
    examples = printed_digits(25, size)
    assert examples.inputs.shape == (25, size, size)
    assert sorted(np.bincount(examples.labels)) == [2] * 5 + [3] * 5


@pytest.mark.parametrize(("records", "size"), [(9, 28), (10, 7)])
def test_too_few(records, size):
    with pytest.raises(InputError, match="at least 10 records"):
        printed_digits(records, size)
