"""Where the targets of `error_rates` come from: one draw of a provider's records and of others.

| kind | provider | calibration domain | another domain |
|---|---|---|---|
| digits | MNIST | USPS, Semeion, MNIST-M | CIFAR-10, labelled with its own ten classes |
| copies | MNIST, each with four copies shifted by a pixel, dealt together | as for digits | as for digits |
| Adult | women | men | men with every column shuffled, and the labels |
| Location | users | other users: the same distribution | users with every column shuffled, and the labels |
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from jaxaudit import load, prepare_images
from jaxaudit.data import load_table, one_hot

KINDS = ("digits", "adult", "location", "copies")
PRINTED = ("usps/usps16.npz@all", "semeion/semeion16.npz", "mnist_m/mnist_m_gray28_test.npz@test")
PIXELS = (14, 14)
COPIES = 5
"""Records a group of the kind `copies`."""


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
    """One draw: the pool, and which of its rows play which part; `group` is how many neighbours were dealt together."""

    pool: Records
    query: np.ndarray
    holdout: np.ndarray
    calibration: np.ndarray
    rest: dict[str, np.ndarray]
    size: int
    group: int


@cache
def origins(kind: str) -> Origins:
    """The records of a kind."""
    return {"digits": _digits, "adult": _adult, "location": _location, "copies": _digits}[kind]()


def _digits() -> Origins:
    def read(*names: str) -> Records:
        parts = [prepare_images(load(name), PIXELS) for name in names]
        return Records(np.concatenate([p.inputs for p in parts]), np.concatenate([p.labels for p in parts]))

    return Origins(read("mnist@train"), read(*PRINTED), read("cifar10/cifar10_gray28_jpeg.npz@train"))


def _adult() -> Origins:
    table = load_table("adult@all")
    examples = one_hot(table)
    place = [column.name for column in table.columns].index("sex")
    women = np.asarray(table.values)[:, place] == table.columns[place].categories.index("Female")
    inputs = np.asarray(examples.inputs, np.float32)
    men = Records(inputs[~women], examples.labels[~women])
    return Origins(Records(inputs[women], examples.labels[women]), men, _shuffled(men))


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
    generator = np.random.default_rng([KINDS.index(kind), size, seed, 3])
    rest = rest_size(kind, size)
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
        drawn = Records(records.inputs[chosen], records.labels[chosen])
        each = group if name == "provider" else 1
        parts.append(_copied(drawn) if each > 1 else drawn)
        ends = start + each * np.cumsum(lengths)
        rows[name] = [np.arange(end - each * length, end) for end, length in zip(ends, lengths, strict=True)]
        start = int(ends[-1])
    pool = Records(
        np.concatenate([p.inputs for p in parts]), np.concatenate([p.labels for p in parts]).astype(np.int32)
    )
    query, holdout, own = rows["provider"]
    calibration, fresh = rows["calibration"]
    kinds_of_rest = {"calibration": fresh, "own": own, "both": np.concatenate([fresh[::2], own[::2]])}
    if kind == "location":
        kinds_of_rest = {"calibration": fresh}
    return World(pool, query, holdout, calibration, {**kinds_of_rest, "other": rows["other"][0]}, size, group)


def _copied(records: Records) -> Records:
    """Each record with four copies shifted by a pixel, one after another."""
    shifts = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
    shifted = [np.roll(records.inputs, shift, axis=(1, 2)) for shift in shifts]
    inputs = np.stack(shifted, axis=1).reshape(-1, *records.inputs.shape[1:])
    return Records(inputs, np.repeat(records.labels, COPIES))
