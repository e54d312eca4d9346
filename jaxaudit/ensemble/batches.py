"""The minibatches of a chunk of models, as tables of record indices, and the compiled program that takes them.

A chunk takes a block of steps in one call, on all local devices. Forms of convolutions are measured here, too.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from math import prod
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from jaxaudit.ensemble.concurrency import ChunkGroup, accelerated, cores
from jaxaudit.kernels.convolutions import GROUPED, LETTERS, PARTS, PATCHES, Convolution, convolve, loop_body
from jaxaudit.learners.learner import (
    Count,
    Learner,
    Moment,
    SteppedLearner,
    TrainsBySteps,
    compiled,
    epoch_bits,
    init_key,
    moment_of,
    own_batches,
    pool_batches,
    take_step,
)
from jaxaudit.randomness import RUN_ONCE, ModelKeys

DISPATCH = Lock()
"""Held while a program is compiled and started (not while it runs), so that no two threads compile the same one."""

LEAST_WORDS = 512
"""At least so many random words are drawn, since that takes less time than starting the program."""

When = tuple[Key[Array, "*models"], Count, Count]
"""The models' keys, an epoch, and a number of steps within the epoch."""


DevicePool = tuple[Array, Array]
"""Inputs and labels, on this process's devices."""


def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("models",))


def place_models(tree: Any, axis: int = 0) -> Any:
    """Puts `tree` on the devices, with its models axis split evenly over them."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec(*[None] * axis, "models")))


def place_pool(tree: Any) -> Any:
    """Puts a copy of `tree` on every device."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))


@partial(jax.jit, static_argnames="learner", compiler_options=RUN_ONCE)
def init_chunk(learner: SteppedLearner, keys: ModelKeys) -> Any:
    """Training states of a chunk, with a leading `models` axis."""
    return jax.vmap(lambda key: learner.init(init_key(key)))(keys)


@partial(jax.jit, static_argnames=("count", "shared"))
def _chunk_bits(keys: ModelKeys, epoch: Count, count: int, shared: bool) -> Array:
    return jax.vmap(lambda key: epoch_bits(key, epoch, count))(keys[:1] if shared else keys)


@compiled("shared", "uneven", donate_argnames="states")
def run_block(
    learner: SteppedLearner,
    states: Any,
    when: When,
    pool: DevicePool,
    indices: Int[Array, "block models batch"] | Int[Array, "block batch"],
    weights: Float[Array, "block models batch"],
    start: Count,
    stop: Count,
    shared: bool,
    uneven: bool,
) -> Any:
    """The states after the minibatches `start` to `stop` of a block (`StepBlock`); the memory of `states` is reused.
    One program serves all `start`, `stop` and `when`. `uneven`: a minibatch without weights must change no model.
    """
    drop_axis, add_axis = partial(jax.tree.map, lambda x: x[0]), partial(jax.tree.map, lambda x: x[None])
    (keys, epoch, before), (inputs, labels) = when, pool

    def step(state: Any, chosen: Any, weight: Array, moment: Moment) -> Any:
        batch_inputs, batch_labels = chosen if shared else (inputs[chosen], labels[chosen])
        new = take_step(learner, state, batch_inputs, batch_labels, weight, moment)
        if not uneven:
            return new
        taken = jnp.any(weight > 0)
        return jax.tree.map(lambda old, now: jnp.where(taken, now, old), state, new)

    def body(index: Array, states: Any) -> Any:
        chosen = indices[index]
        moments = jax.vmap(lambda key: moment_of(key, epoch, before + index))(keys)
        if weights.shape[1] == 1:
            # Products with a models axis of length one are compiled to slower code than without the axis.
            batch = (inputs[chosen], labels[chosen]) if shared else chosen[0]
            return add_axis(step(drop_axis(states), batch, weights[index, 0], drop_axis(moments)))
        if shared:
            batch = inputs[chosen], labels[chosen]
            if accelerated():
                return jax.vmap(step, in_axes=(0, None, 0, 0))(states, batch, weights[index], moments)
            # One product for all models would transpose every model's first kernel in every step.
            chosen = jax.tree.map(lambda x: jnp.broadcast_to(x, (weights.shape[1], *x.shape)), batch)
        return jax.vmap(step)(states, chosen, weights[index], moments)

    return jax.lax.fori_loop(start, stop, loop_body(body), states)


MODELS = 8
"""So many models are measured together, or fewer if memory is short."""
MEMORY_SHARE = 1 / 16
"""The part of a device's memory that a measurement may take."""
CALLS, ROUNDS = 5, 3
COMPILED_AT_ONCE = 8


def with_decided_form(learner: Learner, letters_of: "Callable[[Convolution], str] | None" = None) -> Any:
    """The learner with the form of its convolutions decided; itself on a CPU, if it does not convolve, or if it has a
    form. Measuring takes some seconds, once in a process for equal convolutions. Two measurements may choose
    differently: to repeat a run exactly, train `learner.with_form(form)` with the reported form.
    """
    if not isinstance(learner, TrainsBySteps) or learner.form is not None or not accelerated():
        return learner
    letters = [(letters_of or fastest_letters)(convolution) for convolution in learner.convolutions()]
    return learner.with_form(" ".join(letters)) if letters else learner


