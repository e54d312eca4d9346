"""Trains by two local workers, after it printed their process ids; test_workers.py kills it on the way."""

import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit.ensemble import Execution, LocalWorkers, fit_many
from jaxaudit.membership import leave_one_out_masks
from support.processes import of_each
from support.tiny_learners import Dropped, flat_rows, learner, records

EPOCHS = 250
"""A chunk then takes a few tenths of a second: long enough to be stopped in its midst."""


def main(folder: Path) -> None:
    random = np.random.default_rng(1)
    rows = np.concatenate([[random.permutation(41) < 20 for _ in range(5)], leave_one_out_masks(np.arange(6), 41)])
    keys = jax.random.split(jax.random.key(1), 11)
    with LocalWorkers(2) as workers:
        print(*of_each(workers, os.getpid, 2), flush=True)
        execution = Execution(1, checkpoints=folder / "kept", executor=workers)
        one = learner(Dropped, epochs=EPOCHS)
        models = fit_many(keys, rows, *records(41, 4), one, execution=execution, summarize=flat)
    np.save(folder / "models.npy", models)


def flat(params: Any, rows: np.ndarray) -> np.ndarray:
    return flat_rows(params, len(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
