"""Squared gradient norms of single examples, the diagonal of the empirical Fisher information, and mean gradients.

A chunk of examples is one compiled function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.kernels.convolutions import loop_body
from jaxaudit.kernels.gradient_norms import chunks
from jaxaudit.kernels.gradient_norms.plan import (
    GradientPlan,
    fixed_values,
    make_plan,
    moved_back,
    place_gradients,
    pull_back,
)
from jaxaudit.kernels.gradient_norms.rules import (
    Factors,
    Gradient,
    Rows,
    gradient_array,
    is_made,
    is_thin,
    squared_norm,
    wide,
)

LogProb = Callable[..., Array]
"""`(params, inputs, labels, *constants) -> [n]`."""


class CompiledPlan(NamedTuple):
    """A plan and its compiled functions of a chunk, by whether another program calls them; bytes are of one example."""

    plan: GradientPlan
    norms: dict[bool, Any]
    squares: dict[bool, Any]
    bytes_of_norms: int
    bytes_of_squares: int


# The plans of recently used functions are cached, since otherwise every call would trace its function again.
_PLANS: dict[Any, CompiledPlan] = {}
_MOST_PLANS = 32


def compiled_plan(
    log_prob: LogProb, params: Any, constants: tuple[Any, ...], example_tree: Any, arrays: Sequence[Any]
) -> tuple[CompiledPlan, list[Any]]:
    """The compiled plan for a log-probability, kept for calls with the same shapes, and the leaves that it takes."""
    leaves, parameter_tree = jax.tree.flatten((params, constants))
    leaves, parameter_leaves = [jnp.asarray(leaf) for leaf in leaves], len(jax.tree.leaves(params))
    example_types = [jax.ShapeDtypeStruct(a.shape[1:], jax.dtypes.canonicalize_dtype(a.dtype)) for a in arrays]
    leaf_types = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    key = (
        log_prob,
        parameter_tree,
        example_tree,
        tuple((t.shape, t.dtype) for t in (*leaf_types, *example_types)),
        jnp.result_type(float),
    )
    try:
        kept = _PLANS.get(key)
    except TypeError:
        key, kept = None, None
    if kept is not None:
        return kept, leaves
    plan = make_plan(log_prob, parameter_tree, leaf_types, example_tree, example_types, parameter_leaves)
    ready = CompiledPlan(
        plan,
        chunks.forms(partial(_norms, plan)),
        chunks.forms(partial(_squares, plan)),
        chunks.bytes_of_an_example(plan, squares=False),
        chunks.bytes_of_an_example(plan, squares=True),
    )
    if key is not None and not plan.under_trace:
        while len(_PLANS) >= _MOST_PLANS:
            _PLANS.pop(next(iter(_PLANS)), None)
        _PLANS[key] = ready
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
    gradients = jax.vmap(one)(list(arrays)) if plan.batches else jax.lax.map(loop_body(one), list(arrays))
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


Records = Any
"""An array with the examples along its first axis, or a pytree of such arrays."""


@partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["paths_of_leaves"])
@dataclass(frozen=True)
class SquaredGradNorms:
    """Squared L2 norms of each example's gradient, in float32 or wider; a pytree, so it may leave `jit` and `vmap`.

    Attributes:
        leaves: a pytree like the parameters, with one squared norm per example for each leaf.
        paths_of_leaves: how each leaf was computed, in the order of `jax.tree.leaves`; see `paths`.
    """

    leaves: Any
    paths_of_leaves: tuple[str, ...]

    @property
    def paths(self) -> Any:
        """How each leaf was computed, as a pytree like the parameters. Both ways are exact.

        `contracted`: from the factors of products, by one backward pass for all leaves. `vmap(grad)`: JAX
        differentiated an operation without a rule (a branch, a `while`, a custom derivative, `ragged_dot`) for every
        example, which may take more time and memory.
        """
        return jax.tree.unflatten(jax.tree.structure(self.leaves), self.paths_of_leaves)

    @property
    def total(self) -> Float[Array, "*models n"]:
        """The squared norm of each example's gradient with respect to all parameters together."""
        return _sum(jax.tree.leaves(self.leaves))


@jax.jit
def _sum(arrays: list[Array]) -> Array:
    return reduce(jnp.add, arrays)


