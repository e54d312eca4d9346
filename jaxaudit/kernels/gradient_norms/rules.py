"""Rules for the gradients of parameters in dense products, convolutions and look-ups, for one example.

Every rule gets the operation, its operands, and the cotangent of its output. A gradient is a product of two thin
matrices, and its squared norm is taken without computing the product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode
from jaxtyping import Array, Float

from jaxaudit.kernels.gradient_norms.program import Operation, run_operation

# The Gram form sums terms of both signs, whose rounding is that of their squares; it must save much to be chosen.
GRAM_SAVES = 2


@partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=["assemble", "rows_first"])
@dataclass(frozen=True)
class Factors:
    """The gradient of one array is `assemble(sum_t left[:, t, :, None] * right[:, t, None, :])`.

    Axes are groups, positions, rows or columns; with `rows_first`, `left` has rows before positions, which saves XLA a
    transposed copy. A pytree, so its arrays may be abstract, or have an axis of examples in front.
    """

    left: Any
    right: Any
    assemble: Callable[[Array], Array]
    rows_first: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of positions, rows and columns."""
        positions, columns = self.right.shape[-2:]
        return positions, self.left.shape[-2 if self.rows_first else -1], columns


@partial(jax.tree_util.register_dataclass, data_fields=["indices", "values"], meta_fields=["height", "assemble"])
@dataclass(frozen=True)
class Rows:
    """The gradient of one array is `assemble(table)`; `table` is 0 except for `values[t]` added to row `indices[t]`.

    A pytree, like `Factors`; the table has `height` rows.
    """

    indices: Any
    values: Any
    height: int
    assemble: Callable[[Array], Array]

    def summed(self) -> "Rows":
        """An equal gradient in which each row's sum is at one of its positions, and its other positions are 0."""
        order = jnp.sort(self.indices)
        first = jnp.searchsorted(order, self.indices)
        values = wide(self.values)
        return replace(self, indices=order, values=jnp.zeros_like(values).at[first].add(values))


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "factors"], meta_fields=[])
@dataclass(frozen=True)
class Tied:
    """The gradient of a table that is both looked up and multiplied, such as a language model's tied embedding."""

    rows: Rows
    factors: Factors


# Or, made already, an array: jax.Array | jax.ShapeDtypeStruct.
Gradient = Factors | Rows | Tied | Any


