"""What holds for all tests: two circles, one cache of compiled programs, and a cache folder that is never the user's.

`pytest` alone runs the inner circle, `pytest --outer` the outer circle alone: between them they run each test once. Of
files and folders that are named the inner circle runs, and with `--outer` both; a single test that is named runs
whatever it is (`FILE::TEST`). A test is in the outer circle, and marked `outer`, if

- it starts something that outlives a call of a function: a process, a browser, workers, a second device; or
- it is a simulation: it repeats an audit or a test of use on many drawn sets, and counts how often the answer is wrong;
  or
- it trains through the command line. Of each command, the inner circle has one run that trains; what training and
  tests of use compute, it tests below the command line; or
- it trains, and says of a further network or optimizer what another of its cases says of the first
  (`support/circles.py`).

A test of the inner circle that starts a process fails; nothing else of the rule is enforced. Modules of tests compute
nothing while they are imported: every worker imports every one.

In both circles, shapes and types that the package's annotations state are checked at the first calls that each test
makes of a function, within the process of the tests, and not in processes that they start. No test depends on what ran
before it: `--order reversed` and `--order NUMBER`, a shuffle of files and of the tests in each, must pass, too.
"""

import ctypes
import gc
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
import type_checks
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# On a busy machine a draw or a compilation takes long without being wrong; and whether a change lands is not luck.
settings.register_profile("jaxaudit", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("jaxaudit")

# What a shell starts in the background ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
"""Audit events of what starts a process."""
SLOW = 30
"""Times as long as any other, about, as a test of the outer circle takes."""
MOST_BYTES = 3 << 29
"""Of a process between two files of tests: what its compiled programs hold is given back beyond."""
MOST_MAPPINGS = 25_000
"""A process may have 65,530 memory mappings (Linux), and XLA takes about a dozen a program: beyond, it aborts."""

OUTER, INNER, BOTH = frozenset({True}), frozenset({False}), frozenset({True, False})
"""Circles of tests, by whether they are the outer one."""

_running: list[pytest.Item] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outer", action="store_true", help="the outer circle; of named files both")
    parser.addoption("--order", default="usual", help="of the tests: usual, reversed, or the seed of a shuffle")


def circles(config: pytest.Config) -> frozenset[bool]:
    """The circles that this run asks for."""
    names = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    if any("::" in name for name in names) or (names and config.option.outer):
        return BOTH
    return OUTER if config.option.outer else INNER


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is imported; workers of pytest-xdist are told what this process was told, and decide alike."""
    # Files are handed out in the order below; pytest-xdist would begin with those of the most tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    # There is a worker for each core: with threads for all of them in each, they wait for one another.
    os.environ.setdefault("NPROC", "1")
    install_import_hook("jaxaudit", "type_checks.checked")
    _compile_once(config)
    sys.addaudithook(_refuse_processes)


def _compile_once(config: pytest.Config) -> None:
    """What compiles the same program compiles it once, in all processes and runs: it takes most of the time of tests.

    `pytest --cache-clear` drops the programs. `cli/test_cli_programs.py` runs without them. Programs are compiled
    without the optimisations that take XLA long, in processes that tests start, too; those of the README and of
    `examples/` compile as a user's do. The inner circle alone has XLA's older emitters of fused loops, too, which take
    half the time. What they compute depends on how many cores a process may use: a worker's models would differ.
    """
    from jaxaudit.cli import programs  # not before its annotations are checked

    assert config.cache is not None
    folder = config.cache.mkdir("programs")
    if not hasattr(config, "workerinput"):
        programs.drop_unused(folder)
    wanted = {
        **programs.SETTINGS,
        "jax_compilation_cache_dir": str(folder / programs.machine()),
        "jax_disable_most_optimizations": True,
    }
    for name, value in wanted.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    # XLA ends the process where it does not know a flag.
    if circles(config) == INNER and jax.__version__.startswith("0.10."):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()


def _refuse_processes(event: str, _: tuple[object, ...]) -> None:
    if event in STARTS and _running and not _running[0].get_closest_marker("outer"):
        raise AssertionError(f"{_running[0].nodeid} starts a process ({event}): mark it `outer` (tests/conftest.py).")


def pytest_collection_finish() -> None:
    """What stays until the end, the modules and the tests, is not searched for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _running[:] = [item]
    type_checks.begin_test()
    try:
        return (yield)
    finally:
        _running.clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the other circle, and puts the tests in the order that is asked for, those of a file side by side.

    In the usual order of several workers, none is left with the longest file when the others are done.
    """
    wanted, order = circles(config), config.option.order
    others = [item for item in items if (item.get_closest_marker("outer") is not None) not in wanted]
    items[:] = [item for item in items if (item.get_closest_marker("outer") is not None) in wanted]
    config.hook.pytest_deselected(items=others)
    files = {item: item.nodeid.partition("::")[0] for item in items}
    if order == "reversed":
        items.reverse()
    elif order != "usual":
        draw = random.Random(int(order))
        places = {file: draw.random() for file in dict.fromkeys(files.values())}
        draw.shuffle(items)
        items.sort(key=lambda item: places[files[item]])
    elif hasattr(config, "workerinput"):
        cost = Counter[str]()
        for item in items:
            cost[files[item]] += SLOW if item.get_closest_marker("outer") else 1
        items.sort(key=lambda item: -cost[files[item]])


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXAUDIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _process_as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a command changes in its process, which ends with it, is undone: the next test is another process's command.

    These are the working folder, the environment, the folders of imports, and the modules of files that the test wrote.
    """
    here, environment, folders, modules = Path.cwd(), dict(os.environ), [*sys.path], set(sys.modules)
    yield
    os.chdir(here)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    sys.path[:] = folders
    written = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(written):
            del sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def _programs_that_fit() -> Iterator[None]:
    """A process that runs many files compiles thousands of programs: they are dropped before there is no room left."""
    yield
    statistics, mappings = Path("/proc/self/statm"), Path("/proc/self/maps")
    if not mappings.exists():
        return
    held = int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    if held > MOST_BYTES or mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
        # The C library keeps what is freed; musl has no such function, and needs none.
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the sets of `cli_runs.write_sets`."""
    from support.cli_runs import write_sets

    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as working folder, of what a module's own fixture `made` made once."""
    copy = shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(copy)
    return copy
