"""NumPy's and IDX files from strangers: equal to other readers on good ones, a message on bad ones."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from support.small_sets import idx_bytes, write_mnist

from jaxaudit.data import NpzArrays, load, read_npy
from jaxaudit.data.images import read_idx
from jaxaudit.errors import InputError

ARRAYS = hypothesis_numpy.arrays(
    st.sampled_from(["u1", "<i4", ">i8", "?", "<f4", ">f8", "<f2", "<U3", "S2"]),
    hypothesis_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arrays")


@settings(max_examples=60, deadline=None)
@given(ARRAYS, st.booleans())
def test_equal_to_numpys_reader(folder, array, fortran):
    array = np.asfortranarray(array) if fortran else array
    np.save(folder / "a.npy", array)
    np.savez_compressed(folder / "a.npz", a=array, b=np.zeros(3))
    archive = NpzArrays(folder / "a.npz")
    assert archive.names == ["a", "b"]
    for ours in (read_npy(folder / "a.npy"), archive.read("a")):
        assert ours.dtype == array.dtype
        assert ours.shape == array.shape
        np.testing.assert_array_equal(ours, array)


class Harmful:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickles_are_refused_and_not_run(tmp_path):
    trace = tmp_path / "was-run"
    np.save(tmp_path / "a.npy", np.array([Harmful(trace)], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", a=np.array([Harmful(trace)], dtype=object))
    message = r"with np\.save or np\.savez without object arrays"
    with pytest.raises(InputError, match=message):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(InputError, match=message):
        NpzArrays(tmp_path / "a.npz").read("a")
    assert not trace.exists()


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_claiming(shape, data=b"", dtype="<f8"):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


NO_ARRAY, TRUE = "is not a NumPy array file", npy_claiming("(True, 12)", b"\0" * 96)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.npy: cannot be read"),
        *((npy_claiming(shape), NO_ARRAY) for shape in ((2**62, 2**62, 0), (0, 4 * 10**9), "(3", (-1,))),
        *((content, NO_ARRAY) for content in (b"", TRUE, b"\x93NUMPY\x02\x00\xff\xff\xff\xff")),
        (npy_bytes(np.zeros(4))[:-1], r"is cut short \(159 bytes of 160\); was the copy"),
        (npy_claiming((2**33,)), r"64\.0 GiB, more than the"),
        (npy_claiming((2**20,)), "is cut short"),
        (npy_claiming((1,), b"\0" * 16, "<c16"), "values of type complex128"),
        (npy_bytes(np.zeros(2, [("a", "i4"), ("b", "f4")])), r"values of type \[\('a'"),
        (b"\x93NUMPY\x09\x00" + b"\0" * 20, r"is not a NumPy array file \(format version 9.0\)"),
    ],
)
def test_bad_npy(tmp_path, content, message):
    path = tmp_path / "a.npy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_npy(path)


def patched(mark, place, value):
    """Changes bytes of a small archive, counted from a mark."""

    def write(path):
        np.savez_compressed(path, x=np.zeros(1000))
        content = bytearray(path.read_bytes())
        start = content.index(mark) + place
        content[start : start + len(value)] = value
        path.write_bytes(content)

    return write


def packed(method, content):
    def write(path):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("x.npy", content)

    return write


def with_members(count):
    """An archive of one array, which its directory lists as often as this; the number that it states is 1."""

    def write(path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", npy_bytes(np.zeros(3)))
        content = path.read_bytes()
        start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
        stated = content[end : end + 12] + ((end - start) * count).to_bytes(4, "little") + content[end + 16 :]
        path.write_bytes(content[:start] + content[start:end] * count + stated)

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "a.npz: cannot be read"),
        (with_members(100_000), "names of arrays"),
        (lambda path: np.savez_compressed(path, x=np.zeros(2**24, np.uint8)), r"takes .*more than the"),
        (packed(zipfile.ZIP_STORED, npy_claiming((1000,), b"\0" * 80)), r"a.npz\[x\]: is cut short"),
        *((packed(kind, npy_bytes(np.zeros(3))), "in a way that NumPy does not") for kind in (zipfile.ZIP_LZMA, 12)),
        # In the directory at the end: a version, encryption, a method, a checksum and a size.
        *((patched(b"PK\1\2", *wrong), "a.npz") for wrong in ((6, b"\x63\0"), (8, b"\1\0"), (10, b"\x63\0"))),
        (patched(b"PK\1\2", 16, b"\1\2\3\4"), r"a.npz\[x\]: is damaged \(Bad CRC-32"),
        (patched(b"PK\1\2", 24, (2**23).to_bytes(4, "little")), "its bytes"),
    ],
)
def test_bad_npz(tmp_path, write, message):
    write(tmp_path / "a.npz")
    with pytest.raises(InputError, match=message):
        NpzArrays(tmp_path / "a.npz", max_bytes=2**23).read("x")


@pytest.mark.parametrize("ending", ["-idx{}-ubyte.gz", ".idx{}-ubyte"])
def test_folders(tmp_path, ending):
    folder = write_mnist(tmp_path / "digits", ending)
    train, test, both = load(str(folder)), load(f"{folder}@test"), load(f"{folder}@all")
    assert train.name == "digits"
    assert train.inputs.dtype == np.uint8
    assert train.inputs.shape == (7, 3, 4)
    # Both parts count their classes alike, though the test part has no 0.
    assert train.class_names == test.class_names == tuple("0123456")
    assert test.inputs[:, 0, 0].tolist() == test.labels.tolist() == [1, 2, 3, 4]
    assert both.labels.tolist() == train.labels.tolist() + test.labels.tolist()
    with pytest.raises(InputError, match="a folder of IDX files"):
        load(f"{next(folder.glob('t10k-images*'))}")


ARRAY = idx_bytes(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes and starts with nothing"),
        (ARRAY[:9], "has 9 bytes and starts with 00000802; was the download"),
        (ARRAY + b"\0", "has 19 bytes"),
        (b"\0\0\x08\x02" + struct.pack(">II", 4 * 10**9, 0), "is not a whole IDX file"),
        (b"\0\0\x08\x03" + struct.pack(">III", 2**31, 0, 2**31), "is not a whole IDX file"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "has 16 bytes and"),
        (b"\0\0\x0d\x01" + struct.pack(">I", 1) + b"\0" * 4, "of 8-bit numbers"),
    ],
)
def test_bad_idx(tmp_path, content, message):
    folder = write_mnist(tmp_path / "digits", "-idx{}-ubyte")
    (path,) = folder.glob("train-images*")
    for name, packed_content in ((path.name, content), (f"{path.name}.gz", gzip.compress(content))):
        path.unlink(missing_ok=True)
        (folder / name).write_bytes(packed_content)
        with pytest.raises(InputError, match=message):
            load(str(folder))
        (folder / name).unlink()


def test_gzip_is_unpacked_no_further_than_allowed(tmp_path):
    bomb, cut = gzip.compress(ARRAY + b"\0" * 10**7), gzip.compress(ARRAY)[:-9]
    for content, message in ((bomb, "more than the allowed"), (cut, "cannot be read .*was the download interr")):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_idx(tmp_path / "a.gz", 10**6)
