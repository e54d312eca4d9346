"""IDX files: MNIST's format, and files that lie about their size."""

import gzip
import struct

import numpy as np
import pytest
from support.memory import at_most
from support.small_sets import IDX_CODES, idx_bytes, write_mnist

from jaxaudit.data.files import load_path
from jaxaudit.data.formats.idx import read_idx
from jaxaudit.errors import InputError


@pytest.mark.parametrize("code", IDX_CODES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4)])
def test_every_type(tmp_path, code, shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    (tmp_path / "a").write_bytes(idx_bytes(array, code))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx_bytes(array, code)))
    for name in ("a", "a.gz"):
        ours = read_idx(tmp_path / name)
        assert ours.dtype.isnative
        np.testing.assert_array_equal(ours, array)


@pytest.mark.parametrize("ending", ["-idx{}-ubyte.gz", "-idx{}-ubyte", ".idx{}-ubyte", ".idx{}-ubyte.gz"])
def test_folders(tmp_path, ending):
    folder = write_mnist(tmp_path / "digits", ending)
    train, test, both = load_path(folder), load_path(folder, split="test"), load_path(folder, split="all")
    assert train.name == "digits"
    assert train.inputs.dtype == np.uint8
    assert train.inputs.shape == (7, 3, 4)
    # Both parts count their classes alike, though the test part has no 0.
    assert train.class_names == test.class_names == tuple("0123456")
    assert test.inputs[:, 0, 0].tolist() == test.labels.tolist() == [1, 2, 3, 4]
    assert both.labels.tolist() == train.labels.tolist() + test.labels.tolist()
    # A single file brings its labels.
    images = next(folder.glob("t10k-images*"))
    assert len(load_path(images)) == 4
    with pytest.raises(InputError, match="has no split 'train'; it has test"):
        load_path(images, split="train")


ARRAY = idx_bytes(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is not an IDX file \(it starts with nothing\)"),
        (b"\x89PNG....", r"is not an IDX file \(it starts with 89504e47\)"),
        (b"\0\0\x07\x01" + ARRAY[4:], "is not an IDX file"),
        (ARRAY[:9], "is cut short within its header"),
        (ARRAY[:-1], "bytes of data"),
        (ARRAY + b"\0", "is longer than its header"),
        (b"\0\0\x08\x02" + struct.pack(">II", 4 * 10**9, 0), "is cut short"),
        (b"\0\0\x08\x03" + struct.pack(">III", 2**31, 0, 2**31), "is cut short"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "GiB, more than the"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        with pytest.raises(InputError, match=message):
            read_idx(tmp_path / name)


def test_gzip_is_unpacked_no_further_than_announced(tmp_path):
    bomb, cut = gzip.compress(ARRAY + b"\0" * 10**7), gzip.compress(ARRAY)[:-9]
    for content, message in ((bomb, "is longer than its header"), (cut, "cannot be read .*was the download interr")):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_idx(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train-labels-idx1": None}, r"has no labels beside it; put train-labels-idx1-ubyte.gz"),
        ({"train-images-idx3": None, "t10k-images-idx3": None}, "there are IDX labels but no images"),
        ({"emnist-train-images-idx3": b""}, "are both train images; keep one set"),
        ({"train-labels-idx1": idx_bytes(np.zeros((7, 2)))}, r"labels of shape \(7, 2\)"),
    ],
)
def test_folders_that_are_refused(tmp_path, changes, message):
    folder = write_mnist(tmp_path)
    for name, content in changes.items():
        path = folder / f"{name}-ubyte.gz"
        path.unlink() if content is None else path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=message):
        load_path(folder)


def test_a_header_allocates_nothing(tmp_path):
    """A small file announces as much as may be read: what is not there is never asked for."""
    (tmp_path / "a").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 2**29))
    with at_most(2**24), pytest.raises(InputError, match="is cut short"):
        read_idx(tmp_path / "a", 2**30)
