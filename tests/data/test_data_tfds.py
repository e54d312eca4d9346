"""The names of TensorFlow Datasets sets, and where prepared ones lie."""

import os
from pathlib import Path

import pytest
from support.prepared_set import tiny_digits

from jaxaudit.data.tfds.tfds import SetName, find_prepared, parse_set_name, set_folders
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def _no_data_directory(monkeypatch):
    for variable in ("JAXAUDIT_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist", SetName("mnist", None, None)),
        ("mnist:3.0.1", SetName("mnist", None, "3.0.1")),
        ("emnist/letters", SetName("emnist", "letters", None)),
        ("a/b-c.d:1.2.3", SetName("a", "b-c.d", "1.2.3")),
        ("huggingface:mnist", None),
        ("../etc", None),
        ("a/b/c", None),
        ("x.npz", None),
    ],
)
def test_what_is_a_tfds_name(text, expected):
    assert parse_set_name(text) == expected


def test_the_newest_version_is_found_and_an_older_one_by_name(tmp_path):
    older = tiny_digits(tmp_path, version="1.9.0")
    newer = tiny_digits(tmp_path, version="1.10.0")
    assert find_prepared(SetName("tiny_digits", None, None), (tmp_path,)) == newer.folder
    assert find_prepared(SetName("tiny_digits", None, "1.9.0"), (tmp_path,)) == older.folder
    assert find_prepared(SetName("tiny_digits", None, "2.0.0"), (tmp_path,)) is None
    assert find_prepared(SetName("tiny_digits", "letters", None), (tmp_path,)) is None
    assert find_prepared(SetName("tiny", None, None), (tmp_path, tmp_path / "absent")) is None


def test_the_first_folder_that_has_it_is_taken(tmp_path):
    far, near = tiny_digits(tmp_path / "far"), tiny_digits(tmp_path / "near")
    name = SetName("tiny_digits", None, None)
    assert find_prepared(name, (tmp_path / "near", tmp_path / "far")) == near.folder
    assert find_prepared(name, (tmp_path / "absent", tmp_path / "far")) == far.folder


def test_which_config_is_meant(tmp_path):
    name = SetName("tiny_digits", None, None)
    small = tiny_digits(tmp_path, config="small")
    assert find_prepared(name, (tmp_path,)) == small.folder
    large = tiny_digits(tmp_path, config="large")
    assert find_prepared(SetName("tiny_digits", "large", "1.0.0"), (tmp_path,)) == large.folder
    with pytest.raises(InputError, match="several configs; name one: tiny_digits/large, tiny_digits/small"):
        find_prepared(name, (tmp_path,))
    default = tmp_path / "tiny_digits" / ".config"
    default.mkdir()
    (default / "metadata.json").write_text('{"default_config_name": "small"}')
    assert find_prepared(name, (tmp_path,)) == small.folder
    (default / "metadata.json").write_text('{"default_config_name": "not prepared here"}')
    assert find_prepared(name, (tmp_path,)) is None


def test_where_prepared_sets_are_looked_for(tmp_path, monkeypatch):
    home = Path("~/tensorflow_datasets").expanduser()
    assert set_folders(None) == (home,)
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    assert set_folders(None) == (tmp_path / "data", tmp_path / "tfds", home)
    assert set_folders(tmp_path / "given") == (tmp_path / "given", tmp_path / "tfds", home)


def test_where_no_home_is_known_its_folder_is_not_looked_in(tmp_path, monkeypatch):
    def unknown(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert set_folders(None) == ()
    assert set_folders(tmp_path) == (tmp_path,)


def test_what_tfds_noted_may_be_anything(tmp_path):
    tiny_digits(tmp_path, config="small")
    place = tmp_path / "tiny_digits" / ".config" / "metadata.json"
    place.parent.mkdir()
    for content in ("[]", "{", "[" * 10_000, "3", '{"default_config_name": ["a"]}'):
        place.write_text(content)
        find_prepared(SetName("tiny_digits", None, None), (tmp_path,))
    place.unlink()
    os.mkfifo(place)
    assert find_prepared(SetName("tiny_digits", None, None), (tmp_path,)) is not None
