"""IDX files: MNIST's format, and files that lie about their size."""

import gzip
import struct

import numpy as np
import pytest

from jaxaudit.data.files import load_path
from jaxaudit.data.formats.idx import read_idx
from jaxaudit.errors import InputError

CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array, code="u1"):
    header = bytes([0, 0, CODES[code], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(code).tobytes()


def write_mnist(folder, ending="-idx{}-ubyte.gz", train=7, test=4):
    """Images whose every pixel is their label, the test labels without 0."""
    folder.mkdir(exist_ok=True)
    for split, labels in (("train", np.arange(train) % 10), ("t10k", 1 + np.arange(test))):
        images = np.repeat(labels, 12).reshape(-1, 3, 4)
        for role, array in (("images", images), ("labels", labels)):
            path = folder / (f"{split}-{role}" + ending.format(array.ndim))
            content = idx_bytes(array)
            path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return folder


@pytest.mark.parametrize("code", CODES)
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


def test_a_single_file_brings_its_labels(tmp_path):
    folder = write_mnist(tmp_path)
    assert len(load_path(folder / "t10k-images-idx3-ubyte.gz")) == 4
    with pytest.raises(InputError, match="has no split 'train'; it has test"):
        load_path(folder / "t10k-images-idx3-ubyte.gz", split="train")


ARRAY = idx_bytes(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is not an IDX file \(it starts with nothing\)"),
        (b"\x89PNG....", r"is not an IDX file \(it starts with 89504e47\)"),
        (b"\0\0\x07\x01" + ARRAY[4:], "is not an IDX file"),
        (b"\0\0\x08\xff" + ARRAY[4:], "is not an IDX file"),
        (ARRAY[:9], "is cut short within its header"),
        (ARRAY[:-1], "bytes of data"),
        (ARRAY + b"\0", "is longer than its header"),
        (b"\0\0\x08\x02" + struct.pack(">II", 4 * 10**9, 0), "is cut short"),
        (b"\0\0\x08\x03" + struct.pack(">III", 2**31, 0, 2**31), "is cut short"),
        (b"\0\0\x08\x01" + struct.pack(">I", 2**27), "is cut short"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "GiB, more than the"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        with pytest.raises(InputError, match=message):
            read_idx(tmp_path / name)


def test_damaged_gzip(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(ARRAY)[:-9])
    with pytest.raises(InputError, match=r"cannot be read .*was the download interrupted"):
        read_idx(tmp_path / "a.gz")


def test_gzip_bomb_is_unpacked_no_further_than_announced(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(ARRAY + b"\0" * 10**7))
    with pytest.raises(InputError, match="is longer than its header"):
        read_idx(tmp_path / "a.gz")


def test_incomplete_folders(tmp_path):
    folder = write_mnist(tmp_path / "a")
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"has no labels beside it; put train-labels-idx1-ubyte.gz"):
        load_path(folder)
    folder = write_mnist(tmp_path / "b")
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte.gz").unlink()
    with pytest.raises(InputError, match="there are IDX labels but no images"):
        load_path(folder)
    folder = write_mnist(tmp_path / "c")
    (folder / "emnist-train-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(InputError, match="are both train images; keep one set"):
        load_path(folder)


def test_labels_of_another_rank(tmp_path):
    folder = write_mnist(tmp_path)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(np.zeros((7, 2)))))
    with pytest.raises(InputError, match=r"labels of shape \(7, 2\)"):
        load_path(folder)


def test_a_header_allocates_nothing(tmp_path):
    """A small file announces as much as may be read: what is not there is never asked for."""
    import tracemalloc

    (tmp_path / "a").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 2**29))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="is cut short"):
            read_idx(tmp_path / "a", 2**30)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
