"""Chunks that train at the same time, and the places and workers that take them: none is lost, none is waited for."""

import threading
import time
from typing import Any

import jax
import numpy as np
import pytest
from support.tiny_learners import learner, records, small_mlp

from jaxaudit.ensemble import Execution, concurrency, fit_many, train
from jaxaudit.ensemble.pull import STARTS, Pulling, WorkerEnded
from jaxaudit.membership import leave_one_out


@pytest.mark.parametrize("at_once", [1, 3])
def test_every_task_is_collected_once_and_no_more_are_under_way_than_asked(at_once):
    lock, under_way, most, collected = threading.Lock(), 0, 0, {}

    def work(task, stop):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        return 10 * task

    def collect(task, result):
        nonlocal under_way
        assert threading.current_thread() is threading.main_thread()
        with lock:
            under_way -= 1
        assert task not in collected
        collected[task] = result

    concurrency.run_at_once(range(20), work, collect, at_once)
    assert collected == {task: 10 * task for task in range(20)}
    assert most == at_once
    concurrency.run_at_once([], work, collect, at_once)
    assert len(collected) == 20


@pytest.mark.parametrize("where", ["work", "collect"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_ends_the_others_and_is_raised(where, error):
    ended, started = [], threading.Event()

    def work(task, stop):
        if task == 0:
            started.wait(10)
            if where == "work" and error is ValueError:
                raise error("first")
            return task
        started.set()
        try:
            while True:
                stop.check()
                time.sleep(0.001)
        except concurrency.Interrupted:
            ended.append(task)
            raise

    def collect(task, result):
        raise error("first")

    with pytest.raises(error, match="first"):
        concurrency.run_at_once(range(6), work, collect, 2)
    assert ended == [1]


def test_models_do_not_depend_on_what_trains_beside_them(monkeypatch):
    inputs, labels = records(41, 4)
    keys = jax.numpy.repeat(jax.random.key(3)[None], 12)
    call = keys, leave_one_out(np.arange(12), 41), inputs, labels, learner(small_mlp)
    monkeypatch.setattr(train, "concurrent_chunks", lambda: 1)
    alone = jax.tree.leaves(fit_many(*call, execution=Execution(3)))
    monkeypatch.setattr(train, "concurrent_chunks", lambda: 4)
    beside = jax.tree.leaves(fit_many(*call, execution=Execution(3)))
    assert all((one == other).all() for one, other in zip(alone, beside, strict=True))


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
