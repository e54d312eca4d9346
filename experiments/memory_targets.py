"""Targets that remember little, and shadow models: trained once, their outputs kept outside the repository.

    JAXAUDIT_DATA=DATA python -m experiments.memory_targets --cache FOLDER

Needs PyTorch and scikit-learn. Each world (`memory_worlds`) has a pool of 4n records. Of each recipe
(`memory_recipes`), and of the shadow models, many models are trained, each on its own random half of the pool.

FOLDER/WORLD/world.npz: `labels` and `groups` int32[4n]; `size`, `classes`, `final`.
FOLDER/WORLD/RECIPE.npz: `odds` float32[K,4n], each model's log-odds of each record's own class, cut at -60 and 60;
`rows` bool[K,4n], what it was trained on; `accuracy_in`, `accuracy_out` float64[K]; `seconds`, for all models.
Of the recipe `shadow` also `designs` str[K]. Recipes `shadow-1` and `shadow-3`: trained for so many epochs only.
"""

import argparse
import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from experiments.memory_recipes import FOR_ALL, FOR_IMAGES, Recipe
from experiments.memory_worlds import WORLDS, World, draw_world, halves
from jaxaudit import models, network
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.scores import log_odds

MODELS, PER_DESIGN = 20, 8
LIMIT = 60.0
"""Log-odds are cut here, and log-probabilities at its negative."""
MODELS_PER_BATCH = 16
HIDDEN = 128
SHORT = (1, 3)
"""Epochs of the shadow models that are stopped early on."""


def recipes(name: str, image: bool) -> dict[str, Recipe]:
    """The targets of a world."""
    everything = {**(FOR_IMAGES if image else {}), **FOR_ALL}
    only = WORLDS[name].only
    return {recipe: train for recipe, train in everything.items() if not only or recipe in only}


def designs(image: bool) -> dict[str, Callable[..., NetworkLearner]]:
    """The designs of the shadow models, the guessed one first."""
    epochs = 20 if image else 40

    def design(hidden: int = HIDDEN, length: float = 1.0, optimizer: Any = None) -> Callable[..., NetworkLearner]:
        def factory(shape: tuple[int, ...], classes: int, *, rngs: Any) -> models.MLP:
            return models.MLP(shape, classes, rngs=rngs, hidden=(hidden,))

        def learner(shape: tuple[int, ...], classes: int, epochs: int = round(length * epochs)) -> NetworkLearner:
            moves = optimizer or optax.adam(1e-3)
            return network(factory, shape, classes, optimizer=moves, epochs=epochs, batch_size=32)

        return learner

    return {
        "guess": design(),
        "shorter": design(length=0.5),
        "longer": design(length=2.0),
        "wider": design(2 * HIDDEN),
        "momentum": design(optimizer=optax.sgd(0.03, momentum=0.9)),
    }


def train_shadows(world: World, learner: NetworkLearner, rows: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Models of one design, many at a time."""

    def then(params: Any, _: Any) -> tuple[np.ndarray, np.ndarray]:
        return outputs(log_probs_many(learner, params, world.pool.inputs), world.pool.labels)

    odds, hits = fit_many(
        jax.random.split(jax.random.key(seed), len(rows)),
        rows,
        *world.pool,
        learner,
        execution=Execution(models_per_batch=MODELS_PER_BATCH),
        summarize=then,
    )
    return results(odds, hits, rows)


def train_targets(world: World, train: Recipe, rows: np.ndarray, seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Models of one recipe, one after another."""
    x, y = world.pool
    found = []
    for row, seed in zip(rows, seeds, strict=True):
        log_probs = train(int(seed), world.pool._replace(inputs=x[row], labels=y[row]), world.classes, world.others)(x)
        found.append(outputs(log_probs, y))
    odds, hits = (np.stack(one) for one in zip(*found, strict=True))
    return results(odds, hits, rows)


def outputs(log_probs: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The log-odds of each record's own class, and whether it is the likeliest."""
    log_probs = np.maximum(np.asarray(log_probs, np.float64), -LIMIT)
    odds = np.clip(log_odds(log_probs, labels), -LIMIT, LIMIT).astype(np.float32)
    return odds, log_probs.argmax(axis=-1) == labels


def results(odds: np.ndarray, hits: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What is kept of some models."""
    inside, outside = ((hits & part).sum(axis=1) / part.sum(axis=1) for part in (rows, ~rows))
    return {"odds": odds, "rows": rows, "accuracy_in": inside, "accuracy_out": outside}


def train_recipe(name: str, recipe: str, world: World) -> dict[str, np.ndarray]:
    """All models of one recipe on one world."""
    image = world.pool.inputs.ndim == 4
    generator = np.random.default_rng([zlib.crc32(f"{name}/{recipe}".encode()), 8])
    shape = world.pool.inputs.shape[1:]
    family = designs(image)
    if recipe == "shadow":
        parts = [
            train_shadows(
                world, make(shape, world.classes), halves(generator, world, PER_DESIGN), int(generator.integers(2**31))
            )
            for make in family.values()
        ]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return {**joined, "designs": np.repeat(list(family), PER_DESIGN)}
    rows = halves(generator, world, MODELS)
    seeds = generator.integers(2**31, size=MODELS)
    if recipe.startswith("shadow-"):
        learner = family["guess"](shape, world.classes, int(recipe.removeprefix("shadow-")))
        return train_shadows(world, learner, rows, int(seeds[0]))
    return train_targets(world, recipes(name, image)[recipe], rows, seeds)


def save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A file that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--recipes", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=36000, help="start no recipe after this time; call again")
    arguments = parser.parse_args()
    started = time.time()
    for name in arguments.worlds:
        world = draw_world(name)
        about = arguments.cache / name / "world.npz"
        if not about.exists():
            numbers = {"size": world.size, "classes": world.classes, "final": WORLDS[name].final}
            texts = {key: np.array(value) for key, value in numbers.items()}
            save(about, {"labels": world.pool.labels, "groups": world.groups, **texts})
        shadows = ["shadow", *(f"shadow-{epochs}" for epochs in SHORT)]
        for recipe in [*shadows, *recipes(name, world.pool.inputs.ndim == 4)]:
            path = arguments.cache / name / f"{recipe}.npz"
            if path.exists() or (arguments.recipes and recipe not in arguments.recipes):
                continue
            if time.time() - started > arguments.seconds:
                sys.exit(3)
            before = time.time()
            arrays = train_recipe(name, recipe, world)
            seconds = time.time() - before
            save(path, {**arrays, "seconds": np.array(seconds)})
            inside, outside = arrays["accuracy_in"].mean(), arrays["accuracy_out"].mean()
            shown = "" if WORLDS[name].final else f", accuracy {inside:.3f} inside, {outside:.3f} outside"
            print(f"{name} {recipe}: {len(arrays['rows'])} models, {seconds:.0f} s{shown}", flush=True)


if __name__ == "__main__":
    main()
