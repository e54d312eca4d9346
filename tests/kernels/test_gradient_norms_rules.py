"""Every rule against JAX's own derivative of the operation, over what shapes and settings there are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.kernels.gradient_norms.factors import (
    Factors,
    Rows,
    gradient_array,
    is_made,
    is_thin,
    join_factors,
    squared_norm,
)
from jaxaudit.kernels.gradient_norms.program import Operation, evaluate
from jaxaudit.kernels.gradient_norms.rules import by_derivative, matching_rule
from jaxaudit.kernels.gradient_norms.tracing import trace

SIZES = st.integers(1, 3)


def compare(function: Callable[[Any, Any], Any], array: np.ndarray, other: np.ndarray, unmatched: bool = False) -> None:
    """What the rule for `array` finds in the one operation of `function(array, other)`, against the derivative."""
    random = np.random.default_rng(array.size + other.size)
    with jax.enable_x64(True):
        program = trace(lambda leaves, x: function(leaves[0], x), [jnp.asarray(array)], [jnp.asarray(other)])
        operations = [op for op in program.operations if isinstance(op, Operation)]
        (operation,) = [op for op in operations if any(program.depends[place] for place in op.inputs)]
        position = operation.inputs.index(program.leaves[0])
        matched = matching_rule(operation, position, program.types)
        if unmatched:
            assert matched is None
            return
        assert matched is not None

        # One program: compiling takes the time of these tests.
        @jax.jit
        def both(array: Any, other: Any, cotangent: Any) -> tuple[Any, Any, Any]:
            known = program.constants | {program.leaves[0]: array, program.example[0]: other}
            values = evaluate(operations, known)
            operands = [values[place] for place in operation.inputs]
            found = matched[0](operation, position, operands, cotangent)
            (expected,) = by_derivative(operation, [position], operands, [cotangent])
            return gradient_array(found), squared_norm(found), expected

        cotangent = random.normal(size=program.types[operation.outputs[0]].shape)
        whole, norm, expected = map(np.asarray, both(array, other, cotangent))
        np.testing.assert_allclose(whole, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(norm, np.square(expected).sum(), rtol=1e-10, atol=1e-12)


@settings(max_examples=8)
@given(st.data())
def test_products_of_any_axes(data: st.DataObject):
    """Batched, contracted and free axes in any number and order, the array on either side."""
    batch, inner, free, positions = (data.draw(st.lists(SIZES, max_size=2)) for _ in range(4))
    axes = [data.draw(st.permutations(range(len(batch) + len(inner) + len(last)))) for last in (free, positions)]
    shapes = [
        np.array([*batch, *inner, *last], int)[list(order)] for last, order in zip((free, positions), axes, strict=True)
    ]
    where = [[order.index(axis) for axis in range(len(batch) + len(inner))] for order in map(list, axes)]
    contracted = [tuple(place[len(batch) :]) for place in where]
    batched = [tuple(place[: len(batch)]) for place in where]
    random = np.random.default_rng(3)
    array, other = (random.normal(size=tuple(shape)) for shape in shapes)

    def product(array: Any, other: Any) -> Any:
        return jax.lax.dot_general(array, other, ((contracted[0], contracted[1]), (batched[0], batched[1])))

    def swapped(array: Any, other: Any) -> Any:
        return jax.lax.dot_general(other, array, ((contracted[1], contracted[0]), (batched[1], batched[0])))

    compare(product if data.draw(st.booleans()) else swapped, array, other)


@settings(max_examples=7)
@given(st.data())
def test_convolutions_of_any_geometry(data: st.DataObject):
    """Strides, padding (negative too), dilation of both sides, groups of either kind, one to three axes, any layout."""
    space = data.draw(st.integers(1, 3))
    window = [data.draw(SIZES) for _ in range(space)]
    groups, per_group, features = data.draw(SIZES), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    stride, lhs_dilation, rhs_dilation = ([data.draw(st.integers(1, 2)) for _ in range(space)] for _ in range(3))
    padding = [(data.draw(st.integers(-1, 2)), data.draw(st.integers(-1, 2))) for _ in range(space)]
    # Large enough for the window to fit at least once.
    size = [
        max(2, -(-((w - 1) * r + 1 - low - high - 1) // left) + 1) + data.draw(st.integers(0, 2))
        for w, r, left, (low, high) in zip(window, rhs_dilation, lhs_dilation, padding, strict=True)
    ]
    lhs, rhs, out = (tuple(data.draw(st.permutations(range(space + 2)))) for _ in range(3))
    numbers = jax.lax.ConvDimensionNumbers(lhs, rhs, out)
    random = np.random.default_rng(3)
    of_batch = groups if data.draw(st.booleans()) else 1
    images = (2 * of_batch, per_group) if of_batch > 1 else (1, groups * per_group)
    image = random.normal(size=(*images, *size)).transpose(np.argsort(lhs))
    of_features = 1 if of_batch > 1 else groups
    kernel = random.normal(size=(groups * features, per_group, *window)).transpose(np.argsort(rhs))

    def convolution(kernel: Any, image: Any) -> Any:
        return jax.lax.conv_general_dilated(
            *(image, kernel, stride, padding, lhs_dilation, rhs_dilation, numbers),
            feature_group_count=of_features,
            batch_group_count=of_batch,
        )

    compare(convolution, kernel, image)


@settings(max_examples=8)
@given(
    st.lists(SIZES, max_size=2),
    st.lists(SIZES, max_size=2),
    st.sampled_from(["clip", "fill", "promise_in_bounds"]),
    st.sampled_from([3, 100]),
)
def test_rows_of_a_table(row: list[int], positions: list[int], mode: str, height: int):
    """Taken once or again and again, and rows that are not there (`promise_in_bounds` promises that there are none)."""
    random = np.random.default_rng(sum(positions))
    beyond = 0 if mode == "promise_in_bounds" else 2
    indices = random.integers(-beyond, 3 + beyond, (*positions, 1)).astype(np.int32)
    if mode == "fill":
        indices = np.where(indices < 0, height + 5, indices)
    numbers = jax.lax.GatherDimensionNumbers(tuple(range(len(row))), (0,), (0,))

    def take(table: Any, indices: Any) -> Any:
        return jax.lax.gather(table, indices, numbers, (1, *row), mode=mode, fill_value=0)

    compare(take, random.normal(size=(height, *row)), indices)


@settings(max_examples=8)
@given(st.data())
def test_slices_at_places_that_the_example_decides(data: st.DataObject):
    """Any axes cut, collapsed or not, or paired with those of the places; windows; beyond the edges."""
    shape = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(1, 3)))]
    axes = range(len(shape))
    kinds = [data.draw(st.sampled_from(["whole", "window", "collapsed", "paired"])) for _ in axes]
    paired = tuple(axis for axis in axes if kinds[axis] == "paired")
    cut = tuple(data.draw(st.permutations([axis for axis in axes if kinds[axis] in ("window", "collapsed")])))
    sizes = [data.draw(st.integers(1, n)) if k == "window" else n if k == "whole" else 1 for n, k in zip(shape, kinds)]  # noqa: B905
    more = [data.draw(SIZES) for _ in range(data.draw(st.integers(0, 2)))]
    batch = [*(shape[axis] for axis in paired), *more]
    kept = [axis for axis in axes if kinds[axis] in ("whole", "window")]
    offsets = sorted(data.draw(st.permutations(range(len(kept) + len(batch))))[: len(kept)])
    mode = data.draw(st.sampled_from(["clip", "fill"]))
    random = np.random.default_rng(sum(shape))
    places = random.integers(-2, 5, (*batch, len(cut))).astype(np.int32)
    numbers = jax.lax.GatherDimensionNumbers(
        tuple(offsets), tuple(axis for axis in axes if kinds[axis] == "collapsed"), cut,
        operand_batching_dims=paired, start_indices_batching_dims=tuple(range(len(paired))),
    )  # fmt: skip
    compare(
        lambda array, at: jax.lax.gather(array, at, numbers, tuple(sizes), mode=mode, fill_value=0),
        random.normal(size=shape),
        places,
    )


@settings(max_examples=4)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(-2, 5)), min_size=1, max_size=3))
def test_one_slice_at_a_place_that_the_example_decides(axes: list[tuple[int, int, int]]):
    shape, starts = [max(size, least) for size, least, _ in axes], np.array([start for *_, start in axes], np.int32)
    sizes = [min(size, least) for size, least, _ in axes]
    compare(
        lambda array, at: jax.lax.dynamic_slice(array, at, sizes),
        np.random.default_rng(3).normal(size=shape),
        starts,
    )


def test_what_the_rules_leave_alone():
    """The image of a convolution."""
    image = np.ones((1, 1, 4))
    compare(lambda image, kernel: jax.lax.conv(image, kernel, (1,), "SAME"), image, image, unmatched=True)


@pytest.mark.parametrize(("positions", "rows", "columns"), [(1, 3, 4), (2, 30, 40), (7, 3, 4)])
def test_every_form_of_the_norm_is_that_of_the_product(positions: int, rows: int, columns: int):
    """One position, few (compared with one another), many (the product is made)."""
    random = np.random.default_rng(positions)
    left, right = (random.normal(size=(2, positions, width)) for width in (rows, columns))
    product = np.einsum("gti,gto->gio", left, right)
    with jax.enable_x64(True):
        factors = Factors(jnp.asarray(left), jnp.asarray(right), lambda gradient: gradient)
        assert (is_thin(factors), is_made(factors)) == (positions == 1, positions == 7)
        norm, twice = jax.jit(lambda: (squared_norm(factors), gradient_array(join_factors([factors, factors]))))()
        np.testing.assert_allclose(norm, np.square(product).sum(), rtol=1e-10)
        np.testing.assert_allclose(twice, 2 * product, rtol=1e-10)


@pytest.mark.parametrize(("positions", "height"), [(1, 3), (2, 50), (40, 7), (40, 1)])
def test_what_is_added_to_one_row_is_summed_without_the_table(positions: int, height: int):
    random = np.random.default_rng(positions)
    indices, values = random.integers(0, height, positions), random.normal(size=(positions, 5))
    table = np.zeros((height, 5))
    for index, value in zip(indices, values, strict=True):
        table[index] += value
    with jax.enable_x64(True):
        rows = Rows(jnp.asarray(indices), jnp.asarray(values), height, lambda table: table)
        norm, whole, summed = jax.jit(
            lambda: (squared_norm(rows), gradient_array(rows.summed()), rows.summed().values)
        )()
        np.testing.assert_allclose(norm, np.square(table).sum(), rtol=1e-10)
        np.testing.assert_allclose(whole, table, rtol=1e-10)
        assert np.count_nonzero(np.any(summed, axis=1)) == len(set(indices))


def test_gradients_that_cancel_have_no_negative_norm():
    """Positions of opposite sign: the Gram form's rounding could go below 0."""
    random = np.random.default_rng(1)
    left, right = (np.repeat(random.normal(size=(1, 1, 200)), 2, axis=1).astype(np.float32) for _ in range(2))
    right[:, 1] *= -1
    factors = Factors(jnp.asarray(left), jnp.asarray(right), lambda gradient: gradient)
    rows = Rows(jnp.array([1, 1]), jnp.asarray(right[0]), 5, lambda table: table)
    assert not is_made(factors)
    assert not is_made(rows)
    assert 0 <= squared_norm(factors) <= 1e-5 * np.square(left).sum() * np.square(right).sum()
    assert 0 <= squared_norm(rows) <= 1e-5 * np.square(right).sum()
