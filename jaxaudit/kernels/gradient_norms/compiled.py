"""The compiled functions of one chunk of examples: squared norms of gradients, and sums of squares."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.kernels.gradient_norms import chunks
from jaxaudit.kernels.gradient_norms.factors import (
    Factors,
    Gradient,
    Rows,
    gradient_array,
    is_made,
    is_thin,
    squared_norm,
    wide,
)
from jaxaudit.kernels.gradient_norms.plan import (
    GradientPlan,
    fixed_values,
    make_plan,
    moved_back,
    place_gradients,
    pull_back,
)

LogProb = Callable[..., Array]
"""`(params, inputs, labels, *constants) -> [n]`."""


class CompiledPlan(NamedTuple):
    """A plan and its compiled functions of one chunk of examples.

    Attributes:
        plan: the plan.
        norms, squares: functions that compute squared gradient norms, and sums of squared gradients, by whether they
            are called within another program.
        bytes_of_norms, bytes_of_squares: the memory that one example takes in each.
    """

    plan: GradientPlan
    norms: dict[bool, Any]
    squares: dict[bool, Any]
    bytes_of_norms: int
    bytes_of_squares: int


# The plans of recently used functions are cached, since otherwise every call would trace its function again.
_KEPT: dict[Any, CompiledPlan] = {}
_MOST_KEPT = 32


def compiled_plan(
    log_prob: LogProb, params: Any, constants: tuple[Any, ...], form: Any, arrays: Sequence[Any]
) -> tuple[CompiledPlan, list[Any]]:
    """The compiled plan for a log-probability, kept for further calls with the same function, shapes and types.

    Args:
        log_prob: the function whose gradient is taken, of the form `LogProb`.
        params, constants: the parameters, of which the gradient is taken, and its other arguments.
        form: the structure of inputs and labels.
        arrays: their arrays, one row for each example.

    Returns:
        The plan, and the leaves of the parameters and after them those of the constants.
    """
    leaves, tree = jax.tree.flatten((params, constants))
    leaves, trained = [jnp.asarray(leaf) for leaf in leaves], len(jax.tree.leaves(params))
    one = [jax.ShapeDtypeStruct(a.shape[1:], jax.dtypes.canonicalize_dtype(a.dtype)) for a in arrays]
    types = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    key = (log_prob, tree, form, tuple((t.shape, t.dtype) for t in (*types, *one)), jnp.result_type(float))
    try:
        kept = _KEPT.get(key)
    except TypeError:
        key, kept = None, None
    if kept is not None:
        return kept, leaves
    plan = make_plan(log_prob, tree, types, form, one, trained)
    ready = CompiledPlan(
        plan,
        chunks.forms(partial(_norms, plan)),
        chunks.forms(partial(_squares, plan)),
        chunks.bytes_of_an_example(plan, types, squares=False),
        chunks.bytes_of_an_example(plan, types, squares=True),
    )
    if key is not None and not plan.under_trace:
        while len(_KEPT) >= _MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[key] = ready
    return ready, leaves


def _norms(plan: GradientPlan, leaves: Sequence[Array], arrays: Sequence[Array]) -> list[Array]:
    """The squared norms of one chunk's gradients, for every leaf."""
    gradients, pulled = _gradients(plan, leaves, arrays)
    zeros = jnp.zeros(len(arrays[0]), jnp.float32)

    def norms(leaf: int) -> Array:
        if leaf in plan.direct:
            return jax.vmap(squared_norm)(gradients[plan.direct[leaf]])
        return jax.vmap(squared_norm)(pulled[leaf]) if leaf in pulled else zeros

    return [norms(leaf) for leaf in range(len(plan.paths))]


def _squares(plan: GradientPlan, leaves: Sequence[Array], arrays: Sequence[Array], weights: Array) -> list[Array]:
    """The weighted sum over one chunk of the squared gradients, for every leaf."""
    gradients, pulled = _gradients(plan, leaves, arrays)

    def squares(leaf: int) -> Array:
        if leaf in plan.direct:
            return moved_back(plan, leaf, _weighted_squares(gradients[plan.direct[leaf]], weights))
        if leaf in pulled:
            return _weighted_squares(pulled[leaf], weights)
        return jnp.zeros_like(wide(leaves[leaf]))

    return [squares(leaf) for leaf in range(len(plan.paths))]


def _gradients(
    plan: GradientPlan, leaves: Sequence[Array], arrays: Sequence[Array]
) -> tuple[dict[int, Any], dict[int, Array]]:
    """The chunk's gradients at every place, and of the leaves that are not taken directly."""
    fixed = fixed_values(plan, leaves)
    one = partial(place_gradients, plan, fixed)
    gradients = jax.vmap(one)(list(arrays)) if plan.batches else jax.lax.map(one, list(arrays))
    if not plan.pulled:
        return gradients, {}
    at_places = [jax.vmap(gradient_array)(gradients[place]) for place in plan.pulled_places]
    pulled = jax.vmap(pull_back(plan, leaves))(at_places)
    return gradients, dict(zip(plan.pulled, pulled, strict=True))


def _weighted_squares(gradient: Gradient, weights: Array) -> Array:
    """The elementwise sum_i weights[i] gradient[i]^2."""
    kept = weights != 0

    def squared(array: Array) -> Array:
        array = wide(array)
        return jnp.square(jnp.where(kept.reshape(-1, *[1] * (array.ndim - 1)), array, 0))

    if isinstance(gradient, Factors) and is_thin(gradient):
        left, right = squared(gradient.left), squared(gradient.right) * weights[:, None, None, None]
        sides = "ngit,ngto->gio" if gradient.rows_first else "ngti,ngto->gio"
        return gradient.assemble(jnp.einsum(sides, left, right))
    if isinstance(gradient, Rows) and not is_made(gradient):
        rows = jax.vmap(Rows.summed)(gradient)
        squares = squared(rows.values) * weights[:, None, None]
        table = jnp.zeros((rows.height, squares.shape[-1]), squares.dtype)
        return gradient.assemble(table.at[rows.indices].add(squares))
    return jnp.tensordot(wide(weights), squared(jax.vmap(gradient_array)(gradient)), 1)
