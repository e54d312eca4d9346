"""Targets of known truth for `error_rates`: trained once, their outputs kept outside the repository.

    JAXAUDIT_DATA=DATA python -m experiments.error_rates_targets --split report --cache FOLDER

A *world* is one draw of a provider's records into a query set and a holdout of the same size, and of a calibration set
from elsewhere, with all the models an auditor would train on them and 56 targets: seven used fractions, four kinds of
other training data, a design like the shadow models' and a different one. Worlds of the split `development` chose the
scores and thresholds; those of `report` are the ones that `error_rates` reports.

| kind | provider | calibration domain | another domain |
|---|---|---|---|
| digits | MNIST | USPS, Semeion, MNIST-M | CIFAR-10, labelled with its own ten classes |
| Adult | women | men | men with every column shuffled, and the labels |
| Location | users | other users: the same distribution | users with every column shuffled, and the labels |
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxaudit import load, models, network, prepare_images
from jaxaudit.data import Column, load_table, one_hot
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.scores import log_odds

SIZES = (100, 300, 1000, 3000)
FRACTIONS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
RESTS = ("calibration", "own", "both", "other")
KINDS = ("digits", "adult", "location")
SPLITS = {"development": range(100, 101), "report": range(3)}
EPOCHS = {"digits": 20, "adult": 40, "location": 30}
PRINTED = ("usps/usps16.npz@all", "semeion/semeion16.npz", "mnist_m/mnist_m_gray28_test.npz@test")
SHADOWS = {"halves": 31, "none": 39, "half": 19, "full": 19, "query_only": 5, "calibration_only": 5, "control": 1}
PIXELS = (14, 14)
MODELS_PER_BATCH = 16
CALIBRATION_SHARE = 2 / 3
"""Of the calibration set, what each shadow model is trained on: so that they know of the choice of records too."""


class Records(NamedTuple):
    """Inputs and labels of one origin."""

    inputs: np.ndarray
    labels: np.ndarray


class Origins(NamedTuple):
    """Where a world's records are drawn from."""

    provider: Records
    calibration: Records
    other: Records


class World(NamedTuple):
    """One draw: the pool, and which of its rows play which part."""

    pool: Records
    query: np.ndarray
    holdout: np.ndarray
    calibration: np.ndarray
    rest: dict[str, np.ndarray]
    size: int


@cache
def origins(kind: str) -> Origins:
    """The records of a kind."""
    return {"digits": _digits, "adult": _adult, "location": _location}[kind]()


def _digits() -> Origins:
    def read(*names: str) -> Records:
        parts = [prepare_images(load(name), PIXELS) for name in names]
        return Records(np.concatenate([p.inputs for p in parts]), np.concatenate([p.labels for p in parts]))

    return Origins(read("mnist@train"), read(*PRINTED), read("cifar10/cifar10_gray28_jpeg.npz@train"))


def _adult() -> Origins:
    table = load_table("adult@all")
    examples = one_hot(table)
    place = [column.name for column in table.columns].index("sex")
    women = np.asarray(table.values)[:, place] == _categories(table.columns[place]).index("Female")
    inputs = np.asarray(examples.inputs, np.float32)
    men = Records(inputs[~women], examples.labels[~women])
    return Origins(Records(inputs[women], examples.labels[women]), men, _shuffled(men))


def _categories(column: Column) -> tuple[str, ...]:
    assert column.categories is not None
    return column.categories


def _location() -> Origins:
    examples = one_hot(load_table("location"))
    everyone = Records(np.asarray(examples.inputs, np.float32), np.asarray(examples.labels))
    order = np.random.default_rng(5).permutation(len(everyone.labels))
    provider, calibration = order[:3300], order[3300:]
    others = Records(everyone.inputs[calibration], everyone.labels[calibration])
    return Origins(Records(everyone.inputs[provider], everyone.labels[provider]), others, _shuffled(others))


def _shuffled(records: Records) -> Records:
    generator = np.random.default_rng(6)
    return Records(generator.permuted(records.inputs, axis=0), generator.permutation(records.labels))