def form_of(learner: Learner) -> str | None:
    """The form of convolutions in which `fit_many` trains a learner; None: as JAX has them, or there are none."""
    return getattr(with_decided_form(learner), "form", None)


@lru_cache(maxsize=1024)
def fastest_letters(convolution: Convolution, models: int = MODELS) -> str:
    """The letter of each part that takes the least time on this process's first device, for so many models."""
    return "".join(_fastest(convolution, part, models) for part in range(PARTS))


def _fastest(convolution: Convolution, part: int, models: int) -> str:
    room = MEMORY_SHARE * _device_bytes()
    models = max(1, min(models, int(room // max(convolution.patch_bytes(), 1))))
    has_patches = convolution.has_patches and convolution.patch_bytes() <= room
    letters = [letter for letter in LETTERS if letter != PATCHES or has_patches]
    # Products of zeros can be faster than others.
    arrays = [
        jnp.sin(jnp.arange(models * prod(shape), dtype=jnp.float32)).reshape(models, *shape).astype(convolution.dtype)
        for shape in (convolution.inputs, convolution.kernel, convolution.outputs.shape)
    ]

    def compiled(letter: str) -> Callable[[], Array]:
        program = jax.jit(jax.vmap(partial(_part, convolution, part, letter))).lower(*arrays).compile()
        return lambda: program(*arrays)

    # Compiling takes most of the time, and does not hold Python's lock.
    with ThreadPoolExecutor(COMPILED_AT_ONCE) as threads:
        programs = dict(zip(letters, threads.map(compiled, letters), strict=True))
    seconds = {letter: _seconds(program) for letter, program in programs.items()}
    return min(letters, key=lambda letter: seconds[letter])


def _part(convolution: Convolution, part: int, letter: str, inputs: Array, kernel: Array, gradient: Array) -> Array:
    """The outputs, or one of the two gradients, with this part in the form of the letter."""
    letters = GROUPED * part + letter + GROUPED * (PARTS - 1 - part)
    outputs, back = jax.vjp(partial(convolve, letters, convolution.params), inputs, kernel)
    return outputs if part == 0 else back(gradient.astype(outputs.dtype))[part - 1]


def _seconds(program: Callable[[], Array]) -> float:
    """The least time of a call, of some that follow one another without waiting."""
    jax.block_until_ready(program())
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready([program() for _ in range(CALLS)])
        times.append((time.perf_counter() - started) / CALLS)
    return min(times)


def _device_bytes() -> int:
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", 16 << 30)


TABLE_ENTRIES = 1 << 22  # most index entries in a block: 32 MB with the weights


class StepBlock(NamedTuple):
    """Minibatches of consecutive steps of an epoch, in tables of one length, of which entries past `steps` are padding:
    the records of each step, and of each model unless all share their minibatches, and their weights.
    """

    indices: Int[np.ndarray, "block models batch"] | Int[np.ndarray, "block batch"]
    weights: Float[np.ndarray, "block models batch"]
    steps: int
    epoch: int
    before: int


def _block_length(learner: SteppedLearner, steps: int, models: int) -> int:
    """A whole epoch, rounded up to a power of four (each length is compiled), within the bound on the table."""
    bound = max(1, TABLE_ENTRIES // (models * learner.batch_size))
    whole = max(steps - 1, 0).bit_length()
    return 1 << min(whole + whole % 2, bound.bit_length() - 1)


class Tables:
    """The minibatches of the models with these keys and membership masks, an epoch at a time."""

    def __init__(
        self,
        learner: SteppedLearner,
        group: ChunkGroup,
        keys: ModelKeys,
        rows: Bool[np.ndarray, "models examples"],
    ) -> None:
        self.group, self.keys, self.rows = group, keys, rows
        self.batch, self.epochs = learner.batch_size, learner.epochs
        self.length = _block_length(learner, group.steps, len(rows))
        self.members = [] if group.pool else [np.flatnonzero(row) for row in rows]
        self.words = rows.shape[1] if group.pool else max(map(len, self.members))

    def draw(self, epoch: int) -> UInt32[Array, "models words"]:
        """The random words of an epoch; returns at once, while the device still computes. There are a power of two of
        them, so that few programs are compiled.
        """
        count = 1 << max(self.words - 1, LEAST_WORDS - 1).bit_length()
        return _chunk_bits(self.keys, epoch, count, self.group.shared)

    def of_all_epochs(self) -> Iterator[StepBlock]:
        """The blocks of steps of all epochs. An epoch's words are requested before the steps of the previous one: an
        accelerator runs one program after another.
        """
        drawn = self.draw(0) if self.epochs else None
        for epoch in range(self.epochs):
            now, drawn = drawn, self.draw(epoch + 1) if epoch + 1 < self.epochs else None
            assert now is not None
            yield from self.blocks(epoch, now)

    def blocks(self, epoch: int, drawn: UInt32[Array, "models words"]) -> Iterator[StepBlock]:
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


def place_block(block: StepBlock, group: ChunkGroup) -> tuple[Array, Array]:
    """A block's record indices and weights on the devices, split by model; what all models share is copied to each."""
    indices = place_pool(block.indices) if group.shared else place_models(block.indices, axis=1)
    return indices, place_models(block.weights, axis=1)
