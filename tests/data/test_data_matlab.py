"""SVHN's MATLAB files."""

import struct
import zlib

import numpy as np
import pytest
import scipy.io
from support.memory import at_most
from support.small_sets import write_svhn

from jaxaudit.data.files import load_path
from jaxaudit.data.formats.matlab import load_mat
from jaxaudit.errors import InputError


def test_svhn(tmp_path):
    images = write_svhn(tmp_path / "train_32x32.mat", [1, 10, 9])
    examples = load_path(tmp_path / "train_32x32.mat")
    assert examples.class_names == tuple("0123456789")
    assert examples.labels.tolist() == [1, 0, 9]
    assert examples.inputs.shape == (3, 4, 5, 3)
    np.testing.assert_array_equal(examples.inputs, np.moveaxis(images, 3, 0))
    # A part without the digit 0 is SVHN still; one with a label of 0 is not.
    write_svhn(tmp_path / "a.mat", [3, 1])
    assert load_mat(tmp_path / "a.mat").labels.tolist() == [3, 1]
    write_svhn(tmp_path / "a.mat", [0, 1])
    assert load_mat(tmp_path / "a.mat").class_names == ("0", "1")


def test_folder_of_splits(tmp_path):
    write_svhn(tmp_path / "train_32x32.mat", [1, 2])
    write_svhn(tmp_path / "extra_32x32.mat", [3])
    assert len(load_path(tmp_path)) == 2
    assert load_path(tmp_path, split="extra").labels.tolist() == [3]
    assert load_path(tmp_path, split="all").labels.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((4, 4, 3, 2))}, r"X is double of shape \(4, 4, 3, 2\), not uint8"),
        ({"y": np.array([[1], [2], [3]])}, r"y is int64 of shape \(3, 1\), but X"),
        ({"y": np.array([["a"], [1]], dtype=object)}, r"y is cell of shape \(2, 1\)"),
        ({"y": np.array([[1], [0.5]])}, "y: labels must be whole numbers"),
    ],
)
def test_other_contents(tmp_path, changes, message):
    write_svhn(tmp_path / "a.mat", [1, 2], **changes)
    with pytest.raises(InputError, match=message):
        load_mat(tmp_path / "a.mat")


def test_bad_files(tmp_path):
    path = tmp_path / "a.mat"
    with pytest.raises(InputError, match="cannot be read"):
        load_mat(path)
    write_svhn(path, [1, 2, 3])
    with pytest.raises(InputError, match=r"X of shape \(4, 5, 3, 3\) is larger than"):
        load_mat(path, max_bytes=100)
    for content, message in (
        (path.read_bytes()[:-40], "is not a readable MATLAB file"),
        (b"rubbish" * 100, "is not a readable MATLAB file"),
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512), r"is a MATLAB 7.3 \(HDF5\) file, .*save it with"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_mat(path)
    scipy.io.savemat(path, {"images": np.zeros(3)})
    with pytest.raises(InputError, match="has no variable X"):
        load_mat(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "u8", "f4", "f8", "?"])
def test_as_scipy_reads_it(tmp_path, dtype, packed):
    """Every type of number, of every length (short ones lie within their tags), among variables of other kinds."""
    path = tmp_path / "a.mat"
    for count in (1, 2, 5, 300):
        numbers = np.random.default_rng(count).integers(0, 2, (count, 1)).astype(dtype)
        images = np.random.default_rng(count).integers(0, 256, (3, 2, 3, count), dtype=np.uint8)
        content = {"note": "text", "X": images, "more": {"a": [1, 2.5]}, "y": numbers}
        scipy.io.savemat(path, content, do_compression=packed)
        examples, loaded = load_mat(path), scipy.io.loadmat(path)
        np.testing.assert_array_equal(examples.inputs, np.transpose(loaded["X"], (3, 0, 1, 2)))
        names = [float(name) for name in examples.class_names]
        assert [names[label] for label in examples.labels] == loaded["y"].ravel().tolist()


def test_no_more_is_unpacked_than_the_shapes_say(tmp_path):
    """X of one pixel whose numbers claim 2 GiB, and hold as many zeros."""
    tag = struct.Struct("<II").pack
    description = tag(6, 8) + tag(9, 0) + tag(5, 16) + struct.pack("<4i", 1, 1, 1, 1) + struct.pack("<HH4s", 1, 1, b"X")
    packer = zlib.compressobj(1)
    packed = packer.compress(tag(14, 2**31) + description + tag(2, 2**31)) + packer.compress(bytes(2**24))
    packed += packer.flush()
    scipy.io.savemat(tmp_path / "y.mat", {"y": np.ones((1, 1))})
    rest = (tmp_path / "y.mat").read_bytes()
    (tmp_path / "a.mat").write_bytes(rest[:128] + tag(15, len(packed)) + packed + rest[128:])
    with at_most(2**22), pytest.raises(InputError, match=r"2147483648 bytes of numbers for shape \(1, 1, 1, 1\)"):
        load_mat(tmp_path / "a.mat")


def test_labels_that_unpack_to_more_than_the_images_are_not_unpacked(tmp_path, monkeypatch):
    write_svhn(tmp_path / "a.mat", [1, 2], y=np.ones((1000, 1000)))
    monkeypatch.setattr("jaxaudit.data.formats.matlab._values", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(InputError, match=r"y is double of shape \(1000, 1000\), but X"):
        load_mat(tmp_path / "a.mat")
