"""What a person types, a path or `NAME[@SPLIT]` -> the right data, or one line that says what to do."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prepared_set import tiny_digits
from support.small_sets import write_mnist

from jaxaudit.data import Examples, digits, load, load_table
from jaxaudit.errors import InputError

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
Y = np.array([0, 1, 2, 1])


@pytest.mark.parametrize(
    "names", [("x", "y"), ("train_images", "train_labels"), ("val-data", "val-target"), ("X-train", "Labels-train")]
)
def test_usual_names(tmp_path, names):
    others = {"index_in_train": np.zeros(3), "note": "hi", "train_test_x": X, "x_y": Y, "train": X}
    np.savez(tmp_path / "hospital_b.npz", **{names[0]: X, names[1]: Y, **others})
    examples = load(f"{tmp_path / 'hospital_b.npz'}")
    assert examples.name == "hospital_b.npz"
    assert examples.inputs.dtype == np.uint8
    np.testing.assert_array_equal(examples.inputs, X)
    np.testing.assert_array_equal(examples.labels, Y)
    assert examples.class_names == ("0", "1", "2")


def test_splits_of_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=X, y_train=Y, x_test=X[:1] + 100, y_test=Y[1:2], x_val=X[:1] + 50, y_val=Y[:1])
    assert len(load(str(path))) == 4
    test = load(f"{path}@test")
    assert test.inputs[0, 0, 0] == 100
    # Though it has one label, it counts the classes of all splits.
    assert test.class_names == ("0", "1", "2")
    assert load(f"{path}@val").inputs[0, 0, 0] == 50
    both = load(f"{path}@all")
    assert both.labels.tolist() == [0, 1, 2, 1, 1, 0]
    with pytest.raises(InputError, match=r"a.npz: has no split 'extra'; it has train, test, validation"):
        load(f"{path}@extra")
    np.savez(path, x_test=X, y_test=Y, x_val=X, y_val=Y)
    with pytest.raises(InputError, match="has several splits and none is train; name one of test, validation, or all"):
        load(str(path))


def test_class_names(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y, class_names=["cat", "dog", "emu", "fox"])
    assert load(str(path)).class_names == ("cat", "dog", "emu", "fox")
    for bad in ({"y": np.array([b"dog", b"cat", b"dog", b"cat"])}, {"y": Y % 2, "class_names": [b"dog", b"cat"]}):
        np.savez(path, allow_pickle=False, x=X, **bad)
        with pytest.raises(InputError, match="text"):
            load(str(path))
    np.savez(path, x=X, y=Y[:, None])
    assert load(str(path)).labels.tolist() == Y.tolist()
    np.savez(path, x=X, y=Y, class_names=["cat", "cat", "dog"])
    with pytest.raises(InputError, match=r"a\.npz\[class_names\]: class names must be"):
        load(str(path))


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        (X.astype(np.int64), np.uint8),
        (X.astype(np.int64) * 100, np.float32),
        (X > 3, np.float32),
        (np.asfortranarray(X), np.uint8),
    ],
)
def test_types_of_inputs(tmp_path, inputs, dtype):
    np.savez(tmp_path / "a.npz", x=inputs, y=Y)
    examples = load(f"{tmp_path / 'a.npz'}")
    assert examples.inputs.dtype == dtype
    np.testing.assert_array_equal(examples.inputs, inputs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": X, "b": Y}, r"found no inputs and labels among 'a', 'b'; name them x and y"),
        ({"x": X}, "'x' has no labels beside it; add them under the matching name"),
        ({"x": X, "images": X, "y": Y}, "'x' and 'images' could both be the inputs; keep one"),
        ({"x": X, "y": Y[:3]}, r"4 inputs but int32 labels of shape \(3,\)"),
        ({"x": Y, "y": Y}, r"inputs are int64 of shape \(4,\); give numbers of shape"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": np.eye(3)[Y]}, r"labels have shapes \(4,\), \(4, 3\)"),
        ({"x": np.full((4, 2), 1e300), "y": Y}, "NaN or infinite"),
        *(({"x": np.zeros(shape, np.uint8), "y": Y}, "shape") for shape in ((4, 0), (4, 0, 3), (4, 3, 0))),
    ],
)
def test_refused_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load(f"{tmp_path / 'a.npz'}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.npz", r"none.npz' is not a file or folder here"),
        ("l.json", r"known kind; give \.npz, \.csv, \.parquet, a folder"),
        ("x.npy", r"a folder with x\.npy and y\.npy"),
        ("wide.npz", "as float32: takes"),
    ],
)
def test_refused_files(tmp_path, monkeypatch, name, message):
    (tmp_path / "l.json").write_text("[]")
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, 300), np.uint8), y=Y)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("jaxaudit.data.files.MAX_BYTES", 4000)
    with pytest.raises(InputError, match=message):
        load(str(tmp_path / name))


def test_of_data_files_in_a_folder_some_are_named(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"is no data set \(notes\.txt\)"):
        load(str(tmp_path))
    for k in range(9):
        np.savez(tmp_path / f"{k}{'long' * 50}.npz", x=X, y=Y)
    with pytest.raises(InputError, match="name one file in it") as caught:
        load(str(tmp_path))
    assert str(caught.value).count("long") < 60


@pytest.mark.parametrize("name", ["x_train.npy", "train-images-idx3-ubyte", "a.csv", "a.npz"])
def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    np.save(tmp_path / "y_train.npy", Y)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError):
            load(str(path))


@pytest.fixture(autouse=True)
def _own_current_folder(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("JAXAUDIT_DATA", str(folder))
    return folder


def _write_npz(path: Path, value: int, records: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=np.full((records, 4, 4), value, np.uint8), labels=np.arange(records) % 2)


def _mean(examples: Examples) -> float:
    return float(examples.inputs.mean())


def test_embedded_names():
    found = load("digits")
    assert (found.name, found.content_hash) == ("digits", digits().content_hash)
    part = load("digits@train[10:20]+train[:180]")
    np.testing.assert_array_equal(part.inputs, [*digits().inputs[10:20], *digits().inputs[:180]])
    assert part.name == "digits@train[10:20]+train[:180]"
    assert len(load("digits@all")) == len(digits())
    with pytest.raises(InputError, match="digits has no split 'test'; it has: train"):
        load("digits@test")


def test_an_embedded_name_wins_over_a_file_of_that_name_and_a_path_over_the_data_directory(data, tmp_path):
    _write_npz(Path("digits"), 1)
    assert len(load("digits")) == 1797
    _write_npz(data / "set.npz", 2)
    assert _mean(load("set.npz")) == 2
    _write_npz(Path("set.npz"), 3)
    assert _mean(load("set.npz")) == 3
    _write_npz(Path("a@b.npz"), 4)
    assert _mean(load("a@b.npz")) == 4
    found = load("a@b.npz@all[2:5]")
    assert (len(found), found.name) == (3, "a@b.npz@all[2:5]")
    _write_npz(tmp_path / "home" / "mine.npz", 5)
    assert _mean(load("~/mine.npz")) == 5


def test_originals_need_neither_tensorflow_nor_network_and_win_over_a_prepared_set(data):
    write_mnist(data / "mnist")
    tiny_digits(data, name="mnist", version="3.0.1")
    assert len(load("mnist")) == 7
    assert len(load("mnist@test")) == 4
    assert load("mnist@test[:2]+train[4:7]").labels.tolist() == [1, 2, 4, 5, 6]


def test_prepared_sets_are_found_in_each_of_the_three_places(data, tmp_path, monkeypatch):
    places = [data, tmp_path / "tfds", tmp_path / "home" / "tensorflow_datasets"]
    monkeypatch.setenv("TFDS_DATA_DIR", str(places[1]))
    for seed, place in reversed(list(enumerate(places))):  # the last is looked at last
        prepared = tiny_digits(place, seed=seed)
        found = load("tiny_digits@test")
        np.testing.assert_array_equal(found.inputs, prepared.images["test"])
        assert found.name == "tiny_digits@test"


def test_of_a_set_that_is_not_prepared_the_error_has_the_line_that_prepares_it(data, monkeypatch):
    line = r"mnist is not prepared here, .* tfds\.builder\('mnist', .*\)\.download_and_prepare\(\)\"\. IDX files of .*"
    for folder, place in ((data, data / "mnist"), ("", "a folder that JAXAUDIT_DATA names/mnist")):
        monkeypatch.setenv("JAXAUDIT_DATA", str(folder))
        with pytest.raises(InputError, match=rf"^{line} may lie in {place}\.$"):
            load("mnist")


def test_an_unknown_name_lists_near_ones(data, monkeypatch):
    _write_npz(data / "hospital_a.npz", 1)
    for typed, near in (("mnits", "mnist"), ("hospital_b", "hospital_a.npz")):
        here = rf"^'{typed}' is not a file or folder here or in {data}, not an embedded set \(digits\)"
        with pytest.raises(InputError, match=here) as caught:
            load(typed)
        assert near in str(caught.value).partition("Did you mean ")[2].rstrip("?").split(", ")
    monkeypatch.delenv("JAXAUDIT_DATA")
    with pytest.raises(InputError, match=r"a data directory \(JAXAUDIT_DATA\).* Is it spelled right\?$"):
        load("zzzzzzzzzz.npz")


@pytest.mark.parametrize("wrong", ["@x", "mnist@", "a@b.npz@train[:5]@", "@", " @train"])
def test_something_stands_on_both_sides_of_the_last_at_sign(wrong):
    with pytest.raises(InputError, match="is not NAME or NAME@SPLIT"):
        load(wrong)


@given(start=st.integers(0, 40), stop=st.integers(0, 40))
def test_a_slice_selects_what_python_selects_or_is_refused(start, stop):
    name = f"breast-cancer@train[{540 + start}:{540 + stop}]"
    if start < stop <= 29:
        whole = load_table("breast-cancer")
        np.testing.assert_array_equal(load_table(name).values, whole.values[540 + start : 540 + stop])
    else:
        with pytest.raises(InputError, match=r"`train.*` selects none of the 569 records"):
            load_table(name)


@pytest.mark.parametrize(
    "text",
    [
        *("train[", "train[5]", "train[:1:2]", "train[a:]", "[:5]", "train+", "a b", "train[:1.5]", "train[-3:]"),
        *(f"train[:{'9' * 5000}]", "train[:10%]", "train [:5]"),
    ],
)
def test_what_is_no_split_is_refused(text):
    with pytest.raises(InputError, match=r"is not a split; write a split or a slice of one \(train, train\[:1000\]"):
        load(f"digits@{text}")


@pytest.mark.parametrize("argument", [{"label": "y"}, {"drop": ["y"]}])
def test_names_of_columns_are_of_tables(tmp_path, argument):
    np.savez(tmp_path / "arrays.npz", x=X, y=Y)
    with pytest.raises(InputError, match=f"arrays.npz: has no named columns, so `{next(iter(argument))}`"):
        load(tmp_path / "arrays.npz", **argument)


def test_options_of_named_sets():
    options: tuple[dict[str, Any], ...] = ({"label": "income"}, {"drop": ["alcohol"]}, {"categorical": ["hue"]})
    for option in options:
        with pytest.raises(InputError, match="is read as it is"):
            load_table("wine", **option)
    assert len(load_table("wine@train[:2]+train[4:]")) == 176


def test_files_of_tables(data):
    here = Path.cwd()
    content = "a,b,income\n1,x,no\n2,y,yes\n3,x,no\n"
    (here / "people.csv").write_text(content)
    (data / "more.csv").write_text(content)
    (here / "odd@name.csv").write_text(content)
    for name in ("people.csv", str(here / "people.csv"), "more.csv", "odd@name.csv"):
        table = load_table(name, label="income")
        assert table.values.tolist() == [[0, 0], [1, 1], [2, 0]]
        assert table.name == name
    part = load_table("people.csv@train[1:]", label="income")
    assert part.labels.tolist() == [1, 0]
    assert part.columns[0].categories == ("1", "2", "3")
    assert load("people.csv@train[:1]+train[2:]", label="income").titles == load("people.csv", label="income").titles
    # A set's name means the set; a path says that a file is meant.
    (here / "wine").write_text(content)
    assert len(load_table("wine")) == 178
    assert len(load_table("./wine", label="income")) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wien", r"known table \(breast-cancer"),
        (".", "is a folder; give a CSV or Parquet file or one of breast-cancer"),
        ("wine@test", "wine@test has no split 'test'; it has: train"),
    ],
)
def test_names_of_tables_that_are_refused(name, message):
    with pytest.raises(InputError, match=message) as raised:
        load_table(name)
    assert "\n" not in str(raised.value)
