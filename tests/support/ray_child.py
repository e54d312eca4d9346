"""Trains by actors of a Ray cluster, some of which die, and prints what test_workers.py wants to know.

A process of its own, because Ray's is started by forks, which must come before JAX.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxaudit.ensemble import Execution, RayWorkers, fit_many
from jaxaudit.ensemble.worker import LARGE
from jaxaudit.ensemble.workers import connect
from jaxaudit.membership import leave_one_out_masks
from support.processes import of_each
from support.tiny_learners import Dropped, NearestCentroid, flat_rows, learner, records

MODELS = 12


class Once:
    """Does something when the first chunk is finished."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.done = act, False

    def __call__(self, done: int, total: int) -> None:
        if 0 < done < total and not self.done:
            self.done = True
            self.act()


def trained(execution: Execution) -> bytes:
    random = np.random.default_rng(1)
    rows = np.concatenate([[random.permutation(41) < 20 for _ in range(6)], leave_one_out_masks(np.arange(6), 41)])
    keys = jax.random.split(jax.random.key(1), MODELS)
    one = learner(Dropped, epochs=1000)
    return flat_rows(fit_many(keys, rows, *records(41, 4), one, execution=execution), MODELS).tobytes()


def by_actors() -> dict[str, Any]:
    """Two actors; a large pool; then one of them is killed."""
    connect(None)
    with RayWorkers(count=2) as workers:
        count = LARGE // 16 + 1
        keys, rows = jax.random.split(jax.random.key(1), 4), leave_one_out_masks(np.arange(4), count)
        call = keys, rows, *records(count, 4), NearestCentroid()
        by_two = fit_many(*call, execution=Execution(2, executor=workers))
        stored = len(workers._refs)
        large = by_two.tobytes() == fit_many(*call, execution=Execution(2)).tobytes()
        before = of_each(workers, os.getpid, 2)
        killed = min(before)
        act = Once(lambda: os.kill(killed, signal.SIGKILL))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            again = trained(Execution(2, act, executor=workers))
        after = of_each(workers, os.getpid, 2)
    return {
        "large": large,
        "stored": stored,
        "same": again == trained(Execution(2)),
        "killed": act.done and killed not in after,
        "actors": len(before & after),
        "told": [str(each.message) for each in told if each.category is RuntimeWarning],
    }


def by_nodes() -> dict[str, Any]:
    """Two nodes, of which one goes while it trains, and a third that comes."""
    ray: Any = importlib.import_module("ray")
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="ERROR")

    def exchange() -> None:
        cluster.remove_node(second)
        cluster.add_node(num_cpus=1)

    with RayWorkers() as workers, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        count = len(workers._threads)
        act = Once(exchange)
        again = trained(Execution(1, act, executor=workers))
    ray.shutdown()
    cluster.shutdown()
    return {
        "workers": count,
        "exchanged": act.done,
        "same": again == trained(Execution(1)),
        "told": [str(each.message) for each in told if each.category is RuntimeWarning],
    }


def by_strangers() -> dict[str, Any]:
    """Who may connect to a Ray that was started here: this process's own token, none, another."""
    # The token is told before Ray is imported.
    connect(None)
    place = importlib.import_module("ray").get_runtime_context().gcs_address
    code = f"import ray; ray.init(address={place!r}, logging_level='ERROR')"
    tokens = {"own": os.environ["RAY_AUTH_TOKEN"], "none": None, "other": "0" * 64}
    found = {}
    for name, token in tokens.items():
        known = {key: value for key, value in os.environ.items() if token or not key.startswith("RAY_AUTH")}
        environment = known | ({"RAY_AUTH_TOKEN": token} if token else {})
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        found[name] = done.returncode == 0
    return found


if __name__ == "__main__":
    print(json.dumps({"actors": by_actors, "nodes": by_nodes, "strangers": by_strangers}[sys.argv[1]]()), flush=True)
