"""An executor whose workers pull tasks: each task goes to the first idle worker; workers that end are replaced."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol, runtime_checkable

STARTS = 3
"""How often in a row a worker may fail, at its start or in its calls, before it is no longer replaced."""
START_SECONDS = 2.0
"""Seconds between two attempts to start a worker."""


class WorkerEnded(RuntimeError):
    """A worker ended before it answered."""


@runtime_checkable
class Worker(Protocol):
    """A process that answers one call at a time."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns `fn(*args, **kwargs)`, computed in the process; raises `WorkerEnded` if the process ends."""
        ...

    def kill(self) -> None:
        """Ends the process at once; may be called repeatedly and from any thread."""
        ...


class _Asked(NamedTuple):
    future: Future[Any]
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Pulling:
    """An executor with a fixed number of places for workers; a thread per place starts, calls and replaces its worker.

    A place takes a task only when its worker is ready, so a worker that waits for a machine delays no task.

    Args:
        start: `start(place)` returns the worker of a place, numbered from 0, once it is ready.
        places: the number of workers.
    """

    def __init__(self, start: Callable[[int], Worker], places: int) -> None:
        self._start, self._lock, self._asked = start, Lock(), SimpleQueue[_Asked | None]()
        self._closed, self._left, self._error = False, places, RuntimeError("there are no workers")
        self._workers: dict[int, Worker] = {}
        self._answered, self._first = 0, 0.0
        self._threads = [Thread(target=self._serve, args=(place,), daemon=True) for place in range(places)]

    @property
    def places(self) -> int:
        """The number of workers, running or to be started, without places that were given up."""
        return self._left

    @property
    def answered(self) -> int:
        """The number of tasks that were answered."""
        return self._answered

    def pace(self) -> str:
        """Describes how many workers are ready, and how many chunks per minute were trained since the first one."""
        ready = len(self._workers)
        ready = f"{ready} of {self._left} workers" if ready < self._left else f"{ready} workers"
        minutes = (time.monotonic() - self._first) / 60
        return ready if self._answered < 2 else f"{ready}, {(self._answered - 1) / minutes:.2g} chunks a minute"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of `fn(*args, **kwargs)` in a worker.

        Raises:
            RuntimeError: the executor is closed, or no worker can be started.
        """
        task = _Asked(Future(), fn, args, kwargs)
        with self._lock:
            if self._closed or not self._left:
                raise RuntimeError("the workers are closed" if self._closed else str(self._error))
            self._asked.put(task)
            self._begin()
        return task.future

    def everyone(self, fn: Callable[..., Any], seconds: float) -> list[Any]:
        """Calls `fn()` in every worker; returns each result, or an Exception. No other task may be running.

        Args:
            fn: a function without arguments.
            seconds: the time limit for workers to be ready, and again to answer; workers that do not answer are ended.
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
            # End late workers, so that the pool of threads does not wait for their answers.
            for worker, answer in zip(workers, answers, strict=True):
                if answer in late:
                    worker.kill()
        silent = WorkerEnded(f"ready, and silent for {seconds:g} s")
        answers_in_time = [silent if future in late else future.exception() or future.result() for future in answers]
        return answers_in_time + [missing] * (len(self._threads) - len(answers_in_time))

    def close(self) -> None:
        """Ends all workers at once, even during a task."""
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
            if (task := self._asked.get()) is not None:
                task.future.cancel()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Starts the threads of all workers, unless they have started."""
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
                while not closed and (task := self._asked.get()) is not None:
                    failed, error = _answer(worker, task, failed)
                    if error is not None:
                        break
                    with self._lock:
                        self._first = self._first or time.monotonic()
                        self._answered += 1
                else:
                    return
            finally:
                worker.kill()
            if failed >= STARTS:
                self._give_up(error)
                return

    def _give_up(self, error: BaseException) -> None:
        """Gives up a place for a worker; if it is the last one, all waiting tasks fail with `error`."""
        with self._lock:
            self._left, self._error = self._left - 1, error
            while not self._left and not self._asked.empty():
                task = self._asked.get()
                if task is not None and task.future.set_running_or_notify_cancel():
                    task.future.set_exception(error)


def _answer(worker: Worker, task: _Asked, failed: int) -> tuple[int, BaseException | None]:
    """Runs a task; returns the place's number of failures in a row, and the error that ended the worker, or None."""
    if not task.future.set_running_or_notify_cancel():
        return failed, None
    try:
        task.future.set_result(worker.call(task.fn, task.args, task.kwargs))
    except BaseException as error:
        # Kill the worker before the error is reported: another one replaces it.
        with suppress(Exception):
            worker.kill()
        task.future.set_exception(error)
        # A worker that ended may have been ended from outside, which is no failure of its place. Tasks catch their own
        # errors, so an error in an answer is a failure of the worker.
        return (failed if isinstance(error, WorkerEnded) else failed + 1), error
    return 0, None
