"""Squared gradient norms of single examples, and the diagonal of the empirical Fisher information."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxaudit.errors import InputError

LogProb = Callable[[Any, Any, Any], Array]

CHUNK = 32


@partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["paths_of_leaves"])
@dataclass(frozen=True)
class SquaredGradNorms:
    """Squared L2 norms of each example's gradient, in float32 or wider; a pytree, so it may leave `jit` and `vmap`.

    Attributes:
        leaves: a pytree like the parameters; of each leaf one squared norm an example.
        paths_of_leaves: how each leaf was computed, in the order of `jax.tree.leaves`; see `paths`.
    """

    leaves: Any
    paths_of_leaves: tuple[str, ...]

    @property
    def paths(self) -> Any:
        """A pytree like the parameters that says how each leaf was computed: `contracted` or `vmap(grad)`."""
        return jax.tree.unflatten(jax.tree.structure(self.leaves), self.paths_of_leaves)

    @property
    def total(self) -> Float[Array, "*models n"]:
        """Squared norm of each example's gradient with respect to all parameters together."""
        return sum(jax.tree.leaves(self.leaves), start=jnp.zeros(()))


def squared_grad_norms(
    log_prob: LogProb,
    params: Any,
    inputs: Shaped[Array | np.ndarray, "n ..."],
    labels: Shaped[Array | np.ndarray, "n ..."],
    *,
    chunk: int | None = None,
) -> SquaredGradNorms:
    """The squared norm of every example's gradient of its own log-probability, leaf by leaf."""
    leaves, tree = jax.tree.flatten(params)
    chunks = _chunks(leaves, inputs, labels, chunk)

    def norms(x: Any, y: Any) -> list[Array]:
        return [jnp.sum(jnp.square(g.reshape(len(g), -1)), axis=1) for g in _gradients(log_prob, tree, leaves, x, y)]

    parts = [norms(inputs[part], labels[part]) for part in chunks]
    joined = [jnp.concatenate(column) for column in zip(*parts, strict=True)]
    return SquaredGradNorms(jax.tree.unflatten(tree, joined), ("vmap(grad)",) * len(leaves))


def fisher_diagonal(
    log_prob: LogProb,
    params: Any,
    inputs: Shaped[Array | np.ndarray, "n ..."],
    labels: Shaped[Array | np.ndarray, "n ..."],
    *,
    weights: Float[Array | np.ndarray, " n"] | None = None,
    chunk: int | None = None,
) -> Any:
    """The weighted mean over examples of the squared gradient of every single parameter; a pytree like `params`."""
    leaves, tree = jax.tree.flatten(params)
    chunks = _chunks(leaves, inputs, labels, chunk)
    weights = jnp.ones(len(labels)) if weights is None else jnp.asarray(weights)
    total = [jnp.zeros_like(leaf) for leaf in leaves]
    for part in chunks:
        gradients = _gradients(log_prob, tree, leaves, inputs[part], labels[part])
        total = [t + jnp.tensordot(weights[part], jnp.square(g), 1) for t, g in zip(total, gradients, strict=True)]
    mass = jnp.sum(weights)
    return jax.tree.unflatten(tree, [jnp.where(mass > 0, t / mass, 0) for t in total])


def _gradients(log_prob: LogProb, tree: Any, leaves: list[Array], x: Any, y: Any) -> list[Array]:
    def one(leaves: list[Array], x: Array, y: Array) -> Array:
        return log_prob(jax.tree.unflatten(tree, leaves), x[None], y[None])[0]

    return jax.vmap(jax.grad(one), (None, 0, 0))(leaves, jnp.asarray(x), jnp.asarray(y))


def _chunks(leaves: list[Any], inputs: Any, labels: Any, chunk: int | None) -> list[slice]:
    if not len(labels) or len(inputs) != len(labels):
        raise InputError(
            f"there are {len(inputs)} inputs and {len(labels)} labels: give one label for each of at least one example."
        )
    if not leaves:
        raise InputError("the model has no parameters, so there is no gradient to measure.")
    size = min(chunk or CHUNK, len(labels))
    return [slice(start, start + size) for start in range(0, len(labels), size)]
