"""What a person types -> the right data, or one line that says what to do."""

from pathlib import Path

import numpy as np
import pytest
from support.prepared_set import tiny_digits
from support.small_sets import write_mnist

import jaxaudit.data.resolve as resolve_module
import jaxaudit.data.tfds.prepare as prepare_module
from jaxaudit.data import Examples, digits, load, load_tfds
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def _own_current_folder(tmp_path, monkeypatch):
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
    with pytest.raises(InputError, match="digits has no split `test`; it has: train, all"):
        load("digits@test")


def test_an_embedded_name_wins_over_a_file_of_that_name_and_a_path_over_the_data_directory(data):
    _write_npz(Path("digits"), 1)
    assert len(load("digits")) == 1797
    _write_npz(data / "set.npz", 2)
    assert _mean(load("set.npz", data_dir=data)) == 2
    _write_npz(Path("set.npz"), 3)
    assert _mean(load("set.npz", data_dir=data)) == 3
    _write_npz(Path("a@b.npz"), 4)
    assert _mean(load("a@b.npz")) == 4
    found = load("a@b.npz@all[2:5]")
    assert (len(found), found.name) == (3, "a@b.npz@all[2:5]")


def test_the_data_directory_comes_from_the_argument_or_the_environment(data, tmp_path, monkeypatch):
    _write_npz(tmp_path / "other" / "set.npz", 6)
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path / "other"))
    assert _mean(load("set.npz")) == 6
    _write_npz(data / "set.npz", 7)
    assert _mean(load("set.npz", data_dir=data)) == 7
    _write_npz(tmp_path / "home" / "mine.npz", 5)
    assert _mean(load("~/mine.npz")) == 5


@pytest.mark.usefixtures("no_tensorflow")
def test_originals_need_neither_tensorflow_nor_network_and_win_over_a_prepared_set(data):
    write_mnist(data / "mnist")
    prepared = tiny_digits(data, name="mnist", version="3.0.1")
    assert len(load("mnist", data_dir=data)) == 7
    assert len(load("mnist@test", data_dir=data)) == 4
    assert load("mnist@test[:2]+train[-3:]", data_dir=data).labels.tolist() == [1, 2, 4, 5, 6]
    # Unless TensorFlow Datasets is asked for.
    np.testing.assert_array_equal(load("tfds:mnist", data_dir=data).inputs, prepared.images["train"])
    np.testing.assert_array_equal(load_tfds("mnist", "test", data).inputs, prepared.images["test"])


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
    usual = "tiny_digits"
    for name in (str(prepared.folder), usual, f"{usual}/plain", f"{usual}/plain:1.2.0", f"tfds:{usual}"):
        np.testing.assert_array_equal(load(f"{name}@test", data_dir=data).inputs, prepared.images["test"])


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_the_error_says_what_to_install_and_which_files_go_where(data):
    """Files only where they would help; an empty folder that a failed preparation left is no set."""
    (data / "cifar10").mkdir()
    install = r"{} is not prepared here, and preparing it needs TensorFlow: run pip install 'jaxaudit\[prepare\]'"
    put = r", or put train-images-idx3-ubyte\.gz, .*t10k-labels-idx1-ubyte\.gz in "
    for name, folder, message in (
        ("mnist", data, rf"{put}{data / 'mnist'}\."),
        ("mnist", None, rf"{put}a folder DIR/mnist and set JAXAUDIT_DATA=DIR\."),
        ("cifar10", data, r"\."),
    ):
        with pytest.raises(InputError, match=f"^{install.format(name)}{message}$"):
            load(name, data_dir=folder)


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
        ("hospital_b", "hospital_a.npz"),
    ],
)
def test_an_unknown_name_lists_near_ones(data, typed, near):
    _write_npz(data / "hospital_a.npz", 1)
    here = rf"^`{typed}` is not a file or folder here or in {data}, not an embedded set \(digits, printed-digits\)"
    with pytest.raises(InputError, match=here) as caught:
        load(typed, data_dir=data)
    assert near in str(caught.value).partition("Did you mean ")[2].rstrip("?").split(", ")
    with pytest.raises(InputError, match=r"none is set: --data-dir or JAXAUDIT_DATA.* Is it spelled right\?$"):
        load("zzzzzzzzzz.npz")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", "tfds:a\0b", "~nobody-of-that-name/x", "two\nlines"])
def test_what_can_be_no_file_name_is_unknown_too(data, name):
    for folder in (data, None, Path("0" * 5000)):
        with pytest.raises(InputError, match="file or folder here") as caught:
            load(name, data_dir=folder)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600 or folder not in (data, None)


def test_a_bad_split_is_refused_before_anything_is_prepared(data, monkeypatch):
    monkeypatch.setattr(resolve_module, "prepare", lambda *_: pytest.fail("prepared"))
    for name, message in (
        ("mnist@train[5]", r"`train\[5\]` is not a split"),
        ("x" * 300 + "@train", r"x\.\.\.` is no"),
    ):
        with pytest.raises(InputError, match=message):
            load(name, data_dir=data)
