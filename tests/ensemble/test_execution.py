"""How models are trained, as a value: its parts' progress, the usual width, chunks side by side, their workers."""

import threading
import time
from concurrent.futures import as_completed
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_learners import NearestCentroid, learner, records, small_mlp

from jaxaudit.ensemble import Execution, concurrency, fit_many, models_per_batch, suitable_models_per_batch, train
from jaxaudit.ensemble import workers as workers_module
from jaxaudit.ensemble.workers import STARTS, Pulling, WorkerEnded
from jaxaudit.errors import InputError
from jaxaudit.membership import everyone, leave_one_out_masks, only

WHOLE = 1_000_000
WEIGHTS = st.lists(st.one_of(st.just(0), st.integers(1, 1000), st.floats(1e-3, 1e6)), min_size=1, max_size=8).filter(
    lambda weights: sum(weights) > 0
)
REPORTS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 12), st.integers(0, 10)), max_size=40)


def watched(models_per_batch: int | None = None) -> tuple[list[tuple[int, int]], Execution]:
    seen: list[tuple[int, int]] = []
    return seen, Execution(models_per_batch, lambda done, total: seen.append((done, total)), Path("kept"))


def tell(part: Execution, done: int, total: int) -> None:
    assert part.progress is not None
    part.progress(done, total)


@given(WEIGHTS, REPORTS)
def test_what_is_reported_never_falls_and_ends_at_the_whole(weights: list[float], reports: list[tuple[int, int, int]]):
    """Whatever parts report, in any order, again, less than before, or more than there is."""
    seen, whole = watched()
    parts = whole.split(*weights)
    for part, done, total in reports:
        tell(parts[part % len(parts)], done, total)
    for part in parts:
        tell(part, 3, 3)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {WHOLE}
    assert seen[0][0] >= 0
    assert seen[-1] == (WHOLE, WHOLE)


@given(WEIGHTS, WEIGHTS)
def test_parts_of_parts_count_for_the_part(outer: list[float], inner: list[float]):
    seen, whole = watched()
    parts = whole.split(*outer)
    for part in parts[0].split(*inner):
        tell(part, 1, 1)
    assert abs(seen[-1][0] - WHOLE * outer[0] / sum(outer)) <= 1
    for part in parts[1:]:
        tell(part, 1, 1)
    assert seen[-1] == (WHOLE, WHOLE)


@pytest.mark.parametrize("weights", [(1, -1), (0, 0), (0,), (1, float("nan")), (1, float("inf"))])
def test_weights_that_are_none_are_refused(weights: tuple[float, ...]):
    for whole in (Execution(), watched()[1]):
        with pytest.raises(InputError, match="weights` must be"):
            whole.split(*weights)


INPUTS, LABELS = records(41, 4)
ONE = learner(small_mlp)


def suitable(models: int, rows: np.ndarray | None = None, of: Any = ONE) -> int:
    keys = jax.random.split(jax.random.key(1), models)
    return suitable_models_per_batch(
        keys, everyone(41).repeat(models, axis=0) if rows is None else rows, INPUTS, LABELS, of
    )


def test_small_networks_train_four_at_once_and_fewer_where_chunks_beside_would_wait_or_memory_is_short(monkeypatch):
    sizes: list[int] = []
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)
    count = models_per_batch.program_bytes
    monkeypatch.setattr(models_per_batch, "program_bytes", lambda *call: sizes.append(count(*call)) or sizes[-1])
    assert (suitable(40), suitable(2)) == (4, 2)
    assert suitable(3, only(np.array([], int), 41).repeat(3, axis=0)) == 3
    assert suitable(2, of=NearestCentroid()) == 16
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 3)
    assert suitable(5) == 2
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)
    # As much memory as two models take, and then none.
    monkeypatch.setattr(models_per_batch, "free_bytes", lambda: sizes[1])
    assert suitable(40) == 2
    monkeypatch.setattr(models_per_batch, "free_bytes", lambda: 1)
    with pytest.raises(InputError):
        suitable(40)


def test_fit_many_trains_so_many_at_once(monkeypatch):
    monkeypatch.setattr(models_per_batch, "concurrent_chunks", lambda: 1)
    keys, rows, sizes = jax.random.split(jax.random.key(1), 8), everyone(41).repeat(8, axis=0), []

    def summarize(params: Any, rows: np.ndarray) -> np.ndarray:
        sizes.append(len(jax.tree.leaves(params)[0]))
        return np.zeros(sizes[-1])

    fit_many(keys, rows, INPUTS, LABELS, ONE, summarize=summarize)
    assert sizes == [4, 4]


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
        except concurrency.NeighbourFailed:
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
    call = keys, leave_one_out_masks(np.arange(12), 41), inputs, labels, learner(small_mlp)
    monkeypatch.setattr(train, "concurrent_chunks", lambda: 1)
    alone = jax.tree.leaves(fit_many(*call, execution=Execution(3)))
    monkeypatch.setattr(train, "concurrent_chunks", lambda: 4)
    beside = jax.tree.leaves(fit_many(*call, execution=Execution(3)))
    assert all((one == other).all() for one, other in zip(alone, beside, strict=True))


class Answering:
    """A worker in this thread, which answers in this way."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.ended = answer, threading.Event()

    def call(self, work: Any) -> Any:
        return self.answer(self, work)

    def kill(self) -> None:
        self.ended.set()


def test_a_place_whose_workers_can_do_nothing_is_given_up():
    """They live, and say so when all is asked."""
    asked = threading.Event()

    def broken(worker: Answering, fn: Any) -> Any:
        asked.wait(20)
        raise OSError("no device")

    with Pulling(lambda place: Answering(broken), 1) as workers:
        answers = [workers.submit(print) for _ in range(STARTS + 2)]
        asked.set()
        assert [str(each.exception(timeout=20)) for each in answers] == ["no device"] * (STARTS + 2)
        with pytest.raises(RuntimeError, match="no device"):
            workers.submit(print)


def test_a_worker_that_never_answers_holds_up_nobody():
    def silent(worker: Answering, fn: Any) -> Any:
        worker.ended.wait(60)
        raise WorkerEnded("ended")

    with Pulling(lambda place: Answering(silent if place else lambda worker, fn: fn()), 2) as workers:
        answers = [workers.submit(lambda: 5) for _ in range(6)]
        assert [each.result() for each in islice(as_completed(answers, 20), 5)] == [5] * 5


def test_a_chunk_that_ends_its_workers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    def ends(worker: Answering, fn: Any) -> Any:
        raise WorkerEnded("out of memory")

    monkeypatch.setattr(train, "ATTEMPTS", 2)
    keys, rows = jax.random.split(jax.random.key(1), 3), everyone(41).repeat(3, axis=0)
    workers, called = Pulling(lambda place: Answering(ends), 2), (keys, rows, INPUTS, LABELS, NearestCentroid())
    with workers, pytest.warns(RuntimeWarning), pytest.raises(InputError, match=r"out of memory.*2 times.*memory"):
        fit_many(*called, execution=Execution(1, executor=workers))


def test_what_was_asked_of_workers_that_are_closed_is_cancelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers_module, "START_SECONDS", 0.01)
    started = threading.Event()

    def late(place: int) -> Any:
        started.wait(20)
        raise OSError("no device")

    with Pulling(late, 1) as workers:
        asked = workers.submit(print)
        threading.Timer(0.2, started.set).start()
        workers.close()
    assert asked.cancelled() or asked.exception(timeout=0) is not None
