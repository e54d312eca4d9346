"""Places and their workers: those that break, never answer, or are closed. No process is needed to show it."""

import threading
from typing import Any

import pytest

from jaxaudit.ensemble.pull import STARTS, Pulling, WorkerEnded


class Broken:
    """A worker that lives, and can do nothing, as it says when all is asked."""

    def __init__(self, asked: threading.Event) -> None:
        self.asked = asked

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        self.asked.wait(20)
        raise OSError("no device")

    def kill(self) -> None:
        pass


def test_a_place_whose_workers_can_do_nothing_is_given_up():
    asked = threading.Event()
    with Pulling(lambda place: Broken(asked), 1) as workers:
        answers = [workers.submit(print) for _ in range(STARTS + 2)]
        asked.set()
        assert [str(each.exception(timeout=20)) for each in answers] == ["no device"] * (STARTS + 2)
        with pytest.raises(RuntimeError, match="no device"):
            workers.submit(print)


class Silent:
    """A worker that never answers, until it is ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        self.ended.wait(60)
        raise WorkerEnded("ended")

    def kill(self) -> None:
        self.ended.set()


def test_a_worker_that_never_answers_holds_up_nobody():
    with Pulling(lambda place: Silent() if place else Answering(), 2) as workers:
        answered, silent = sorted(workers.everyone(lambda: 5, 2.0), key=str)
    assert answered == 5
    assert isinstance(silent, WorkerEnded)


class Answering:
    """A worker in this thread."""

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    def kill(self) -> None:
        pass


def test_what_was_asked_of_workers_that_are_closed_is_cancelled():
    started = threading.Event()
    with Pulling(lambda place: started.wait(20) and Broken(), 1) as workers:  # type: ignore[arg-type]
        asked = workers.submit(print)
        threading.Timer(0.2, started.set).start()
        workers.close()
    assert asked.cancelled() or asked.exception(timeout=0) is not None
