"""A cluster run: leave-one-out models trained by whatever has `submit`, here the processes of this machine.

    python many_workers.py

On a cluster put its own executor in place of `ProcessPoolExecutor`: executorlib's for SLURM, Dask's
`client.get_executor()`, or `jaxaudit.ensemble.RayWorkers`. Every number stays the same, bit for bit.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import optax

import jaxaudit as ja


def main() -> None:
    people = ja.one_hot(ja.load_table("breast-cancer"))
    mlp = partial(ja.models.MLP, hidden=(8,))
    learner = ja.network(mlp, people.inputs.shape[1:], 2, optimizer=optax.adam(1e-2), epochs=5, batch_size=64)
    # Finished chunks lie in this folder: the same call continues where another was stopped.
    kept = Path("chunks")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        execution = ja.Execution(models_per_batch=16, checkpoints=kept, executor=executor)
        audit = ja.measure_pdtp(jax.random.key(1), people, learner, records=np.arange(64), execution=execution)
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")


# Processes are spawned: each imports this file, and must not start the run again.
if __name__ == "__main__":
    main()
