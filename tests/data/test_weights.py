"""Files and folders of weights: what comes back, and what is refused before it can do harm."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import msgpack
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx, serialization
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from jaxaudit.data.weights import read_weights, safetensors_bytes
from jaxaudit.errors import InputError
from jaxaudit.models import MLP

TREE = {
    "dense": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([0.5, -1, 2], np.float16)},
    "layers": [{"scale": np.float64(2.5)}, {"scale": np.ones((1, 0, 2), ml_dtypes.bfloat16)}],
    "count": np.array(3, np.int32),
}
NAMES = ["dense/kernel", "dense/bias", "layers/0/scale", "layers/1/scale", "count"]


def flat() -> dict[str, np.ndarray]:
    leaves = [*TREE["dense"].values(), *(layer["scale"] for layer in TREE["layers"]), TREE["count"]]
    return dict(zip(NAMES, map(np.asarray, leaves), strict=True))


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


def test_what_flax_serialises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "w.msgpack"
    (tmp_path / name).write_bytes(serialization.to_bytes(TREE))
    assert same(read_weights(tmp_path / name), flat())
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 8)  # it splits what is larger
    (tmp_path / name).write_bytes(serialization.to_bytes(TREE))
    assert b"__msgpack_chunked_array__" in (tmp_path / name).read_bytes()
    assert same(read_weights(str(tmp_path / name)), flat())


def test_what_orbax_saves(tmp_path: Path):
    tree = {"dense": TREE["dense"], "step": 3, "layers": TREE["layers"][:1], "name": "mine"}
    ocp.PyTreeCheckpointer().save(tmp_path / "tree", tree)
    found = read_weights(tmp_path / "tree")
    assert found.keys() == {*NAMES[:3], "step"}
    assert same({name: found[name] for name in NAMES[:2]}, {name: flat()[name] for name in NAMES[:2]})
    state = nnx.state(MLP((2,), 3, hidden=(), rngs=nnx.Rngs(0)))
    with ocp.CheckpointManager(tmp_path / "runs") as manager:
        manager.save(7, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    found = read_weights(tmp_path / "runs/7/default")
    assert found.keys() == {"layers/0/kernel/value", "layers/0/bias/value"}
    assert np.array_equal(found["layers/0/kernel/value"], jax.tree.leaves(state)[1])
    with pytest.raises(InputError, match=r"no _METADATA of Orbax .name the folder that has it"):
        read_weights(tmp_path / "runs")
    with pytest.raises(InputError, match="more than the allowed"):
        read_weights(tmp_path / "tree", max_bytes=20)


def saved(folder: Path, use_ocdbt: bool, use_zarr3: bool = False) -> Path:
    """An Orbax checkpoint in one of its formats."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt, use_zarr3=use_zarr3)
    tree = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [{"c": np.ones((1, 4))}, {"k/x": np.float32(3)}]}
    ocp.Checkpointer(handler).save(folder, args=ocp.args.PyTreeSave(tree | {"t": "text"}))
    return folder


@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize("ocdbt", [False, True])
def test_every_format_of_orbax(tmp_path: Path, ocdbt: bool, zarr3: bool):
    found = read_weights(saved(tmp_path / "# %41 ü", use_ocdbt=ocdbt, use_zarr3=zarr3))
    assert list(found) == ["a", "b/0/c", "b/1/k/x"]
    assert np.array_equal(found["a"], np.arange(6, dtype=np.float32).reshape(2, 3))
    assert found["b/0/c"].dtype == np.float64
    assert found["b/1/k/x"].shape == ()


@pytest.mark.parametrize("chunks", [[333_333_334, 3], [2**40, 2**20], [1, 1]])
def test_chunks_of_an_orbax_checkpoint_are_measured(tmp_path: Path, chunks: list[int], capfd):
    folder = saved(tmp_path / "tree", use_ocdbt=False)
    path = folder / "a" / ".zarray"
    described = json.loads(path.read_text()) | {"chunks": chunks, "compressor": None}
    if chunks == [1, 1]:
        described["shape"] = [10_000, 1_000]  # ten million files to look for
    path.write_text(json.dumps(described))
    with (folder / "a" / "0.0").open("wb") as file:
        file.truncate(2**30)  # no bytes on disk
    with pytest.raises(InputError, match=r"chunks of shape|claims to hold"):
        read_weights(folder)
    assert capfd.readouterr().err == ""


def test_a_checkpoint_is_read_from_its_own_files_only(tmp_path: Path):
    folder = saved(tmp_path / "tree", use_ocdbt=False)
    saved(tmp_path / "other", use_ocdbt=False)
    text = (folder / "_METADATA").read_text()
    (folder / "_METADATA").write_text(text.replace('"key": "a"', '"key": "../other/a"'))
    with pytest.raises(InputError, match="whole Orbax checkpoint"):
        read_weights(folder)
    (folder / "_METADATA").write_text(text)
    os.mkfifo(folder / "a" / "0.1")
    with pytest.raises(InputError, match="pipe"):
        read_weights(folder)


