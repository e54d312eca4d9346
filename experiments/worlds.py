"""Records of providers, and the pools of one provider's records that models of known truth are trained on.

| kind | provider | calibration domain | another domain |
|---|---|---|---|
| digits | MNIST | USPS, Semeion, MNIST-M | CIFAR-10, labelled with its own ten classes |
| copies | MNIST, each with copies shifted by a pixel, dealt together | as for digits | as for digits |
| adult | Adult, women | men | men with every column shuffled, and the labels |
| location | Location, users | other users: the same distribution | users with every column shuffled, and the labels |

`error_rates` draws from all three. A *world* of `memory_rates` and `deletion_rates`, of size n, is a pool of 4n records
of one provider, drawn at random, and half as many beside it, for targets that are trained on after that. It may also be
of CIFAR-10 in gray, of USPS, of MNIST in two classes (`sevens`: is it a 7?), or of persons of the ACS of 2018 (`acs`:
is the income among the highest tenth?). Images have 14 x 14 pixels.
"""

import csv
import gzip
import os
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.paper_tables import paper_table
from jaxaudit import load, prepare_images
from jaxaudit.data import one_hot

PIXELS = (14, 14)
MNIST, CIFAR = "mnist@train", "cifar10/cifar10_gray28_jpeg.npz@train"
PRINTED = ("usps/usps16.npz@all", "semeion/semeion16.npz", "mnist_m/mnist_m_gray28_test.npz@test")
IMAGE_FILES = {"digits": MNIST, "copies": MNIST, "sevens": MNIST, "cifar": CIFAR, "usps": PRINTED[0]}
ACS_FILE = "acs/national2018.csv.gz"
ACS_NUMBERS = ("AGEP", "NOC", "NPF", "DENSITY")
ACS_CATEGORIES = (
    *("PUMA", "SEX", "MSP", "HISP", "RAC1P", "HOUSING_TYPE", "OWN_RENT"),
    *("INDP_CAT", "EDU", "DVET", "DREM", "DPHY", "DEYE", "DEAR"),
)
ACS_TOP = 0.9
SHIFTS = ((0, 0), (1, 0), (0, 1), (-1, 0))
"""A group of the kind `copies` is a record under each of these."""


class Records(NamedTuple):
    """Inputs and labels of one origin."""

    inputs: np.ndarray
    labels: np.ndarray


class Origins(NamedTuple):
    """Where records are drawn from."""

    provider: Records
    calibration: Records
    other: Records


@cache
def origins(kind: str) -> Origins:
    """The records of a kind."""
    return {"digits": _digits, "adult": _adult, "location": _location, "copies": _digits}[kind]()


def _images(*names: str) -> Records:
    return joined(
        [Records(image.inputs, image.labels) for image in (prepare_images(load(name), PIXELS) for name in names)]
    )


def joined(parts: Sequence[Records]) -> Records:
    return Records(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


def _digits() -> Origins:
    return Origins(_images(MNIST), _images(*PRINTED), _images(CIFAR))


def _adult() -> Origins:
    table = paper_table("adult@all")
    examples = one_hot(table)
    place = [column.name for column in table.columns].index("sex")
    women = np.asarray(table.values)[:, place] == table.columns[place].categories.index("Female")
    inputs = np.asarray(examples.inputs, np.float32)
    men = Records(inputs[~women], examples.labels[~women])
    return Origins(Records(inputs[women], examples.labels[women]), men, _shuffled(men))


def _location() -> Origins:
    examples = one_hot(paper_table("location"))
    everyone = Records(np.asarray(examples.inputs, np.float32), np.asarray(examples.labels))
    order = np.random.default_rng(5).permutation(len(everyone.labels))
    users, others = (rows_of(everyone, rows) for rows in (order[:3300], order[3300:]))
    return Origins(users, others, _shuffled(others))


def rows_of(records: Records, rows: np.ndarray) -> Records:
    return Records(records.inputs[rows], records.labels[rows])


def _shuffled(records: Records) -> Records:
    generator = np.random.default_rng(6)
    return Records(generator.permuted(records.inputs, axis=0), generator.permutation(records.labels))


def shifted(records: Records, shifts: Sequence[tuple[int, int]]) -> Records:
    """Each image under each of these shifts, one after another."""
    inputs = np.stack([np.roll(records.inputs, shift, axis=(1, 2)) for shift in shifts], axis=1)
    return Records(inputs.reshape(-1, *records.inputs.shape[1:]), np.repeat(records.labels, len(shifts)))


# Pools of one provider's records.


class Setting(NamedTuple):
    """Which world; `only` names the recipes that it has beside the shadow models, or () for all."""

    kind: str
    size: int
    seed: int
    final: bool
    only: tuple[str, ...] = ()


WORLDS = {
    "digits-1000": Setting("digits", 1000, 0, False),
    "digits-300": Setting("digits", 300, 0, False),
    "location-1000": Setting("location", 1000, 0, False),
    "adult-1000": Setting("adult", 1000, 0, False),
    "copies-1000": Setting("copies", 1000, 0, False, ("cnn-shift-5", "mlp-10", "mlp-40", "knn", "forest")),
    "cifar-1000": Setting("cifar", 1000, 0, True),
    "usps-1000": Setting("usps", 1000, 0, True),
    "sevens-1000": Setting("sevens", 1000, 0, True),
    "acs-1000": Setting("acs", 1000, 0, True),
    "location-300": Setting("location", 300, 0, True),
    "digits-1000-again": Setting("digits", 1000, 1, True),
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
        images = _images(IMAGE_FILES[kind])
        labels = np.asarray(images.labels, np.int32)
        labels = (labels == 7).astype(np.int32) if kind == "sevens" else labels
        return Records(np.asarray(images.inputs, np.float32), labels)
    if kind == "acs":
        return _acs(Path(os.environ["JAXAUDIT_DATA"]) / ACS_FILE)
    source = origins(kind)
    return source.provider if kind == "adult" else joined([source.provider, source.calibration])


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
    together = len(SHIFTS) if kind == "copies" else 1
    order = generator.permutation(len(everything.labels))
    chosen, beside = np.split(order[: 6 * size // together], [4 * size // together])
    pool, others = (rows_of(everything, rows) for rows in (chosen, beside))
    pool, others = (part._replace(labels=part.labels.astype(np.int32)) for part in (pool, others))
    if together > 1:
        pool = shifted(pool, SHIFTS)
    groups = np.repeat(np.arange(len(chosen), dtype=np.int32), together)
    return World(pool, groups, others, int(everything.labels.max()) + 1, size)


def halves(generator: np.random.Generator, world: World, models: int) -> np.ndarray:
    """For each model, which records of the pool it is trained on: a random half of the groups."""
    count = int(world.groups[-1]) + 1
    drawn = np.argsort(generator.random((models, count)), axis=1).argsort(axis=1) < count // 2
    return drawn[:, world.groups]