def squared_grad_norms(
    log_prob: LogProb,
    params: Any,
    inputs: Records,
    labels: Records,
    *,
    constants: tuple[Any, ...] = (),
    chunk: int | None = None,
) -> SquaredGradNorms:
    """The squared norm of every example's gradient of its own log-probability, leaf by leaf.

    `log_prob` is any JAX function. It is traced for a batch of one example, so example i's gradient is that of
    `log_prob(params, inputs[i:i+1], labels[i:i+1])[0]`. If parameters enter dense products, convolutions, look-ups,
    additions and multiplications, per-example gradients are not stored: one backward pass yields the cotangents of
    these operations, and |a|^2 |d|^2 is the squared norm of an outer product (Goodfellow 2015; Rochette, Manoel &
    Tramel 2019 for convolutions).

    Guarantees:
        - Exact for every function that JAX can differentiate, also if parameters are used several times.
        - For float32 parameters, the relative error is about 1e-6 times the ratio of the largest terms to their sum.
          Products without a stated precision are computed in full float32 on every device. `log_prob` itself must be
          precise: use `precise_log_softmax`, since near p = 1 `jax.nn.log_softmax` has an error of 1e-7 in 1 - p.
        - An example's result does not depend on the other examples; a NaN stays with its example.
        - May be called inside `jit` and, over `params`, inside `vmap`. Chunks then run in a loop on the device;
          otherwise the host runs the loop.
        - Memory grows with `chunk`, not with n. On several devices every chunk is split over all of them.

    Args:
        log_prob: `(params, inputs, labels) -> [n]`, the log-probability (nats) of each example's label. A pure
            function; traced once for each function object and shape, so pass the same object again.
        inputs: the examples, along the first axis of an array or of each array of a pytree. An object that is not an
            array but has `shape`, `dtype` and slices is read one chunk at a time, and need not fit into memory.
        constants: pytrees of arrays, further arguments of `log_prob` for which no gradient is wanted, such as the
            frozen weights below an adapter. What it closes over becomes part of the compiled program.
        chunk: examples at a time; by default as many as need about 60 MiB on a CPU and 256 MiB on other devices. Inside
            `vmap`, each model needs that much.

    Raises:
        InputError: parameters are not real floats, or `log_prob` does not return one number per example.

    >>> def log_prob(params, inputs, labels):
    ...     return jax.nn.log_softmax(inputs @ params["kernel"] + params["bias"])[jnp.arange(len(labels)), labels]
    >>> params = {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}
    >>> found = squared_grad_norms(log_prob, params, jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.array([0, 1]))
    >>> found.leaves["kernel"].tolist(), found.leaves["bias"].tolist(), found.total.tolist()
    ([12.5, 0.0], [0.5, 0.5], [13.0, 0.5])
    >>> found.paths
    {'bias': 'contracted', 'kernel': 'contracted'}
    """
    tree, arrays, form = _checked(params, inputs, labels, chunk)
    with jax.default_matmul_precision("highest"):
        ready, leaves = compiled_plan(log_prob, params, constants, form, arrays)
        traced = _traced([*leaves, *arrays]) or ready.plan.under_trace
        size = chunks.chunk_size(len(arrays[0]), chunk, ready.bytes_of_norms)
        norms = chunks.map_leaves(ready.norms[traced], leaves, arrays, size, traced)
    return SquaredGradNorms(jax.tree.unflatten(tree, norms), ready.plan.paths)


def examples_at_a_time(
    log_prob: LogProb, params: Any, inputs: Records, labels: Records, *, constants: tuple[Any, ...] = ()
) -> int:
    """How many examples `squared_grad_norms` computes at a time by default."""
    _, arrays, form = _checked(params, inputs, labels, None)
    with jax.default_matmul_precision("highest"):
        ready, _ = compiled_plan(log_prob, params, constants, form, arrays)
    return chunks.chunk_size(len(arrays[0]), None, ready.bytes_of_norms)


