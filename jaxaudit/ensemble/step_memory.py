"""What a step of training takes, as the compiler counts: memory, beside what is free, and operations."""

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.data.memory import free_memory_bytes
from jaxaudit.ensemble.concurrency import accelerated
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import SteppedLearner
from jaxaudit.learners.stepped import moment_of

Records = Array | np.ndarray
FREE_SHARE = 0.5
"""The part of the memory that is free on a CPU's machine that the steps under way may take."""
DEVICE_FREE_SHARE = 0.8
"""The same of an accelerator."""


def bytes_of_state(learner: SteppedLearner, key: Key[Array, ""]) -> int:
    """The bytes of one model's training state."""
    # Extended types such as keys have no plain size; their few bytes do not matter.
    leaves = jax.tree.leaves(jax.eval_shape(lambda key: learner.init(key), key))
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in leaves)


class StepProgram(NamedTuple):
    """The program of one model's step, before it is compiled.

    Attributes:
        written: the bytes of all arrays that the step computes, however the compiler fuses them; at least 1.
        equations: how many operations on arrays the program has, with every branch: compiling takes as long.
        arguments: the bytes of the model's training state, and of a minibatch.
    """

    written: int
    equations: int
    arguments: int


def step_program(learner: SteppedLearner, key: Key[Array, ""], inputs: Records, labels: Records) -> StepProgram:
    """The size of one model's step; `inputs` and `labels` are all records, of which the step takes a minibatch."""
    traced = jax.make_jaxpr(lambda state, *batch: learner.update(state, *learner.gradient(state, *batch)))
    program = traced(*_step_arguments(learner, key, inputs, labels)).jaxpr
    arguments = sum(_bytes(variable.aval) for variable in program.invars)
    return StepProgram(max(1, _written(program)), _equations(program), arguments)


def step_operations(learner: SteppedLearner, key: Key[Array, ""], inputs: Records, labels: Records) -> float:
    """The floating-point operations of the gradient of one model's step, counted without compiling.

    `inputs` and `labels` are all records, of which the step takes a minibatch.
    """
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
    """Rejects a program that takes more than its part of the memory.

    Raises:
        NoRoom: with both numbers, and what to do.
    """
    size, free = program_bytes(program, at_once, pool), free_bytes()
    if size > free:
        where = "the device" if accelerated() else "this machine"
        raise NoRoom(
            f"training takes {size / 2**30:.1f} GiB with {at_once} batch{'es' if at_once > 1 else ''} of models at a "
            f"time, and {free / 2**30:.1f} GiB of {where}'s memory may be used; give a smaller batch size, fewer "
            "models a batch, shorter or smaller records, or a smaller network, or close other programs."
        )
