"""Trains on eight simulated devices and prints what a test wants to know; started by test_fit_many_resources.py."""

import json
import sys
from typing import Any

import jax
import numpy as np

from jaxaudit.ensemble import Execution, fit_many
from support.tiny_learners import NearestCentroid, flat_rows, records, small_mlp
from support.tiny_learners import learner as make


def main(path: str) -> None:
    inputs, labels = records(41, 4)
    seen = []

    def then(params: Any, rows: np.ndarray) -> np.ndarray:
        first = jax.tree.leaves(params)[0]
        seen.append([len(first.sharding.device_set), first.addressable_shards[0].data.shape[0], len(first)])
        return flat_rows(params, len(first))

    with np.load(path) as file:
        keys, rows = jax.random.wrap_key_data(file["keys"]), file["rows"]
    models = {}
    for name, learner in (("steps", make(small_mlp)), ("whole", NearestCentroid())):
        for width in (1, None):
            models[f"{name} {width}"] = fit_many(
                keys, rows, inputs, labels, learner, execution=Execution(models_per_batch=width), summarize=then
            )
    models["one"] = fit_many(keys[:1], rows[:1], inputs, labels, make(small_mlp), summarize=then)
    np.savez(path.replace("rows", "models"), **models)
    json.dump({"devices": len(jax.local_devices()), "chunks": seen}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
