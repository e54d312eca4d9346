"""How difficult the records of a test are, taught by these records: the small models that `odds_without` asks.

A dense network learns any record, and of images a convolutional one beside it, each for several numbers of epochs: what
is difficult early on, and what late, tells of different targets. Predictions are kept in the cache folder, by a digest
of everything that they depend on; no record and no class is kept. Without inputs, or where models would learn nothing,
neighbours tell the difficulty (`metrics.difficulty`).
"""

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Shaped

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.examples import Examples
from jaxaudit.data.images import is_image, scale_images
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import Execution, Progress, fit_many, log_probs_many
from jaxaudit.ensemble.chunk import digest_of
from jaxaudit.ensemble.models_per_batch import GRADIENTS, OVERHEAD
from jaxaudit.metrics.arrays import Indices, Integers, OneKey
from jaxaudit.metrics.difficulty import (
    MODELS,
    MOST_TEACHERS,
    PARTS,
    ROUNDS,
    difficulty,
    odds_without,
    order_of_contents,
    taught_rows,
    units_of,
)
from jaxaudit.metrics.exchangeability import filled, standardised
from jaxaudit.metrics.scores import cut, log_odds
from jaxaudit.randomness import generator_of, several, stream
from jaxaudit.version import __version__

if TYPE_CHECKING:
    from jaxaudit.learners import NetworkLearner

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
    order: Integers
    caveats: tuple[str, ...] = ()

    def taken(self, places: Indices) -> "TaughtDifficulty":
        """What was taught about these records alone: no set entered it, so it serves any deal of them."""
        rank = np.empty(len(self.order), int)
        rank[self.order] = np.arange(len(self.order))
        odds = None if self.odds is None else self.odds[:, places]
        return TaughtDifficulty(odds, np.argsort(rank[places], kind="stable"), self.caveats)


def taught_difficulty(
    key: OneKey,
    examples: Examples,
    progress: Progress | None = None,
) -> TaughtDifficulty:
    """The difficulty that the records of all sets of a test teach: the same for the same records in any order, and on
    every call with the same key on the same kind of device.
    """
    count = len(examples)
    if not examples.inputs.size or len(examples.class_names) < 2 or are_texts(examples):
        return TaughtDifficulty(None, np.arange(count))
    hashes = examples.record_hashes
    # Of neighbours that are as near the first counts, so that without a lesson, too, no order may be that of the sets.
    order = order_of_contents(hashes, examples.labels)
    if lack := _lack(examples):
        return TaughtDifficulty(None, order, (f"Neighbours tell how difficult a record is: {lack}.",))
    units = units_of(hashes[order].view("S16"), None if examples.groups is None else examples.groups[order])
    labels = np.unique(examples.labels[order], return_inverse=True)[1].astype(np.int32)
    digest = digest_of(
        f"{RECIPE} {__version__} {jax.__version__} {jax.local_devices()[0].device_kind} {examples.inputs.shape[1:]}",
        jax.random.key_data(key),
        hashes[order].view("<u8"),
        labels,
        units,
    )

    def teach() -> dict[str, np.ndarray]:
        return {"odds": teach_difficulty(key, _prepared(key, examples.take(order)), labels, units, progress)}

    teachings = len(DENSE_EPOCHS) + (len(CONVOLUTIONAL_EPOCHS) if _size(examples) else 0)
    kept = cached_arrays(f"taught difficulty {digest}", teach, {"odds": (teachings, count)})["odds"]
    # A file may be whole, and not what was written.
    if kept.ndim != 2 or kept.dtype.kind != "f" or not np.isfinite(kept).all():
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
    if not np.fmin.reduce(inputs, axis=None) < np.fmax.reduce(inputs, axis=None):
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
    size, shape = _size(examples), examples.inputs.shape[1:]
    gaps = "empty cells were filled with the mean of their column" if examples.gaps else ""
    few = f"a random {MOST_TEACHERS:,} of {len(examples):,} records taught" if len(examples) > MOST_TEACHERS else ""
    small = ""
    if size not in (None, shape[:2]):
        small = f"images were reduced to {size[0]} x {size[1]} pixels"
    elif not size and np.prod(shape) > MOST_COLUMNS:
        small = f"records were reduced to {MOST_COLUMNS:,} random combinations of their numbers"
    return tuple(f"To teach how difficult a record is, {change}." for change in (few, small, gaps) if change)


def _prepared(key: OneKey, examples: Examples) -> Float[np.ndarray, "n ..."]:
    """The records as networks learn them: images with pixels from 0 to 1, or standardised numbers."""
    inputs, size = examples.inputs, _size(examples)
    inputs = inputs if inputs.dtype in (np.uint8, np.uint16) else inputs.astype(np.float32)
    if size:
        images = scale_images(inputs.reshape(*inputs.shape[:3], -1), size, gray=False)
        least, largest = images.min(), images.max()
        images -= least
        images /= np.maximum(largest - least, np.float32(1e-6))
        return images
    flat = inputs.reshape(len(inputs), -1)
    flat = filled(flat) if examples.gaps else flat
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


TAUGHT = "taught"
"""The name under which evidence keeps what its records teach."""


