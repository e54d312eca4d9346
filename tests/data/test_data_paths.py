"""Only regular files are read, whole, whoever writes meanwhile; what a parser raises is one line; memory is bounded."""

import json
import os
import stat
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from support.banks import describe, rows, save, write_bank

import jaxaudit as ja
from jaxaudit.data import (
    MAX_BYTES,
    NpzArrays,
    StoredArray,
    entries,
    file_hash,
    load,
    load_bank,
    load_scores,
    memory_bytes,
    open_data,
    open_records,
    open_regular,
    parsing,
    read_npy,
    read_texts,
    regular_files,
    whole_file,
)
from jaxaudit.errors import LONGEST_MESSAGE, InputError, without_folders


def test_nothing_else_is_opened_or_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("pipe", "link", "dangling", "circle", ".", "none", "a" * 5000, "a\0b", "../../../../../../dev/null"):
        with pytest.raises(InputError):
            open_data(tmp_path / name)
        with pytest.raises(InputError):
            read_texts(tmp_path / name)
    with pytest.raises(OSError, match="a device"):
        open_regular(Path(os.devnull))
    (tmp_path / "file").write_text("text")
    (tmp_path / "good").symlink_to("file")
    with open_regular(tmp_path / "good") as file:
        assert file.read() == b"text"
    with pytest.raises(OSError):  # noqa: PT011
        open_regular(tmp_path / "good", links=False)


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    status = os.stat(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda *_, **__: status)
    with pytest.raises(InputError, match="pipe"):
        open_data(tmp_path / "pipe")


@pytest.mark.parametrize("error", [KeyError(3), StopIteration(), RecursionError("deep"), AssertionError(), OSError(5)])
def test_whatever_a_parser_raises_is_an_input_error(error: Exception):
    with pytest.raises(InputError, match=r"^a\.bin: is damaged \(.+\); save it again\.$"):  # noqa: SIM117
        with parsing("a.bin: is damaged", "save it again."):
            raise error
    with pytest.raises(InputError, match="memory"), parsing("a.bin: is damaged", "."):
        raise MemoryError
    with pytest.raises(KeyboardInterrupt), parsing("a.bin: is damaged", "."):
        raise KeyboardInterrupt


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
    assert memory_bytes() // 4 == MAX_BYTES
    assert limited(tmp_path / "a", "0::/job/step\n", job__memory_dot_max="1000\n", memory_dot_max="max\n") == 1000
    assert limited(tmp_path / "b", "0::/\n", memory_dot_max="max\n") == machine
    groups = "3:cpu:/x\n4:cpuset,memory:/outer/inner\n"
    assert limited(tmp_path / "c", groups, memory__memory_dot_limit_in_bytes="2000\n") == 2000
    assert limited(tmp_path / "d", "rubbish\n\n::\n") == machine


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
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    told = {
        f"{here}/data/q.npz:0.5": "data/q.npz:0.5",
        f"a={here}/q.npz": "a=q.npz",
        here: ".",
        "C:\\Users\\me\\q.npz": "q.npz",
        **{text: text for text in ("/", "~", "package.module:factory", "512,256")},
        "/x/mynets.py:f": "mynets.py:f",
    }
    assert {text: without_folders(text) for text in told} == told
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert without_folders(f"{here}/data/q.npz") == "q.npz"


