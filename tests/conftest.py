"""What holds for all tests: a cache of their own, never the user's."""

import gc
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from jax.experimental.compilation_cache import compilation_cache
from support.cli_runs import write_sets

from jaxaudit.cli import programs

# On a busy machine a draw or a compilation takes long without being wrong; and whether a change lands is not luck.
settings.register_profile("jaxaudit", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("jaxaudit")

# What a shell starts in the background ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SLOW = 30
"""Times as long as any other, about, as a test that is marked so takes."""


def pytest_configure(config: pytest.Config) -> None:
    """Files are handed out in the order below; pytest-xdist would begin with those of the most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers, none is left with the longest file when the others are done: those come first."""
    if hasattr(config, "workerinput"):
        cost = Counter[str]()
        for item in items:
            cost[item.nodeid.partition("::")[0]] += SLOW if item.get_closest_marker("slow") else 1
        items.sort(key=lambda item: -cost[item.nodeid.partition("::")[0]])


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXAUDIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """What compiles the same program compiles it once, in all processes and runs: it takes most of the time of tests.

    `pytest --cache-clear` drops the programs. `cli/test_cli_programs.py` runs without them.
    """
    kept = request.config.cache
    assert kept is not None
    folder = kept.mkdir("programs")
    programs.drop_unused(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**programs.SETTINGS, "jax_compilation_cache_dir": str(folder / programs.machine())}.items():
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        compilation_cache.reset_cache()
        yield


MOST_MAPPINGS = 25_000
"""A process may have 65,530 memory mappings (Linux), and XLA takes about a dozen a program: beyond, it aborts."""


@pytest.fixture(scope="module", autouse=True)
def _programs_that_fit() -> Iterator[None]:
    """A process that runs many files compiles thousands of programs: they are dropped before there is no room left."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the sets of `cli_runs.write_sets`."""
    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as working folder, of what a module's own fixture `made` made once."""
    copy = shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(copy)
    return copy
