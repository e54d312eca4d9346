"""A run on disk, whole or not at all; unfinished work: whose it is, who is at it, and what becomes of it."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from filelock import FileLock

from jaxaudit.ensemble.concurrency import threads
from jaxaudit.errors import InputError
from jaxaudit.runs import (
    arrays,
    claim,
    is_of_a_run,
    is_unfinished,
    machine_facts,
    open_unfinished,
    refuse_in_use,
    run_identity,
    write,
)
from jaxaudit.runs import directory as run_directory

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
        assert modes == {"identity.json": 0o600, "lock": 0o600}
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


@pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")
def test_a_directory_that_was_there_is_for_the_owner_alone(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    tmp_path.chmod(0o755)
    write(tmp_path / "run", {"answer": 1}, FILES)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path):
    """Who owns it may replace every file in it."""
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", 12345, 12345)
    for attempt in (claim, lambda out: write(out, {"answer": 1}, FILES)):
        with pytest.raises(InputError, match=r"^`directory` .*another user"):
            attempt(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_another_run_is_left_alone(tmp_path: Path):
    write(tmp_path / "run", {"answer": 1}, FILES)
    for attempt in (claim, lambda out: write(out, {"answer": 2}, {})):
        with pytest.raises(InputError, match=r"^`directory` .*run .*another run"):
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
    with pytest.raises(InputError, match=rf"^`directory` .*{message}"):
        claim(tmp_path / out)


IDENTITY = {name: {} for name in ("command", "options", "data", "code", "machine")}


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
    with pytest.raises(InputError, match=r"^`directory` .*disk full"):
        write(tmp_path / "run", {}, FILES)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.undo()
    write(tmp_path / "run", {}, FILES)


def test_a_run_killed_while_its_result_was_moved_may_be_taken_up(tmp_path: Path):
    open_unfinished(tmp_path / "unfinished", IDENTITY).keep()
    (tmp_path / "confidences.npz").touch()
    claim(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"^`directory` .*other files"):
        claim(tmp_path)


@pytest.mark.parametrize("name", ["lock", "identity.json", ".writing-result.json", "chunks"])
def test_no_link_in_unfinished_work_is_followed(tmp_path: Path, name: str):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    place = tmp_path / "run/unfinished"
    place.mkdir(parents=True)
    if name == "identity.json":  # nor is a channel waited for
        os.mkfifo(place / name)
        with pytest.raises(InputError, match=r"^`directory` .*other files"):
            claim(tmp_path / "run")
        with pytest.raises(OSError, match="pipe"):
            open_unfinished(place, IDENTITY)
        (place / name).unlink()
    (place / name).symlink_to(mine)
    with pytest.raises(InputError, match=r"^`directory` .*other files"):
        claim(tmp_path / "run")
    if name == "chunks":
        return
    # As where it was put there afterwards.
    with pytest.raises((InputError, OSError)) if name in ("lock", "identity.json") else nullcontext():
        open_unfinished(place, IDENTITY).keep()
    refuse_in_use(place)
    assert mine.read_text() == "mine"


SELF = run_identity("ks", {"epochs": 15, "target": ["a.npy"], "width": None}, {"query": "blake2b:1"}, {"model": None})


def changed(section: str, **facts: Any) -> dict[str, dict[str, Any]]:
    return {**SELF, section: {**SELF[section], **facts}}


def test_the_same_run_goes_on_with_its_chunks(tmp_path: Path):
    work = open_unfinished(tmp_path / "a/run/unfinished", SELF)
    assert work.checkpoints == tmp_path / "a/run/unfinished/chunks"
    work.checkpoints.mkdir()
    (work.checkpoints / "one").touch()
    work.keep()
    again = open_unfinished(tmp_path / "a/run/unfinished", SELF)
    assert os.listdir(again.checkpoints) == ["one"]
    assert is_unfinished(again.directory)
    again.remove()
    # What the first one made, the first one would have removed.
    assert os.listdir(tmp_path / "a/run") == []


def test_what_was_made_for_it_goes_with_it(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine/disk/deep", target_is_directory=True)
    for place in ("mine/a/b", "link"):
        work = open_unfinished(tmp_path / place / "unfinished", SELF)
        assert (work.directory / "identity.json").exists()
        work.remove()
        assert os.listdir(tmp_path / "mine") == []
    work = open_unfinished(tmp_path / "mine/a/b/unfinished", SELF)
    (tmp_path / "mine/a/result").touch()
    work.remove()
    assert os.listdir(tmp_path / "mine/a") == ["result"]


@pytest.mark.parametrize(
    ("there", "facts"),
    [
        (changed("command", command="pdtp"), ["command: pdtp", "ks"]),
        (changed("options", epochs=20, width=8), ["epochs: 20", "15", "width: 8", "none"]),
        (changed("options", extra="x" * 999), [f"extra: {'x' * 190}...)"]),
        (changed("data", query="blake2b:0"), ["query: blake2b:0", "blake2b:1"]),
        (changed("code", jaxaudit="0.0"), ["jaxaudit: 0.0"]),
        (changed("machine", devices=9), ["devices: 9"]),
        ({}, ["command: none", "epochs: none", "query: none", "jaxaudit: none", "devices: none"]),
        ({**SELF, "options": 3}, ["epochs: none", "15", "target: none", "a.npy"]),
    ],
)
def test_another_run_is_refused_and_named(tmp_path: Path, there: dict[str, Any], facts: list[str]):
    open_unfinished(tmp_path / "run/unfinished", SELF).keep()
    (tmp_path / "run/unfinished/identity.json").write_text(json.dumps(there))
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(InputError, match=f"^`directory` .*run .*{'.*'.join(map(re.escape, facts))}"):
        open_unfinished(tmp_path / "run/unfinished", SELF)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_damaged_identity_is_refused(tmp_path: Path):
    """Without one, as where a process was killed before it was written, the work is begun anew."""
    open_unfinished(tmp_path / "run/unfinished", SELF).keep()
    (tmp_path / "run/unfinished/chunks").mkdir()
    identity = tmp_path / "run/unfinished/identity.json"
    for text in ("", "{", "[1]", "null", "\xff", "[" * 100_000):
        identity.write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match=r"^`directory` .*run .*identity\.json"):
            open_unfinished(tmp_path / "run/unfinished", SELF)
    identity.unlink()
    open_unfinished(tmp_path / "run/unfinished", SELF).keep()
    assert sorted(os.listdir(tmp_path / "run/unfinished")) == ["identity.json", "lock"]


def test_only_one_at_a_time(tmp_path: Path):
    work = open_unfinished(tmp_path / "run/unfinished", SELF)
    for attempt in (lambda: open_unfinished(work.directory, SELF), lambda: claim(tmp_path / "run")):
        with pytest.raises(InputError, match=r"^`directory` .*run is in use"):
            attempt()
    work.keep()
    refuse_in_use(work.directory)
    open_unfinished(work.directory, SELF).remove()
    refuse_in_use(work.directory)


@pytest.mark.outer
def test_a_process_that_is_killed_lets_go(tmp_path: Path):
    holder = "from pathlib import Path; from jaxaudit.runs.unfinished import hold; import sys, time; "
    holder += "lock = hold(Path(sys.argv[1])); print(flush=True); time.sleep(300)"
    work = open_unfinished(tmp_path / "run/unfinished", SELF)
    work.keep()
    with subprocess.Popen([sys.executable, "-c", holder, str(work.directory)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"\n"
            with pytest.raises(InputError, match="in use"):
                open_unfinished(work.directory, SELF)
        finally:
            process.send_signal(signal.SIGKILL)
    open_unfinished(work.directory, SELF).remove()
    assert os.listdir(tmp_path / "run") == []


def test_work_removed_while_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The lock of a file that is gone locks nothing: the other makes a new one."""
    work = open_unfinished(tmp_path / "run/unfinished", SELF)
    acquire = FileLock.acquire

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(FileLock, "acquire", acquire)
        work.remove()
        return acquire(*arguments, **options)

    monkeypatch.setattr(FileLock, "acquire", late)
    other = open_unfinished(tmp_path / "run/unfinished", SELF)
    with pytest.raises(InputError):
        refuse_in_use(tmp_path / "run/unfinished")
    other.remove()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_failure(tmp_path: Path, code: int):
    with mock.patch.object(FileLock, "acquire", side_effect=OSError(code, os.strerror(code))):
        work = open_unfinished(tmp_path / "run/unfinished", SELF)
        assert work.lock is None
        refuse_in_use(work.directory)
        work.remove()
    assert os.listdir(tmp_path) == []