def large_bank(folder: Path, records: int) -> Path:
    """A bank of 6 models, whose files are longer than a page of memory."""
    write_bank(folder, 0)
    counts = {"query": records // 2, "holdout": records // 4, "calibration": records // 4}
    (folder / "bank.json").write_text(json.dumps(describe(records=records, counts=counts)))
    np.save(folder / "labels.npy", np.arange(records) % 3)
    np.save(folder / "membership.npy", np.random.default_rng(1).random((6, records)) < 0.5)
    for model in range(3):
        save(folder, model, np.random.default_rng(model).normal(size=(records, 3)).astype(np.float32))
    return folder


@pytest.mark.parametrize("what", ["membership.npy", "outputs/00001.npy", "x.npy"])
def test_a_file_that_is_cut_short_after_it_was_opened_ends_no_process(tmp_path: Path, what: str):
    """If it were mapped, a signal would end this one."""
    if what == "x.npy":
        np.save(tmp_path / "x.npy", np.zeros((10_000, 4), np.float32))
        np.save(tmp_path / "y.npy", np.zeros(10_000, int))
        opened = open_records(tmp_path)
        assert opened is not None
        read = lambda: opened.inputs[5000:5004]  # noqa: E731
    else:
        bank = load_bank(large_bank(tmp_path, 40_000))
        read = lambda: ja.open_bank(bank)  # noqa: E731
    os.truncate(tmp_path / what, 200)
    # What was read when the bank was opened is read no more.
    read_later = what in ("outputs/00001.npy", "x.npy")
    with pytest.raises(InputError, match="short") if read_later else nullcontext():
        read()


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_read_as_numpy_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str):
    """Of an array that is stored column by column some rows only where memory has room for all."""
    for shape in ((7,), (7, 3), (7, 2, 5), (0, 3), (7, 2, 3, 4)):
        array = np.asarray(np.random.default_rng(2).normal(size=shape).astype(">f4"), order=order)  # pyright: ignore
        np.save(tmp_path / "a.npy", array)
        stored = StoredArray(tmp_path / "a.npy")
        assert (stored.shape, stored.dtype, stored.nbytes) == (array.shape, array.dtype, array.nbytes)
        for span in (slice(None), slice(2, 5), slice(6, 7), slice(5, 90), slice(3, 3), slice(5, 2), slice(-2, None)):
            np.testing.assert_array_equal(stored[span], array[span])
    if order == "F":
        monkeypatch.setattr("jaxaudit.data.formats.arrays.MAX_BYTES", stored.nbytes - 1)
        with pytest.raises(InputError, match=r"save numpy\.ascontiguousarray"):
            stored[2:5]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_written_since_it_was_opened_is_not_mixed(tmp_path: Path, replaced: bool):
    """Nor one that another replaced, even of the same size and time."""
    path, other = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(path, rows())
    stored = StoredArray(path)
    np.testing.assert_array_equal(stored[1:2], rows()[1:2])
    np.save(other, ~rows())
    if replaced:
        os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        other.replace(path)
    else:
        path.write_bytes(other.read_bytes())
        os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="was written while it was read"):
        stored[:]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="only Linux has a file that cannot be read")
@pytest.mark.parametrize("read", [load, load_scores, read_texts, file_hash, NpzArrays, read_npy])
def test_what_the_file_system_fails_at_is_the_users_error(tmp_path: Path, read) -> None:
    """A regular file that can be opened, and whose first byte cannot be read: input/output error."""
    path = tmp_path / "a.csv"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(InputError, match=r"cannot be read|not a readable"):
        read(path)


@pytest.mark.parametrize(("point", "order"), [(0x110000, "<"), (0xFFFFFFFF, ">"), (0xD800, "<")])
def test_text_of_an_array_is_of_characters(tmp_path: Path, point: int, order: str) -> None:
    """NumPy stores any number as a character, and its functions of text fail on those that are none."""
    text = np.array([point, 65, 0, 65, 66, 67], f"{order}u4").view(f"{order}U3")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.arange(2), who=text)
    np.save(tmp_path / "a.npy", text)
    for read in (lambda: NpzArrays(tmp_path / "a.npz").read("who"), lambda: read_npy(tmp_path / "a.npy")):
        with pytest.raises(InputError, match="no characters"):
            read()
    np.save(tmp_path / "a.npy", np.array(["\U0010ffff", "a\ue000"], f"{order}U3"))
    assert read_npy(tmp_path / "a.npy").tolist() == ["\U0010ffff", "a\ue000"]


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
