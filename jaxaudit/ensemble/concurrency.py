"""Several chunks at the same time, where one of them cannot keep the device busy."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from threading import Event
from typing import Any

import jax

from jaxaudit.ensemble.machine import cores

MOST_CONCURRENT_CHUNKS = 8


def concurrent_chunks() -> int:
    """How many chunks to train at the same time.

    XLA runs the small operations of a step on one core of a CPU, whatever the number of cores, so a CPU that is one
    device trains a chunk a core: up to three times as fast on two cores for the networks of leave-one-out audits,
    and a quarter faster for one of half a million parameters, whose products are spread over the cores already.
    """
    if jax.default_backend() != "cpu" or len(jax.local_devices()) > 1:
        return 1
    return min(len(cores()), MOST_CONCURRENT_CHUNKS)


class Interrupted(Exception):
    """Ends a thread's work because another one failed."""


class Stop:
    """Tells the other threads that their work is no longer wanted."""

    def __init__(self) -> None:
        self._event = Event()

    def __call__(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises `Interrupted` once the stop was called."""
        if self._event.is_set():
            raise Interrupted


def run_at_once(
    tasks: Sequence[Any], work: Callable[[Any, Stop], Any], collect: Callable[[Any, Any], None], at_once: int
) -> None:
    """`collect(task, work(task, stop))` for every task, at most `at_once` of them under way.

    `collect` runs in the calling thread, a task after another as they finish, and a task starts only when there is
    room for it after a `collect`: no more than `at_once` results exist at a time. The first exception, an interrupt of
    the calling thread included, ends the others at their next `stop.check()` and is raised.
    """
    stop = Stop()
    if min(at_once, len(tasks)) <= 1:
        for task in tasks:
            collect(task, work(task, stop))
        return
    waiting = iter(tasks)
    with ThreadPoolExecutor(at_once) as threads:
        try:
            running = {threads.submit(work, task, stop): task for task in islice(waiting, at_once)}
            while running:
                finished = wait(running, return_when=FIRST_COMPLETED).done
                while finished:
                    future = finished.pop()
                    collect(running.pop(future), future.result())
                    del future
                    running.update({threads.submit(work, task, stop): task for task in islice(waiting, 1)})
        except BaseException:
            stop()
            raise


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """`items`, each made while its predecessor is in use.

    By another thread, because a CPU runs the programs that one thread hands over one after another: a program that
    helps to make an item would wait for those that use the last one.
    """
    end = object()
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item