def predictors_of(
    key: OneKey,
    evidence: Evidence,
    indices: slice | Indices,
) -> Float[np.ndarray, "some kinds"]:
    """Predictors of the difficulty of query set and holdout, or of these and the known members, for all targets: class,
    neighbours, and what the records themselves teach; shadow models come beside them.
    """
    examples, records = evidence.pool.examples, evidence.pool.compared[indices]
    lesson, groups = taught_by_records(key, evidence), evidence.groups(indices)
    # Where neighbours are as near, the first is taken: the order must not be that of the sets.
    order = lesson.order[lesson.order < len(records)]

    def predict() -> Float[np.ndarray, "some kinds"]:
        predictors = difficulty(
            stream(key, "difficulty"),
            examples.labels[records[order]],
            # Of records without classes, neighbours have none that could tell.
            examples.inputs[records[order]] if examples.inputs.size and not evidence.pool.classless else None,
            None if groups is None else groups[order],
            None if lesson.odds is None else lesson.odds[:, order],
        )
        return predictors[np.argsort(order)]

    return evidence.once(f"predictors {len(records)}", predict)


def taught_by_records(key: OneKey, evidence: Evidence) -> TaughtDifficulty:
    """What query set, holdout and known members teach about the difficulty of each of their records, in this order. All
    tests and targets share it, and no output enters it.
    """
    pool, indices = evidence.pool, np.r_[evidence.dealt_records, evidence.known_members]

    def teach() -> TaughtDifficulty:
        records = pool.examples.take(pool.compared[indices])
        return taught_difficulty(stream(key, "taught difficulty"), records, evidence.progress)

    return evidence.once(TAUGHT, teach)


def lesson_operations(examples: Examples, records: int) -> float:
    """The operations, as training counts them, to teach how difficult so many records like these are, and to ask of all
    of them.
    """
    if not examples.inputs.size or len(examples.class_names) < 2 or are_texts(examples):
        return 0.0
    size, shape = _size(examples), examples.inputs.shape[1:]
    columns = min(int(np.prod(size or shape)), MOST_COLUMNS)
    operations_of_record = 2 * GRADIENTS * HIDDEN * columns + OVERHEAD / BATCH
    convolutional = CONVOLUTIONAL_EPOCHS if size else ()
    epochs = sum(DENSE_EPOCHS) + CONVOLUTIONS_TAKE * sum(convolutional)
    predictions = len(DENSE_EPOCHS) + CONVOLUTIONS_TAKE * len(convolutional)
    training_records = (PARTS - 1) / PARTS * min(records, MOST_TEACHERS)
    return MODELS * operations_of_record * (epochs * training_records + predictions * records / GRADIENTS)


DENSE_AT_ONCE, CONVOLUTIONS_TAKE = 3, 20
"""Dense models in one program; and about how many times as long as theirs a step of a convolutional one takes."""


def teach_difficulty(
    key: OneKey,
    inputs: Float[np.ndarray, "n ..."],
    labels: Integers,
    units: Integers,
    progress: Progress | None,
) -> Float[np.ndarray, "teachings n"]:
    """What the models say of each record, for each network and number of epochs."""
    rows = taught_rows(generator_of(stream(key, "rows")), units)
    teaches = rows.any(axis=0)
    odds, learners = [], learners_of(inputs.shape[1:], int(labels.max()) + 1)
    weights = [learner.epochs * (CONVOLUTIONS_TAKE if learner.convolves else 1) for learner in learners.values()]
    parts = Execution(models_per_batch=DENSE_AT_ONCE, progress=progress).split(*weights)
    for (name, learner), execution in zip(learners.items(), parts, strict=True):

        def judged(params: Any, _: Any, learner: "NetworkLearner" = learner) -> Float[np.ndarray, "some n"]:
            return cut(log_odds(log_probs_many(learner, params, inputs), labels)).astype(np.float32)

        of_models = fit_many(
            several(stream(key, name), len(rows)),
            rows[:, teaches],
            inputs[teaches],
            labels[teaches],
            learner,
            execution=execution,
            summarize=judged,
            members_only=True,
        )
        odds.append(odds_without(of_models, rows))
    return np.stack(odds)


@lru_cache(maxsize=8)
def learners_of(shape: tuple[int, ...], classes: int) -> "dict[str, NetworkLearner]":
    """The small models of records of this shape, by name; equal arguments give the same objects, compiled once."""
    # Who reads what was taught before needs no network.
    import optax

    from jaxaudit.learners import NetworkLearner, network
    from jaxaudit.learners.network import shifted
    from jaxaudit.models import MLP
    from jaxaudit.models.networks import SmallCNN

    def learner(factory: Any, epochs: int, **options: Any) -> NetworkLearner:
        return network(factory, shape, classes, optimizer=optax.adam(RATE), epochs=epochs, batch_size=BATCH, **options)

    dense = partial(MLP, hidden=(HIDDEN,))
    learners = {f"dense {epochs}": learner(dense, epochs) for epochs in DENSE_EPOCHS}
    if len(shape) == 3:
        augment = (partial(shifted, high=SHIFT, wide=SHIFT),)
        learners |= {
            f"convolutional {epochs}": learner(SmallCNN, epochs, augment=augment) for epochs in CONVOLUTIONAL_EPOCHS
        }
    return learners
