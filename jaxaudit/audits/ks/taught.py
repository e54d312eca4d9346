"""How difficult the records of a test are, taught by these records: the small models that `metrics.taught` asks.

Their predictions are kept in the cache folder, by a digest of everything that they depend on, so that the next target
of the same records costs nothing; no record and no class is kept.

Without inputs, or where models would learn nothing, neighbours tell the difficulty (`metrics.difficulty`).
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.examples import Examples
from jaxaudit.data.images import is_image, scale_images
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import Progress
from jaxaudit.ensemble.checkpoint import digest_of
from jaxaudit.metrics.exchangeability import standardised
from jaxaudit.metrics.taught import MOST_TEACHERS, PARTS, ROUNDS, order_of_contents, units_of
from jaxaudit.randomness import generator_of, stream
from jaxaudit.version import __version__

DENSE_EPOCHS, CONVOLUTIONAL_EPOCHS = (3, 8, 20), (3, 8)
HIDDEN, BATCH, RATE = 128, 64, 1e-3
SHIFT = 2
"""Images are shifted by up to so many pixels in each direction, anew in each step."""
LEAST_RECORDS = 100
LEAST_SIDE, LARGEST_SIDE, USUAL_SIDE = 8, 42, 28
"""Pixels a side: smaller images are records of numbers; larger ones are reduced to about the usual side."""
MOST_COLUMNS = 4_096
"""Records of more numbers are reduced to so many random combinations of them."""
BLOCK = 1_024
"""Columns that are combined at a time, so that wide records take little more than they do as they are."""
FARTHEST = 8.0
"""Standardised numbers are cut at this distance from their mean."""
RECIPE = (2, ROUNDS, PARTS, MOST_TEACHERS, DENSE_EPOCHS, CONVOLUTIONAL_EPOCHS, HIDDEN, BATCH, RATE, SHIFT)
RECIPE += (LEAST_SIDE, LARGEST_SIDE, USUAL_SIDE, MOST_COLUMNS, BLOCK, FARTHEST)
"""All that a lesson depends on beside the records; the first number changes with the code."""


class TaughtDifficulty(NamedTuple):
    """What the records of a test teach about their difficulty.

    Attributes:
        odds: for each network and number of epochs, the log-odds (nats) of each record without what was learned from it
            (`odds_without`); None if neighbours tell the difficulty.
        order: the order of the records by their contents, in which everything is computed.
        caveats: why neighbours tell it, or how records were reduced, in a sentence each.
    """

    odds: Float[np.ndarray, "teachings n"] | None
    order: Int[np.ndarray, " n"]
    caveats: tuple[str, ...] = ()

    def taken(self, places: Int[np.ndarray, " some"]) -> "TaughtDifficulty":
        """What was taught about these records alone: no set entered it, so it serves any deal of them."""
        rank = np.empty(len(self.order), int)
        rank[self.order] = np.arange(len(self.order))
        odds = None if self.odds is None else self.odds[:, places]
        return TaughtDifficulty(odds, np.argsort(rank[places], kind="stable"), self.caveats)


def taught_difficulty(
    key: Key[Array, ""],
    examples: Examples,
    groups: Int[np.ndarray, " n"] | None = None,
    progress: Progress | None = None,
) -> TaughtDifficulty:
    """The difficulty that these records teach, in the order in which they come.

    Guarantees: the result is the same for the same records in any order, and on every call with the same key on the
    same kind of device.

    Args:
        key: random key of the models.
        examples: all records of the test, of all sets.
        groups: the group of each record, if whole groups were dealt.
        progress: called as the models are trained, if they are not known.
    """
    count = len(examples)
    if not examples.inputs.size or len(examples.class_names) < 2 or are_texts(examples):
        return TaughtDifficulty(None, np.arange(count))
    hashes = examples.record_hashes
    # Of neighbours that are as near the first counts, so that without a lesson, too, no order may be that of the sets.
    order = order_of_contents(hashes, examples.labels)
    if lack := _lack(examples):
        return TaughtDifficulty(None, order, (f"Neighbours tell how difficult a record is: {lack}.",))
    units = units_of(hashes[order].view("S16"), None if groups is None else groups[order])
    labels = np.unique(examples.labels[order], return_inverse=True)[1].astype(np.int32)
    digest = digest_of(
        f"{RECIPE} {__version__} {jax.__version__} {jax.local_devices()[0].device_kind} {examples.inputs.shape[1:]}",
        jax.random.key_data(key),
        hashes[order].view("<u8"),
        labels,
        units,
    )

    def teach() -> dict[str, np.ndarray]:
        # Who reads what was taught before needs no network.
        from jaxaudit.audits.ks.teachers import teach_difficulty

        return {"odds": teach_difficulty(key, _prepared(key, examples.take(order)), labels, units, progress)}

    kept = cached_arrays(f"taught difficulty {digest}", teach).get("odds")
    teachings = len(DENSE_EPOCHS) + (0 if _size(examples) is None else len(CONVOLUTIONAL_EPOCHS))
    # A file may be whole, and not what was written.
    if kept is None or kept.shape != (teachings, count) or kept.dtype.kind != "f" or not np.isfinite(kept).all():
        kept = teach()["odds"]
    odds = np.empty_like(kept)
    odds[:, order] = kept
    return TaughtDifficulty(odds, order, _reductions(examples))


def _lack(examples: Examples) -> str:
    """Why these records teach nothing, as a phrase; empty if they do."""
    inputs = examples.inputs
    if len(examples) < LEAST_RECORDS:
        return f"{len(examples)} records are too few to teach it, of which {LEAST_RECORDS} are needed"
    if len(np.unique(examples.labels)) < 2:
        return "all records are of one class"
    if inputs.min() == inputs.max():
        return "all inputs are the same number"
    return ""


def _size(examples: Examples) -> tuple[int, int] | None:
    """The height and width of images in teaching; None for other records."""
    sides = examples.inputs.shape[1:3]
    if not is_image(examples) or min(sides) < LEAST_SIDE:
        return None
    shrink = max(1.0, max(sides) / USUAL_SIDE) if max(sides) > LARGEST_SIDE else 1.0
    return max(LEAST_SIDE, round(sides[0] / shrink)), max(LEAST_SIDE, round(sides[1] / shrink))


def _reductions(examples: Examples) -> tuple[str, ...]:
    """How these records are reduced in teaching, in sentences."""
    size, shape = _size(examples), examples.inputs.shape[1:]
    few = f"a random {MOST_TEACHERS:,} of {len(examples):,} records taught" if len(examples) > MOST_TEACHERS else ""
    small = ""
    if size not in (None, shape[:2]):
        small = f"images were reduced to {size[0]} x {size[1]} pixels"
    elif size is None and np.prod(shape) > MOST_COLUMNS:
        small = f"records were reduced to {MOST_COLUMNS:,} random combinations of their numbers"
    return tuple(f"To teach how difficult a record is, {change}." for change in (few, small) if change)


def _prepared(key: Key[Array, ""], examples: Examples) -> Float[np.ndarray, "n ..."]:
    """The records as networks learn them: images with pixels from 0 to 1, or standardised numbers."""
    inputs, size = examples.inputs, _size(examples)
    inputs = inputs if inputs.dtype in (np.uint8, np.uint16) else inputs.astype(np.float32)
    if size is not None:
        images = scale_images(inputs.reshape(*inputs.shape[:3], -1), size, gray=False)
        least, largest = images.min(), images.max()
        return (images - least) / np.maximum(largest - least, np.float32(1e-6))
    flat = inputs.reshape(len(inputs), -1)
    if flat.shape[1] > MOST_COLUMNS:
        flat = _combined(generator_of(stream(key, "combinations")), flat)
    return np.clip(standardised(flat.astype(np.float32)), -FARTHEST, FARTHEST).astype(np.float32)


def _combined(generator: np.random.Generator, flat: Shaped[np.ndarray, "n columns"]) -> Float[np.ndarray, "n few"]:
    """Random combinations of standardised columns, `BLOCK` columns at a time."""
    total = np.zeros((len(flat), MOST_COLUMNS), np.float32)
    for start in range(0, flat.shape[1], BLOCK):
        columns = standardised(flat[:, start : start + BLOCK].astype(np.float32)).astype(np.float32)
        total += columns @ generator.standard_normal((columns.shape[1], MOST_COLUMNS), np.float32)
    return total