def fisher_diagonal(
    log_prob: LogProb,
    params: Any,
    inputs: Records,
    labels: Records,
    *,
    weights: Float[Array | np.ndarray, " weights"] | None = None,
    chunk: int | None = None,
) -> Any:
    """The weighted mean over examples of the squared gradient of every single parameter; a pytree like `params`.

    The diagonal of the empirical Fisher information (Becker & Liebig 2022, eq. 6; Golatkar et al. 2020). With equal
    weights its sum is the mean of `squared_grad_norms(...).total`. For a dense layer it is the product (a^2)^T (d^2) of
    squared inputs and cotangents. For other parameters, the gradients of one chunk are computed.

    Arguments, guarantees and errors are those of `squared_grad_norms`. `weights` are not negative, by default 1; an
    example of weight 0 has no effect, even if its gradient is NaN, and the result is zero if all weights are 0.

    >>> def log_prob(params, inputs, labels):
    ...     return jnp.sum(params * inputs, axis=1)
    >>> fisher_diagonal(log_prob, jnp.zeros(2), jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros(2)).tolist()
    [5.0, 2.0]
    """
    tree, arrays, form = _checked(params, inputs, labels, chunk)
    count = len(arrays[0])
    weights = jnp.ones(count) if weights is None else jnp.asarray(weights)
    check_shapes((count,), weights=weights)
    with jax.default_matmul_precision("highest"):
        ready, leaves = compiled_plan(log_prob, params, (), form, arrays)
        traced = _traced([*leaves, *arrays, weights]) or ready.plan.under_trace
        size = chunks.chunk_size(count, chunk, ready.bytes_of_squares)
        sums = chunks.total(ready.squares[traced], leaves, arrays, weights, size, traced)
        mass = jnp.sum(weights)
        means = [jnp.where(mass > 0, sum_of_leaf / jnp.where(mass > 0, mass, 1), 0) for sum_of_leaf in sums]
    return jax.tree.unflatten(tree, means)


def _checked(params: Any, inputs: Any, labels: Any, chunk: int | None) -> tuple[Any, list[Any], Any]:
    """Checks the arguments; returns the tree of the parameters, and the arrays and tree of the examples."""
    arrays, form = jax.tree.flatten((inputs, labels))
    counts = [tuple(sorted({len(array) for array in jax.tree.leaves(part)})) for part in (inputs, labels)]
    if counts[0] != counts[1] or len(counts[0]) != 1 or not counts[0][0]:
        counts_text = [" or ".join(map(str, count)) or "no" for count in counts]
        raise InputError(
            f"there are {counts_text[0]} inputs and {counts_text[1]} labels: give one label for each of at least one "
            "example."
        )
    check_ranges("[1, inf)", chunk=chunk)
    named_leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    if not named_leaves:
        raise InputError("the model has no parameters, so there is no gradient to measure.")
    for path, leaf in named_leaves:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"the parameter {jax.tree_util.keystr(path)} is {dtype or type(leaf).__name__}, not an array of real "
                "floats; keep counters, keys and running statistics apart from the parameters."
            )
    return tree, arrays, form


def _traced(values: Sequence[Any]) -> bool:
    if any(isinstance(value, Tracer) for value in values):
        return True
    # In a program that is being traced every new array is, whatever the values are.
    with jax.transfer_guard("allow"):
        return isinstance(jnp.zeros(()), Tracer)


CHUNK = 256


def mean_gradient(
    log_prob: LogProb,
    params: Any,
    inputs: Records,
    labels: Records,
    *,
    constants: tuple[Any, ...] = (),
    chunk: int | None = None,
) -> Any:
    """The mean over examples of the gradient of the log-probability; a pytree like `params` of NumPy arrays in float64.

    It costs one ordinary gradient. Chunks (256 examples by default) are differentiated in the precision of the
    parameters and added in float64. The arguments are those of `squared_grad_norms`, but `log_prob` gets the examples
    of a chunk together, so none may depend on the others.

    >>> def log_prob(params, inputs, labels):
    ...     return inputs @ params
    >>> mean_gradient(log_prob, jnp.zeros(2), jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros(2))
    array([2., 1.])
    """
    count, size = len(jax.tree.leaves((inputs, labels))[0]), chunk or CHUNK
    check_ranges("[1, inf)", examples=count)
    total = jax.tree.map(lambda leaf: np.zeros(leaf.shape), params)
    with jax.default_matmul_precision("highest"):
        for start in range(0, count, size):
            part = slice(start, start + size)
            some = jax.tree.map(lambda array, part=part: jnp.asarray(array[part]), (inputs, labels))
            gradient = _summed_gradient(log_prob, params, *some, constants)
            total = jax.tree.map(lambda so_far, leaf: so_far + np.asarray(leaf, np.float64), total, gradient)
    return jax.tree.map(lambda leaf_sum: leaf_sum / count, total)


@partial(jax.jit, static_argnums=0)
def _summed_gradient(log_prob: LogProb, params: Any, inputs: Any, labels: Any, constants: tuple[Any, ...]) -> Any:
    return jax.grad(lambda params: jnp.sum(log_prob(params, inputs, labels, *constants)))(params)
