"""The process of a local worker: reads calls from its standard input and ends when that is closed.

A message is bytes, pickled, which says where it ends. Imports nothing heavy.
"""

import os
import pickle
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO

ORPHANED = 0


def answer_calls() -> None:
    core_list = os.environ.pop("JAXAUDIT_CORES", "")
    if core_list and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in core_list.split(",")})
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
        work = pickle.loads(call)
        return pickle.dumps((True, work()), protocol=5)
    except Exception as error:
        return pickle.dumps((False, portable(error)), protocol=5)


def portable(error: Exception) -> Exception:
    """The error, if it can be pickled; otherwise a RuntimeError with the same message."""
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")


def write_frame(pipe: IO[bytes], content: bytes) -> None:
    pickle.dump(content, pipe, protocol=5)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Reads the next message; None if the pipe was closed, even within a message."""
    try:
        return pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError):
        return None
