"""The real data sets where JAXAUDIT_DATA names their folder, held against what their authors say of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from jaxaudit.data import MISSING, category_counts, load_path, load_table

ADULT = (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)


DATA = Path(os.environ.get("JAXAUDIT_DATA", "/nonexistent"))


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"JAXAUDIT_DATA names no folder of real data sets with {name}")
    return path


@pytest.mark.parametrize(
    ("name", "split", "records", "size"),
    [
        ("mnist", "train", 60_000, 28),
        ("mnist", "test", 10_000, 28),
        ("usps/usps16.npz", "all", 9_298, 16),
        ("usps/usps16.npz", "", 7_291, 16),
        ("semeion/semeion16.npz", "", 1_593, 16),
        ("mnist_m/mnist_m_gray28_test.npz", "", 9_001, 28),
    ],
)
def test_digits(name, split, records, size):
    examples = load_path(real(name), split=split)
    assert (examples.inputs.shape, examples.inputs.dtype) == ((records, size, size), np.uint8)
    assert examples.class_names == tuple("0123456789")
    assert np.bincount(examples.labels).min() > 100
    # The first labels of MNIST as everyone knows them.
    assert records != 60_000 or examples.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


@pytest.mark.parametrize(
    ("name", "classes", "categories"),
    [
        ("adult@train", [24_720, 7_841], ADULT),
        ("adult@all", [37_155, 11_687], ADULT),
    ],
)
def test_tables(name, classes, categories):
    real(name.partition("@")[0])
    table = load_table(name, data_dir=DATA)
    assert np.bincount(table.labels).tolist() == classes
    assert category_counts(table) == categories
    assert (np.ptp(table.values, axis=0) > 0).all()
    if name == "adult@all":
        named = [column.categories or () for column in table.columns]
        missing = table.values == [each.index(MISSING) if MISSING in each else -1 for each in named]
        # adult.names: 48,842 records, 45,222 without unknown values.
        assert missing.sum(axis=0).tolist() == [0, 2_799, 0, 0, 0, 2_809, 0, 0, 0, 0, 0, 0, 857]
        assert (~missing.any(axis=1)).sum() == 45_222


def test_location():
    real("location")
    table = load_table("location", data_dir=DATA)
    assert table.values.shape == (5_010, 446)
    assert np.bincount(table.labels).min() > 90
    assert table.class_names == tuple(map(str, range(1, 31)))