def test_the_machine_is_what_rounding_depends_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dummy")
    facts = machine_facts()
    assert facts["device"] == "cpu: cpu"
    assert facts["devices"] == 1
    assert facts["threads"] == threads()
    assert {"processor", "jax", "jaxlib", "numpy"} <= set(facts)
    assert facts["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert facts["XLA_FLAGS"] == "--xla_dummy"
    assert "JAX_COMPILATION_CACHE_DIR" not in facts
    monkeypatch.delenv("XLA_FLAGS")
    assert "XLA_FLAGS" not in machine_facts()
    # XLA cuts large products by the number of its threads.
    monkeypatch.setenv("NPROC", str(threads() + 1))
    assert machine_facts() != facts
    assert machine_facts()["threads"] == facts["threads"] + 1


def test_a_loop_of_links_and_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"^`directory` "):
        write(tmp_path / "loop/run", {}, FILES)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InputError, match=r"^`directory` "):
        claim(Path("run"))


def test_who_sees_the_result_sees_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    move = os.replace

    def watched(draft: Path, place: Path) -> None:
        move(draft, place)
        seen.append(sorted(os.listdir(tmp_path / "run")))

    monkeypatch.setattr(run_directory.os, "replace", watched)
    write(tmp_path / "run", {}, FILES)
    assert seen == [["confidences.npz", "unfinished"], ["confidences.npz", "result.json", "unfinished"]]
