"""Ctrl-C, and a request to end, that cannot be lost."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""What is watched, and the handlers that Python starts with."""


@contextmanager
def lasting_interrupt() -> Iterator[Callable[[], None]]:
    """Within it, Ctrl-C raises `KeyboardInterrupt` at once, and again wherever the function it gives is called.

    SIGTERM, with which schedulers end a process, does the same.

    Python drops an exception that is raised in a garbage collector's callback, and JAX has one; a compiled program
    that calls back to the host turns it into an error of its own. Neither may end in a run that goes on for hours.
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
