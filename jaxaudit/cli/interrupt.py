"""Reliable Ctrl-C and SIGTERM."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that are handled, and their default handlers in Python."""


@contextmanager
def lasting_interrupt() -> Iterator[Callable[[], None]]:
    """Within this context, Ctrl-C raises `KeyboardInterrupt` at once, and again at each call of the yielded function.

    SIGTERM, with which schedulers end a process, does the same.

    Python drops an exception raised in a callback of the garbage collector, and JAX has one; a compiled program that
    calls back to the host turns it into another error. Without this context the run would continue for hours.
    """
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    hook = sys.unraisablehook

    def report(dropped: Any) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            hook(dropped)

    # Only the main thread may set handlers, and a process told to ignore Ctrl-C (nohup, &) goes on ignoring it.
    main = threading.current_thread() is threading.main_thread()
    ours = {number: usual for number, usual in USUAL.items() if main and signal.getsignal(number) == usual}
    for number in ours:
        signal.signal(number, note)
    if ours:
        sys.unraisablehook = report
    try:
        yield check
        check()
    except Exception:
        check()
        raise
    finally:
        for number, usual in ours.items():
            signal.signal(number, usual)
        if ours:
            sys.unraisablehook = hook
