"""Compiled programs that commands keep: the same numbers, in every state of the folder."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib.version
import pytest
from support.cli_runs import QUICK, Done, write_sets

from jaxaudit.cli import programs

pytestmark = pytest.mark.skipif(jaxlib.version.__version_info__ < programs.SILENT, reason="this jaxlib keeps none")
WORDS = ("ks", *QUICK, "--json")
COUNTED = """
import atexit, collections, sys
import jax
counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rpartition("/")[2]]))
atexit.register(lambda: open(sys.argv.pop(1), "w").write(f"{counts['cache_hits']} {counts['cache_misses']}"))
from jaxaudit.cli import main
place = sys.argv.pop(1)
atexit.register(lambda: sys.argv.insert(1, place))
main()
"""
"""A command whose programs that were read and kept are counted in the file named first."""


Setting = Callable[..., Any]
"""One of JAX's settings; unless named, where programs are kept."""


class Run(NamedTuple):
    """What a process printed, and how many programs it read and kept."""

    done: Done
    read: int
    kept: int

    @property
    def numbers(self) -> dict[str, Any]:
        return {name: value for name, value in self.done.result.items() if name != "provenance"}


def run(folder: Path, cache: Path | str, count: Path, **settings: str) -> Run:
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(count), *WORDS],
        cwd=folder,
        env={**environment, "JAXAUDIT_CACHE": str(cache), **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    read, kept = count.read_text().split()
    return Run(Done(done.returncode, done.stdout, done.stderr), int(read), int(kept))


def entries(cache: Path) -> list[Path]:
    return sorted((cache / programs.FOLDER).glob("*/*-cache"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_sets(folder)
    return folder


@pytest.fixture(scope="module")
def fresh(work: Path) -> Run:
    """A run that compiles all of its programs."""
    return run(work, work / "cache", work / "count")


@pytest.mark.outer
def test_programs_that_are_read_give_the_numbers_of_fresh_ones(work: Path, fresh: Run):
    kept = entries(work / "cache")
    assert (fresh.read, fresh.kept) == (0, len(kept))
    assert len(kept) > 20
    again = run(work, work / "cache", work / "count")
    assert (again.read, again.kept) == (len(kept), 0)
    assert entries(work / "cache") == kept
    assert (again.numbers, again.done.err) == (fresh.numbers, fresh.done.err)
    # Nobody else may read or write there: programs are code.
    assert not (work / "cache" / programs.FOLDER).stat().st_mode & 0o077


@pytest.mark.outer
@pytest.mark.parametrize("settings", [{"JAX_ENABLE_COMPILATION_CACHE": "false"}, {"JAXAUDIT_CACHE": os.devnull}])
def test_without_kept_programs_nothing_else_changes(work: Path, fresh: Run, settings: dict[str, str], tmp_path: Path):
    without = run(work, tmp_path / "other", work / "count", **settings)
    assert (without.read, without.kept, entries(tmp_path / "other")) == (0, 0, [])
    assert (without.numbers, without.done.err) == (fresh.numbers, fresh.done.err)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """JAX as it is before anybody says where programs are kept, with a cache folder of its own."""
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    usual = {name: jax.config.values[name] for name in (*programs.SETTINGS, "jax_compilation_cache_dir")}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield lambda name="jax_compilation_cache_dir": jax.config.values[name]
    for name, value in usual.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_a_folder_in_which_others_may_write_or_rename_keeps_none(settings: Setting, tmp_path: Path):
    cache, shared = tmp_path / "cache", tmp_path / "cache" / programs.FOLDER

    def kept() -> bool:
        programs.keep_programs()
        return settings() is not None

    shared.mkdir(parents=True)
    shared.chmod(0o777)
    assert not kept()
    shared.rmdir()
    (tmp_path / "mine").mkdir(0o700)
    shared.symlink_to(tmp_path / "mine")
    assert not kept()
    shared.unlink()
    cache.chmod(0o777)
    assert not kept()
    cache.chmod(0o700)
    (tmp_path / "cache" / programs.FOLDER).mkdir(0o700)
    os.mkfifo(shared / "pipe")
    assert kept()
    assert not (shared / "pipe").exists()


def test_a_folder_that_somebody_named_is_left_alone(settings: Setting, tmp_path: Path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    programs.keep_programs()
    assert settings() == str(tmp_path / "own")
    assert not (tmp_path / "cache").exists()


def test_the_least_recently_used_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "MOST_BYTES", 250)
    for age, name in enumerate(("new", "old", "older", "oldest")):
        place = tmp_path / ("one" if age % 2 else "other") / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(bytes(100))
        os.utime(place, (1e9 - age, 1e9 - 10))
    programs.drop_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["new", "old"]
