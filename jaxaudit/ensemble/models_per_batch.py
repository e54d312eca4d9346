"""Chooses the number of models per batch by measurement: the best depends on a CPU's cache and a GPU's size.

On an accelerator the search begins where the models of a step compute four gigabytes of arrays, about a millisecond of
work, and doubles or halves the number while that gains 3%. A number is timed only if the compiler's count of its memory
is within a part of what is free. `vmap` of a convolution over its kernel is a grouped convolution, whose gradients are
slow on a GPU: so outputs and both gradients are timed in three forms (`forms.py`). On one H100, ResNet-8 is then 2.5
times, a CNN 2.4 times as fast as grouped throughout.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.data.memory import free_memory_bytes
from jaxaudit.ensemble.batches import DISPATCH, Tables, init_chunk, place_block, place_models, run_block
from jaxaudit.ensemble.concurrency import ChunkGroup, accelerated, concurrent_chunks
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import SteppedLearner, TrainsBySteps, moment_of
from jaxaudit.membership import AllBut, Membership
from jaxaudit.randomness import keys_at

Records = Array | np.ndarray
FREE_SHARE = 0.5
"""The part of the memory that is free on a CPU's machine that the steps under way may take."""
DEVICE_FREE_SHARE = 0.8
"""The same of an accelerator."""


def bytes_of_state(learner: SteppedLearner, key: Key[Array, ""]) -> int:
    # Extended types such as keys have no plain size; their few bytes do not matter.
    leaves = jax.tree.leaves(jax.eval_shape(lambda key: learner.init(key), key))
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in leaves)


class StepProgram(NamedTuple):
    """The program of one model's step, before it is compiled: bytes of all arrays that it computes, however the
    compiler fuses them (at least 1); operations on arrays, with every branch (compiling takes as long).
    """

    written: int
    equations: int


def step_program(learner: SteppedLearner, key: Key[Array, ""], inputs: Records, labels: Records) -> StepProgram:
    """The size of one model's step; `inputs` and `labels` are all records, of which the step takes a minibatch."""
    traced = jax.make_jaxpr(lambda state, *batch: learner.update(state, *learner.gradient(state, *batch)))
    program = traced(*_step_arguments(learner, key, inputs, labels)).jaxpr
    return StepProgram(max(1, _written(program)), _equations(program))


def step_operations(learner: SteppedLearner, key: Key[Array, ""], inputs: Records, labels: Records) -> float:
    """The floating-point operations of the gradient of one model's step, counted without compiling."""
    gradient = jax.jit(lambda state, *batch: learner.gradient(state, *batch))
    return operations_of(gradient.lower(*_step_arguments(learner, key, inputs, labels)))


def operations_of(lowered: Any) -> float:
    """The floating-point operations of a program that is not compiled yet; 0 where JAX does not count them."""
    counted = lowered.cost_analysis()
    return float((counted or {}).get("flops", 0.0))


def _step_arguments(learner: SteppedLearner, key: Key[Array, ""], inputs: Records, labels: Records) -> tuple[Any, ...]:
    """Shapes and types of the arguments of a training step: a state at a moment, and a minibatch of the data."""
    state = jax.eval_shape(lambda key: learner.init(key), key)
    moment = jax.eval_shape(lambda key: moment_of(key, 0, 0), key)
    batch = [jax.ShapeDtypeStruct((learner.batch_size, *array.shape[1:]), array.dtype) for array in (inputs, labels)]
    weights = jax.ShapeDtypeStruct((learner.batch_size,), jnp.float32)
    return state._replace(moment=moment), *batch, weights


