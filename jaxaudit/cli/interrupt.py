"""Ctrl-C that cannot be lost."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def lasting_interrupt() -> Iterator[Callable[[], None]]:
    """Within it, Ctrl-C raises `KeyboardInterrupt` at once, and again wherever the function it gives is called.

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

    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def report(dropped: Any) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            hook(dropped)

    # Only the main thread may set handlers, and a process told to ignore Ctrl-C (nohup, &) goes on ignoring it.
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, note)
        sys.unraisablehook = report
    try:
        yield check
        check()
    except Exception:
        check()
        raise
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
            sys.unraisablehook = hook
