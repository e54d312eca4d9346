"""What a person types -> the right data, or one line that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.prepared_set import tiny_digits

import jaxaudit.data.resolve as resolve_module
import jaxaudit.data.tfds.prepare as prepare_module
from jaxaudit.data import Examples, digits, load, load_tfds
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    """No data directory, no home and no current folder but those of the test."""
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for variable in ("JAXAUDIT_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def no_tensorflow(monkeypatch):
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: False)


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def _write_npz(path: Path, value: int, records: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=np.full((records, 4, 4), value, np.uint8), labels=np.arange(records) % 2)


def _mean(examples: Examples) -> float:
    return float(examples.inputs.mean())


def test_embedded_names(data):
    found = load("digits", data_dir=data)
    assert (found.name, found.content_hash) == ("digits", digits().content_hash)
    part = load("digits@train[10:20]+train[:10%]")
    np.testing.assert_array_equal(part.inputs, [*digits().inputs[10:20], *digits().inputs[:180]])
    assert part.name == "digits@train[10:20]+train[:10%]"
    assert len(load("printed-digits@train[:30]")) == 30


def test_an_embedded_set_has_no_test_split():
    with pytest.raises(InputError, match="digits has no split `test`; it has: train, all"):
        load("digits@test")


def test_an_embedded_name_wins_over_a_file_of_that_name_and_a_path_over_the_data_directory(data):
    _write_npz(Path("digits"), 1)
    assert len(load("digits")) == 1797
    _write_npz(data / "set.npz", 2)
    assert _mean(load("set.npz", data_dir=data)) == 2
    _write_npz(Path("set.npz"), 3)
    assert _mean(load("set.npz", data_dir=data)) == 3


def test_a_path_may_hold_an_at_sign():
    _write_npz(Path("a@b.npz"), 4)
    assert _mean(load("a@b.npz")) == 4
    found = load("a@b.npz@all[2:5]")
    assert (len(found), found.name) == (3, "a@b.npz@all[2:5]")


def test_the_home_folder_is_written_as_usual(tmp_path):
    _write_npz(tmp_path / "home" / "mine.npz", 5)
    assert _mean(load("~/mine.npz")) == 5


def test_the_data_directory_comes_from_the_argument_or_the_environment(data, tmp_path, monkeypatch):
    _write_npz(tmp_path / "other" / "set.npz", 6)
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path / "other"))
    assert _mean(load("set.npz")) == 6
    _write_npz(data / "set.npz", 7)
    assert _mean(load("set.npz", data_dir=data)) == 7


def _write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def _write_mnist(folder: Path) -> None:
    for split, count in [("train", 12), ("t10k", 5)]:
        _write_idx(folder / f"{split}-images-idx3-ubyte", np.arange(count * 784).reshape(count, 28, 28) % 251)
        _write_idx(folder / f"{split}-labels-idx1-ubyte", np.arange(count) % 10)


@pytest.mark.usefixtures("no_tensorflow")
def test_mnist_needs_neither_tensorflow_nor_network_with_its_files_in_the_data_directory(data):
    _write_mnist(data / "mnist")
    assert len(load("mnist", data_dir=data)) == 12
    assert len(load("mnist@test", data_dir=data)) == 5
    assert load("mnist@test[:2]+train[-3:]", data_dir=data).labels.tolist() == [0, 1, 9, 0, 1]


def test_prepared_sets_are_found_in_each_of_the_three_places(data, tmp_path, monkeypatch):
    places = [data, tmp_path / "tfds", tmp_path / "home" / "tensorflow_datasets"]
    monkeypatch.setenv("TFDS_DATA_DIR", str(places[1]))
    for seed, place in reversed(list(enumerate(places))):  # the last is looked at last
        prepared = tiny_digits(place, seed=seed)
        found = load("tiny_digits@test", data_dir=data)
        np.testing.assert_array_equal(found.inputs, prepared.images["test"])
        assert found.name == "tiny_digits@test"


def test_a_prepared_set_is_found_by_its_folder_its_version_and_its_config(data):
    prepared = tiny_digits(data, config="plain", version="1.2.0")
    for name in [
        str(prepared.folder),
        "tiny_digits",
        "tiny_digits/plain",
        "tiny_digits/plain:1.2.0",
        "tfds:tiny_digits",
    ]:
        np.testing.assert_array_equal(load(f"{name}@test", data_dir=data).inputs, prepared.images["test"])


def test_originals_win_over_the_prepared_set_beside_them_unless_tfds_is_asked_for(data):
    _write_mnist(data / "mnist")
    prepared = tiny_digits(data, name="mnist", version="3.0.1")
    assert load("mnist", data_dir=data).inputs.shape == (12, 28, 28)
    np.testing.assert_array_equal(load("tfds:mnist", data_dir=data).inputs, prepared.images["train"])
    np.testing.assert_array_equal(load_tfds("mnist", "test", data).inputs, prepared.images["test"])


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize("given", [True, False])
def test_without_tensorflow_the_error_says_what_to_install_and_which_files_go_where(data, given):
    files = (
        "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz"
    )
    where = f"in {data / 'mnist'}." if given else "in a folder DIR/mnist and set JAXAUDIT_DATA=DIR."
    with pytest.raises(InputError) as caught:
        load("mnist", data_dir=data if given else None)
    assert str(caught.value) == (
        "mnist is not prepared here, and preparing it needs TensorFlow: run pip install 'jaxaudit[prepare]', "
        f"or put {files} {where}"
    )


@pytest.mark.usefixtures("no_tensorflow")
def test_files_are_not_proposed_where_they_would_not_help(data):
    with pytest.raises(InputError, match=r"needs TensorFlow: run pip install 'jaxaudit\[prepare\]'\.$"):
        load("cifar10@test", data_dir=data)


@pytest.mark.usefixtures("no_tensorflow")
def test_an_empty_folder_left_by_a_failed_preparation_is_no_set(data):
    (data / "cifar10").mkdir()
    with pytest.raises(InputError, match="cifar10 is not prepared here"):
        load("cifar10", data_dir=data)


@pytest.mark.usefixtures("no_tensorflow")
def test_a_folder_that_cannot_be_read_is_named_with_the_way_round_it(data):
    (data / "cifar10").mkdir()
    (data / "cifar10" / "notes.txt").write_text("nothing here")
    with pytest.raises(InputError, match=r"cifar10: .*\(For the set of TensorFlow Datasets write tfds:cifar10\.\)"):
        load("cifar10", data_dir=data)
    (data / "mine").mkdir()
    with pytest.raises(InputError, match=r"mine: (?!.*tfds)"):
        load("mine/", data_dir=data)


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("mnits", "mnist"),
        ("MNIST", "mnist"),
        ("digit", "digits"),
        ("hospital_b", "hospital_a.npz"),
        ("svhn-cropped", "svhn_cropped"),
    ],
)
def test_an_unknown_name_lists_near_ones(data, typed, near):
    _write_npz(data / "hospital_a.npz", 1)
    with pytest.raises(InputError) as caught:
        load(typed, data_dir=data)
    message = str(caught.value)
    assert message.startswith(
        f"`{typed}` is not a file or folder here or in {data}, not an embedded set (digits, printed-digits)"
    )
    assert "\n" not in message
    assert near in message.partition("Did you mean ")[2].rstrip("?").split(", ")


def test_an_unknown_name_without_a_data_directory_says_how_to_give_one():
    with pytest.raises(InputError, match=r"none is set: --data-dir or JAXAUDIT_DATA.* Is it spelled right\?$"):
        load("zzzzzzzzzz.npz")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", "tfds:a\0b", "~nobody-of-that-name/x", "two\nlines"])
@pytest.mark.parametrize("with_folder", [True, False])
def test_what_can_be_no_file_name_is_unknown_too(data, name, with_folder):
    with pytest.raises(InputError, match="file or folder here") as caught:
        load(name, data_dir=data if with_folder else None)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600


def test_a_split_of_a_long_name(data):
    with pytest.raises(InputError, match=r"x\.\.\.` is no"):
        load("x" * 300 + "@train", data_dir=data)


def test_a_bad_split_is_refused_before_anything_is_prepared(data, monkeypatch):
    monkeypatch.setattr(resolve_module, "prepare", lambda *_: pytest.fail("prepared"))
    with pytest.raises(InputError, match=r"`train\[5\]` is not a split"):
        load("mnist@train[5]", data_dir=data)


@pytest.mark.outer
def test_importing_the_data_room_is_light():
    code = (
        "import sys, jaxaudit.data; "
        "heavy = {'jax', 'tensorflow', 'tensorflow_datasets', 'sklearn', 'scipy', 'pandas', 'pyarrow', 'PIL'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_data_folder_that_no_disk_can_have_is_no_failure():
    with pytest.raises(InputError, match="not a file or folder"):
        load("nowhere", data_dir=Path("0" * 5000))