def wide(array: Array) -> Array:
    """Converts the array to float32, unless it is wider."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def join_factors(parts: Sequence[Factors]) -> Factors:
    """The sum of gradients of one array, formed by concatenating their positions."""
    if len(parts) == 1:
        return parts[0]
    lefts, rights = [part.left for part in parts], [part.right for part in parts]
    first = parts[0].rows_first
    left = jnp.concatenate(lefts, axis=2 if first else 1)
    return Factors(left, jnp.concatenate(rights, axis=1), parts[0].assemble, first)


def looked_up(parts: Sequence[Rows]) -> Rows:
    """The sum of gradients of one table, formed by concatenating their positions."""
    indices, values = (jnp.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "values"))
    return replace(parts[0], indices=indices, values=values)


def is_thin(gradient: Gradient) -> bool:
    """Whether the gradient is a single outer product per group."""
    return isinstance(gradient, Factors) and gradient.sizes[0] == 1


def is_made(gradient: Gradient) -> bool:
    """Whether `squared_norm` computes the whole gradient of an example."""
    if isinstance(gradient, Tied):
        return is_made(gradient.rows) or is_made(gradient.factors)
    if isinstance(gradient, Factors):
        positions, rows, columns = gradient.sizes
        return positions > 1 and GRAM_SAVES * positions * (rows + columns) >= rows * columns
    return not isinstance(gradient, Rows) or gradient.height <= gradient.indices.shape[-1]


def squared_norm(gradient: Gradient) -> Float[Array, ""]:
    """The squared L2 norm of one example's gradient.

    With one position it is |a|^2 |d|^2 per group (Goodfellow 2015, "Efficient per-example gradient computations").
    Otherwise it is that of the gradient or, if that is much cheaper, sum_st (a_s . a_t)(d_s . d_t) over positions.
    """
    if is_made(gradient):
        return jnp.sum(jnp.square(wide(gradient_array(gradient))))
    if isinstance(gradient, Rows):
        return jnp.sum(jnp.square(gradient.summed().values))
    if isinstance(gradient, Tied):
        rows, factors = gradient.rows, gradient.factors
        left = factors.left[0].T if factors.rows_first else factors.left[0]
        cross_terms = jnp.sum(left[:, rows.indices] * (factors.right[0] @ wide(rows.values).T))
        return jnp.maximum(squared_norm(rows) + squared_norm(factors) + 2 * cross_terms, 0)
    assert isinstance(gradient, Factors)
    left, right = gradient.left, gradient.right
    if is_thin(gradient):
        return jnp.sum(_group_squares(left) * _group_squares(right))
    of_left = jnp.einsum("gis,git->gst" if gradient.rows_first else "gsi,gti->gst", left, left)
    return jnp.maximum(jnp.sum(of_left * jnp.einsum("gsi,gti->gst", right, right)), 0)


def _group_squares(array: Float[Array, "groups positions width"]) -> Float[Array, "*groups"]:
    """The sum of squares of each group; a scalar for a single group."""
    # As one row: with leading axes of length one, XLA would store the array twice, for the next product and this sum.
    groups = array.shape[0]
    return jnp.sum(jnp.square(array.reshape(groups, -1) if groups > 1 else array.reshape(-1)), axis=-1)


def gradient_array(gradient: Gradient) -> Array:
    """The gradient of one example as an array."""
    if isinstance(gradient, Tied):
        return gradient_array(gradient.rows) + gradient_array(gradient.factors)
    if isinstance(gradient, Factors):
        sides = "git,gto->gio" if gradient.rows_first else "gti,gto->gio"
        return gradient.assemble(jnp.einsum(sides, gradient.left, gradient.right))
    if isinstance(gradient, Rows):
        table = jnp.zeros((gradient.height, gradient.values.shape[-1]), gradient.values.dtype)
        return gradient.assemble(table.at[gradient.indices].add(gradient.values))
    return gradient


Rule = Callable[[Operation, int, Sequence[Any], Array], Factors | Rows]

# Operations whose derivative needs no more memory than their operands.
LOCAL = frozenset(
    {"add", "add_any", "sub", "mul", "div", "max", "min", "pow", "atan2", "rem", "clamp", "select_n", "concatenate"}
) | {"copy", "copy_p"}


FULL = (None, jax.lax.Precision.HIGHEST, (jax.lax.Precision.HIGHEST,) * 2)
KNOWN_MODES = (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS)


def differentiable(value: Any) -> bool:
    """Whether a value of this type can have a gradient."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def matching_rule(operation: Operation, position: int, types: Sequence[Any]) -> tuple[Rule, Any] | None:
    """The rule for the operand at `position`, and a value that is equal for uses of one array that can be joined."""
    if not all(jnp.issubdtype(types[place].dtype, jnp.floating) for place in operation.outputs):
        return None
    name, params = operation.primitive.name, operation.params
    operands = [types[place] for place in operation.inputs]
    if name == "dot_general":
        if all(jnp.issubdtype(operand.dtype, jnp.floating) for operand in operands):
            batch, rows, _ = _sides(operation, position, operands[position].ndim)
            return of_product, ("matrix", batch, rows)
    elif name == "conv_general_dilated":
        filled = all(types[place].size for place in operation.outputs)
        if position == 1 and filled:
            spec, groups = params["dimension_numbers"].rhs_spec, params["feature_group_count"]
            return of_convolution, ("convolution", tuple(spec), groups, params["batch_group_count"])
    elif name == "gather" and position == 0 and GatherScatterMode.from_any(params["mode"]) in KNOWN_MODES:
        return of_gather, ("matrix", (), _cut(operands[0].shape, params["slice_sizes"]))
    elif name == "dynamic_slice" and position == 0:
        return of_dynamic_slice, ("matrix", (), _cut(operands[0].shape, params["slice_sizes"]))
    return None


