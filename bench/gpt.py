"""Language models side by side: `python -m bench.gpt`.

Seconds a model and epoch of `gpt-2-64` on 256 records of 64 tokens (512 words, minibatches of 32): sixteen models
trained by `fit_many` 1, 4 and 16 at a time. As everywhere, a CPU trains a chunk a core at once. Nothing is
promised and nothing is written: numbers of a busy machine say little. Under a minute.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import jaxaudit as ja
from bench.harness import Spread, interleave, machine, print_table
from jaxaudit.models import GPT

MODELS, RECORDS, LENGTH, WORDS, BATCH, ROUNDS = 16, 256, 64, 512, 32, 3
AT_ONCE = (1, 4, 16)


def epoch(number: int) -> Callable[[], Any]:
    """An epoch of all models, this many side by side."""
    inputs = np.random.default_rng(1).integers(0, WORDS, (RECORDS, LENGTH)).astype(np.int32)
    inputs[:, : LENGTH // 4] = ~inputs[:, : LENGTH // 4]
    recipe: dict[str, Any] = {"optimizer": optax.adamw(1e-3), "epochs": 1, "batch_size": BATCH}
    learner = ja.language_model(partial(GPT, depth=2, width=64), LENGTH, WORDS, **recipe)
    membership, labels = np.ones((MODELS, RECORDS), bool), np.zeros(RECORDS, np.int32)
    models = jax.random.split(jax.random.key(1), MODELS), membership, inputs, labels, learner
    return partial(ja.fit_many, *models, execution=ja.Execution(number), members_only=True)


def main() -> None:
    timings = interleave("gpt-2-64", {f"{number} at a time": epoch(number) for number in AT_ONCE}, ROUNDS)
    alone = f"{AT_ONCE[0]} at a time"
    rows = []
    for name, seconds in timings.seconds.items():
        each, ratio = Spread.of([whole / MODELS for whole in seconds]), timings.ratio(alone, name)
        rows.append([name, *(f"{part:.3f}" for part in (each.median, each.low, each.high)), f"{ratio.median:.2f}"])
    about = machine(["jax"])
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}, jax {about['versions']['jax']}")
    print_table(["seconds a model and epoch", "median", "low", "high", f"{alone} / this"], rows)


if __name__ == "__main__":
    main()
