"""Chunks trained by workers, of this machine or Ray's: the numbers of one process, whoever dies on the way."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from support.processes import environment, of_each, printed, script
from support.tiny_learners import Convolved, Dropped, NearestCentroid, flat_rows, learner, records
from support.workers_child import EPOCHS

from jaxaudit.ensemble import Execution, LocalWorkers, fit_many, kept_models
from jaxaudit.ensemble.concurrency import this_machine, unlike
from jaxaudit.ensemble.worker import LARGE, drop_left, shared
from jaxaudit.ensemble.workers import gpus_of
from jaxaudit.errors import InputError
from jaxaudit.membership import everyone, leave_one_out_masks

EXAMPLES, MODELS = 41, 11
KEYS = jax.random.split(jax.random.key(1), MODELS)
RANDOM = np.random.default_rng(1)
ROWS = np.concatenate(
    [[RANDOM.permutation(EXAMPLES) < 20 for _ in range(5)], leave_one_out_masks(np.arange(6), EXAMPLES)]
)
POOL = records(EXAMPLES, 4)
LEARNERS = {
    "dropout": learner(Dropped),
    "convolution": learner(Convolved, (5, 5, 1)),
    "whole": NearestCentroid(),
}


def pool_of(one: Any) -> tuple[np.ndarray, np.ndarray]:
    return records(EXAMPLES, *((5, 5, 1) if getattr(one, "convolves", False) else (4,)))


def fit(one: Any, execution: Execution) -> np.ndarray:
    return flat_rows(fit_many(KEYS, ROWS, *pool_of(one), one, execution=execution), MODELS)


@pytest.fixture(scope="module")
def two() -> Any:
    with LocalWorkers(2) as workers:
        yield workers


@pytest.mark.outer
def test_numbers_are_those_of_one_process(two: Any):
    """Dropout (keys among the results), a convolution, a learner without steps: bit for bit."""
    for name, one in LEARNERS.items():
        alone = fit(one, Execution(3))
        assert alone.tobytes() == fit(one, Execution(3, executor=two)).tobytes(), name


def test_an_executor_of_this_process(tmp_path: Path):
    """And chunks that it trained are taken up by a call without one."""
    one, seen = LEARNERS["whole"], list[tuple[int, int]]()
    alone = fit(one, Execution(3))
    with ThreadPoolExecutor(2) as threads:
        progress = Execution(3, lambda *call: seen.append(call), tmp_path, threads)
        assert fit(one, progress).tobytes() == alone.tobytes()
    assert kept_models(tmp_path) == MODELS
    assert fit(NeverFitted(), Execution(5, checkpoints=tmp_path)).tobytes() == alone.tobytes()
    assert seen[0] == (0, MODELS)
    assert seen[-1] == (MODELS, MODELS)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".npz"] * 4


class NeverFitted(NearestCentroid):
    def fit(self, *_: Any) -> Any:
        raise AssertionError("all of its chunks are kept")


class Watched:
    """Kills a worker when the first chunk is finished."""

    def __init__(self, workers: LocalWorkers) -> None:
        self.workers, self.killed = workers, 0

    def __call__(self, done: int, total: int) -> None:
        if 0 < done < total and not self.killed:
            self.killed = processes(self.workers)[0]
            os.kill(self.killed, signal.SIGKILL)


def processes(workers: LocalWorkers) -> list[int]:
    return [each._process.pid for each in workers._workers.values()]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.outer
def test_a_worker_that_is_killed_changes_nothing(two: Any):
    one = learner(Dropped, epochs=300)
    alone, watched = fit(one, Execution(2)), Watched(two)
    with pytest.warns(RuntimeWarning, match="process .* SIGKILL.*attempt 2 of 4"):
        again = fit(one, Execution(2, watched, executor=two))
    assert watched.killed
    assert again.tobytes() == alone.tobytes()
    assert watched.killed not in processes(two)


class Deadly(NearestCentroid):
    """Ends every process that trains it."""

    def fit(self, key: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        if os.environ.get("JAXAUDIT_TEST_DRIVER") != str(os.getpid()):
            os._exit(9)
        return super().fit(key, inputs, labels, weights)


@pytest.mark.outer
def test_any_executor_will_do_and_a_broken_one_loses_nothing_that_was_finished(tmp_path: Path):
    one = LEARNERS["whole"]
    alone = fit(one, Execution(3))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert fit(one, Execution(3, None, tmp_path, pool)).tobytes() == alone.tobytes()
        with pytest.warns(RuntimeWarning), pytest.raises(InputError, match="takes no more work"):
            fit_many(KEYS[:1], ROWS[:1], *POOL, Deadly(), execution=Execution(1, executor=pool))
    assert kept_models(tmp_path) == MODELS


@pytest.mark.outer
def test_errors_are_those_of_the_learner(two: Any):
    def refuse(params: Any, rows: np.ndarray) -> Any:
        raise InputError("no such thing")

    with pytest.raises(InputError, match="no such thing"):
        fit_many(KEYS, ROWS, *POOL, NearestCentroid(), execution=Execution(3, executor=two), summarize=refuse)


@pytest.mark.outer
def test_another_machine_is_refused_by_name(two: Any, monkeypatch: pytest.MonkeyPatch):
    one, other = LEARNERS["whole"], {**this_machine(), "jaxlib": "0.0.1"}
    assert unlike(this_machine(), this_machine()) == ""
    monkeypatch.setattr("jaxaudit.ensemble.train.this_machine", lambda: other)
    with pytest.raises(InputError, match=r"jaxlib: .* there, 0\.0\.1 here"):
        fit(one, Execution(3, executor=two))


@pytest.mark.outer
def test_no_share_of_the_cores_decides_a_bit():
    """A product large enough that its cut depends on XLA's threads: each worker has as many as this process."""
    size = 1024
    inputs = np.random.default_rng(3).normal(size=(256, size)).astype(np.float32)
    labels = np.arange(256, dtype=np.int32) % 3
    call = KEYS[:2], everyone(256).repeat(2, axis=0), inputs, labels, learner(wide, (size,), epochs=1, batch_size=256)
    alone = flat_rows(fit_many(*call, execution=Execution(2)), 2)
    with LocalWorkers(3) as workers:
        assert flat_rows(fit_many(*call, execution=Execution(2, executor=workers)), 2).tobytes() == alone.tobytes()


