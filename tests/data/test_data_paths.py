"""Only regular files are opened; whatever a parser raises or prints is one line; bounds follow the machine."""

import logging
import os
import warnings
from pathlib import Path

import pytest

from jaxaudit.data.formats.bounded import header_line, open_bounded, read_exactly
from jaxaudit.data.formats.parsing import parsed, parsing
from jaxaudit.data.memory import MAX_BYTES, SHARE, memory_bytes
from jaxaudit.data.paths import entries, exists, expanded, open_data, regular_files
from jaxaudit.errors import LONGEST_MESSAGE, InputError


def test_a_regular_file_is_opened_also_through_a_link(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_data(tmp_path / name) as file:
            assert file.read() == b"content"


def test_nothing_else_is_opened_or_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("pipe", "link", "dangling", "circle", ".", "none", "a" * 5000, "a\0b", "../../../../../../dev/null"):
        with pytest.raises(InputError):
            open_data(tmp_path / name)
        with pytest.raises(InputError), open_bounded(tmp_path / name):
            pass


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    status = os.stat(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda *_, **__: status)
    with pytest.raises(InputError, match="pipe"):
        open_data(tmp_path / "pipe")


def test_files_below_a_folder(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"123")
    (tmp_path / "a" / "link").symlink_to("b/x")
    (tmp_path / "a" / "up").symlink_to("..")  # not walked into: it would never end
    with pytest.raises(InputError, match=r"up: cannot be read \(it is a folder"):
        list(regular_files(tmp_path))
    (tmp_path / "a" / "up").unlink()
    assert {(path.name, status.st_size) for path, status in regular_files(tmp_path)} == {("x", 3), ("link", 3)}
    (tmp_path / "a" / "dangling").symlink_to("nowhere")
    with pytest.raises(InputError, match="dangling"):
        list(regular_files(tmp_path))
    with pytest.raises(InputError, match="cannot be listed"):
        entries(tmp_path / "a" / "b" / "x")


def test_a_home_that_is_not_known(monkeypatch: pytest.MonkeyPatch):
    def unknown(_: object) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert expanded("~/data") == Path("~/data")


def test_what_can_be_no_path_does_not_exist(tmp_path: Path):
    assert exists(tmp_path)
    assert not exists(Path("a" * 5000))
    assert not exists(Path("a\0b"))


@pytest.mark.parametrize("error", [KeyError(3), StopIteration(), RecursionError("deep"), AssertionError(), OSError(5)])
def test_whatever_a_parser_raises_is_an_input_error(error: Exception):
    with pytest.raises(InputError, match=r"^a\.bin: is damaged \(.+\); save it again\.$"):  # noqa: SIM117
        with parsing("a.bin: is damaged", "save it again."):
            raise error
    with pytest.raises(InputError, match="memory"), parsing("a.bin: is damaged", "."):
        raise MemoryError
    with pytest.raises(KeyboardInterrupt), parsing("a.bin: is damaged", "."):
        raise KeyboardInterrupt


def test_a_parser_is_quiet_and_others_are_not(capfd: pytest.CaptureFixture[str]):
    logging.getLogger("test").setLevel(logging.INFO)
    with parsing("a", "."):
        warnings.warn("noise", RuntimeWarning, stacklevel=1)
        logging.getLogger("test").critical("noise")
        logging.getLogger("test.inner").error("noise")
    logging.getLogger("test").critical("sound")
    with pytest.warns(RuntimeWarning):
        warnings.warn("sound", RuntimeWarning, stacklevel=1)
    out, err = capfd.readouterr()
    assert "noise" not in out + err


def test_only_the_parser_of_pieces_is_within():
    def pieces():
        yield 1
        raise KeyError("broken")

    found = []
    with pytest.raises(InputError, match="broken"):
        found.extend(parsed(pieces, "a: is damaged", "save it again."))
    assert found == [1]
    with pytest.raises(ZeroDivisionError):
        next(piece / 0 for piece in parsed(pieces, "a", "."))


def test_a_message_is_one_line_and_bounded():
    message = str(InputError("a\nb\x1b[31m" + "x" * 10_000 + "; do this."))
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    assert message.endswith("; do this.")


def limited(root: Path, groups: str, **limits: str) -> int:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for place, limit in limits.items():
        path = root / "sys/fs/cgroup" / place.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit)
    return memory_bytes(root)


def test_memory_is_the_machines_or_its_groups(tmp_path: Path):
    machine = memory_bytes(tmp_path / "nowhere")
    assert machine > 2**28
    assert memory_bytes() // SHARE == MAX_BYTES
    assert limited(tmp_path / "a", "0::/job/step\n", job__memory_dot_max="1000\n", memory_dot_max="max\n") == 1000
    assert limited(tmp_path / "b", "0::/\n", memory_dot_max="max\n") == machine
    groups = "3:cpu:/x\n4:cpuset,memory:/outer/inner\n"
    assert limited(tmp_path / "c", groups, memory__memory_dot_limit_in_bytes="2000\n") == 2000
    assert limited(tmp_path / "d", "rubbish\n\n::\n") == machine


def test_exact_reading(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"12345")
    with open_data(tmp_path / "a") as file:
        assert read_exactly(file, 3).tobytes() == b"123"
        with pytest.raises(EOFError):
            read_exactly(file, 3)


def test_a_table_of_very_many_columns_is_not_parsed(tmp_path: Path):
    for line in (b"," * 10_000, b"x" * 2**20):
        (tmp_path / "a").write_bytes(line + b"\n")
        with open_bounded(tmp_path / "a") as stream, pytest.raises(InputError, match="first line"):
            header_line(stream, tmp_path / "a")
