"""Files read and written where others can put things, too; and what is told of where they lie."""

import os
import stat
from pathlib import Path

import pytest

from jaxaudit.data.regular_files import open_regular, whole_file
from jaxaudit.places import without_folders


def test_only_regular_files_are_read(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "channel")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"text"
    for name, links in (("channel", True), (".", True), ("gone", True), ("link", False), ("channel", False)):
        with pytest.raises(OSError):  # noqa: PT011
            open_regular(tmp_path / name, links=links)
    with pytest.raises(OSError, match="a device"):
        open_regular(Path(os.devnull))


@pytest.mark.parametrize("private", [True, False])
def test_a_file_is_written_whole_and_through_no_link(tmp_path: Path, private: bool):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "file").symlink_to("mine")
    before = os.umask(0o022)
    try:
        with whole_file(tmp_path / "file", private=private) as file:
            file.write(b"text")
            (draft,) = set(os.listdir(tmp_path)) - {"mine", "file"}
            assert (tmp_path / "file").read_text() == "mine"
    finally:
        os.umask(before)
    assert draft.startswith(".writing-")
    assert (tmp_path / "mine").read_text() == "mine"
    found = (tmp_path / "file").lstat().st_mode
    assert stat.S_ISREG(found)
    assert found & 0o777 == (0o600 if private else 0o644)
    assert sorted(os.listdir(tmp_path)) == ["file", "mine"]


@pytest.mark.parametrize("stop", [OSError("disk full"), KeyboardInterrupt()])
def test_of_a_file_that_could_not_be_written_nothing_is_left(tmp_path: Path, stop: BaseException):
    (tmp_path / "file").write_text("before")

    def write() -> None:
        with whole_file(tmp_path / "file") as file:
            file.write(b"half")
            raise stop

    with pytest.raises(type(stop)):
        write()
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "before"


def test_a_path_below_the_working_directory_is_told_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    for text, told in (
        (f"{here}/data/q.npz:0.5", "data/q.npz:0.5"),
        (f"a={here}/q.npz", "a=q.npz"),
        (here, "."),
        ("/", "/"),
        ("~", "~"),
        ("/x/mynets.py:f", "mynets.py:f"),
        ("C:\\Users\\me\\q.npz", "q.npz"),
        ("package.module:factory", "package.module:factory"),
        ("512,256", "512,256"),
    ):
        assert without_folders(text) == told
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert without_folders(f"{here}/data/q.npz") == "q.npz"
