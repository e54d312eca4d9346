"""Squared gradient norms of single examples, and the diagonal of the empirical Fisher information."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms import chunks
from jaxaudit.kernels.gradient_norms.compiled import LogProb, compiled_plan

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
        """How each leaf was computed, as a pytree like the parameters.

        `contracted`: from the factors of products, by one backward pass for all leaves. `vmap(grad)`: JAX
        differentiated an operation without a rule (a branch, a `while`, a function with a custom derivative,
        `ragged_dot`) for every example. Both are exact; the second may take more time and memory.
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
    Tramel 2019 for convolutions). A `scan` stays a loop; its steps are positions of a sum, like the tokens of a
    sequence.

    Guarantees:
        - Exact for every function that JAX can differentiate, also if parameters are used several times or derived
          from one another. Operations without a rule are differentiated by JAX, as `paths` shows.
        - For float32 parameters, the relative error is about 1e-6 times the ratio of the largest terms to their sum.
          Products without a stated precision are computed in full float32 on every device. `log_prob` itself must be
          precise: near p = 1, `jax.nn.log_softmax` has an error of 1e-7 in 1 - p, which is large for a confident model;
          use `precise_log_softmax`.
        - An example's result does not depend on the other examples; a NaN stays with its example.
        - May be called inside `jit` and, over `params`, inside `vmap`. Chunks then run in a loop on the device, in
          which XLA's convolutions are slow on a CPU; otherwise the host runs the loop.
        - Memory grows with `chunk`, not with n. On several devices every chunk is split over all of them.

    Args:
        log_prob: `(params, inputs, labels) -> [n]`, the log-probability (nats) of each example's label. A pure
            function; traced once for each function object and shape, so pass the same object again.
        params: a pytree of real float arrays.
        inputs: the examples, along the first axis of an array or of each array of a pytree. An object that is not an
            array but has `shape`, `dtype` and slices is read one chunk at a time, so data need not fit into memory.
        labels: the examples' labels, in the same form.
        constants: pytrees of arrays, which `log_prob` gets as further arguments and for which no gradient is wanted,
            such as the frozen weights below an adapter. What it closes over becomes part of the compiled program.
        chunk: examples at a time; by default as many as need about 60 MiB on a CPU and 256 MiB on other devices. Inside
            `vmap`, each model needs that much.

    Raises:
        InputError: there are no examples or no parameters, the numbers of inputs and labels differ, parameters are not
            real floats, a chunk is below 1, or `log_prob` does not return one number per example.

    >>> def log_prob(params, inputs, labels):
    ...     logits = inputs @ params["kernel"] + params["bias"]
    ...     return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]
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
    """How many examples `squared_grad_norms` computes at a time by default.

    The arguments and the errors are those of `squared_grad_norms`.
    """
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
    weights its sum is the mean of `squared_grad_norms(...).total`. For a dense layer it is the product (a^2)^T (d^2)
    of squared inputs and cotangents. For a table that is looked up, only the rows that occur are summed. For other
    parameters, the gradients of one chunk are computed.

    Guarantees: as `squared_grad_norms`; an example of weight 0 has no effect, even if its gradient is NaN; the result
    is zero if all weights are 0.

    Args:
        log_prob, params, inputs, labels: as in `squared_grad_norms`.
        weights: not negative; by default all are 1.
        chunk: examples at a time; as in `squared_grad_norms`.

    Raises:
        InputError: as `squared_grad_norms`, and if the numbers of weights and examples differ.

    >>> def log_prob(params, inputs, labels):
    ...     return jnp.sum(params * inputs, axis=1)
    >>> fisher_diagonal(log_prob, jnp.zeros(2), jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros(2)).tolist()
    [5.0, 2.0]
    """
    tree, arrays, form = _checked(params, inputs, labels, chunk)
    count = len(arrays[0])
    weights = jnp.ones(count) if weights is None else jnp.asarray(weights)
    if weights.shape != (count,):
        raise InputError(f"there are weights of shape {weights.shape} for {count} examples: give one per example.")
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
    if chunk is not None and chunk < 1:
        raise InputError(f"a chunk must have at least one example; got {chunk}.")
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
