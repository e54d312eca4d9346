"""Chunks that train at the same time: as many as asked, each collected once, and all ended by the first failure."""

import threading
import time

import jax
import numpy as np
import pytest
from support.tiny_learners import learner, records, small_mlp

from jaxaudit.ensemble import Execution, concurrency, fit_many, train
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
