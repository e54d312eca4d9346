"""What chunks of a call share, on its way to workers: large arrays beside the code, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from support.tiny_learners import NearestCentroid, records

from jaxaudit.ensemble import Execution, LocalWorkers, fit_many
from jaxaudit.ensemble.parts import LARGE, drop_left, shared
from jaxaudit.errors import InputError
from jaxaudit.membership import leave_one_out

EXAMPLES = 41
pytestmark = pytest.mark.outer
KEYS, ROWS = jax.random.split(jax.random.key(1), 4), leave_one_out(np.arange(4), EXAMPLES)


@pytest.fixture(scope="module")
def two() -> Any:
    with LocalWorkers(2) as workers:
        yield workers


def test_large_arrays_go_beside_the_code(two: Any):
    """Once for all chunks; what `summarize` holds of the pool as well."""
    count = LARGE // 16 + 1
    inputs, labels = records(count, 4)
    rows = leave_one_out(np.arange(4), count)
    call = KEYS, rows, inputs, labels, NearestCentroid()

    def of_pool(params: Any, rows: np.ndarray) -> np.ndarray:
        return np.asarray(params).reshape(len(rows), -1) + inputs[rows].sum()

    alone = fit_many(*call, execution=Execution(2), summarize=of_pool)
    assert fit_many(*call, execution=Execution(2, executor=two), summarize=of_pool).tobytes() == alone.tobytes()


def test_what_cannot_be_sent_is_named(two: Any):
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be sent to a worker"):
        fit_many(
            *(KEYS, ROWS, *records(EXAMPLES, 4), NearestCentroid()),
            execution=Execution(3, executor=two),
            summarize=lambda params, rows: lock,
        )


def test_arrays_of_numbers_that_numpy_does_not_know_travel(two: Any):
    inputs, labels = records(EXAMPLES, 4)
    coarse = np.asarray(inputs, ml_dtypes.bfloat16).repeat(1000, axis=1)
    assert coarse.nbytes > LARGE
    alone, spread = (
        fit_many(KEYS, ROWS, coarse, labels, NearestCentroid(), execution=execution)
        for execution in (Execution(3), Execution(3, executor=two))
    )
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(spread), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_arrays_that_a_killed_process_left_are_removed(tmp_path: Path):
    driver = f"""
import os, signal
from pathlib import Path
import numpy as np
from jaxaudit.ensemble.parts import shared
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