def _cut(shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The axes that slices of these sizes do not take whole; they are the rows of the gradient."""
    return tuple(axis for axis in range(len(shape)) if sizes[axis] != shape[axis])


def _sides(operation: Operation, position: int, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """The batched axes of a product's operand, the axes that are the gradient's rows, and if these are contracted."""
    contracted, batched = operation.params["dimension_numbers"]
    batch, contracted_axes = tuple(sorted(batched[position])), tuple(sorted(contracted[position]))
    free = tuple(axis for axis in range(ndim) if axis not in batch + contracted_axes)
    contracted_first = bool(contracted_axes) and (not free or contracted_axes[0] < free[0])
    return batch, contracted_axes if contracted_first else free, contracted_first


def of_product(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Factors:
    """The gradient of an operand of a dense product, with any axes contracted or batched."""
    array, other = operands[position], operands[1 - position]
    array_inner, other_inner, array_batch, other_batch = _paired_axes(operation, position)
    array_free = [axis for axis in range(array.ndim) if axis not in array_batch + array_inner]
    other_free = [axis for axis in range(other.ndim) if axis not in other_batch + other_inner]
    groups, inner_size, free_size = (
        prod(array.shape[axis] for axis in axes) for axes in (array_batch, array_inner, array_free)
    )
    positions = prod(other.shape[axis] for axis in other_free)

    inputs = wide(other).transpose(other_batch + other_free + other_inner).reshape(groups, positions, inner_size)
    # The output's axes: batched ones in the order of the operation's list, the left operand's free ones, the right's.
    _, batched = operation.params["dimension_numbers"]
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


def is_turned(operation: Operation, position: int, operands: Sequence[Any]) -> bool:
    """Whether `of_product` must transpose an operand in memory while JAX's derivative, which is equal, need not."""
    other = operands[1 - position]
    _, last, _, first = _paired_axes(operation, position)
    free = [axis for axis in range(other.ndim) if axis not in first + last]
    order = [axis for axis in (*first, *free, *last) if other.shape[axis] > 1]
    exact = operation.params["precision"] in FULL and wide(other).dtype == other.dtype
    return exact and order != sorted(order)


def _paired_axes(operation: Operation, position: int) -> list[list[int]]:
    """The contracted axes of a product's operand, in ascending order, and those of the other one; the batched ones."""
    pairs = [sorted(zip(of[position], of[1 - position], strict=True)) for of in operation.params["dimension_numbers"]]
    return [[pair[side] for pair in of_kind] for of_kind in pairs for side in (0, 1)]


def of_convolution(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Factors:
    """The gradient of any convolution's kernel; the input is unfolded into a row of patches for each position."""
    params = operation.params
    numbers, groups, of_batch = (
        params[name] for name in ("dimension_numbers", "feature_group_count", "batch_group_count")
    )
    image, kernel = operands
    window = [kernel.shape[axis] for axis in numbers.rhs_spec[2:]]
    # Spatial axes are last and unfolded to the front: rows of the image are copied five times as fast as pixels.
    image = wide(image).transpose(numbers.lhs_spec)
    if of_batch > 1:
        groups, apart = of_batch, image.reshape(of_batch, -1, *image.shape[1:]).swapaxes(0, 1)
        image = apart.reshape(len(apart), -1, *image.shape[2:])
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


def of_gather(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Rows:
    """The gradient of an array from which slices are gathered at indices of the example, such as an embedding."""
    array, indices = operands
    params = operation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    paired = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    kept = [axis for axis in range(array.ndim) if axis not in (*numbers.collapsed_slice_dims, *paired)]
    batch = [axis for axis in range(cotangent.ndim) if axis not in numbers.offset_dims]
    # The positions first, then the axes of a slice in the order of the array's axes.
    values = wide(cotangent).transpose(*batch, *numbers.offset_dims)
    count = prod(indices.shape[:-1])
    values = values.reshape(count, *(sizes[axis] if axis in kept else 1 for axis in range(array.ndim)))
    starts = dict(zip(numbers.start_index_map, indices.reshape(count, -1).T, strict=True))
    for axis, along in paired.items():
        starts[axis] = jax.lax.broadcasted_iota(indices.dtype, indices.shape[:-1], along).reshape(count)
    if GatherScatterMode.from_any(params["mode"]) == GatherScatterMode.FILL_OR_DROP:
        inside = [(start >= 0) & (start <= array.shape[axis] - sizes[axis]) for axis, start in starts.items()]
        in_bounds = reduce(jnp.logical_and, inside, jnp.ones(count, bool))
        values = jnp.where(in_bounds.reshape(-1, *[1] * array.ndim), values, 0)
    return _rows(array.shape, sizes, starts, values)


def of_dynamic_slice(operation: Operation, position: int, operands: Sequence[Any], cotangent: Array) -> Rows:
    """The gradient of an array from which one slice is taken, at an index of the example."""
    array, *starts = operands
    places = {axis: jnp.reshape(start, 1) for axis, start in enumerate(starts)}
    return _rows(array.shape, operation.params["slice_sizes"], places, wide(cotangent)[None])


def _rows(shape: Sequence[int], sizes: Sequence[int], starts: dict[int, Array], values: Array) -> Rows:
    """The gradient from slices `values[t]` that start at `starts[axis][t]`; axes taken whole form the table's rows."""
    cut = _cut(shape, sizes)
    whole = [axis for axis in range(len(shape)) if axis not in cut]
    count, grid, indices = len(values), [sizes[axis] for axis in cut], jnp.zeros((), jnp.int32)
    for number, axis in enumerate(cut):
        start = jnp.clip(starts[axis], 0, shape[axis] - sizes[axis]) if axis in starts else jnp.zeros(count, jnp.int32)
        along = start[:, None] + jnp.arange(sizes[axis], dtype=start.dtype)
        along = along.reshape(count, *(size if other == number else 1 for other, size in enumerate(grid)))
        indices = indices * shape[axis] + along
    lengths = [shape[axis] for axis in (*cut, *whole)]
    order = np.argsort([*cut, *whole])

    def assemble(table: Array) -> Array:
        return table.reshape(lengths).transpose(order)

    flat = jnp.broadcast_to(indices, (count, *grid)).reshape(-1)
    rows = values.transpose(0, *(1 + axis for axis in (*cut, *whole)))
    return Rows(flat, rows.reshape(len(flat), prod(shape[axis] for axis in whole)), prod(lengths[: len(cut)]), assemble)


def by_derivative(
    operation: Operation, positions: Sequence[int], operands: Sequence[Any], cotangents: Sequence[Array]
) -> tuple[Array, ...]:
    """The gradients of any operation's operands at `positions`, by JAX's own derivative of it."""

    def outputs(*chosen: Array) -> list[Array]:
        values = list(operands)
        for at, value in zip(positions, chosen, strict=True):
            values[at] = value
        return [value for value in run_operation(operation, values) if differentiable(value)]

    _, pull = jax.vjp(outputs, *(operands[at] for at in positions))
    return pull(list(cotangents))
