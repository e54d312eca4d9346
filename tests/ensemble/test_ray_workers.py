"""Chunks trained by the actors of a Ray cluster; skipped where Ray is not installed."""

import os
import signal
from typing import Any

import jax
import numpy as np
import pytest
from support.tiny_learners import Dropped, NearestCentroid, flat_rows, learner, records

from jaxaudit.ensemble import Execution, RayWorkers, fit_many
from jaxaudit.ensemble.parts import LARGE
from jaxaudit.membership import leave_one_out

ray: Any = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Of Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]

EXAMPLES, MODELS = 41, 12
KEYS = jax.random.split(jax.random.key(1), MODELS)
RANDOM = np.random.default_rng(1)
ROWS = np.concatenate([[RANDOM.permutation(EXAMPLES) < 20 for _ in range(6)], leave_one_out(np.arange(6), EXAMPLES)])
LONG = learner(Dropped, epochs=2000)


def fit(one: Any, execution: Execution) -> np.ndarray:
    return flat_rows(fit_many(KEYS, ROWS, *records(EXAMPLES, 4), one, execution=execution), MODELS)


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    return fit(LONG, Execution(2))


def actors(workers: RayWorkers) -> list[int]:
    return [each.call(os.getpid, (), {}) for each in workers._workers.values()]


class Once:
    """Does something when the first chunk is finished."""

    def __init__(self, act: Any) -> None:
        self.act, self.done = act, False

    def __call__(self, done: int, total: int) -> None:
        if 0 < done < total and not self.done:
            self.done = True
            self.act()


@pytest.fixture(scope="module")
def two() -> Any:
    with RayWorkers(count=2) as workers:
        yield workers


def test_numbers_are_those_of_one_process(two: RayWorkers):
    count = LARGE // 16 + 1
    call = KEYS[:4], leave_one_out(np.arange(4), count), *records(count, 4), NearestCentroid()
    by_two = fit_many(*call, execution=Execution(2, executor=two))
    assert by_two.tobytes() == fit_many(*call, execution=Execution(2)).tobytes()
    assert len(two._refs) == 1  # the inputs, once; labels are small


def test_an_actor_that_is_killed_changes_nothing(two: RayWorkers, alone: np.ndarray):
    fit(NearestCentroid(), Execution(2, executor=two))
    victim = actors(two)[0]
    act = Once(lambda: os.kill(victim, signal.SIGKILL))
    with pytest.warns(RuntimeWarning, match="an actor on .*attempt 2 of 4"):
        again = fit(LONG, Execution(2, act, executor=two))
    assert act.done
    assert again.tobytes() == alone.tobytes()
    assert victim not in actors(two)


@pytest.mark.filterwarnings("ignore:a worker ended:RuntimeWarning")
def test_a_node_that_goes_and_one_that_comes_change_nothing(alone: np.ndarray):
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level="ERROR")

        def exchange() -> None:
            cluster.remove_node(second)
            cluster.add_node(num_cpus=1)

        with RayWorkers() as workers:
            act = Once(exchange)
            again = fit(LONG, Execution(1, act, executor=workers))
        assert act.done
        assert fit(LONG, Execution(1)).tobytes() == again.tobytes()
    finally:
        ray.shutdown()
        cluster.shutdown()
