"""What a run is said to take, work that outlives its process, and interrupts that cannot be lost."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxaudit.cli.networks import products_a_second, time_of
from jaxaudit.cli.progress import Interrupted, lasting_interrupt, lasting_work, progress_on_stderr
from jaxaudit.ensemble import StepCost
from jaxaudit.ensemble.chunk import write_chunk
from jaxaudit.errors import InputError
from jaxaudit.runs import arrays, open_unfinished, write

SELF: dict[str, dict[str, Any]] = {name: {} for name in ("command", "options", "data", "code", "machine")}
RUN, NAME = Path("a/run"), "unfinished"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def train(checkpoints: Path | None, models: int) -> None:
    assert checkpoints is not None
    rows = np.arange(models)
    write_chunk(checkpoints / "call" / f"1-{models}.npz", rows, rows)


def work(out: Path | None, models: int = 0, error: BaseException | None = None) -> None:
    with lasting_work(out) as begin:
        checkpoints = begin(SELF, 9, "training")
        if models:
            train(checkpoints, models)
        if error:
            raise error


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), InputError("too few records")])
def test_a_failure_keeps_what_is_finished_until_the_command_is_through(error: Exception, capsys: Any):
    with pytest.raises(type(error), match=str(error)):
        work(RUN, 0, error)
    assert os.listdir() == []
    with pytest.raises(type(error), match=str(error)):
        work(RUN, 3, error)
    capsys.readouterr()
    work(RUN, 4)
    line, resuming = capsys.readouterr().err.splitlines()
    assert line == "training"
    assert resuming.startswith("Resuming: 3 of 9 ")
    assert [*Path().rglob(NAME)] == []
    work(RUN, 3)
    assert capsys.readouterr() == ("", "training\n")
    assert [*Path().rglob(NAME)] == []


def test_nothing_is_kept_without_a_directory(cache: Path, capsys: Any):
    with lasting_work(None) as begin:
        assert begin(SELF, 9, "training") is None
    with pytest.raises(Interrupted):
        work(None, 0, KeyboardInterrupt())
    assert capsys.readouterr().err.splitlines()[-1].startswith("Interrupted: nothing was kept")
    assert (os.listdir(), [*cache.rglob("*")]) == ([], [])


@pytest.mark.parametrize(("models", "said"), [(0, "nothing "), (3, "3 of 9 models ")])
def test_an_interrupt_says_what_is_kept(models: int, said: str, capsys: Any):
    with pytest.raises(Interrupted) as stop:
        work(RUN, models, KeyboardInterrupt())
    assert stop.value.code == 130
    line, interrupted = capsys.readouterr().err.splitlines()
    assert line == "training"
    assert interrupted.startswith(f"Interrupted: {said}")


def test_an_interrupt_before_anything_began(capsys: Any):
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted), lasting_work(Path("run")):
        stop()
    assert capsys.readouterr().err.startswith("Interrupted: nothing ")
    assert os.listdir() == []


def test_the_same_run_twice_at_once():
    with lasting_work(Path("run")) as begin:
        begin(SELF, 9, "training")
        with pytest.raises(InputError, match=r"^`directory` run is in use"), lasting_work(Path("run")):
            pass


# Ctrl-C, and SIGTERM, that cannot be lost

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press(number: signal.Signals = signal.SIGINT) -> None:
    signal.raise_signal(number)


def press_where_python_drops_it(number: signal.Signals = signal.SIGINT) -> None:
    """Within a garbage collector's callback, as when one comes while JAX's own runs."""

    def callback(phase: str, info: Any) -> None:
        if phase == "start":
            gc.callbacks.remove(callback)
            press(number)

    gc.callbacks.append(callback)
    gc.collect()


@SIGNALS
def test_it_is_raised_at_once_and_everything_is_as_before_afterwards(number: signal.Signals):
    before = signal.getsignal(number), sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), lasting_interrupt():
        press(number)
    assert (signal.getsignal(number), sys.unraisablehook) == before


@SIGNALS
def test_a_dropped_one_is_raised_at_the_next_progress(number: signal.Signals, capsys: pytest.CaptureFixture[str]):
    with suppress(KeyboardInterrupt), progress_on_stderr("training") as show:
        show(1, 10)
        press_where_python_drops_it(number)
        with pytest.raises(KeyboardInterrupt):
            show(2, 10)
    assert capsys.readouterr() == ("", "")
    # Or at the end, where there is none.
    with pytest.raises(KeyboardInterrupt), lasting_interrupt():
        press_where_python_drops_it()


def test_a_run_takes_as_long_as_this_machine_is_slow(monkeypatch: pytest.MonkeyPatch):
    """By hand: 1.09e13 operations at half of 2e11 a second, 300 equations in a second, and 10 seconds."""
    cost = StepCost(1.0, 1.0, 1, 300)
    monkeypatch.setattr("jaxaudit.cli.networks.products_a_second", lambda: 2e11)
    assert time_of(1.09e13, cost) == "about 2 min on this machine's CPU"
    monkeypatch.setattr("jaxaudit.cli.networks.products_a_second", lambda: 1e11)
    assert time_of(1.09e13, cost) == "about 4 min on this machine's CPU"
    monkeypatch.undo()
    assert products_a_second() == products_a_second() > 0


def test_one_that_became_another_error_is_itself_again():
    def compiled_program(callback: Callable[[], None]) -> None:
        try:
            callback()
        except KeyboardInterrupt:
            raise RuntimeError("INTERNAL: CpuCallback error") from None

    with pytest.raises(KeyboardInterrupt), lasting_interrupt():
        compiled_program(press)


@SIGNALS
def test_who_ignores_it_goes_on_ignoring_it(number: signal.Signals):
    signal.signal(number, signal.SIG_IGN)
    with lasting_interrupt() as check:
        press(number)
        check()


def test_a_result_that_could_not_be_written_keeps_the_work(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "disk full")

    def run() -> None:
        with lasting_work(Path("run")) as begin, monkeypatch.context() as patch:
            train(begin(SELF, 9, "training"), 3)
            patch.setattr("numpy.savez_compressed", full)
            write(Path("run"), {}, {"confidences.npz": arrays({})})

    with pytest.raises(InputError, match=r"`directory` run .*disk full"):
        run()
    capsys.readouterr()
    work(Path("run"))
    assert "Resuming: 3 of 9" in capsys.readouterr().err


def test_a_directory_that_was_taken_or_cannot_be_written_after_all():
    with lasting_work(Path("run")) as begin:
        write(Path("run"), {}, {"confidences.npz": arrays({})})
        with pytest.raises(InputError, match=r"^`directory` run "):
            begin(SELF, 9, "training")
    assert sorted(os.listdir("run")) == ["confidences.npz", "result.json"]
    with lasting_work(Path("other")) as begin:
        open_unfinished(Path("other") / NAME, {**SELF, "options": {"epochs": 3}}).keep()
        with pytest.raises(InputError, match=r"^`directory` other .*epochs"):
            begin(SELF, 9, "training")
    assert os.listdir("other") == [NAME]
    with lasting_work(Path("a/run")) as begin:
        shutil.rmtree("a", ignore_errors=True)
        Path("a").touch()
        with pytest.raises(InputError, match=r"^--out a/run "):
            begin(SELF, 9, "training")
