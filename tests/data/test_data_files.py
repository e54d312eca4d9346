"""A path -> records: .npz, .npy, labels from elsewhere, and what is no data at all."""

import os

import numpy as np
import pytest

from jaxaudit.data import load_path
from jaxaudit.errors import InputError

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
Y = np.array([0, 1, 2, 1])


@pytest.mark.parametrize(
    "names",
    [
        ("x", "y"),
        ("images", "labels"),
        ("x_train", "y_train"),
        ("train_images", "train_labels"),
        ("val-data", "val-target"),
        ("X-train", "Labels-train"),
    ],
)
def test_usual_names(tmp_path, names):
    np.savez(
        tmp_path / "hospital_b.npz",
        **{
            names[0]: X,
            names[1]: Y,
            "index_in_train": np.zeros(3),
            "note": "hi",
            "train_test_x": X,
            "x_y": Y,
            "train": X,
        },
    )
    examples = load_path(tmp_path / "hospital_b.npz")
    assert examples.name == "hospital_b.npz"
    assert examples.inputs.dtype == np.uint8
    np.testing.assert_array_equal(examples.inputs, X)
    np.testing.assert_array_equal(examples.labels, Y)
    assert examples.class_names == ("0", "1", "2")


def test_splits_of_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=X, y_train=Y, x_test=X[:1] + 100, y_test=Y[1:2], x_val=X[:1] + 50, y_val=Y[:1])
    assert len(load_path(path)) == 4
    test = load_path(path, split="test")
    assert test.inputs[0, 0, 0] == 100
    # Though it has one label, it counts the classes of all splits.
    assert test.class_names == ("0", "1", "2")
    assert load_path(path, split="val").inputs[0, 0, 0] == 50
    both = load_path(path, split="all")
    assert both.labels.tolist() == [0, 1, 2, 1, 1, 0]
    with pytest.raises(InputError, match=r"a.npz: has no split 'extra'; it has train, test, validation"):
        load_path(path, split="extra")
    np.savez(path, x_test=X, y_test=Y, x_val=X, y_val=Y)
    with pytest.raises(InputError, match="has several splits and none is train; name one of test, validation, or all"):
        load_path(path)


def test_class_names(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y, class_names=["cat", "dog", "emu", "fox"])
    assert load_path(path).class_names == ("cat", "dog", "emu", "fox")
    for bad in ({"y": np.array([b"dog", b"cat", b"dog", b"cat"])}, {"y": Y % 2, "class_names": [b"dog", b"cat"]}):
        np.savez(path, allow_pickle=False, x=X, **bad)
        with pytest.raises(InputError, match="text"):
            load_path(path)
    np.savez(path, x=X, y=Y[:, None])
    assert load_path(path).labels.tolist() == Y.tolist()
    np.savez(path, x=X, y=Y, class_names=["cat", "cat", "dog"])
    with pytest.raises(InputError, match=r"a\.npz\[class_names\]: class names must be"):
        load_path(path)


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
    examples = load_path(tmp_path / "a.npz")
    assert examples.inputs.dtype == dtype
    np.testing.assert_array_equal(examples.inputs, inputs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": X, "b": Y}, r"found no inputs and labels among 'a', 'b'; name them x and y"),
        ({"x": X}, "'x' has no labels beside it; add them under the matching name"),
        ({"x": X, "images": X, "y": Y}, "'x' and 'images' could both be the inputs; keep one"),
        ({"x": X, "y": Y[:3]}, r"4 inputs but int32 labels of shape \(3,\)"),
        ({"x": X[:0], "y": Y[:0]}, "there are no labels"),
        ({"x": Y, "y": Y}, r"inputs are int64 of shape \(4,\); give numbers of shape"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": np.eye(3)[Y]}, r"labels have shapes \(4,\), \(4, 3\)"),
        ({"x": np.full((4, 2), 1e300), "y": Y}, "NaN or infinite"),
        *(({"x": np.zeros(shape, np.uint8), "y": Y}, "shape") for shape in ((4, 0), (4, 0, 3), (4, 3, 0))),
    ],
)
def test_refused_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_path(tmp_path / "a.npz")


def test_refused_files(tmp_path, monkeypatch):
    (tmp_path / "l.json").write_text("[]")
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, 300), np.uint8), y=Y)
    np.save(tmp_path / "x.npy", X)
    cases = [
        (tmp_path / "none.npz", r"none.npz: there is no such file or folder"),
        (tmp_path / "l.json", r"known kind; give \.npz, \.csv, \.parquet, a folder"),
        (tmp_path / "x.npy", r"a folder with x\.npy and y\.npy"),
        (tmp_path / "wide.npz", "as float32: takes"),
    ]
    for refused, message in cases:
        if refused.name == "wide.npz":
            monkeypatch.setattr("jaxaudit.data.files.MAX_BYTES", 4000)
        with pytest.raises(InputError, match=message):
            load_path(refused)


def test_of_data_files_in_a_folder_some_are_named(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"is no data set \(notes\.txt\)"):
        load_path(tmp_path)
    for k in range(9):
        np.savez(tmp_path / f"{k}{'long' * 50}.npz", x=X, y=Y)
    with pytest.raises(InputError, match="name one file in it") as caught:
        load_path(tmp_path)
    assert str(caught.value).count("long") < 60


def test_true_and_false_are_features(tmp_path):
    """As `pandas.get_dummies` has them since its version 2."""
    (tmp_path / "a.csv").write_text("a,ill,city_Ulm,label\n1,True,false,x\n3,False,true,y\n")
    assert load_path(tmp_path / "a.csv").inputs.tolist() == [[1, 1, 0], [3, 0, 1]]
    (tmp_path / "a.csv").write_text("a,ill,label\n1,True,x\n3,no,y\n")
    assert load_path(tmp_path / "a.csv").titles[1] == "ill (0)"


@pytest.mark.parametrize("name", ["x_train.npy", "train-images-idx3-ubyte", "a.csv", "a.npz"])
def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    np.save(tmp_path / "y_train.npy", Y)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError):
            load_path(path)
