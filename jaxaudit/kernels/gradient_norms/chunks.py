"""Processes examples in chunks: in a loop on the host, or inside a JAX transformation that is being traced.

Measured on two CPU cores with jax 0.10.2; the constants have the numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxaudit.kernels.convolutions import loop_body
from jaxaudit.kernels.gradient_norms.plan import GradientPlan, fixed_values, place_gradients
from jaxaudit.kernels.gradient_norms.program import Loop, Operation, Program
from jaxaudit.kernels.gradient_norms.rules import Gradient, Rows, differentiable, gradient_array, is_made, is_thin

BUDGETS = {"cpu": 60 * 2**20}
"""By platform, the bytes that the values of one chunk may take, not counting savings by the compiler.

On a CPU, a program's values lie in one block of memory that is allocated at every call. The compiler needs about half
of the bytes counted here. Up to 32 MiB, Linux's C library reuses a block; a larger one is mapped again, and its page
faults took a quarter of the time.
"""

ELSEWHERE = 256 * 2**20

COMPILER_OPTIONS = {"cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}}
"""By platform, compiler options for a chunk's program that is not part of another program.

By default, XLA on a CPU starts every operation as early as possible. The patches of all convolutions were then in
memory before the first cotangent, which takes 2.2 times as much memory for a ResNet-18. With this order of operations,
numbers are the same; that network takes 1.1 times as long, and the time of an MLP, a ViT-S and a small CNN changes by
less than 2%.
"""


def forms(function: Callable[..., Any]) -> dict[bool, Callable[..., Any]]:
    """The compiled function of a chunk, by whether it is called within another program, which has other options."""
    alone = jax.jit(function, compiler_options=COMPILER_OPTIONS.get(jax.default_backend()))
    return {False: alone, True: jax.jit(function)}


def bytes_of_an_example(plan: GradientPlan, squares: bool) -> int:
    """The bytes of one example's values and gradients in a chunk; with `squares`, those of `fisher_diagonal`."""
    program = plan.program
    values = _bytes_of_values(program, plan.varying)

    def gradients(leaves: list[Any], example: list[Any]) -> dict[int, Gradient]:
        return place_gradients(plan, fixed_values(plan, leaves), example)

    types = ([program.types[place] for place in places] for places in (program.leaves, program.example))
    gradient_shapes = jax.eval_shape(gradients, *types)
    total = values + sum(_bytes(program.types[program.leaves[leaf]]) for leaf in plan.pulled)
    for place, gradient in gradient_shapes.items():
        total += sum(_bytes(part) for part in jax.tree.leaves(gradient))
        if isinstance(gradient, Rows) and not is_made(gradient):
            total += _bytes(gradient.values)
            total += _bytes(jax.eval_shape(gradient_array, gradient)) if place in plan.pulled_places else 0
        elif (not is_thin(gradient)) if squares else is_made(gradient):
            total += _bytes(jax.eval_shape(gradient_array, gradient))
    return total


def _bytes_of_values(program: Program, operations: Sequence[Operation | Loop]) -> int:
    total = 0
    for operation in operations:
        total += sum(_bytes(program.types[p]) for p in operation.outputs if differentiable(program.types[p]))
        if isinstance(operation, Loop):
            total += operation.length * _bytes_of_values(program, operation.operations)
    return total


def _bytes(type: Any) -> int:
    return type.size * type.dtype.itemsize


def chunk_size(n: int, chunk: int | None, bytes_each: int) -> int:
    """Examples per chunk: at most `chunk`, by default what the platform's budget allows; all chunks are about equal.

    >>> chunk_size(7, 3, 1), chunk_size(7, 5, 1), chunk_size(7, 100, 1)
    (3, 4, 7)
    """
    budget = BUDGETS.get(jax.default_backend(), ELSEWHERE)
    most = max(1, min(n, chunk or budget // max(bytes_each, 1)))
    return -(-n // -(-n // most))


def map_leaves(function: Callable[..., Any], leaves: list[Any], arrays: list[Any], size: int, traced: bool) -> Any:
    """Calls `function(leaves, arrays)` for every chunk and concatenates the results along the examples."""
    n = len(arrays[0])
    if traced and size == n:
        return function(leaves, arrays)
    if traced:
        stacked = [_stacked(jnp.asarray(array), size) for array in arrays]
        parts = jax.lax.map(loop_body(lambda part: function(leaves, part)), stacked)
        return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:n], parts)
    leaves, place, size = _placed(leaves, size)
    parts = []
    for start in range(0, n, size):
        part = slice(start, start + size)
        parts.append(function(leaves, [place(_filled(array[part], size)) for array in arrays]))
        jax.block_until_ready(parts[-2:-1])  # else chunks are read faster than they are computed
    return jax.tree.map(lambda *part: _first(part[0] if len(part) == 1 else jnp.concatenate(part), n), *parts)


def total(
    function: Callable[..., Any], leaves: list[Any], arrays: list[Any], weights: Any, size: int, traced: bool
) -> Any:
    """The sum over chunks of `function(leaves, arrays, weights)`; padding has weight 0."""
    n = len(arrays[0])
    if traced and size == n:
        return function(leaves, arrays, weights)
    if traced:
        stacked = [_stacked(jnp.asarray(array), size) for array in arrays]
        w = jnp.pad(weights, (0, -n % size)).reshape(-1, size)
        start = jax.tree.map(
            lambda type: jnp.zeros(type.shape, type.dtype),
            jax.eval_shape(function, leaves, [array[0] for array in stacked], w[0]),
        )

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, function(leaves, *part)), None

        return jax.lax.scan(loop_body(add), start, (stacked, w))[0]
    leaves, place, size = _placed(leaves, size)
    weights, sums = jnp.pad(weights, (0, -n % size)), None
    for start in range(0, n, size):
        part = slice(start, start + size)
        some = [place(_filled(array[part], size)) for array in arrays]
        part_sums = function(leaves, some, place(weights[part]))
        jax.block_until_ready(sums)
        sums = part_sums if sums is None else jax.tree.map(jnp.add, sums, part_sums)
    return sums


def _first(array: Any, n: int) -> Any:
    return array if len(array) == n else array[:n]


def _filled(array: Any, size: int) -> Any:
    """Pads the array to this length with copies of its first entry."""
    missing = size - len(array)
    if not missing:
        return array
    module = np if isinstance(array, np.ndarray) else jnp
    return module.concatenate([array, module.broadcast_to(array[:1], (missing, *array.shape[1:]))])


def _stacked(array: Any, size: int) -> Any:
    return _filled(array, -(-len(array) // size) * size).reshape(-1, size, *array.shape[1:])


def _placed(leaves: list[Any], size: int) -> tuple[list[Any], Callable[[Any], Any], int]:
    """Parameters, placement of examples and chunk size for all local devices, unless the caller has spread them."""
    devices = jax.local_devices()
    spread = any(isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 for leaf in leaves)
    if len(devices) == 1 or spread:
        return leaves, jnp.asarray, size
    mesh = Mesh(np.array(devices), ("examples",))
    whole, shared = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("examples",)))
    size = -(-size // len(devices)) * len(devices)
    return jax.device_put(leaves, whole), lambda array: jax.device_put(array, shared), size
