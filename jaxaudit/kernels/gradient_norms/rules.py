"""What the operations that multiply by a parameter leave of its gradient: dense products, convolutions, look-ups.

Every rule takes one example: the operation, its operands, and the cotangent of its output.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode
from jaxtyping import Array

from jaxaudit.kernels.gradient_norms.factors import Factors, Rows, wide
from jaxaudit.kernels.gradient_norms.program import Operation, run

Rule = Callable[[Operation, int, Sequence[Any], Array], Factors | Rows]

# Operations whose derivative is no larger than what they hold anyway.
LOCAL = frozenset(
    {"add", "add_any", "sub", "mul", "div", "max", "min", "pow", "atan2", "rem", "clamp", "select_n", "concatenate"}
)


KNOWN_MODES = (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS)


def differentiable(value: Any) -> bool:
    """Whether a value of this type can have a gradient."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def matching_rule(operation: Operation, position: int, types: Sequence[Any]) -> tuple[Rule, Any] | None:
    """The rule for the operand at `position`, and what must be equal for two uses of one array to be joined."""
    if not all(jnp.issubdtype(types[place].dtype, jnp.floating) for place in operation.outputs):
        return None
    name, params = operation.primitive.name, operation.params
    operands = [types[place] for place in operation.inputs]
    if name == "dot_general":
        if all(jnp.issubdtype(operand.dtype, jnp.floating) for operand in operands):
            batch, rows, _ = _sides(operation, position, operands[position].ndim)
            return of_product, ("product", batch, rows)
    elif name == "conv_general_dilated":
        filled = all(types[place].size for place in operation.outputs)
        if position == 1 and params["batch_group_count"] == 1 and filled:
            spec = params["dimension_numbers"].rhs_spec
            return of_convolution, ("convolution", tuple(spec), params["feature_group_count"])
    elif name == "gather" and position == 0 and _takes_rows(params, operands[0].shape):
        return of_rows, ("rows",)
    return None