def _written(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [value for value in equation.params.values() if hasattr(value, "jaxpr")]
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        if inner:
            total += times * sum(_written(program.jaxpr) for program in inner)
        else:
            total += sum(_bytes(variable.aval) for variable in equation.outvars)
    return total


def _equations(program: Any) -> int:
    count = 0
    for equation in program.eqns:
        inner = [value for value in jax.tree.leaves(list(equation.params.values())) if hasattr(value, "eqns")]
        count += sum(map(_equations, inner)) if inner else 1
    return count


def _bytes(aval: Any) -> int:
    return prod(getattr(aval, "shape", ())) * getattr(getattr(aval, "dtype", None), "itemsize", 8)


def program_bytes(program: Any, at_once: int, pool: tuple[Array, Array]) -> int:
    """The bytes that a compiled program takes on each device when it runs `at_once` times; the pool is there once."""
    stats = program.memory_analysis()
    if stats is None:
        return 0
    once = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    of_pool = sum(array.nbytes for array in pool)
    return at_once * max(once - stats.alias_size_in_bytes - of_pool, 0) + of_pool


def free_bytes() -> int:
    """The bytes that training steps may take: a fixed share of the memory that is free on the device or the host."""
    stats = jax.local_devices()[0].memory_stats() if accelerated() else None
    if stats and "bytes_limit" in stats:
        return int(DEVICE_FREE_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    return int(FREE_SHARE * free_memory_bytes())


class NoRoom(InputError):
    """Training takes more memory than is free."""


def demand_room(program: Any, at_once: int, pool: tuple[Array, Array]) -> None:
    """Raises `NoRoom` for a program that takes more than its part of the memory."""
    size, free = program_bytes(program, at_once, pool), free_bytes()
    if size > free:
        where = "the device" if accelerated() else "this machine"
        raise NoRoom(
            f"training takes {size / 2**30:.1f} GiB with {at_once} batch{'es' if at_once > 1 else ''} of models at a "
            f"time, and {free / 2**30:.1f} GiB of {where}'s memory may be used; give a smaller batch size, fewer "
            "models a batch, shorter or smaller records, or a smaller network, or close other programs."
        )


PROBE_SHARE = 0.1
"""Measuring stops once it has taken this share of the expected training time."""
GIVE_UP = 1.15
"""The search stops after two numbers in a row that are slower than the best by this factor."""
TIE = 1.03
"""Numbers within this factor of the least time count as equal; the largest of them is chosen."""
START = 4
"""The number that is tried first on a CPU; it is rarely far from the best there."""
FULL_BYTES = 4 << 30
"""An accelerator is full when the models of a batch compute arrays of so many bytes in a step. What the compiler fuses
is never written, so this is about a millisecond's worth, of which starting the step's kernels takes a tenth."""
PROBE_STEPS = 32
PROBE_SECONDS = 0.2
SLOW_STEP = 1.0
"""A step of so many seconds is timed once."""
MOST_SECONDS = 15.0
"""The search of a CPU begins no further number after so long."""
CPU_BYTES = 4 << 30
DEVICE_SHARE = 0.5
"""The part of an accelerator's memory that training states may take."""


class BatchChoice(NamedTuple):
    """The chosen models per batch; measured seconds per model-step for each number tried, if any; and the form of
    convolutions (`kernels.convolutions`; None: as JAX has them).
    """

    models_per_batch: int
    seconds: dict[int, float]
    form: str | None = None


class TimedModels(NamedTuple):
    """The models whose steps are timed: the arguments of `choose_models_per_batch`, and one of its groups."""

    learner: SteppedLearner
    keys: Key[Array, " models"]
    membership: Membership | AllBut
    pool: tuple[Array, Array]
    group: ChunkGroup


def choose_models_per_batch(
    learner: SteppedLearner,
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    pool: tuple[Array, Array],
    groups: list[ChunkGroup],
) -> BatchChoice:
    """The models per batch with the least time per model-step, measured over some steps each; `NoRoom` if not one model
    fits.

    A CPU begins at 4, an accelerator where a batch fills it, on the group with the most work, with as many chunks at
    the same time as in training. Numbers are doubled while that pays, then halved if the first was the fastest. The
    search ends when it has taken a tenth of the expected training time (on an accelerator without compiling).
    """
    group = max(groups, key=lambda group: group.steps * len(group.rows))
    work = learner.epochs * sum(g.steps * len(g.rows) for g in groups)
    # Chunks must be small enough that all concurrent chunks have models.
    most = -(-len(group.rows) // concurrent_chunks())
    candidates = _candidates(learner, keys, pool, most) if work else [most]
    timed = TimedModels(learner, keys, membership, pool, group)
    form = getattr(learner, "form", None)
    if not work:
        return BatchChoice(candidates[0], {}, form)
    if len(candidates) == 1:
        demand_room(compiled_block(timed, candidates[0]).program, _at_once(group, candidates[0]), pool)
        return BatchChoice(candidates[0], {}, form)
    first = _first(candidates, timed)
    search = _Search(timed, work)
    search.along(candidates[first:])
    if not search.seconds or search.fastest == candidates[first]:
        search.along(candidates[:first][::-1])
    if not search.seconds:
        search.seconds[candidates[0]] = probe_models_per_batch(timed, candidates[0])
    # Work between steps is not measured; it is done once per chunk, so larger chunks have less of it.
    best = min(search.seconds.values())
    return BatchChoice(max(n for n, took in search.seconds.items() if took <= TIE * best), search.seconds, form)


class _Search:
    """The numbers measured so far, and whether to go on."""

    def __init__(self, timed: TimedModels, work: int) -> None:
        self.timed, self.work, self.started = timed, work, time.perf_counter()
        self.seconds: dict[int, float] = {}

    @property
    def fastest(self) -> int:
        return min(self.seconds, key=lambda number: self.seconds[number])

    def along(self, numbers: Sequence[int]) -> None:
        """Measures these numbers in turn until the next does not pay, or does not fit into memory."""
        slower = 0
        for number in numbers:
            best = min(self.seconds.values(), default=np.inf)
            spent = time.perf_counter() - self.started
            late = spent > min(MOST_SECONDS, PROBE_SHARE * best * self.work)
            if slower == 2 or (late and self.seconds and not accelerated()):
                return
            with suppress(NoRoom):
                self.seconds[number] = probe_models_per_batch(self.timed, number)
            if number not in self.seconds:
                return
            if not accelerated():
                slower = slower + 1 if self.seconds[number] > GIVE_UP * best else 0
            # Each number is compiled for some seconds: one that gains nothing ends the search.
            elif self.seconds[number] > best / TIE:
                return


def _candidates(
    learner: SteppedLearner, keys: Key[Array, " models"], pool: tuple[Array, Array], most: int
) -> list[int]:
    devices = len(jax.local_devices())
    bytes_of_batch = learner.batch_size * pool[0].nbytes // len(pool[0])
    room = (
        _state_bytes() * devices // concurrent_chunks() // (2 * bytes_of_state(learner, keys[0]) + 4 * bytes_of_batch)
    )
    top = max(1, -(-min(most, room) // devices)) * devices
    return [number for number in (devices << shift for shift in range(top.bit_length())) if number < top] + [top]


def _first(candidates: Sequence[int], timed: TimedModels) -> int:
    """The place of the number that is tried first."""
    start = START
    if accelerated():
        plain = timed.learner.in_form(None) if isinstance(timed.learner, TrainsBySteps) else timed.learner
        start = FULL_BYTES * len(jax.local_devices()) // step_program(plain, timed.keys[0], *timed.pool).written
    return sum(number < start for number in candidates[:-1])


def _state_bytes() -> int:
    stats = jax.local_devices()[0].memory_stats() if accelerated() else None
    return int(DEVICE_SHARE * stats["bytes_limit"]) if stats and "bytes_limit" in stats else CPU_BYTES


class _CompiledBlock(NamedTuple):
    """A compiled block of steps and its arguments but the states."""

    program: Any
    keys: Any
    rows: np.ndarray
    block: Any
    arguments: tuple[Any, ...]
    kind: tuple[bool, bool]


def _placed(array: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _at_once(group: ChunkGroup, models_per_batch: int) -> int:
    return min(concurrent_chunks(), -(-len(group.rows) // models_per_batch))


def compiled_block(timed: TimedModels, models_per_batch: int) -> _CompiledBlock:
    """The program that trains so many models at a time, compiled once for measuring and training."""
    learner, keys, membership, pool, group = timed
    # Padded like a chunk in training, so that it divides evenly over the devices.
    group = group.chunks(models_per_batch, len(jax.local_devices()))[0]
    own_keys = place_models(keys_at(keys, group.rows))
    tables = Tables(learner, group, own_keys, membership[group.rows])
    block = next(tables.blocks(0, tables.draw(0)))
    arguments = ((own_keys, 0, 0), *pool, *place_block(block, group))
    kind = (group.shared, group.uneven)
    with DISPATCH:
        init = init_chunk.lower(learner, own_keys).compile()
        # A program is found again if its arguments are placed alike.
        states = jax.tree.map(_placed, init.out_info, init.output_shardings)
        program = run_block.lower(learner, states, *arguments, 0, 1, *kind).compile()
    return _CompiledBlock(program, own_keys, group.rows, block, arguments, kind)


def probe_models_per_batch(timed: TimedModels, models_per_batch: int) -> float:
    """Seconds per model-step with so many models per batch: the best of up to three timed runs. May raise `NoRoom`."""
    ready, at_once = compiled_block(timed, models_per_batch), _at_once(timed.group, models_per_batch)
    demand_room(ready.program, at_once, timed.pool)
    learner = timed.learner
    states = [init_chunk(learner, ready.keys) for _ in range(at_once)]
    steps = min(ready.block.steps, PROBE_STEPS)

    def run(steps: int) -> float:
        def one_chunk(state: Any) -> Any:
            with DISPATCH:
                state = run_block(learner, state, *ready.arguments, 0, steps, *ready.kind)
            return jax.block_until_ready(state)

        start = time.perf_counter()
        states[:] = threads.map(one_chunk, states)
        return time.perf_counter() - start

    with ThreadPoolExecutor(at_once) as threads:
        return _best(run, steps, ready.block.steps) / at_once / len(np.unique(ready.rows))


def _best(run: Callable[[int], float], steps: int, most: int) -> float:
    """The least seconds per step of up to three timed runs."""
    run(1)  # compiles
    first = run(1)
    if first > SLOW_STEP:
        return first
    # Enough steps to make the time of the call itself negligible.
    steps = min(most, max(steps, int(PROBE_SECONDS / 4 / min(first, run(steps) / steps))))
    best, spent = np.inf, 0.0
    for _ in range(3):
        took = run(steps)
        best, spent = min(best, took), spent + took
        if spent > PROBE_SECONDS:
            break
    return best / steps
