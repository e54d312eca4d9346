"""Decoded arrays on disk: built once, and never trusted when damaged."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.memory import at_most

from jaxaudit.data import cache_dir, cached_arrays, cached_rows, is_private

SHAPES = {"images": (40,), "labels": (40,)}


def kept() -> Path:
    """The one file of the cache."""
    (path,) = cache_dir().iterdir()
    return path


def _arrays() -> dict[str, np.ndarray]:
    return {"images": np.arange(4000, dtype=np.uint8).reshape(40, 100), "labels": np.arange(40, dtype=np.int32)}


def _never() -> dict[str, np.ndarray]:
    raise AssertionError("built again although it is cached")


def _assert_same(found: dict[str, np.ndarray]) -> None:
    expected = _arrays()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_second_call_reads_what_the_first_left():
    _assert_same(cached_arrays("set 1.0.0", _arrays, SHAPES))
    _assert_same(cached_arrays("set 1.0.0", _never, SHAPES))
    assert kept().name.startswith("set-1-0-0-")
    # The same readable start, so that only the digest tells them apart.
    assert cached_arrays("set/1.0.0", lambda: {"x": np.zeros(3)}, {"x": (3,)}).keys() == {"x"}
    _assert_same(cached_arrays("set 1.0.0", _never, SHAPES))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(bytes(range(200, 210)), bytes(10), 1)),
        lambda path: np.savez(path, images=np.array([{"a": 1}], dtype=object)),
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(b"no archive at all"),
        lambda path: np.savez(path, images=np.zeros((41, 100), np.uint8), labels=np.zeros(40, np.int32)),
        lambda path: np.savez(path, images=np.zeros((40, 100), np.uint8)),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["bytes", "pickle", "cut short", "text", "another shape", "one array", "pipe"],
)
def test_a_damaged_entry_is_built_anew(damage):
    cached_arrays("key", _arrays, SHAPES)
    damage(kept())
    _assert_same(cached_arrays("key", _arrays, SHAPES))
    _assert_same(cached_arrays("key", _never, SHAPES))


def test_a_file_that_unpacks_to_much_is_built_anew():
    """An array of the expected shape: nobody but this package writes here, and it packs nothing."""
    cached_arrays("key", _arrays, SHAPES)
    np.savez_compressed(kept(), images=np.zeros((40, 1 << 22), np.uint8), labels=np.zeros(40, np.int32))
    with at_most(100 << 20):
        _assert_same(cached_arrays("key", _arrays, SHAPES))


def test_the_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "some" / "cache"))
    before = os.umask(0)
    try:
        cached_arrays("key", _arrays, SHAPES)
    finally:
        os.umask(before)
    assert (tmp_path / "some" / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o775, 0o702, 0o1777])
def test_what_others_may_have_put_there_is_not_read(mode: int):
    cached_arrays("key", lambda: {name: 0 * array for name, array in _arrays().items()}, SHAPES)
    place = cache_dir()
    place.chmod(mode)
    with pytest.warns(RuntimeWarning, match="others may write there"):
        _assert_same(cached_arrays("key", _arrays, SHAPES))
    place.chmod(0o700)


def test_nothing_is_pickled_and_nothing_half_written_stays():
    with pytest.warns(RuntimeWarning, match="Object arrays cannot be saved"):
        cached_arrays("key", lambda: {"bad": np.array([{}], dtype=object)}, {"bad": ()})
    assert list(cache_dir().iterdir()) == []


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.delenv("JAXAUDIT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir().is_relative_to(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg/jaxaudit"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXAUDIT_CACHE", "mine")
    assert cache_dir() == Path("mine")


@pytest.mark.parametrize("place", ["~/.cache/jaxaudit", RuntimeError("Could not determine home directory.")])
def test_without_a_home_nothing_is_kept(monkeypatch, place):
    """In a container whose user is a bare number."""

    def unknown(*_: object, **__: object) -> str:
        if isinstance(place, Exception):
            raise place
        return place

    monkeypatch.delenv("JAXAUDIT_CACHE", raising=False)
    monkeypatch.setattr("jaxaudit.data.cache.user_cache_dir", unknown)
    assert not cache_dir().exists()
    with pytest.warns(RuntimeWarning, match="set JAXAUDIT_CACHE"):
        _assert_same(cached_arrays("key", _arrays, SHAPES))


@pytest.mark.parametrize("taken", ["open", "file", "link", "others"])
def test_a_folder_that_others_could_have_put_files_in_is_not_private(tmp_path, monkeypatch, taken):
    folder = tmp_path / "taken"
    assert is_private(tmp_path / "new")
    if taken == "file":
        folder.write_text("")
    elif taken == "link":
        folder.symlink_to("new")
    else:
        folder.mkdir(0o700)
        folder.chmod(0o770 if taken == "open" else 0o700)
    if taken == "others":
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert not is_private(folder)


def test_rows_are_made_once_and_damaged_ones_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path))
    asked: list[list[int]] = []

    def build(indices: np.ndarray) -> Iterator[dict[int, np.ndarray]]:
        asked.append(indices.tolist())
        yield {index: np.full(2, 10.0 * index) for index in indices.tolist()}

    assert cached_rows("rows", [b"aa", b"b\0", b"aa"], 2, build)[:, 0].tolist() == [20, 10, 20]
    assert cached_rows("rows", [b"b\0", b"cc"], 2, build)[:, 1].tolist() == [10, 10]
    assert cached_rows("rows", [b"cc", b"aa"], 2, build)[:, 1].tolist() == [10, 20]
    assert asked == [[2, 1], [1]]
    assert cached_rows("rows", [], 2, build).shape == (0, 2)
    # A file of other columns, or no file of arrays at all, is made anew.
    assert cached_rows("rows", [b"aa"], 3, lambda indices: [{0: np.ones(3)}]).tolist() == [[1, 1, 1]]
    kept().write_bytes(b"not an archive")
    assert cached_rows("rows", [b"aa"], 2, build).tolist() == [[0, 0]]


def test_rows_that_were_made_before_a_stop_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also those of a process that ends without a word: each file stands while the next rows are made."""
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path))
    digests, asked, files = [b"aa", b"bb", b"cc"], list[list[int]](), list[bytes]()

    def build(indices: np.ndarray) -> Iterator[dict[int, np.ndarray]]:
        asked.append(indices.tolist())
        yield {}
        for index in indices.tolist():
            yield {index: np.full(1, float(index))}
            files.append(b"".join(path.read_bytes() for path in cache_dir().iterdir()))
            if index == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr("jaxaudit.data.cache.PAUSE", 0)
    with pytest.raises(KeyboardInterrupt):
        cached_rows("rows", digests, 1, build)
    assert kept().read_bytes() == files[1] != files[0]
    kept().write_bytes(files[0])
    with pytest.raises(KeyboardInterrupt):
        cached_rows("rows", digests, 1, build)
    # However long the pause: a stop is not an end of the process.
    monkeypatch.setattr("jaxaudit.data.cache.PAUSE", 1e9)
    kept().unlink()
    with pytest.raises(KeyboardInterrupt):
        cached_rows("rows", digests, 1, build)
    assert cached_rows("rows", digests, 1, build).tolist() == [[0], [1], [2]]
    assert asked == [[0, 1, 2], [1, 2], [0, 1, 2], [2]]
