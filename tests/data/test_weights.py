"""Files and folders of weights: what comes back, and what is refused before it can do harm."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from jaxaudit.data import read_weights, safetensors_bytes
from jaxaudit.errors import InputError


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == wanted[name].dtype
        and found[name].shape == wanted[name].shape
        and np.array_equal(found[name], wanted[name])
        for name in wanted
    )


@settings(max_examples=20)
@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1).map(lambda name: f"layer/{name}"),
        hnp.arrays(
            st.sampled_from([np.dtype(kind) for kind in ("f2", "f4", "f8", "i4", "u1", "?")]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
            elements={"allow_nan": False, "allow_infinity": False},
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read_bit_for_bit(tmp_path_factory, weights):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"  # known by its content
    path.write_bytes(safetensors_bytes(weights))
    assert same(read_weights(path), weights)
    assert same(load(path.read_bytes()), weights)  # by the format's own library, too
    small = {"a": np.array([1.5, -2], ml_dtypes.bfloat16)}
    path.write_bytes(safetensors_bytes(small))
    assert same(read_weights(path), small)


def test_the_header_says_which_names_these_are():
    data = safetensors_bytes({"transposed": np.arange(6.0).reshape(2, 3).T})
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"] == {"jaxaudit_weights": "1"}
    assert np.array_equal(load(data)["transposed"], np.arange(6.0).reshape(2, 3).T)


class Bomb:
    def __reduce__(self):
        return (Path("exploded").touch, ())


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return file.getvalue()


PICKLED = r"may be pickles, which run code when they are loaded, so they are not\..*weights_only"


@pytest.mark.parametrize("name", ["w.pt", "w.pkl", "w.bin", "w", "w.npz", "w.safetensors"])
@pytest.mark.parametrize("data", [pickle.dumps(Bomb()), zipped()])
def test_a_pickle_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    with pytest.raises(InputError, match=PICKLED if name != "w.safetensors" else "is not a complete safetensors file"):
        read_weights(name)
    assert not Path("exploded").exists()


SAFE = safetensors_bytes({"a": np.ones(3, np.float32)})


def eight_bits() -> bytes:
    text = json.dumps({"a": {"dtype": "F8_E5M2", "shape": [4], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("w.safetensors", b"", "is not a complete safetensors file"),
        ("w.safetensors", SAFE[:-1], "safetensors file"),
        ("w.safetensors", struct.pack("<Q", 2**62) + b"{}", "safetensors file"),
        ("w.safetensors", SAFE.replace(b"F32", b"F99"), "safetensors file"),
        ("w.txt", b"hello, world", "weights are a .safetensors file or a folder"),
        ("w.safetensors", eight_bits(), "usual numbers .'F8_E5M2'.; save them as float32"),
        (
            "w.safetensors",
            safetensors_bytes({"a": np.array([1, np.nan, np.inf])}),
            "2 of the 3 numbers of a are NaN or",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, name: str, data: bytes, message: str):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_weights(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_sizes_are_bounded_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with (tmp_path / "w.safetensors").open("wb") as file:
        file.truncate(2**40)  # no bytes on disk
    with pytest.raises(InputError, match=r"1024\.0 GiB, more than the"):
        read_weights(tmp_path / "w.safetensors")


def test_paths_that_are_no_weights(tmp_path: Path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text("{}")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"PK")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name, message in (
        ("gone.safetensors", "No such file"),
        ("folder", "has no model.safetensors, and no index of such files"),
        ("pickled", r"may be pickles, .*save_pretrained"),
        ("pipe", "weights are"),
        ("pipe.safetensors", "pipe"),
    ):
        with pytest.raises(InputError, match=message):
            read_weights(tmp_path / name)


def test_the_files_of_an_index_hold_what_it_says(tmp_path: Path):
    part = {"a": np.ones(2, np.float32)}, {"b": np.zeros(3, np.float32)}
    for number, arrays in enumerate(part):
        (tmp_path / f"{number}.safetensors").write_bytes(safetensors_bytes(arrays))
    index = tmp_path / "model.safetensors.index.json"

    def stated(placed: object) -> None:
        index.write_text(json.dumps({"weight_map": placed}))

    stated({"a": "0.safetensors", "b": "1.safetensors"})
    assert {name: each.tolist() for name, each in read_weights(tmp_path).items()} == {"a": [1, 1], "b": [0, 0, 0]}
    assert read_weights(index).keys() == {"a", "b"}
    with pytest.raises(InputError, match="more than the allowed"):
        read_weights(tmp_path, max_bytes=100)
    for placed, words in (
        ({"a": "0.safetensors", "b": "2.safetensors"}, r"2\.safetensors: .*No such file"),
        ({"a": "0.safetensors", "c": "1.safetensors"}, r"does not hold the arrays"),
        ({"a": "../0.safetensors"}, "weight_map"),
        ({"a": "/etc/passwd"}, "weight_map"),
        ({"a": 1}, "weight_map"),
        ({}, "weight_map"),
    ):
        stated(placed)
        with pytest.raises(InputError, match=words):
            read_weights(tmp_path)
    index.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_weights(tmp_path)
