"""The minibatches of a chunk of models, as tables of record indices, a block of steps at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from jaxaudit.ensemble.concurrency import accelerated, cores
from jaxaudit.ensemble.plan import ChunkGroup
from jaxaudit.ensemble.program import chunk_bits, place_models, place_pool
from jaxaudit.learners.batch_order import own_batches, pool_batches
from jaxaudit.learners.learner import SteppedLearner

TABLE_ENTRIES = 1 << 22  # most index entries in a block: 32 MB with the weights


class StepBlock(NamedTuple):
    """Minibatches of consecutive steps of an epoch, for a chunk of models. Tables have one fixed length.

    Attributes:
        indices: the records of each step, and of each model unless all models share their minibatches.
        weights: the weight of each such record for each model; 0 if the model does not train on the record.
        steps: the number of steps; table entries past this number are padding.
        epoch: the number of the epoch, from 0.
        before: the number of steps of the epoch that come before the block.
    """

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


class Tables:
    """The minibatches of the models with these keys and membership masks, an epoch at a time."""

    def __init__(
        self,
        learner: SteppedLearner,
        group: ChunkGroup,
        keys: Key[Array, " models"],
        rows: Bool[np.ndarray, "models examples"],
    ) -> None:
        self.group, self.keys, self.rows, self.batch = group, keys, rows, learner.batch_size
        self.length = _block_length(learner, group.steps, len(rows))
        self.members = [] if group.pool else [np.flatnonzero(row) for row in rows]
        self.words = rows.shape[1] if group.pool else max(map(len, self.members))

    def draw(self, epoch: int) -> UInt32[Array, "models words"]:
        """The random words of an epoch; returns at once, while the device still computes."""
        return chunk_bits(self.keys, epoch, self.words, shared=self.group.shared)

    def blocks(self, epoch: int, drawn: UInt32[Array, "models words"]) -> Iterator[StepBlock]:
        """The blocks of an epoch, from its words."""
        bits = np.asarray(drawn)[:, : self.words]
        indices, weights = (self._pool_epoch if self.group.pool else self._own_epoch)(bits)
        for start in range(0, self.group.steps, self.length):
            stop = min(start + self.length, self.group.steps)
            block = StepBlock(
                np.zeros((self.length, *indices.shape[1:]), np.int32),
                np.zeros((self.length, len(self.rows), self.batch), np.float32),
                stop - start,
                epoch,
                start,
            )
            block.indices[: stop - start] = indices[start:stop]
            block.weights[: stop - start] = weights[start:stop]
            yield block

    def _pool_epoch(self, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.group.shared:
            indices, real = pool_batches(bits[0], self.batch)
            return indices, np.moveaxis(self.rows[:, indices], 0, 1) * real[:, None]
        tables = [pool_batches(words, self.batch) for words in bits]
        indices = np.stack([table for table, _ in tables], axis=1)
        real = [row[table] * real for row, (table, real) in zip(self.rows, tables, strict=True)]
        return indices, np.stack(real, axis=1)

    def _own_epoch(self, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        indices = np.zeros((self.group.steps, len(self.rows), self.batch), np.int32)
        weights = np.zeros((self.group.steps, len(self.rows), self.batch), np.float32)

        def fill(model: int) -> None:
            model_members = self.members[model]
            table, real = own_batches(bits[model, : len(model_members)], model_members, self.batch)
            indices[: len(table), model], weights[: len(table), model] = table, real
            # A model without further steps repeats its first member at weight 0, so no non-member is ever read.
            indices[len(table) :, model] = model_members[0] if len(model_members) else 0

        # A CPU trains meanwhile; beside an accelerator its cores are idle, and one of them would be too slow.
        with ThreadPoolExecutor(len(cores()) if accelerated() else 1) as threads:
            list(threads.map(fill, range(len(self.rows))))
        return indices, weights


def blocks_after(
    learner: SteppedLearner,
    group: ChunkGroup,
    keys: Key[Array, " models"],
    rows: Bool[np.ndarray, "models examples"],
    taken: int,
) -> Iterator[tuple[StepBlock, int]]:
    """The blocks of steps that remain of all epochs, each with the index of its first step that has not been taken yet.

    The random words of an epoch are requested before the steps of the epoch before it are taken. An accelerator runs
    one program after another, so the epoch's tables can then be made while these steps are taken.

    Args:
        learner: gives the number of epochs and the minibatch size.
        group: the group of the chunk's models.
        keys: the random key of each model.
        rows: the membership mask of each model.
        taken: the number of steps taken before, over all epochs.
    """
    first, skip = divmod(taken, max(group.steps, 1))
    tables = Tables(learner, group, keys, rows)
    drawn = tables.draw(first) if first < learner.epochs else None
    for epoch in range(first, learner.epochs):
        now, drawn = drawn, tables.draw(epoch + 1) if epoch + 1 < learner.epochs else None
        assert now is not None
        for block in tables.blocks(epoch, now):
            if skip < block.steps:
                yield block, skip
            skip = max(0, skip - block.steps)


def place_block(block: StepBlock, group: ChunkGroup) -> tuple[Array, Array]:
    """Puts a block's record indices and their weights, in this order, on the devices.

    Both are split over the devices by model. Indices that all models share are copied to every device.
    """
    indices = place_pool(block.indices) if group.shared else place_models(block.indices, axis=1)
    return indices, place_models(block.weights, axis=1)
