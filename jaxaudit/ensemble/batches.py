"""The minibatches of a chunk of models, as tables of record indices, a block of steps at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble.concurrency import accelerated, cores
from jaxaudit.ensemble.plan import Group
from jaxaudit.ensemble.program import chunk_bits, place_models, place_pool
from jaxaudit.learners.batch_order import own_batches, pool_batches
from jaxaudit.learners.learner import SteppedLearner

TABLE_ENTRIES = 1 << 22  # most index entries in a block: 32 MB with the weights


class Block(NamedTuple):
    """Consecutive steps of an epoch, after its first `before` steps; rows past the first `steps` are padding."""

    indices: Int[np.ndarray, "block models batch"] | Int[np.ndarray, "block batch"]
    weights: Float[np.ndarray, "block models batch"]
    steps: int
    epoch: int
    before: int


def _block_length(learner: SteppedLearner, steps: int, models: int) -> int:
    """Steps per block: a whole epoch, rounded up to a power of four, within the bound on the table.

    Powers of four, not of two, give fewer lengths, and each length is compiled separately.
    """
    bound = max(1, TABLE_ENTRIES // (models * learner.batch_size))
    whole = max(steps - 1, 0).bit_length()
    return 1 << min(whole + whole % 2, bound.bit_length() - 1)


def epoch_blocks(
    learner: SteppedLearner,
    group: Group,
    keys: Key[Array, " models"],
    rows: Bool[np.ndarray, "models examples"],
    epoch: int,
) -> Iterator[Block]:
    """The blocks of one epoch for the models with these keys and membership masks."""
    models, batch = len(rows), learner.batch_size
    length = _block_length(learner, group.steps, models)
    indices, weights = (_pool_epoch if group.pool else _own_epoch)(group, keys, rows, epoch, batch)
    for start in range(0, group.steps, length):
        stop = min(start + length, group.steps)
        block = Block(
            np.zeros((length, *indices.shape[1:]), np.int32),
            np.zeros((length, models, batch), np.float32),
            stop - start,
            epoch,
            start,
        )
        block.indices[: stop - start] = indices[start:stop]
        block.weights[: stop - start] = weights[start:stop]
        yield block


def blocks_after(
    learner: SteppedLearner,
    group: Group,
    keys: Key[Array, " models"],
    rows: Bool[np.ndarray, "models examples"],
    taken: int,
) -> Iterator[tuple[Block, int]]:
    """The blocks that are left of all epochs after `taken` steps, each with its first step that is not taken yet."""
    first, skip = divmod(taken, max(group.steps, 1))
    for epoch in range(first, learner.epochs):
        for block in epoch_blocks(learner, group, keys, rows, epoch):
            if skip < block.steps:
                yield block, skip
            skip = max(0, skip - block.steps)


def _pool_epoch(
    group: Group, keys: Key[Array, " models"], rows: np.ndarray, epoch: int, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    examples = rows.shape[1]
    if group.shared:
        indices, real = pool_batches(chunk_bits(keys, epoch, examples, shared=True)[0], batch)
        return indices, np.moveaxis(rows[:, indices], 0, 1) * real[:, None]
    bits = chunk_bits(keys, epoch, examples)
    tables = [pool_batches(word, batch) for word in bits]
    indices = np.stack([table for table, _ in tables], axis=1)
    real = np.stack([row[table] * real for row, (table, real) in zip(rows, tables, strict=True)], axis=1)
    return indices, real


def _own_epoch(
    group: Group, keys: Key[Array, " models"], rows: np.ndarray, epoch: int, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    indices = np.zeros((group.steps, len(rows), batch), np.int32)
    weights = np.zeros((group.steps, len(rows), batch), np.float32)
    members = [np.flatnonzero(row) for row in rows]
    bits = chunk_bits(keys, epoch, max(map(len, members)))

    def fill(model: int) -> None:
        mine = members[model]
        table, real = own_batches(bits[model, : len(mine)], mine, batch)
        indices[: len(table), model], weights[: len(table), model] = table, real
        # A model without further steps repeats its first member at weight 0, so no non-member is ever read.
        indices[len(table) :, model] = mine[0] if len(mine) else 0

    # A CPU trains meanwhile; beside an accelerator its cores are idle, and one could not make tables as fast as needed.
    with ThreadPoolExecutor(len(cores()) if accelerated() else 1) as threads:
        list(threads.map(fill, range(len(rows))))
    return indices, weights


def place_block(block: Block, group: Group) -> tuple[Array, Array]:
    """Puts a block's tables on the devices, split over them like the models."""
    indices = place_pool(block.indices) if group.shared else place_models(block.indices, axis=1)
    return indices, place_models(block.weights, axis=1)
