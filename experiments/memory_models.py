"""Targets that remember little of their records or much, and shadow models: trained once, their outputs kept.

    JAXAUDIT_DATA=DATA python -m experiments.memory_models --cache FOLDER

Needs PyTorch and scikit-learn. Each world (`worlds`) has a pool of 4n records. Of each recipe, and of the shadow
models, many models are trained, each on its own random half of the pool.

FOLDER/WORLD/world.npz: `labels` and `groups` int32[4n]; `size`, `classes`, `final`.
FOLDER/WORLD/RECIPE.npz: `odds` float32[K,4n], each model's log-odds of each record's own class, cut at -60 and 60;
`rows` bool[K,4n], what it was trained on; `accuracy_in`, `accuracy_out` float64[K]; `seconds`, for all models.
The models of `shadow` are of five recipes, eight of each.
"""

import argparse
import os
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments import error_rates_recipes
from experiments.worlds import WORLDS, Records, World, draw_world, halves
from jaxaudit import models, network
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.learners import NetworkLearner
from jaxaudit.metrics.scores import log_odds

# Recipes: each a function of a seed, training records, the number of classes and other records of the same provider to
# a function of inputs to log-probabilities.

LogProbs = Callable[[np.ndarray], np.ndarray]
Recipe = Callable[[int, Records, int, Records], LogProbs]
BATCH, HIDDEN, WIDTH = 64, 128, 16
SHIFT = 2
"""Images are shifted by up to so many pixels, anew in each epoch."""
TEMPERATURE = 4.0
"""Distillation: what the logits are divided by."""


class Manner(NamedTuple):
    """How a network is trained."""

    epochs: float
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.Adam(parameters, 1e-3)
    shifts: bool = False
    smoothing: float = 0.0


def mlp(shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> nn.Module:
    """One hidden layer."""
    width = int(np.prod(shape))
    between = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Flatten(), nn.Linear(width, HIDDEN), nn.ReLU(), *between, nn.Linear(HIDDEN, classes))


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two layers of convolutions with batch norm, each halving the image."""

    def layer(inside: int, outside: int) -> list[nn.Module]:
        return [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]

    flat = 2 * WIDTH * (shape[0] // 4) * (shape[1] // 4)
    return nn.Sequential(*layer(shape[2], WIDTH), *layer(WIDTH, 2 * WIDTH), nn.Flatten(), nn.Linear(flat, classes))


def as_tensor(inputs: np.ndarray) -> Tensor:
    """Images with their channels first."""
    inputs = np.moveaxis(inputs, -1, 1) if inputs.ndim == 4 else inputs
    return torch.from_numpy(np.ascontiguousarray(inputs, np.float32))


def _shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image shifted by its own draw; black comes in from outside."""
    height, width = x.shape[2:]
    padded = functional.pad(x, (SHIFT,) * 4)
    down, right = torch.randint(2 * SHIFT + 1, (2, len(x)), generator=generator)
    rows = (down[:, None] + torch.arange(height))[:, None, :, None]
    columns = (right[:, None] + torch.arange(width))[:, None, None, :]
    images = torch.arange(len(x))[:, None, None, None]
    return padded[images, torch.arange(x.shape[1])[:, None, None], rows, columns]