def _sides(operation: Operation, position: int, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """The axes of a product's operand: batched, then those of the gradient's rows; and whether those are contracted.

    Rows are whichever axes, contracted or free, hold the first that is not batched; so an array used both ways round
    has its gradient laid out in one way.
    """
    contracted, batched = operation.params["dimension_numbers"]
    batch, mine = tuple(sorted(batched[position])), tuple(sorted(contracted[position]))
    free = tuple(axis for axis in range(ndim) if axis not in batch + mine)
    contracted_first = bool(mine) and (not free or mine[0] < free[0])
    return batch, mine if contracted_first else free, contracted_first


def of_product(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Factors:
    """A dense product with any axes contracted or batched."""
    contracted, batched = operation.params["dimension_numbers"]
    array, other = operands[position], operands[1 - position]
    # The two operands' axes in pairs, in the order of the array's.
    inner = sorted(zip(contracted[position], contracted[1 - position], strict=True))
    batch = sorted(zip(batched[position], batched[1 - position], strict=True))
    array_batch, array_inner = [a for a, _ in batch], [a for a, _ in inner]
    other_batch, other_inner = [b for _, b in batch], [b for _, b in inner]
    array_free = [axis for axis in range(array.ndim) if axis not in array_batch + array_inner]
    other_free = [axis for axis in range(other.ndim) if axis not in other_batch + other_inner]
    groups, inner_size, free_size = (
        prod(array.shape[axis] for axis in axes) for axes in (array_batch, array_inner, array_free)
    )
    positions = prod(other.shape[axis] for axis in other_free)

    inputs = wide(other).transpose(other_batch + other_free + other_inner).reshape(groups, positions, inner_size)
    # The output's axes: batched ones in the order of the operation's list, the left operand's free ones, the right's.
    order = [list(batched[position]).index(axis) for axis in array_batch]
    output = wide(cotangent).transpose(order + list(range(len(order), cotangent.ndim)))
    if position == 0:
        output = output.reshape(groups, free_size, positions).swapaxes(1, 2)
    output = output.reshape(groups, positions, free_size)
    _, _, contracted_first = _sides(operation, position, array.ndim)
    rows, columns = (array_inner, array_free) if contracted_first else (array_free, array_inner)
    axes = array_batch + rows + columns
    lengths = [array.shape[axis] for axis in axes]

    def assemble(gradient: Array) -> Array:
        return gradient.reshape(lengths).transpose(np.argsort(axes))

    return Factors(*((inputs, output) if contracted_first else (output, inputs)), assemble)


def of_convolution(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Factors:
    """The kernel of a convolution, with any stride, padding, dilation of either side, and feature groups.

    The input is unfolded: a row of patches for every position of the output.
    """
    params = operation.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    image, kernel = operands
    window = [kernel.shape[axis] for axis in numbers.rhs_spec[2:]]
    # Space last, and unfolded to the front: whole rows of the image are copied, several times as fast as pixels.
    image = wide(image).transpose(numbers.lhs_spec)
    output = wide(cotangent).transpose(numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1])
    edges = [(low, high, step - 1) for (low, high), step in zip(params["padding"], params["lhs_dilation"], strict=True)]
    patches = jax.lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), (0, 0, 0), *edges])
    steps = zip(window, params["window_strides"], params["rhs_dilation"], output.shape[1:-1], strict=True)
    for size, stride, step, length in reversed(list(steps)):
        reach = (length - 1) * stride + 1
        # Counted from the front, this axis of space stays where it was: one is unfolded for each that is done.
        parts = [
            jax.lax.slice_in_dim(patches, at * step, at * step + reach, stride, 1 + len(window)) for at in range(size)
        ]
        patches = jnp.stack(parts)
    n, channels = image.shape[:2]
    features, positions = output.shape[-1], prod(output.shape[:-1])
    patches = patches.reshape(prod(window), n, groups, channels // groups, positions // n)
    left = patches.transpose(2, 0, 3, 1, 4).reshape(groups, prod(window) * (channels // groups), positions)
    right = output.reshape(positions, groups, features // groups).transpose(1, 0, 2)

    def assemble(gradient: Array) -> Array:
        apart = gradient.reshape(groups, *window, channels // groups, features // groups)
        space = range(1, 1 + len(window))
        by_feature = apart.transpose(0, -1, -2, *space).reshape(features, channels // groups, *window)
        return by_feature.transpose(np.argsort(numbers.rhs_spec))

    return Factors(left, right, assemble, rows_first=True)


def _takes_rows(params: dict[str, Any], shape: tuple[int, ...]) -> bool:
    numbers = params["dimension_numbers"]
    return (
        tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(params["slice_sizes"]) == (1, *shape[1:])
        and GatherScatterMode.from_any(params["mode"]) in KNOWN_MODES
    )


def of_rows(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Rows:
    """A table from which whole rows are taken (an embedding)."""
    table, indices = operands
    offsets = operation.params["dimension_numbers"].offset_dims
    values = jnp.moveaxis(wide(cotangent), offsets, range(-len(offsets), 0)) if offsets else wide(cotangent)
    flat = indices.reshape(-1)
    values = values.reshape(len(flat), prod(table.shape[1:]))
    mode = GatherScatterMode.from_any(operation.params["mode"])
    if mode == GatherScatterMode.FILL_OR_DROP:
        values = jnp.where(((flat >= 0) & (flat < len(table)))[:, None], values, 0)
    return Rows(jnp.clip(flat, 0, len(table) - 1), values, table.shape)


def by_derivative(
    operation: Operation, positions: Sequence[int], operands: Sequence[Any], cotangents: Sequence[Array]
) -> tuple[Array, ...]:
    """The gradients of any operation's operands at `positions`, by JAX's own derivative of it.

    `cotangents` are those of its differentiable outputs.
    """

    def outputs(*chosen: Array) -> list[Array]:
        values = list(operands)
        for at, value in zip(positions, chosen, strict=True):
            values[at] = value
        return [value for value in run(operation, values) if differentiable(value)]

    _, pull = jax.vjp(outputs, *(operands[at] for at in positions))
    return pull(list(cotangents))
