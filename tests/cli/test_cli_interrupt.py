"""Ctrl-C, and SIGTERM, that cannot be lost."""

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from jaxaudit.cli.interrupt import lasting_interrupt
from jaxaudit.cli.progress import progress_on_stderr

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


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


@BOTH
def test_it_is_raised_at_once_and_everything_is_as_before_afterwards(number: signal.Signals):
    before = signal.getsignal(number), sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), lasting_interrupt():
        press(number)
    assert (signal.getsignal(number), sys.unraisablehook) == before


@BOTH
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


def test_one_that_became_another_error_is_itself_again():
    def compiled_program(callback: Callable[[], None]) -> None:
        try:
            callback()
        except KeyboardInterrupt:
            raise RuntimeError("INTERNAL: CpuCallback error") from None

    with pytest.raises(KeyboardInterrupt), lasting_interrupt():
        compiled_program(press)


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), lasting_interrupt():
        _ = 1 / 0


@BOTH
def test_who_ignores_it_goes_on_ignoring_it(number: signal.Signals):
    signal.signal(number, signal.SIG_IGN)
    with lasting_interrupt() as check:
        press(number)
        check()


def test_other_threads_may_use_it():
    failed = []

    def work() -> None:
        try:
            with lasting_interrupt() as check:
                check()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []


def test_other_dropped_errors_are_still_reported(monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    with lasting_interrupt():

        def callback(phase: str, info: Any) -> None:
            gc.callbacks.remove(callback)
            raise ValueError

        gc.callbacks.append(callback)
        gc.collect()
    assert seen == [ValueError]
