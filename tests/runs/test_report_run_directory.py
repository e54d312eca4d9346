"""A run on disk: whole or not at all."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from jaxaudit.errors import InputError
from jaxaudit.runs import directory as run_directory
from jaxaudit.runs.directory import arrays, claim, is_of_a_run, write
from jaxaudit.runs.lock import refuse_in_use
from jaxaudit.runs.unfinished import open_unfinished

ARRAYS = {"query": np.ones((2, 3), np.float32)}
FILES = {"confidences.npz": arrays(ARRAYS)}


def test_written_whole(tmp_path: Path):
    """An empty directory may be given; to claim it changes nothing."""
    claim(tmp_path / "a/b/run")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="Out of range float values"):
        write(tmp_path / "run", {"rho": float("nan")}, FILES)
    assert os.listdir(tmp_path) == []
    (tmp_path / "c").mkdir()
    for place in ("a/b/run", "c"):
        write(tmp_path / place, {"answer": 1}, FILES)
        assert sorted(os.listdir(tmp_path / place)) == ["confidences.npz", "result.json"]
        assert json.loads((tmp_path / place / "result.json").read_text()) == {"answer": 1}
        with np.load(tmp_path / place / "confidences.npz", allow_pickle=False) as archive:
            np.testing.assert_array_equal(archive["query"], ARRAYS["query"])
    assert os.listdir(tmp_path / "a/b") == ["run"]
    assert all(map(is_of_a_run, ("result.json", "RESULT.JSON", "records.csv", "unfinished", "original-00.safetensors")))
    assert not is_of_a_run("report.html")


def test_whose_records_are_at_risk_is_for_the_owner_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        work = open_unfinished(tmp_path / "a/run/unfinished", IDENTITY)
        work.keep()
        modes = {path.name: path.stat().st_mode & 0o777 for path in work.directory.iterdir()}
        assert modes == {"identity.json": 0o600, "lock": 0o600, "owner": 0o600}
        write(tmp_path / "a/run", {}, FILES, "a table")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*")}
    assert modes == {"run": 0o700, "result.json": 0o600, "confidences.npz": 0o600, "table.txt": 0o600}


def test_a_link_leads_to_what_it_points_to(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    for name in ("disk", "new"):
        (tmp_path / f"to {name}").symlink_to(name, target_is_directory=True)
        write(tmp_path / f"to {name}", {}, FILES)
        assert (tmp_path / f"to {name}").is_symlink()
        assert (tmp_path / name / "result.json").exists()


def test_the_longest_name_there_can_be(tmp_path: Path):
    write(tmp_path / ("x" * 255), {}, FILES)
    with pytest.raises(InputError, match=r"^--out .*xxx .*File name too long"):
        claim(tmp_path / ("x" * 256))


@pytest.mark.parametrize(
    ("stop", "becomes"), [(OSError(28, "disk full"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_nothing_is_left_of_a_write_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException, becomes: type[BaseException]
):
    def fail(*_, **__):
        assert len(os.listdir(tmp_path)) == 1
        raise stop

    monkeypatch.setattr("numpy.savez_compressed", fail)
    with pytest.raises(becomes):
        write(tmp_path / "run", {}, FILES)
    assert os.listdir(tmp_path) == []


def test_another_run_is_left_alone(tmp_path: Path):
    write(tmp_path / "run", {"answer": 1}, FILES)
    for attempt in (claim, lambda out: write(out, {"answer": 2}, {})):
        with pytest.raises(InputError, match=r"^--out .*run .*another run"):
            attempt(tmp_path / "run")
    assert json.loads((tmp_path / "run/result.json").read_text()) == {"answer": 1}


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (".", "other files"),
        ("file", "file is a file"),
        ("file/deeper/run", "deeper/run .*file is a file"),
        ("fixed", "fixed is not writable"),
        ("fixed/a/run", "fixed is not writable"),
        *((f"{name}/run", "other files") for name in ("file-as", "link-as", "another")),
    ],
)
def test_where_no_run_can_be_put(tmp_path: Path, out: str, message: str):
    """Bits that forbid to write count for root, too; and a file, a link or others' files as `unfinished`."""
    (tmp_path / "file").touch()
    (tmp_path / "fixed").mkdir(mode=0o555)
    for name in ("file-as/run", "link-as/run", "another/run/unfinished"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file-as/run/unfinished").touch()
    (tmp_path / "link-as/run/unfinished").symlink_to(tmp_path)
    (tmp_path / "another/run/unfinished/symphony.ly").touch()
    with pytest.raises(InputError, match=rf"^--out .*{message}"):
        claim(tmp_path / out)


IDENTITY = {name: {} for name in ("command", "options", "data", "code", "machine")}


def test_unfinished_work_gives_way_to_the_result(tmp_path: Path):
    work = open_unfinished(tmp_path / "run/unfinished", IDENTITY)
    work.checkpoints.mkdir()
    work.keep()
    claim(tmp_path / "run")
    write(tmp_path / "run", {"answer": 1}, FILES)
    assert sorted(os.listdir(tmp_path / "run")) == ["confidences.npz", "result.json"]


def test_who_sees_the_result_sees_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    move = os.replace

    def watched(draft: Path, place: Path) -> None:
        move(draft, place)
        seen.append(sorted(os.listdir(tmp_path / "run")))

    monkeypatch.setattr(run_directory.os, "replace", watched)
    write(tmp_path / "run", {}, FILES)
    assert seen == [["confidences.npz", "unfinished"], ["confidences.npz", "result.json", "unfinished"]]


@pytest.mark.parametrize("moved", [0, 1])
def test_a_write_that_failed_leaves_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int):
    open_unfinished(tmp_path / "run/unfinished", IDENTITY).keep()
    before, calls, move = sorted(tmp_path.rglob("*")), [], os.replace

    def full(*paths: Path) -> None:
        calls.append(paths)
        if len(calls) > moved:
            raise OSError(28, "disk full")
        move(*paths)

    monkeypatch.setattr(run_directory.os, "replace", full)
    with pytest.raises(InputError, match=r"^--out .*disk full"):
        write(tmp_path / "run", {}, FILES)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.undo()
    write(tmp_path / "run", {}, FILES)


