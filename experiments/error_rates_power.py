"""What `power` promises in the worlds of `error_rates_targets`, before there is a target.

    JAXAUDIT_DATA=DATA python -m experiments.error_rates_power --split report --cache FOLDER

Runs the audit as a user would, on a world's query and calibration set with the designs of its shadow models. Keeps
`power-WORLD.json` beside the targets; call again to go on. `error_rates` puts what was found beside it.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import msgspec
import numpy as np

from experiments.error_rates_targets import FAMILY, FRACTIONS, MODELS_PER_BATCH, SIZES, SPLITS, designs, worlds
from experiments.error_rates_worlds import KINDS, Records, draw_world, origins
from jaxaudit import Design, measure_power
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.metrics.power import detection_probability


def promised(kind: str, size: int, seed: int) -> dict[str, object]:
    """The measured separation, and for each used fraction the probability that its use is detected."""
    world = draw_world(kind, size, seed)
    names = tuple(str(each) for each in range(int(origins(kind).calibration.labels.max()) + 1))

    def examples(name: str, rows: np.ndarray) -> Examples:
        chosen = Records(*(each[rows] for each in world.pool))
        return Examples(np.asarray(chosen.inputs, np.float32), chosen.labels, names, name)

    makers = designs(kind)
    guess, *others = (Design(name, makers[name](world.pool.inputs.shape[1:], len(names))) for name in FAMILY)
    found = measure_power(
        jax.random.fold_in(jax.random.key(KINDS.index(kind)), 100 * size + seed),
        examples("query", world.query),
        examples("calibration", world.calibration),
        guess.learner,
        designs=others,
        groups=None if world.group == 1 else np.arange(size) // world.group,
        execution=Execution(models_per_batch=MODELS_PER_BATCH),
    ).result
    chances = [round(detection_probability(found.separation, size, size, each), 6) for each in FRACTIONS]
    return {"separation": msgspec.structs.asdict(found.separation), "chances": chances}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--split", choices=list(SPLITS), required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sizes", nargs="*", type=int, choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=500, help="start no world after this time; call again")
    arguments = parser.parse_args()
    started = time.time()
    for kind, size, seed in worlds(arguments.split):
        path = arguments.cache / f"power-{kind}-{size}-{seed}.json"
        trained = arguments.cache / f"{kind}-{size}-{seed}.npz"
        if size not in arguments.sizes or path.exists() or not trained.exists():
            continue
        if time.time() - started > arguments.seconds:
            sys.exit(3)
        path.write_text(json.dumps({"kind": kind, "size": size, "seed": seed, **promised(kind, size, seed)}))
        print(f"{path.name}: after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