def fit(net: nn.Module, x: Tensor, y: Tensor, manner: Manner, seed: int) -> nn.Module:
    """Trains a network on classes, or on probabilities of a teacher; a last part of an epoch may be all there is."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = manner.optimizer(net.parameters())
    soft = y.ndim == 2
    left = round(manner.epochs * len(x) / BATCH)
    net.train()
    while left > 0:
        seen = _shifted(x, generator) if manner.shifts else x
        for rows in torch.randperm(len(x), generator=generator).split(BATCH)[:left]:
            left -= 1
            if len(rows) == 1:
                continue
            optimizer.zero_grad()
            logits = net(seen[rows])
            if soft:
                loss = functional.cross_entropy(logits / TEMPERATURE, y[rows]) * TEMPERATURE**2
            else:
                loss = functional.cross_entropy(logits, y[rows], label_smoothing=manner.smoothing)
            loss.backward()
            optimizer.step()
    return net.eval()


def answers(net: nn.Module) -> LogProbs:
    """What a trained network says."""

    def log_probs(asked: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            logits = torch.cat([net(part) for part in as_tensor(asked).split(1000)])
        return functional.log_softmax(logits.double(), dim=1).numpy()

    return log_probs


Build = Callable[[tuple[int, ...], int], nn.Module]


def of_network(build: Build, manner: Manner, *, distil: bool = False, finetune: float = 0.0) -> Recipe:
    """A network; `distil`: a second one, taught by it; `finetune`: so many epochs on other records afterwards."""

    def train(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        shape = records.inputs.shape[1:]
        x, y = as_tensor(records.inputs), torch.from_numpy(records.labels.astype(np.int64))
        net = fit(build(shape, classes), x, y, manner, seed)
        if distil:
            with torch.no_grad():
                taught = functional.softmax(net(x) / TEMPERATURE, dim=1)
            net = fit(build(shape, classes), x, taught, manner, seed + 1)
        if finetune:
            later = torch.from_numpy(others.labels.astype(np.int64))
            fit(net, as_tensor(others.inputs), later, manner._replace(epochs=finetune), seed + 2)
        return answers(net)

    return train


def of_error_rates(name: str) -> Recipe:
    """A recipe of `error_rates_recipes`."""

    def train(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
        return error_rates_recipes.RECIPES[name](seed, *records, classes)

    return train


def _knn(seed: int, records: Records, classes: int, others: Records) -> LogProbs:
    from sklearn.neighbors import KNeighborsClassifier

    make = error_rates_recipes.of_scikit_learn(lambda _: KNeighborsClassifier(5))
    return make(seed, *records, classes)


def _decay(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=1e-1)


def _with_dropout(shape: tuple[int, ...], classes: int) -> nn.Module:
    return mlp(shape, classes, 0.5)


FOR_IMAGES: dict[str, Recipe] = {
    "cnn-shift-5": of_network(cnn, Manner(5, shifts=True)),
    "cnn-shift-2": of_network(cnn, Manner(2, shifts=True)),
    "cnn-10": of_network(cnn, Manner(10)),
}
FOR_ALL: dict[str, Recipe] = {
    "mlp-10": of_network(mlp, Manner(10)),
    "mlp-40": of_network(mlp, Manner(40)),
    "mlp-3": of_network(mlp, Manner(3)),
    "mlp-half-epoch": of_network(mlp, Manner(0.5)),
    "mlp-dropout-decay": of_network(_with_dropout, Manner(20, _decay)),
    "mlp-smoothing": of_network(mlp, Manner(20, smoothing=0.1)),
    "distilled": of_network(mlp, Manner(20), distil=True),
    "knn": _knn,
    "logistic": of_error_rates("logistic regression"),
    "forest": of_error_rates("random forest"),
    "dp-sgd": of_error_rates("DP-SGD"),
}
"""The quickest first, of about equal interest."""


# Targets and shadow models, each trained on its own random half of a pool.

MODELS, PER_RECIPE = 20, 8
LIMIT = 60.0
"""Log-odds are cut here, and log-probabilities at its negative."""
MODELS_PER_BATCH = 16


def recipes(name: str, image: bool) -> dict[str, Recipe]:
    """The targets of a world."""
    everything = {**(FOR_IMAGES if image else {}), **FOR_ALL}
    only = WORLDS[name].only
    return {recipe: train for recipe, train in everything.items() if not only or recipe in only}


def shadow_recipes(image: bool) -> dict[str, Callable[..., NetworkLearner]]:
    """The recipes of the shadow models, the guessed one first."""
    epochs = 20 if image else 40

    def recipe(hidden: int = HIDDEN, length: float = 1.0, optimizer: Any = None) -> Callable[..., NetworkLearner]:
        factory, moves = partial(models.MLP, hidden=(hidden,)), optimizer or optax.adam(1e-3)
        return partial(network, factory, optimizer=moves, epochs=round(length * epochs), batch_size=32)

    return {
        "guess": recipe(),
        "shorter": recipe(length=0.5),
        "longer": recipe(length=2.0),
        "wider": recipe(2 * HIDDEN),
        "momentum": recipe(optimizer=optax.sgd(0.03, momentum=0.9)),
    }


def train_shadows(world: World, learner: NetworkLearner, rows: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Models of one recipe, many at a time."""

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
    family = shadow_recipes(image)
    if recipe == "shadow":
        parts = [
            train_shadows(
                world, make(shape, world.classes), halves(generator, world, PER_RECIPE), int(generator.integers(2**31))
            )
            for make in family.values()
        ]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    rows = halves(generator, world, MODELS)
    seeds = generator.integers(2**31, size=MODELS)
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
        for recipe in ["shadow", *recipes(name, world.pool.inputs.ndim == 4)]:
            path = arguments.cache / name / f"{recipe}.npz"
            if path.exists():
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