def rest_size(kind: str, size: int) -> int:
    """How many other records a target is trained on."""
    return 680 if kind == "location" else 4000 if size > 1000 else 2000


def draw_world(kind: str, size: int, seed: int) -> World:
    """Disjoint draws for every part; the pool's first rows are the query set, then the holdout."""
    generator = np.random.default_rng([KINDS.index(kind), size, seed])
    rest = rest_size(kind, size)
    source = origins(kind)
    wanted = {
        "provider": (size, size, rest),
        "calibration": (rest * 3 // 2, rest),
        "other": (rest,),
    }
    parts, rows, start = [], {}, 0
    for name, lengths in wanted.items():
        records = getattr(source, name)
        chosen = generator.choice(len(records.labels), sum(lengths), replace=False)
        parts.append(Records(records.inputs[chosen], records.labels[chosen]))
        ends = start + np.cumsum(lengths)
        rows[name] = [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        start = int(ends[-1])
    pool = Records(
        np.concatenate([p.inputs for p in parts]), np.concatenate([p.labels for p in parts]).astype(np.int32)
    )
    query, holdout, own = rows["provider"]
    calibration, fresh = rows["calibration"]
    kinds_of_rest = {"calibration": fresh, "own": own, "both": np.concatenate([fresh[::2], own[::2]])}
    if kind == "location":
        kinds_of_rest = {"calibration": fresh}
    return World(pool, query, holdout, calibration, {**kinds_of_rest, "other": rows["other"][0]}, rest)


def shadow_rows(generator: np.random.Generator, world: World) -> tuple[np.ndarray, list[str]]:
    """Membership and roles of the auditor's models."""
    size, share = len(world.query), round(CALIBRATION_SHARE * len(world.calibration))
    both = np.concatenate([world.query, world.holdout])
    used = {
        "halves": lambda: generator.choice(both, size, replace=False),
        "half": lambda: generator.choice(world.query, size // 2, replace=False),
        "full": lambda: world.query,
        "query_only": lambda: world.query,
        "control": lambda: world.query,
    }
    rows, roles = [], []
    for role, count in SHADOWS.items():
        for _ in range(count):
            row = np.zeros(len(world.pool.labels), bool)
            if role != "query_only":
                row[generator.choice(world.calibration, share, replace=False)] = True
            if role in used:
                row[used[role]()] = True
            rows.append(row)
            roles.append(role)
    return np.stack(rows), roles


class Truth(NamedTuple):
    """What is known of a target."""

    fraction: float
    rest: str
    design: str


def designs(kind: str) -> dict[str, Callable[[tuple[int, ...], int], NetworkLearner]]:
    """The shadow models' design, and others that a target may have."""
    epochs = EPOCHS[kind]

    def design(
        hidden: tuple[int, ...] = (64,), length: float = 1.0, activation: Any = jax.nn.relu, optimizer: Any = None
    ) -> Callable[[tuple[int, ...], int], NetworkLearner]:
        def factory(shape: tuple[int, ...], classes: int, *, rngs: Any) -> models.MLP:
            return models.MLP(shape, classes, rngs=rngs, hidden=hidden, activation=activation)

        return lambda shape, classes: network(
            factory,
            shape,
            classes,
            optimizer=optimizer or optax.adam(1e-3),
            epochs=round(length * epochs),
            batch_size=32,
        )

    return {
        "same": design(),
        "wide": design((256,)),
        "deep": design((64, 64)),
        "tanh": design(activation=jnp.tanh),
        "momentum": design(optimizer=optax.sgd(0.03, momentum=0.9)),
        "half as long": design(length=0.5),
        "twice as long": design(length=2.0),
    }


def target_rows(generator: np.random.Generator, world: World, kind: str) -> tuple[np.ndarray, list[Truth]]:
    """Membership and truth of the targets: every fraction with every kind of rest, like the shadows and unlike."""
    rows, truths = [], []
    unlike = [name for name in designs(kind) if name != "same"]
    for fraction in FRACTIONS:
        for rest, others in world.rest.items():
            for like in (True, False):
                row = np.zeros(len(world.pool.labels), bool)
                row[others] = True
                row[generator.choice(world.query, round(fraction * len(world.query)), replace=False)] = True
                rows.append(row)
                truths.append(Truth(fraction, rest, "same" if like else str(generator.choice(unlike))))
    return np.stack(rows), truths


def train_world(kind: str, size: int, seed: int) -> dict[str, np.ndarray]:
    """Everything that the statistics of one world need."""
    world = draw_world(kind, size, seed)
    generator = np.random.default_rng([KINDS.index(kind), size, seed, 1])
    shadows, roles = shadow_rows(generator, world)
    targets, truths = target_rows(generator, world, kind)
    both = np.concatenate([world.query, world.holdout])
    seen = np.concatenate([both, world.calibration])
    classes = int(origins(kind).calibration.labels.max()) + 1
    shape = world.pool.inputs.shape[1:]
    makers = designs(kind)
    membership = np.concatenate([shadows, targets])
    all_designs = np.array(["same"] * len(shadows) + [truth.design for truth in truths])
    keys = jax.random.split(jax.random.key(int(generator.integers(2**31))), len(membership))
    log_probs = np.zeros((len(membership), len(seen), classes), np.float32)
    own_accuracy = np.zeros(len(membership))
    for name in makers:
        chosen = np.flatnonzero(all_designs == name)
        if not len(chosen):
            continue
        learner = makers[name](shape, classes)

        def then(
            params: Any, rows: Any, learner: NetworkLearner = learner, members: np.ndarray = membership[chosen]
        ) -> tuple[np.ndarray, np.ndarray]:
            found = log_probs_many(learner, params, world.pool.inputs)
            hits = found.argmax(axis=-1) == world.pool.labels
            return found[:, seen], (hits * members[rows]).sum(axis=1) / members[rows].sum(axis=1)

        fitted = fit_many(
            keys[chosen],
            membership[chosen],
            world.pool.inputs,
            world.pool.labels,
            learner,
            execution=Execution(models_per_batch=MODELS_PER_BATCH),
            summarize=then,
        )
        log_probs[chosen], own_accuracy[chosen] = fitted
    queried = slice(None, len(world.query))
    of_calibration = np.array([role == "calibration_only" for role in roles] + [False] * len(truths))
    return {
        "log_odds": log_odds(log_probs[:, : len(both)], world.pool.labels[both]).astype(np.float32),
        "own_accuracy": own_accuracy,
        "roles": np.array(roles),
        "membership": shadows[:, both],
        "target_membership": targets[:, world.query],
        "labels": world.pool.labels[both],
        "truth": np.array([f"{t.fraction}|{t.rest}|{t.design}" for t in truths]),
        "target_log_probs": log_probs[len(shadows) :, queried].astype(np.float16),
        "calibration_log_probs": log_probs[of_calibration][:, len(both) :].astype(np.float16),
        "calibration_labels": world.pool.labels[world.calibration],
        "calibration_members": shadows[of_calibration[: len(shadows)]][:, world.calibration],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--split", choices=list(SPLITS), required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="*", type=int, choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=500, help="start no world after this time; call again")
    arguments = parser.parse_args()
    started = time.time()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for kind, size, seed in worlds(arguments.split):
        path = arguments.cache / f"{kind}-{size}-{seed}.npz"
        if kind not in arguments.kinds or size not in arguments.sizes or path.exists():
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


def worlds(split: str) -> list[tuple[str, int, int]]:
    """Kind, size and seed of every world of a split.

    Location has too few records for 3,000; the third world of a kind is drawn for the small, quick sizes only.
    """
    return [
        (kind, size, seed)
        for seed in SPLITS[split]
        for size in SIZES
        for kind in KINDS
        if not (kind == "location" and size > 1000) and not (seed == 2 and size > 300)
    ]


if __name__ == "__main__":
    main()
