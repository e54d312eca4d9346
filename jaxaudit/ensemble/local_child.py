"""The process of a local worker: reads calls from its standard input and ends when that is closed."""

import os
import pickle
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO

from jaxaudit.ensemble.frames import read_frame, write_frame

ORPHANED = 0


def main() -> None:
    """Answers calls until the calling process ends."""
    own = os.environ.pop("JAXAUDIT_CORES", "")
    if own and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in own.split(",")})
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Text that is printed while training must not be mistaken for an answer.
    os.dup2(2, 1)
    sys.stdin.close()
    waiting = SimpleQueue[bytes]()
    Thread(target=_listen, args=(calls, waiting), daemon=True).start()
    while True:
        write_frame(answers, _answered(waiting.get()))


def _listen(calls: IO[bytes], waiting: SimpleQueue[bytes]) -> None:
    """Queues calls; when the input is closed, ends the process at once, even during a call."""
    while (call := read_frame(calls)) is not None:
        waiting.put(call)
    os._exit(ORPHANED)


def _answered(call: bytes) -> bytes:
    try:
        fn, args, kwargs = pickle.loads(call)
        return pickle.dumps((True, fn(*args, **kwargs)), protocol=5)
    except Exception as error:
        try:
            return pickle.dumps((False, error), protocol=5)
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")), protocol=5)
