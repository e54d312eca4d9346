"""Workers that pull: each task goes to the first that is ready, and those that end are replaced."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol, runtime_checkable

STARTS = 3
"""How often in a row a worker may fail to start, or to do anything, before its place is given up."""
START_SECONDS = 2.0
"""Between two of them."""


class WorkerEnded(RuntimeError):
    """A worker ended before it answered."""


@runtime_checkable
class Worker(Protocol):
    """A process that does one thing at a time."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`fn(*args, **kwargs)` there; raises `WorkerEnded` where there is no answer."""
        ...

    def kill(self) -> None:
        """Ends it at once; again and from any thread does no harm."""
        ...


class _Asked(NamedTuple):
    future: Future[Any]
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Pulling:
    """An executor with a place for each worker, whose thread starts it, again where it ended, and asks it.

    A place takes a task only when its worker is ready, so that a place that waits for a machine holds up nothing.

    Args:
        start: `start(place)` gives the worker of a place from 0, once it is ready.
        places: how many there are.
    """

    def __init__(self, start: Callable[[int], Worker], places: int) -> None:
        self._start, self._lock, self._asked = start, Lock(), SimpleQueue[_Asked | None]()
        self._closed, self._left, self._error = False, places, RuntimeError("there are no workers")
        self._workers: dict[int, Worker] = {}
        self._answered, self._first = 0, 0.0
        self._threads = [Thread(target=self._serve, args=(place,), daemon=True) for place in range(places)]

    @property
    def places(self) -> int:
        """Workers that there are, or are to be; those that were given up do not count."""
        return self._left

    @property
    def answered(self) -> int:
        """Tasks that were answered."""
        return self._answered

    def pace(self) -> str:
        """How many workers are ready, and how many chunks they train in a minute, since the first was trained."""
        ready = len(self._workers)
        ready = f"{ready} of {self._left} workers" if ready < self._left else f"{ready} workers"
        minutes = (time.monotonic() - self._first) / 60
        return ready if self._answered < 2 else f"{ready}, {(self._answered - 1) / minutes:.2g} chunks a minute"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of `fn(*args, **kwargs)` in a worker.

        Raises:
            RuntimeError: the executor is closed, or no worker can be started.
        """
        asked = _Asked(Future(), fn, args, kwargs)
        with self._lock:
            if self._closed or not self._left:
                raise RuntimeError("the workers are closed" if self._closed else str(self._error))
            self._asked.put(asked)
            self._begin()
        return asked.future

    def everyone(self, fn: Callable[..., Any], seconds: float) -> list[Any]:
        """What `fn()` gives in every worker, while nothing else is asked of them; an Exception where there is none.

        Args:
            fn: a function without arguments.
            seconds: how long workers may take to be ready, and then to answer; one that does not is ended.
        """
        with self._lock:
            self._begin()
        deadline = time.monotonic() + seconds
        while len(self._workers) < self._left and time.monotonic() < deadline:
            time.sleep(0.05)
        missing = self._error if self._left < len(self._threads) else WorkerEnded(f"not ready after {seconds:g} s")
        workers = list(self._workers.values())
        with ThreadPoolExecutor(len(self._threads)) as threads:
            answers = [threads.submit(worker.call, fn, (), {}) for worker in workers]
            late = wait(answers, seconds).not_done
            # Ended, it answers nobody, and nobody waits for it.
            for worker, answer in zip(workers, answers, strict=True):
                if answer in late:
                    worker.kill()
        silent = WorkerEnded(f"ready, and silent for {seconds:g} s")
        found = [silent if each in late else each.exception() or each.result() for each in answers]
        return found + [missing] * (len(self._threads) - len(found))

    def close(self) -> None:
        """Ends all workers at once, whatever they do."""
        with self._lock:
            self._closed, workers = True, list(self._workers.values())
        for worker in workers:
            worker.kill()
        begun = [thread for thread in self._threads if thread.ident is not None]
        for _ in begun:
            self._asked.put(None)
        for thread in begun:
            thread.join(timeout=5)
        while not self._asked.empty():
            if (asked := self._asked.get()) is not None:
                asked.future.cancel()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Starts the workers, once there is something to ask them."""
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def _serve(self, place: int) -> None:
        failed, error = 0, None
        while not self._closed:
            try:
                worker = self._start(place)
            except Exception as fault:
                failed += 1
                if failed >= STARTS:
                    self._give_up(fault)
                    return
                time.sleep(START_SECONDS)
                continue
            with self._lock:
                self._workers[place] = worker
                closed = self._closed
            try:
                while not closed and (asked := self._asked.get()) is not None:
                    failed, error = _answer(worker, asked, failed)
                    if error is not None:
                        break
                    with self._lock:
                        self._first = self._first or time.monotonic()
                        self._answered += 1
                else:
                    return
            finally:
                worker.kill()
            if failed >= STARTS and error is not None:
                self._give_up(error)
                return

    def _give_up(self, error: BaseException) -> None:
        """A place has no worker; where it is the last, what is asked has no answer."""
        with self._lock:
            self._left, self._error = self._left - 1, error
            while not self._left and not self._asked.empty():
                asked = self._asked.get()
                if asked is not None and asked.future.set_running_or_notify_cancel():
                    asked.future.set_exception(error)


def _answer(worker: Worker, asked: _Asked, failed: int) -> tuple[int, BaseException | None]:
    """How often in a row workers of this place failed, and why this one lives no more; None where it does."""
    if not asked.future.set_running_or_notify_cancel():
        return failed, None
    try:
        asked.future.set_result(worker.call(asked.fn, asked.args, asked.kwargs))
    except BaseException as error:
        # Gone before anybody hears of it: the next worker of this place is another.
        with suppress(Exception):
            worker.kill()
        asked.future.set_exception(error)
        # One that ends may have been ended. One that answers with an error cannot do what is asked: tasks catch their
        # own errors.
        return (failed if isinstance(error, WorkerEnded) else failed + 1), error
    return 0, None