class Bomb:
    def __reduce__(self):
        return (Path("exploded").touch, ())


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return file.getvalue()


PICKLED = r"may be pickles, which run code when they are loaded, so they are not\..*weights_only"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, PICKLED) for name in ("w.pt", "w.pkl", "w.bin", "w.ckpt", "w", "w.npz", "w.h5")),
        ("w.msgpack", "is not a tree of arrays"),
        ("w.safetensors", "is not a complete safetensors file"),
    ],
)
@pytest.mark.parametrize("data", [pickle.dumps(Bomb()), zipped()])
def test_a_pickle_is_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str, data: bytes
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_weights(name)
    assert not Path("exploded").exists()


def packed(value: object) -> bytes:
    data = msgpack.packb(value)
    assert data is not None
    return data


def array_of(shape: object, dtype: object, values: bytes) -> bytes:
    return packed({"a": msgpack.ExtType(1, packed([shape, dtype, values]))})


SAFE = safetensors_bytes({"a": np.ones(3, np.float32)})


def pieces(**said: object) -> bytes:
    return packed({"a": {"__msgpack_chunked_array__": True, **said}})


def header(length: int = 0, kind: str = "F8_E5M2") -> bytes:
    shape = [1 if kind == "F32" else 4]
    text = json.dumps({"a": {"dtype": kind, "shape": shape, "data_offsets": [0, 4]}}).encode().ljust(length)
    return struct.pack("<Q", len(text)) + text + struct.pack("<f", 2.5)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("w.safetensors", b"", "is not a complete safetensors file"),
        ("w.safetensors", SAFE[:-1], "safetensors file"),
        ("w.safetensors", struct.pack("<Q", 2**62) + b"{}", "safetensors file"),
        ("w.safetensors", SAFE.replace(b"F32", b"F99"), "safetensors file"),
        ("w.safetensors", serialization.to_bytes(TREE), "is not a complete safetensors file"),
        ("w.msgpack", SAFE, "is not a tree of arrays"),
        ("w.txt", b"hello, world", "weights are a .safetensors file or a folder"),
        ("w.msgpack", b"\xff\xff", r"is not a tree of arrays as flax.serialization writes it \("),
        ("w.msgpack", b"\x81\xa1a" + b"\x91" * 5000 + b"\0", "is not a tree of arrays"),
        ("w.msgpack", packed({"a": msgpack.ExtType(7, b"")}), "a value of the unknown kind 7"),
        ("w.msgpack", array_of([3], b"O", b"x" * 24), "an array of type b'O'"),
        ("w.msgpack", pieces(shape={"0": 1}, chunks={"1": 1}), "in pieces without its piece '0'"),
        ("w.msgpack", array_of([2**40], b"float32", b"x" * 24), "is not a tree of arrays"),
        *(("w.msgpack", array_of([1], kind, b"x"), "is not a tree of arrays") for kind in (7, None, [b"f4"])),
        *(
            ("w.msgpack", packed({"n" * length: dict.fromkeys(map(str, range(50_000)))}), "names that are too long")
            for length in (100_000, 990)
        ),
        ("w.msgpack", packed({"a": None}), "no arrays; save the network's parameters"),
        ("w.safetensors", header(), "usual numbers .'F8_E5M2'.; save them as float32"),
        (
            "w.safetensors",
            safetensors_bytes({"a": np.array([1, np.nan, np.inf])}),
            "2 of the 3 numbers of a are NaN or infinite",
        ),
        (
            "w.msgpack",
            serialization.to_bytes({"a": {"b": jnp.array([jnp.nan], jnp.bfloat16)}}),
            "1 of the 1 numbers of a/b ",
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
    monkeypatch.setattr("jaxaudit.data.weights.MOST_VALUES", 100)
    for values in ([0] * 101, [[0] * 60, [0] * 60]):
        (tmp_path / "w.msgpack").write_bytes(packed({"a": values}))
        with pytest.raises(InputError, match="is not a tree of arrays"):
            read_weights(tmp_path / "w.msgpack")


def test_paths_that_are_no_weights(tmp_path: Path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text("{}")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"PK")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.msgpack")
    for name, message in (
        ("gone.safetensors", "No such file"),
        ("folder", "has no model.safetensors, no index of such files, and no _METADATA of Orbax"),
        ("pickled", r"may be pickles, .*save_pretrained"),
        ("pipe", "weights are"),
        ("pipe.msgpack", "pipe"),
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
