"""Targets of known truth for `error_rates`: trained once, their outputs kept outside the repository.

    JAXAUDIT_DATA=DATA python -m experiments.error_rates_targets --cache FOLDER

A *world* is one draw of a provider's records into a query set and a holdout of the same size, and of a calibration set
from elsewhere (`worlds`), with all the models an auditor would train on them and up to 97 targets: several
used fractions, kinds of other training data, and makings: the guessed recipe, one of six others, and eight that are
trained in other manners, by scikit-learn or by PyTorch (`error_rates_recipes`).
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.error_rates_recipes import PYTORCH, RECIPES
from experiments.worlds import Records, joined, origins, rows_of, shifted
from jaxaudit import models, network
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.scores import log_odds

KINDS = ("digits", "adult", "location", "copies")
COPIES = 5
"""Records a group of the kind `copies`."""
NEAR = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
SIZES = (100, 300, 1000, 3000)
FRACTIONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
NEVER = 3
"""How many targets of a kind use nothing, for one of each other fraction."""
OTHER_FRACTIONS = (0.0, 0.25, 1.0)
"""Of the targets that are trained by other recipes."""
RESTS = ("calibration", "own", "both", "other")
SEEDS = range(3)
EPOCHS = {"digits": 20, "adult": 40, "location": 30, "copies": 20}
SAME = "same"
FAMILY = (SAME, "half as long", "twice as long", "momentum", "wide")
"""The recipes of the shadow models, the guessed one first."""
GUESSED = {"halves": 31, "none": 16, "half": 8, "full": 8, "query_only": 5, "calibration_only": 5, "control": 1}
OTHERS = {"halves": 19, "none": 8, "half": 4, "full": 4}
MODELS_PER_BATCH = 16
CALIBRATION_SHARE = 2 / 3
"""Of the calibration set, what each shadow model is trained on: so that they know of the choice of records too."""


class World(NamedTuple):
    """One draw: the pool, and which of its rows play which part; `group` is how many neighbours were dealt together."""

    pool: Records
    query: np.ndarray
    holdout: np.ndarray
    calibration: np.ndarray
    rest: dict[str, np.ndarray]
    size: int
    group: int


def draw_world(kind: str, size: int, seed: int) -> World:
    """Disjoint draws for every part; the pool's first rows are the query set, then the holdout."""
    generator = np.random.default_rng([KINDS.index(kind), size, seed, 3])
    rest = 680 if kind == "location" else 4000 if size > 1000 else 2000
    source = origins(kind)
    group = COPIES if kind == "copies" else 1
    wanted = {
        "provider": (size // group, size // group, rest // group),
        "calibration": (rest * 3 // 2, rest),
        "other": (rest,),
    }
    parts, rows, start = [], {}, 0
    for name, lengths in wanted.items():
        records = getattr(source, name)
        chosen = generator.choice(len(records.labels), sum(lengths), replace=False)
        drawn = rows_of(records, chosen)
        together = group if name == "provider" else 1
        parts.append(shifted(drawn, NEAR) if together > 1 else drawn)
        ends = start + together * np.cumsum(lengths)
        rows[name] = [np.arange(end - together * length, end) for end, length in zip(ends, lengths, strict=True)]
        start = int(ends[-1])
    pool = joined(parts)
    pool = pool._replace(labels=pool.labels.astype(np.int32))
    query, holdout, own = rows["provider"]
    calibration, fresh = rows["calibration"]
    kinds_of_rest = {"calibration": fresh, "own": own, "both": np.concatenate([fresh[::2], own[::2]])}
    if kind == "location":
        kinds_of_rest = {"calibration": fresh}
    return World(pool, query, holdout, calibration, {**kinds_of_rest, "other": rows["other"][0]}, size, group)


class Made(NamedTuple):
    """One model: what it was trained on, its recipe, and for a shadow model its role, for a target its truth."""

    row: np.ndarray
    recipe: str
    role: str = ""
    fraction: float = 0.0
    rest: str = ""


def shadow_models(generator: np.random.Generator, world: World) -> list[Made]:
    """The auditor's models."""
    return [
        Made(_shadow_row(generator, world, role), recipe, role)
        for recipe in FAMILY
        for role, count in (GUESSED if recipe == SAME else OTHERS).items()
        for _ in range(count)
    ]


def _shadow_row(generator: np.random.Generator, world: World, role: str) -> np.ndarray:
    size, share = len(world.query), round(CALIBRATION_SHARE * len(world.calibration))
    row = np.zeros(len(world.pool.labels), bool)
    if role != "query_only":
        row[generator.choice(world.calibration, share, replace=False)] = True
    if role == "halves":
        groups = np.concatenate([world.query, world.holdout]).reshape(-1, world.group)
        row[generator.choice(groups, size // world.group, replace=False)] = True
    elif role == "half":
        row[generator.choice(world.query, size // 2, replace=False)] = True
    elif role in ("full", "query_only", "control"):
        row[world.query] = True
    return row


def networks(kind: str) -> dict[str, Callable[[tuple[int, ...], int], NetworkLearner]]:
    """The networks that are trained many at a time: the shadow models', and others that a target may have."""
    epochs = EPOCHS[kind]

    def recipe(
        hidden: tuple[int, ...] = (64,), length: float = 1.0, activation: Any = jax.nn.relu, optimizer: Any = None
    ) -> Callable[[tuple[int, ...], int], NetworkLearner]:
        def factory(input_shape: tuple[int, ...], classes: int, *, rngs: Any) -> models.MLP:
            return models.MLP(input_shape, classes, rngs=rngs, hidden=hidden, activation=activation)

        return lambda shape, classes: network(
            factory,
            shape,
            classes,
            optimizer=optimizer or optax.adam(1e-3),
            epochs=round(length * epochs),
            batch_size=32,
        )

    return {
        SAME: recipe(),
        "wide": recipe((256,)),
        "deep": recipe((64, 64)),
        "tanh": recipe(activation=jnp.tanh),
        "momentum": recipe(optimizer=optax.sgd(0.03, momentum=0.9)),
        "half as long": recipe(length=0.5),
        "twice as long": recipe(length=2.0),
    }


def targets(generator: np.random.Generator, world: World, kind: str) -> list[Made]:
    """Every fraction with every kind of rest, like the shadow models and unlike; and the other recipes' targets."""

    unlike = [name for name in networks(kind) if name != SAME]
    made = [
        _target(generator, world, fraction, rest, recipe)
        for rest in world.rest
        for fraction in (*(0.0,) * NEVER, *FRACTIONS[1:])
        for recipe in (SAME, str(generator.choice(unlike)))
    ]
    made += [
        _target(generator, world, fraction, "calibration", recipe)
        for recipe in RECIPES
        if recipe != PYTORCH
        for fraction in OTHER_FRACTIONS
    ]
    return made


def pytorch_targets(generator: np.random.Generator, world: World) -> list[Made]:
    """With every kind of rest, drawn from a generator of their own: the targets before them stay as they are."""
    return [_target(generator, world, fraction, rest, PYTORCH) for rest in world.rest for fraction in OTHER_FRACTIONS]


def _target(generator: np.random.Generator, world: World, fraction: float, rest: str, recipe: str) -> Made:
    row = np.zeros(len(world.pool.labels), bool)
    row[world.rest[rest]] = True
    groups = world.query.reshape(-1, world.group)
    row[generator.choice(groups, round(fraction * len(groups)), replace=False)] = True
    return Made(row, recipe, "", fraction, rest)


def train_world(kind: str, size: int, seed: int) -> dict[str, np.ndarray]:
    """Everything that the statistics of one world need."""
    world = draw_world(kind, size, seed)
    generator = np.random.default_rng([KINDS.index(kind), size, seed, 4])
    made = [*shadow_models(generator, world), *targets(generator, world, kind)]
    both = np.concatenate([world.query, world.holdout])
    seen = np.concatenate([both, world.calibration])
    classes = int(origins(kind).calibration.labels.max()) + 1
    seeds = generator.integers(2**31, size=len(made))
    later = np.random.default_rng([KINDS.index(kind), size, seed, 5])
    made += pytorch_targets(later, world)
    seeds = np.r_[seeds, later.integers(2**31, size=len(made) - len(seeds))]
    log_probs = np.zeros((len(made), len(seen), classes), np.float32)
    own_accuracy = np.zeros(len(made))
    for name, maker in networks(kind).items():
        chosen = [place for place, one in enumerate(made) if one.recipe == name]
        log_probs[chosen], own_accuracy[chosen] = _networks(
            maker(world.pool.inputs.shape[1:], classes),
            jax.vmap(jax.random.key)(seeds[chosen]),
            np.stack([made[place].row for place in chosen]),
            world,
            seen,
        )
    for place, one in enumerate(made):
        if one.recipe in RECIPES:
            x, y = world.pool.inputs[one.row], world.pool.labels[one.row]
            trained = RECIPES[one.recipe](int(seeds[place]), x, y, classes)
            log_probs[place] = np.maximum(trained(world.pool.inputs[seen]), -60)
            own_accuracy[place] = (trained(x).argmax(axis=1) == y).mean()
    shadows = [place for place, one in enumerate(made) if one.role]
    mine = [place for place, one in enumerate(made) if not one.role]
    rows = np.stack([one.row for one in made])
    labels = world.pool.labels
    return {
        "log_odds": log_odds(log_probs, labels[seen]).astype(np.float32),
        "own_accuracy": own_accuracy,
        "roles": np.array([made[place].role for place in shadows]),
        "recipes": np.array([made[place].recipe for place in shadows]),
        "membership": rows[shadows][:, seen],
        "labels": labels[both],
        "truth": np.array([f"{made[place].fraction}|{made[place].rest}|{made[place].recipe}" for place in mine]),
        "group": np.array(world.group),
    }


def _networks(
    learner: NetworkLearner, keys: Any, membership: np.ndarray, world: World, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the records seen, and the accuracy on its own, of each model of one recipe."""

    def then(params: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        found = log_probs_many(learner, params, world.pool.inputs)
        hits = found.argmax(axis=-1) == world.pool.labels
        return found[:, seen], (hits * membership[rows]).sum(axis=1) / membership[rows].sum(axis=1)

    execution = Execution(models_per_batch=MODELS_PER_BATCH)
    return fit_many(
        keys, membership, world.pool.inputs, world.pool.labels, learner, execution=execution, summarize=then
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500, help="start no world after this time; call again")
    arguments = parser.parse_args()
    started = time.time()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for kind, size, seed in worlds():
        path = arguments.cache / f"{kind}-{size}-{seed}.npz"
        if path.exists():
            continue
        if time.time() - started > arguments.seconds:
            sys.exit(3)
        before = time.time()
        arrays = train_world(kind, size, seed)
        unfinished = path.with_suffix(f".{os.getpid()}")
        with unfinished.open("wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **arrays)
        unfinished.replace(path)
        print(f"{path.name}: {len(arrays['truth'])} targets, {time.time() - before:.0f} s", flush=True)


def worlds() -> list[tuple[str, int, int]]:
    """Kind, size and seed of every world.

    Location has too few records for more than 1,000; the third world of a kind is drawn for the small, quick sizes
    only; near-copies are dealt at two sizes.
    """
    return [
        (kind, size, seed)
        for seed in SEEDS
        for size in SIZES
        for kind in KINDS
        if not (kind == "location" and size > 1000)
        and not (seed == 2 and size > 300)
        and not (kind == "copies" and size not in (300, 1000))
    ]


if __name__ == "__main__":
    main()
