"""Where the targets of `memory_targets` come from: pools of one provider's records.

A *world* of size n has a pool of 4n records of one provider, drawn at random; each model is trained on its own random
half of the pool. As many records as a model is trained on, where there are so many, are drawn beside the pool, for
targets that are trained on after that.

| kind | records |
|---|---|
| digits | MNIST |
| copies | MNIST, each with three copies shifted by a pixel, dealt together; a group is of four records |
| cifar, usps | CIFAR-10 in gray; USPS |
| sevens | MNIST, two classes: is it a 7? |
| adult | Adult, women |
| location | Location, 30 classes |
| acs | persons of the ACS of 2018: is the income among the highest tenth? |

Images have 14 x 14 pixels.
"""

import csv
import gzip
import os
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.error_rates_worlds import PIXELS, Records, origins
from jaxaudit import load, prepare_images

COPIES = 4
"""Records a group of the kind `copies`."""
SHIFTS = ((0, 0), (1, 0), (0, 1), (-1, 0))
IMAGE_FILES = {
    "digits": "mnist@train",
    "copies": "mnist@train",
    "sevens": "mnist@train",
    "cifar": "cifar10/cifar10_gray28_jpeg.npz@train",
    "usps": "usps/usps16.npz@all",
}
ACS_FILE = "acs/national2018.csv.gz"
ACS_NUMBERS = ("AGEP", "NOC", "NPF", "DENSITY")
ACS_CATEGORIES = [
    "PUMA",
    "SEX",
    "MSP",
    "HISP",
    "RAC1P",
    "HOUSING_TYPE",
    "OWN_RENT",
    "INDP_CAT",
    "EDU",
    "DVET",
    "DREM",
    "DPHY",
    "DEYE",
    "DEAR",
]
ACS_TOP = 0.9


class Setting(NamedTuple):
    """Which world; `only` names the recipes that it has beside the shadow models, or () for all."""

    kind: str
    size: int
    seed: int
    final: bool
    only: tuple[str, ...] = ()


FEW = ("cnn-shift-5", "mlp-10", "mlp-40", "mlp-dropout-decay", "forest", "boosting")
OF_COPIES = ("cnn-shift-5", "mlp-10", "mlp-40", "knn", "forest")
WORLDS = {
    "digits-1000": Setting("digits", 1000, 0, False),
    "digits-300": Setting("digits", 300, 0, False),
    "location-1000": Setting("location", 1000, 0, False),
    "adult-1000": Setting("adult", 1000, 0, False),
    "copies-1000": Setting("copies", 1000, 0, False, OF_COPIES),
    "cifar-1000": Setting("cifar", 1000, 0, True),
    "usps-1000": Setting("usps", 1000, 0, True),
    "sevens-1000": Setting("sevens", 1000, 0, True),
    "acs-1000": Setting("acs", 1000, 0, True),
    "location-300": Setting("location", 300, 0, True),
    "digits-1000-again": Setting("digits", 1000, 1, True),
    "digits-3000": Setting("digits", 3000, 0, False, FEW),
}
"""In the order in which they are trained; statistics are chosen without the final ones."""


class World(NamedTuple):
    """A pool, the group of each of its records (its own where there are none), and other records of the provider."""

    pool: Records
    groups: np.ndarray
    others: Records
    classes: int
    size: int


@cache
def provider(kind: str) -> Records:
    """All records of a kind."""
    if kind in IMAGE_FILES:
        images = prepare_images(load(IMAGE_FILES[kind]), PIXELS)
        labels = np.asarray(images.labels, np.int32)
        return Records(
            np.asarray(images.inputs, np.float32), (labels == 7).astype(np.int32) if kind == "sevens" else labels
        )
    if kind == "acs":
        return _acs(Path(os.environ["JAXAUDIT_DATA"]) / ACS_FILE)
    source = origins(kind)
    if kind == "adult":
        return source.provider
    parts = (source.provider, source.calibration)
    return Records(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


def _acs(path: Path) -> Records:
    """Persons who have an income figure; what is not applicable is a category, or in a number 0 with a mark beside."""
    with gzip.open(path, "rt", newline="") as stream:
        persons = [person for person in csv.DictReader(stream) if person["PINCP"] != "N"]
    income = np.array([float(person["PINCP"]) for person in persons])
    parts = []
    for column in ACS_NUMBERS:
        known = np.array([person[column] != "N" for person in persons])
        numbers = np.array([float(person[column]) if person[column] != "N" else 0.0 for person in persons])
        parts += [(numbers / numbers.max())[:, None], *([] if known.all() else [~known[:, None]])]
    for column in ACS_CATEGORIES:
        values = np.array([person[column] for person in persons])
        parts.append(values[:, None] == np.unique(values))
    return Records(
        np.concatenate(parts, axis=1).astype(np.float32), (income > np.quantile(income, ACS_TOP)).astype(np.int32)
    )


def draw_world(name: str) -> World:
    """The pool and the records beside it; both are in random order, groups one after another."""
    kind, size, seed, *_ = WORLDS[name]
    everything = provider(kind)
    generator = np.random.default_rng([zlib.crc32(kind.encode()), size, seed, 7])
    each = COPIES if kind == "copies" else 1
    order = generator.permutation(len(everything.labels))
    chosen, beside = np.split(order[: 6 * size // each], [4 * size // each])
    pool, others = (
        Records(everything.inputs[rows], everything.labels[rows].astype(np.int32)) for rows in (chosen, beside)
    )
    if each > 1:
        shifted = np.stack([np.roll(pool.inputs, shift, axis=(1, 2)) for shift in SHIFTS], axis=1)
        pool = Records(shifted.reshape(-1, *pool.inputs.shape[1:]), np.repeat(pool.labels, each))
    groups = np.repeat(np.arange(len(chosen), dtype=np.int32), each)
    return World(pool, groups, others, int(everything.labels.max()) + 1, size)


def halves(generator: np.random.Generator, world: World, models: int) -> np.ndarray:
    """For each model, which records of the pool it is trained on: a random half of the groups."""
    count = int(world.groups[-1]) + 1
    drawn = np.argsort(generator.random((models, count)), axis=1).argsort(axis=1) < count // 2
    return drawn[:, world.groups]
