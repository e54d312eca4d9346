"""What training costs, and how many models a batch has: counted from network, recipe and shapes, the same everywhere.

The compiler counts operations. An accelerator is full when the models of a step compute four gigabytes of arrays, about
a millisecond of work; a CPU is fast while they fit into its caches. Timing several numbers instead gained at most a
tenth of a step's time (`python -m bench.models_per_batch`), and compiled each of them.
"""

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxaudit.data.memory import free_memory_bytes
from jaxaudit.ensemble.batches import DISPATCH, DevicePool, Tables, init_chunk, place_block, place_models, run_block
from jaxaudit.ensemble.chunk import steps_from_host
from jaxaudit.ensemble.concurrency import ChunkGroup, accelerated, concurrent_chunks
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import SteppedLearner, TrainsBySteps, moment_of
from jaxaudit.membership import Masks
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.randomness import ModelKeys, keys_at

Records = Array | np.ndarray

OVERHEAD = 5e5
"""What a model-step costs beside its counted operations, in operations. On two cores of a CPU (Xeon, AVX-512) a step of
a network of 154 parameters takes 4 to 9 microseconds, of which its 50,000 operations are less than one."""
EQUATIONS_A_SECOND = 300.0
"""Of programs of training that one of these cores traces and compiles, with what starts and evaluates the models."""
GRADIENTS = 3
"""A gradient takes about three times the operations of the outputs."""
PIECES = 0.5
"""The part of a minibatch's operations that are done if it is taken by pieces: records are cut off behind their tokens,
and few tokens have logits (measured on short texts of words and of bytes)."""
FULL_BYTES = 4 << 30
"""An accelerator is full when the models of a batch compute arrays of so many bytes in a step. What the compiler fuses
is never written, so this is about a millisecond's worth, of which starting the step's kernels takes a tenth."""
MOST_MODELS, CPU_BYTES, CPU_MODELS = 64, 16 << 20, 4
"""Models per batch: at most 64 on an accelerator. On a CPU at most 4, and so few that their step computes arrays of at
most 16 MiB: on the cores above, no network is faster with more, and those with 40 MiB a model are slower with two."""


class StepCost(NamedTuple):
    """What a network costs, as counted from its shapes: operations of a model-step, and of evaluating one model on one
    record; bytes of all arrays that a model-step computes, however the compiler fuses them (at least 1), of which few
    exist at a time; operations on arrays in its program, with every branch (compiling takes as long).
    """

    step: float
    record: float
    step_bytes: int
    equations: int = 0


def count_step(learner: SteppedLearner, inputs: Records, labels: Records) -> StepCost:
    """The cost of a learner on records of these shapes, without compiling; the same on every device."""
    # Forms of convolutions are measured, and have other operations; a loop of pieces would be counted as one piece.
    plain: SteppedLearner = learner.with_form(None) if isinstance(learner, TrainsBySteps) else learner
    whole = plain.in_one_piece() if isinstance(plain, TrainsBySteps) else plain
    key = jax.random.key(0)
    gradient = jax.jit(lambda state, *batch: whole.gradient(state, *batch))
    counted = gradient.lower(*_step_arguments(whole, key, inputs, labels)).cost_analysis()
    # JAX counts nothing on some devices.
    operations = float((counted or {}).get("flops", 0.0)) * (1 if whole == plain else PIECES)
    record = operations / GRADIENTS / learner.batch_size
    traced = jax.make_jaxpr(lambda state, *batch: plain.update(state, *plain.gradient(state, *batch)))
    program = traced(*_step_arguments(plain, key, inputs, labels)).jaxpr
    return StepCost(operations + OVERHEAD, record, max(1, _written(program)), _equations(program))


def _step_arguments(learner: SteppedLearner, key: OneKey, inputs: Records, labels: Records) -> tuple[Any, ...]:
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


def usual_models_per_batch(
    learner: SteppedLearner, cost: StepCost, cpu_models: int = CPU_MODELS, device_models: int = MOST_MODELS
) -> int:
    """The models per batch for a learner of this cost: a power of two, the same on all CPUs and all accelerators.

    `cpu_models` is the most on a CPU, `device_models` elsewhere.
    """
    if steps_from_host(learner):
        return 1
    full, most = (FULL_BYTES, device_models) if accelerated() else (CPU_BYTES, cpu_models)
    return 1 << min(most, max(1, full // cost.step_bytes)).bit_length() - 1


def fitting_models_per_batch(
    learner: SteppedLearner,
    keys: ModelKeys,
    membership: Masks,
    pool: DevicePool,
    groups: list[ChunkGroup],
) -> int:
    """The usual models per batch for this training, or half as many until they fit; an `InputError` if not one does."""
    if steps_from_host(learner):
        return 1
    group = max(groups, key=lambda group: group.steps * len(group.rows))
    # Chunks must be small enough that all concurrent chunks have models.
    most, devices = -(-len(group.rows) // concurrent_chunks()), len(jax.local_devices())
    number = devices * usual_models_per_batch(learner, count_step(learner, *pool), device_models=most)
    number = max(1, min(number, most))
    while learner.epochs * group.steps:
        at_once = min(concurrent_chunks(), -(-len(group.rows) // number))
        size, free = (
            program_bytes(_block_program(learner, keys, membership, pool, group, number), at_once, pool),
            free_bytes(),
        )
        if size <= free:
            break
        if number <= devices:
            where = "the device" if accelerated() else "this machine"
            raise InputError(
                f"training takes {size / 2**30:.1f} GiB with {at_once} batch{'es' if at_once > 1 else ''} of models at "
                f"a time, and {free / 2**30:.1f} GiB of {where}'s memory may be used; give a smaller batch size, "
                "shorter or smaller records, or a smaller network, or close other programs."
            )
        number //= 2
    return number


def _block_program(
    learner: SteppedLearner,
    keys: ModelKeys,
    membership: Masks,
    pool: DevicePool,
    group: ChunkGroup,
    models_per_batch: int,
) -> Any:
    """The program that trains so many models at a time, compiled once for this and for training."""
    # Padded like a chunk in training, so that it divides evenly over the devices.
    group = group.chunks(models_per_batch, len(jax.local_devices()))[0]
    own_keys = place_models(keys_at(keys, group.rows))
    tables = Tables(learner, group, own_keys, membership[group.rows])
    block = next(tables.blocks(0, tables.draw(0)))
    arguments = ((own_keys, 0, 0), pool, *place_block(block, group))
    with DISPATCH:
        init = init_chunk.lower(learner, own_keys).compile()
        # A program is found again if its arguments are placed alike.
        states = jax.tree.map(
            lambda array, sharding: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding),
            init.out_info,
            init.output_shardings,
        )
        return run_block.lower(learner, states, *arguments, 0, 1, group.shared, group.uneven).compile()


FREE_SHARE = 0.5
"""The part of the memory that is free on a CPU's machine that the steps under way may take."""
DEVICE_FREE_SHARE = 0.8
"""The same of an accelerator."""


def program_bytes(program: Any, at_once: int, pool: DevicePool) -> int:
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
