"""Every rule against JAX's own derivative of the operation, over what shapes and settings there are.

Gradient norms of tables that are looked up and multiplied, and of a part of the weights beside constants.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gradient_twins import largest

from jaxaudit.errors import InputError
from jaxaudit.kernels import fisher_diagonal, mean_gradient, squared_grad_norms
from jaxaudit.kernels.gradient_norms import chunks, examples_at_a_time

SIZES = st.integers(1, 3)


def compare(function: Callable[[Any, Any], Any], array: np.ndarray, other: np.ndarray, known: bool = True) -> None:
    """What the rule for `array` finds in the one operation of `function(array, other)`, against the derivative."""
    with jax.enable_x64(True):
        shape = jax.eval_shape(function, array, other).shape
        weights, labels = np.random.default_rng(array.size + other.size).normal(size=shape), np.zeros(1)

        def log_prob(params: Any, x: Any, y: Any) -> Any:
            return jnp.sum(function(params, x[0]) * weights)[None]

        # One program: compiling takes the time of these tests.
        @jax.jit
        def all_three(array: Any, inputs: Any) -> tuple[Any, Any, Any]:
            norms = squared_grad_norms(log_prob, array, inputs, labels)
            diagonal = fisher_diagonal(log_prob, array, inputs, labels)
            return norms, diagonal, jax.grad(lambda array: log_prob(array, inputs, labels)[0])(array)

        norms, diagonal, gradient = all_three(jnp.asarray(array), jnp.asarray(other)[None])
    assert (norms.paths_of_leaves == ("contracted",)) is known
    np.testing.assert_allclose(norms.total[0], np.square(gradient).sum(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.square(gradient), rtol=1e-10, atol=1e-12)


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


def test_what_the_rules_leave_alone():
    """The image of a convolution."""
    image = np.ones((1, 1, 4))
    compare(lambda image, kernel: jax.lax.conv(image, kernel, (1,), "SAME"), image, image, known=False)


@pytest.mark.parametrize(("positions", "rows", "columns"), [(1, 3, 4), (2, 30, 40), (7, 3, 4)])
def test_products_of_one_position_of_few_and_of_many(positions: int, rows: int, columns: int):
    random = np.random.default_rng(positions)
    compare(lambda kernel, x: x @ kernel, random.normal(size=(rows, columns)), random.normal(size=(positions, rows)))


@pytest.mark.parametrize(("positions", "height"), [(1, 3), (2, 50), (40, 7)])
def test_rows_that_are_taken_again_and_again(positions: int, height: int):
    random = np.random.default_rng(positions)
    compare(lambda table, at: table[at], random.normal(size=(height, 5)), random.integers(0, height, positions))


def test_positions_that_cancel_have_no_negative_norm():
    random = np.random.default_rng(1)
    left, right = random.normal(size=(2, 1, 1, 200)).astype(np.float32)
    inputs = np.repeat(left, 2, axis=1)

    def log_prob(kernel: Any, x: Any, y: Any) -> Any:
        return jnp.sum(x @ kernel * right * np.array([[1.0], [-1.0]], np.float32), axis=(1, 2))

    (found,) = squared_grad_norms(log_prob, jnp.zeros((200, 200)), inputs, np.zeros(1)).total
    assert 0 <= found <= 1e-5 * np.square(left).sum() * np.square(right).sum()


N, LENGTH, TOKENS, WIDTH = 3, 4, 40, 30
"""The table is large beside the positions, so that no gradient of it need be made."""
IDS = np.random.default_rng(1).integers(0, TOKENS, (N, LENGTH))
IDS[0] = 7  # one row for all positions
NEXT = np.random.default_rng(2).integers(0, TOKENS, (N, LENGTH))


def transposed(table: Any, hidden: Any) -> Any:
    return hidden @ table.T


def contracted(table: Any, hidden: Any) -> Any:
    return jnp.einsum("nld,vd->nlv", hidden, table)


def turned_round(table: Any, hidden: Any) -> Any:
    return jnp.moveaxis(jnp.einsum("vd,nld->vnl", table, hidden), 0, -1)


def log_prob_of(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def log_prob(params: Any, x: Any, y: Any) -> Any:
        logits = product(params.get("output", params["table"]), jnp.tanh(params["table"][x] @ params["kernel"]))
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1), axis=(1, 2))

    return log_prob


def parameters(width: int = WIDTH) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {"table": random.normal(size=(TOKENS, width)), "kernel": random.normal(size=(width, width))}


def loop(log_prob: Any, params: Any, *constants: Any) -> Any:
    """The slow twin: one gradient after another, squared."""
    constants = jax.tree.map(jnp.asarray, constants)
    gradient = jax.jit(jax.grad(lambda params, x, y: log_prob(params, x, y, *constants)[0]))
    return [jax.tree.map(np.asarray, gradient(params, IDS[i : i + 1], NEXT[i : i + 1])) for i in range(N)]


@pytest.mark.parametrize(("product", "width"), [(transposed, 2), (contracted, WIDTH), (turned_round, WIDTH)])
def test_both_uses_of_a_table_add_before_squaring(product: Any, width: int):
    """Whichever way the product is written; a narrow table's gradient is made, a wide one's is not."""
    log_prob, params = log_prob_of(product), parameters(width)
    with jax.enable_x64(True):

        @jax.jit
        def measured(params: Any) -> tuple[Any, ...]:
            untied = squared_grad_norms(log_prob, {**params, "output": params["table"]}, IDS, NEXT)
            both = (function(log_prob, params, IDS, NEXT) for function in (squared_grad_norms, fisher_diagonal))
            return *both, untied.leaves

        found, diagonal, untied = measured(params)
        each = loop(log_prob, params)
        for name in params:
            squares = [np.square(gradient[name]) for gradient in each]
            np.testing.assert_allclose(found.leaves[name], [square.sum() for square in squares], rtol=1e-12)
            np.testing.assert_allclose(diagonal[name], np.mean(squares, axis=0), rtol=1e-10, atol=1e-14)
        assert not np.allclose(found.leaves["table"], untied["table"] + untied["output"], rtol=1e-3)
    assert set(found.paths_of_leaves) == {"contracted"}


def test_no_gradient_of_a_wide_table_is_stored():
    log_prob, params = log_prob_of(transposed), jax.tree.map(np.float32, parameters())
    program = jax.make_jaxpr(lambda params: squared_grad_norms(log_prob, params, IDS, NEXT).total)(params)
    assert largest(program.jaxpr) < N * TOKENS * WIDTH


def test_a_table_is_looked_up_twice_and_multiplied():
    def log_prob(table: Any, x: Any, y: Any) -> Any:
        return jnp.sum((jnp.tanh(table[x] + 2 * table[y]) @ table.T) ** 2, axis=(1, 2))

    table = parameters()["table"]
    with jax.enable_x64(True):
        found = squared_grad_norms(log_prob, table, IDS, NEXT).total
        np.testing.assert_allclose(found, [np.square(each).sum() for each in loop(log_prob, table)], rtol=1e-12)


def test_uses_that_cancel_have_a_norm_of_zero_and_not_below():
    def log_prob(table: Any, x: Any, y: Any) -> Any:
        one_hot = jax.nn.one_hot(x, TOKENS)
        return jnp.sum(table[x] ** 1 - one_hot @ table, axis=(1, 2))

    found = np.asarray(squared_grad_norms(log_prob, jnp.asarray(parameters()["table"], jnp.float32), IDS, NEXT).total)
    assert ((found >= 0) & (found < 1e-4)).all()


def test_constants_have_no_gradient_and_are_not_compiled_in():
    """The low-rank part of a layer is measured, the rest is frozen; another rest is another number."""

    def log_prob(params: Any, x: Any, y: Any, base: Any) -> Any:
        kernel = base["kernel"] + params["b"] @ params["a"]
        logits = jnp.tanh(base["table"][x] @ kernel) @ base["table"].T
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1), axis=(1, 2)) * base["scale"]

    random = np.random.default_rng(4)
    params = {"a": random.normal(size=(2, WIDTH)), "b": random.normal(size=(WIDTH, 2))}
    with jax.enable_x64(True):
        totals = []
        for scale in (1, 2):
            base = {**parameters(), "scale": np.int32(scale)}
            how: Any = {"constants": (base,)}
            found = squared_grad_norms(log_prob, params, IDS, NEXT, **how)
            each, mean = loop(log_prob, params, base), mean_gradient(log_prob, params, IDS, NEXT, **how)
            for name in params:
                gradients = np.array([gradient[name] for gradient in each])
                np.testing.assert_allclose(found.leaves[name], np.square(gradients).sum((1, 2)), rtol=1e-12)
                np.testing.assert_allclose(mean[name], gradients.mean(axis=0), rtol=1e-10)
            totals.append(np.asarray(found.total))
            assert examples_at_a_time(log_prob, params, IDS, NEXT, **how) == N
        np.testing.assert_allclose(totals[1], 4 * totals[0], rtol=1e-12)


def test_how_many_at_a_time_follows_from_memory(monkeypatch: pytest.MonkeyPatch):
    log_prob, params = log_prob_of(transposed), parameters()
    assert examples_at_a_time(log_prob, params, IDS, NEXT) == N
    monkeypatch.setattr(chunks, "BUDGETS", {})
    monkeypatch.setattr(chunks, "ELSEWHERE", 1)
    assert examples_at_a_time(log_prob, params, IDS, NEXT) == 1
    with pytest.raises(InputError):
        examples_at_a_time(log_prob, params, IDS[:0], NEXT[:0])