def gpus_here() -> tuple[str, ...]:
    """What JAX in this process would have of the GPUs that CUDA lets it see."""
    from jax._src import xla_bridge

    visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    wanted = xla_bridge._options_from_jax_configs("cuda").get("visible_devices")
    return tuple(visible if wanted is None else (visible[number] for number in wanted))


@pytest.mark.outer
@pytest.mark.parametrize(
    ("visible", "own"), [(None, [("0",), ("1",)]), ("GPU-5a,GPU-3b,GPU-1", [("GPU-5a",), ("GPU-3b",)])]
)
def test_each_worker_has_one_gpu(visible: str | None, own: list[tuple[str]], monkeypatch: pytest.MonkeyPatch):
    """Asked in the workers' own processes; that there are GPUs is pretended here, and nothing is trained."""
    monkeypatch.setattr("jaxaudit.ensemble.workers.jax.default_backend", lambda: "gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with LocalWorkers(2) as workers:
        assert of_each(workers, gpus_here, 2) == set(own)


@pytest.mark.parametrize("visible", ["", "3", "3,3", "GPU-5a, ,"])
def test_each_worker_needs_a_gpu_of_its_own(visible: str):
    with pytest.raises(InputError, match=r"2 workers need a GPU each.*CUDA_VISIBLE"):
        gpus_of(visible, 2)


def wide(input_shape: tuple[int, ...], classes: int, *, rngs: Any) -> Any:
    from jaxaudit.models import MLP

    return MLP(input_shape, classes, rngs=rngs, hidden=(1024, 1024))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.outer
def test_workers_end_with_their_driver(tmp_path: Path):
    """Killed, and then interrupted, in the midst of chunks; the third call ends as one that was never stopped."""
    words = script("workers_child.py", tmp_path)
    for number in (signal.SIGKILL, signal.SIGINT):
        before = kept_models(tmp_path / "kept")
        with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            workers = [int(word) for word in driver.stdout.readline().split()]
            assert len(workers) == 2
            assert all(map(alive, workers))
            deadline = time.monotonic() + 120
            while kept_models(tmp_path / "kept") == before:
                assert driver.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            driver.send_signal(number)
        deadline = time.monotonic() + 20
        while any(map(alive, workers)):
            assert time.monotonic() < deadline, "workers outlive their driver"
            time.sleep(0.05)
        assert before < kept_models(tmp_path / "kept") < MODELS
    printed("workers_child.py", tmp_path)
    alone = fit(learner(Dropped, epochs=EPOCHS), Execution(1))
    assert np.load(tmp_path / "models.npy").tobytes() == alone.tobytes()


@pytest.mark.outer
def test_what_cannot_be_sent_is_named(two: Any):
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be sent to a worker"):
        fit_many(
            *(KEYS, ROWS, *POOL, NearestCentroid()),
            execution=Execution(3, executor=two),
            summarize=lambda params, rows: lock,
        )


@pytest.mark.outer
def test_arrays_of_numbers_that_numpy_does_not_know_travel(two: Any):
    inputs, labels = POOL
    coarse = np.asarray(inputs, ml_dtypes.bfloat16).repeat(1000, axis=1)
    assert coarse.nbytes > LARGE
    alone, spread = (
        fit_many(KEYS, ROWS, coarse, labels, NearestCentroid(), execution=execution)
        for execution in (Execution(3), Execution(3, executor=two))
    )
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(spread), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.outer
def test_arrays_that_a_killed_process_left_are_removed(tmp_path: Path):
    driver = f"""
import os, signal
from pathlib import Path
import numpy as np
from jaxaudit.ensemble.worker import shared
with shared(None, {{"a": np.zeros(9)}}, Path({str(tmp_path)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", driver]).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    drop_left(tmp_path)
    assert left.is_dir(), "its process might be about to lock it"
    for path in (left / "lock", tmp_path):
        os.utime(path, (1, 1))
    with shared(None, {"a": np.zeros(9)}, tmp_path):
        assert not left.exists()
        (held,) = tmp_path.iterdir()
        os.utime(held / "lock", (1, 1))
        drop_left(tmp_path)
        assert (held / "a.npy").is_file()
    assert not any(tmp_path.iterdir())


def by_ray(scene: str) -> dict[str, Any]:
    """What a scene of `ray_child` found; skipped where Ray is not installed."""
    pytest.importorskip("ray")
    return json.loads(printed("ray_child.py", scene).splitlines()[-1])


@pytest.mark.outer
def test_an_actor_that_is_killed_changes_nothing():
    found = by_ray("actors")
    assert found["large"]
    assert found["stored"] == 1  # the inputs, once; labels are small
    assert found["killed"]
    assert found["actors"] == 1
    assert found["same"]
    assert len(found["told"]) == 1
    assert "attempt 2 of 4" in found["told"][0]


@pytest.mark.outer
def test_a_node_that_goes_and_one_that_comes_change_nothing():
    found = by_ray("nodes")
    assert found["workers"] == 2
    assert found["exchanged"]
    assert found["same"]


@pytest.mark.outer
def test_only_its_own_processes_reach_a_ray_of_this_machine():
    assert by_ray("strangers") == {"own": True, "none": False, "other": False}