def test_a_run_killed_while_its_result_was_moved_may_be_taken_up(tmp_path: Path):
    open_unfinished(tmp_path / "unfinished", IDENTITY).keep()
    (tmp_path / "confidences.npz").touch()
    claim(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"^--out .*other files"):
        claim(tmp_path)


@pytest.mark.parametrize("name", ["lock", "owner", "identity.json", ".writing-result.json", "chunks"])
def test_no_link_in_unfinished_work_is_followed(tmp_path: Path, name: str):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    place = tmp_path / "run/unfinished"
    place.mkdir(parents=True)
    if name == "identity.json":  # nor is a channel waited for
        os.mkfifo(place / name)
        with pytest.raises(InputError, match=r"^--out .*other files"):
            claim(tmp_path / "run")
        with pytest.raises(OSError, match="pipe"):
            open_unfinished(place, IDENTITY)
        (place / name).unlink()
    (place / name).symlink_to(mine)
    with pytest.raises(InputError, match=r"^--out .*other files"):
        claim(tmp_path / "run")
    if name == "chunks":
        return
    # As where it was put there afterwards. A link in place of `owner` is replaced.
    with pytest.raises((InputError, OSError)) if name in ("lock", "identity.json") else nullcontext():
        open_unfinished(place, IDENTITY).keep()
    refuse_in_use(place)
    assert mine.read_text() == "mine"


def test_a_loop_of_links_and_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"^--out "):
        write(tmp_path / "loop/run", {}, FILES)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InputError, match=r"^--out "):
        claim(Path("run"))


def test_a_run_in_use_is_refused(tmp_path: Path):
    work = open_unfinished(tmp_path / "run/unfinished", IDENTITY)
    try:
        with pytest.raises(InputError, match=rf"^--out .*run .*\(pid {os.getpid()}\)"):
            claim(tmp_path / "run")
    finally:
        work.keep()
    claim(tmp_path / "run")
