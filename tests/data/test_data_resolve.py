"""What a person types, `NAME[@SPLIT]` -> the right data, or one line that says what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prepared_set import tiny_digits
from support.small_sets import TABLES, write_mnist

from jaxaudit.data import Examples, digits, load, load_table
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def _own_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


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
    part = load("digits@train[10:20]+train[:180]")
    np.testing.assert_array_equal(part.inputs, [*digits().inputs[10:20], *digits().inputs[:180]])
    assert part.name == "digits@train[10:20]+train[:180]"
    assert len(load("printed-digits@train[:30]")) == 30
    assert len(load("digits@all")) == len(digits())
    with pytest.raises(InputError, match="digits has no split 'test'; it has: train"):
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


def test_originals_need_neither_tensorflow_nor_network_and_win_over_a_prepared_set(data):
    write_mnist(data / "mnist")
    tiny_digits(data, name="mnist", version="3.0.1")
    assert len(load("mnist", data_dir=data)) == 7
    assert len(load("mnist@test", data_dir=data)) == 4
    assert load("mnist@test[:2]+train[4:7]", data_dir=data).labels.tolist() == [1, 2, 4, 5, 6]


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
    for name in (str(prepared.folder), usual, f"{usual}/plain", f"{usual}/plain:1.2.0"):
        np.testing.assert_array_equal(load(f"{name}@test", data_dir=data).inputs, prepared.images["test"])


def test_of_a_set_that_is_not_prepared_the_error_has_the_line_that_prepares_it(data):
    line = (
        r"{0} is not prepared here, .* tfds\.builder\('{0}', file_format='array_record'\)\.download_and_prepare\(\)\"\."
    )
    for name, folder, message in (
        ("mnist", data, rf" IDX files of such a set may lie in {data / 'mnist'}\."),
        ("mnist", None, r" IDX files of such a set may lie in a folder that JAXAUDIT_DATA names/mnist\."),
        ("cifar10", data, rf" IDX .* {data / 'cifar10'}\."),
    ):
        with pytest.raises(InputError, match=f"^{line.format(name)}{message}$"):
            load(name, data_dir=folder)


def test_an_unknown_name_lists_near_ones(data):
    _write_npz(data / "hospital_a.npz", 1)
    for typed, near in (("mnits", "mnist"), ("hospital_b", "hospital_a.npz")):
        here = rf"^'{typed}' is not a file or folder here or in {data}, not an embedded set \(digits, printed-digits\)"
        with pytest.raises(InputError, match=here) as caught:
            load(typed, data_dir=data)
        assert near in str(caught.value).partition("Did you mean ")[2].rstrip("?").split(", ")
    with pytest.raises(InputError, match=r"a data directory \(JAXAUDIT_DATA\).* Is it spelled right\?$"):
        load("zzzzzzzzzz.npz")


def test_a_bad_split_is_refused_before_anything_is_sought(data):
    for name, message in (
        ("mnist@train[5]", r"`train\[5\]` is not a split"),
        ("x" * 300 + "@train", r"x' is no"),
    ):
        with pytest.raises(InputError, match=message):
            load(name, data_dir=data)


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


def test_which_splits_are_meant(data):
    zeros, labels = np.zeros((2, 3)), np.arange(2)
    np.savez(data / "a.npz", x_test=zeros, y_test=labels, x_train=zeros, y_train=labels[::-1])
    np.savez(data / "b.npz", x_test=np.zeros((2, 3)), y_test=np.arange(2))
    for name, labels in (("a.npz", [1, 0]), ("a.npz@all", [0, 1, 1, 0]), ("a.npz@all[1:3]", [1, 1]), ("b.npz", [0, 1])):
        assert load(name, data_dir=data).labels.tolist() == labels
    for name in ("a.npz@train+tset", "b.npz@train"):
        with pytest.raises(InputError, match=r"has no split '(tset|train)'; it has"):
            load(name, data_dir=data)


@pytest.fixture
def tables(data):
    """A data directory with a little of every table."""
    for name, write in TABLES.items():
        (data / name).mkdir()
        write(data / name)
    return data


def test_records_come_in_the_order_asked_for(tables, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_DATA", str(tables))
    assert load_table("adult@test+train[:1]").values[:, 8].tolist() == [0, 0, 1]
    assert len(load_table("wine")) == 178
    assert (len(load_table("location")), load_table("adult@test").name) == (3, "adult@test")


def test_options_of_named_sets(tables):
    options: tuple[dict[str, Any], ...] = ({"label": "income"}, {"drop": ["race"]}, {"categorical": ["age"]})
    for option in options:
        with pytest.raises(InputError, match="is read as it is"):
            load_table("adult", data_dir=tables, **option)


def test_files_of_tables(data):
    here = Path.cwd()
    content = "a,b,income\n1,x,no\n2,y,yes\n3,x,no\n"
    (here / "people.csv").write_text(content)
    (data / "more.csv").write_text(content)
    (here / "odd@name.csv").write_text(content)
    for name in ("people.csv", str(here / "people.csv"), "more.csv", "odd@name.csv"):
        table = load_table(name, label="income", data_dir=data)
        assert table.values.tolist() == [[0, 0], [1, 1], [2, 0]]
        assert table.name == name
    part = load_table("people.csv@train[1:]", label="income")
    assert part.labels.tolist() == [1, 0]
    assert part.columns[0].categories == ("1", "2", "3")
    # A set's name means the set; a path says that a file is meant.
    (here / "wine").write_text(content)
    assert len(load_table("wine")) == 178
    assert len(load_table("./wine", label="income")) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adult", r"put UCI's adult\.data and adult\.test \(or \.gz\) into a folder DIR/adult"),
        ("adutl", r"known table \(breast-cancer"),
        (".", "is a folder; give a CSV or Parquet file or one of breast-cancer"),
        ("wine@test", "wine@test has no split 'test'; it has: train"),
    ],
)
def test_names_of_tables_that_are_refused(name, message):
    with pytest.raises(InputError, match=message) as raised:
        load_table(name)
    assert "\n" not in str(raised.value)


def test_tables_that_are_not_in_the_data_directory(tables):
    for folder in ("adult", "location"):
        for path in (tables / folder).iterdir():
            path.unlink()
        with pytest.raises(InputError, match=f"{folder}: .* into .*data.{folder}\\."):
            load_table(folder, data_dir=tables)
    with pytest.raises(InputError, match=r"'x.csv' .*data.* known table"):
        load_table("x.csv", data_dir=tables)
