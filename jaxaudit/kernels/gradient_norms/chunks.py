"""How many examples at a time, and where: a loop on the host, or one inside a transformation that is under way."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxaudit.kernels.gradient_norms.factors import Gradient, Rows, is_made, is_thin, made
from jaxaudit.kernels.gradient_norms.plan import Plan, fixed_values, place_gradients
from jaxaudit.kernels.gradient_norms.program import Loop, Operation, Program
from jaxaudit.kernels.gradient_norms.rules import differentiable

BUDGETS = {"cpu": 60 * 2**20}
"""By platform, bytes that the values of one chunk may take, by a count that leaves out what the compiler saves.

On a CPU a program's values lie in one block that is asked for at every call. Up to 32 MiB, about half of this count,
Linux's C library reuses one; a larger block is mapped anew, and its page faults took a quarter of the time.
"""

ELSEWHERE = 256 * 2**20

COMPILER_OPTIONS = {"cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}}
"""By platform, how a chunk's program is compiled where it is compiled alone.

By itself a CPU's compiler starts everything as early as it can: the patches of all convolutions stood in memory before
the first cotangent was there, 2.2 times as much for a ResNet-18. The order changes no number; that network takes 1.1
times as long by it, and an MLP, a ViT-S and a small CNN within 2% as long.
"""


def forms(function: Callable[..., Any]) -> dict[bool, Callable[..., Any]]:
    """The compiled function of a chunk, by whether it is called within another program, which has its own options."""
    alone = jax.jit(function, compiler_options=COMPILER_OPTIONS.get(jax.default_backend()))
    return {False: alone, True: jax.jit(function)}


def bytes_of_an_example(plan: Plan, leaves: list[Any], squares: bool) -> int:
    """What one example adds to a chunk: every value that depends on it, and the gradients that are made.

    With `squares`, as `fisher_diagonal` makes them.
    """
    program = plan.program
    values = _bytes_of_values(program, plan.varying)

    def gradients(leaves: list[Any], example: list[Any]) -> dict[int, Gradient]:
        return place_gradients(plan, fixed_values(plan, leaves), example)

    types = [program.types[place] for place in (*program.leaves, *program.example)]
    shapes = [jax.ShapeDtypeStruct(type.shape, type.dtype) for type in types]
    found = jax.eval_shape(gradients, shapes[: len(leaves)], shapes[len(leaves) :])
    total = values + sum(_bytes(program.types[program.leaves[leaf]]) for leaf in plan.pulled)
    for place, gradient in found.items():
        total += sum(_bytes(part) for part in jax.tree.leaves(gradient))
        if isinstance(gradient, Rows) and not is_made(gradient):
            total += _bytes(gradient.values)
            total += _bytes(jax.eval_shape(made, gradient)) if place in plan.pulled_places else 0
        elif (not is_thin(gradient)) if squares else is_made(gradient):
            total += _bytes(jax.eval_shape(made, gradient))
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
    """Examples a chunk: as asked, else what the platform's budget allows; all chunks about alike.

    >>> chunk_size(7, 3, 1), chunk_size(7, 5, 1), chunk_size(7, 100, 1)
    (3, 4, 7)
    """
    budget = BUDGETS.get(jax.default_backend(), ELSEWHERE)
    most = max(1, min(n, chunk or budget // max(bytes_each, 1)))
    return -(-n // -(-n // most))


def each(function: Callable[..., Any], leaves: list[Any], arrays: list[Any], size: int, traced: bool) -> Any:
    """`function(leaves, arrays)` chunk by chunk, its results joined along the examples."""
    n = len(arrays[0])
    if traced and size == n:
        return function(leaves, arrays)
    if traced:
        stacked = [_stacked(jnp.asarray(array), size) for array in arrays]
        parts = jax.lax.map(lambda part: function(leaves, part), stacked)
        return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:n], parts)
    leaves, place, size = _placed(leaves, size)
    parts = []
    for start in range(0, n, size):
        part = slice(start, start + size)
        parts.append(function(leaves, [place(_filled(array[part], size)) for array in arrays]))
        jax.block_until_ready(parts[-2:-1])  # or chunks that are read faster than computed would pile up
    return jax.tree.map(lambda *part: _first(part[0] if len(part) == 1 else jnp.concatenate(part), n), *parts)


def total(
    function: Callable[..., Any], leaves: list[Any], arrays: list[Any], weights: Any, size: int, traced: bool
) -> Any:
    """The sum over chunks of `function(leaves, arrays, weights)`; what fills up a chunk has weight 0."""
    n = len(arrays[0])
    if traced and size == n:
        return function(leaves, arrays, weights)
    if traced:
        stacked = [_stacked(jnp.asarray(array), size) for array in arrays]
        w = _stacked(weights, size, zeros=True)
        start = jax.tree.map(
            lambda type: jnp.zeros(type.shape, type.dtype),
            jax.eval_shape(function, leaves, [array[0] for array in stacked], w[0]),
        )

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, function(leaves, *part)), None

        return jax.lax.scan(add, start, (stacked, w))[0]
    leaves, place, size = _placed(leaves, size)
    sums = None
    for start in range(0, n, size):
        part = slice(start, start + size)
        some = [place(_filled(array[part], size)) for array in arrays]
        found = function(leaves, some, place(_filled(weights[part], size, zeros=True)))
        jax.block_until_ready(sums)
        sums = found if sums is None else jax.tree.map(jnp.add, sums, found)
    return sums


def _first(array: Any, n: int) -> Any:
    return array if len(array) == n else array[:n]


def _filled(array: Any, size: int, zeros: bool = False) -> Any:
    """The array with copies of its first entry, or zeros, up to this length."""
    missing = size - len(array)
    if not missing:
        return array
    module = np if isinstance(array, np.ndarray) else jnp
    fill = module.broadcast_to(array[:1], (missing, *array.shape[1:]))
    return module.concatenate([array, module.zeros_like(fill) if zeros else fill])


def _stacked(array: Any, size: int, zeros: bool = False) -> Any:
    filled = _filled(array, -(-len(array) // size) * size, zeros)
    return filled.reshape(-1, size, *array.shape[1:])


def _placed(leaves: list[Any], size: int) -> tuple[list[Any], Callable[[Any], Any], int]:
    """Parameters, a placement of examples and a chunk for all local devices, unless the caller spread them."""
    devices = jax.local_devices()
    spread = any(isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 for leaf in leaves)
    if len(devices) == 1 or spread:
        return leaves, jnp.asarray, size
    mesh = Mesh(np.array(devices), ("examples",))
    whole, shared = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("examples",)))
    size = -(-size // len(devices)) * len(devices)
    return jax.device_put(leaves, whole), lambda array: jax.device_put(array, shared), size
