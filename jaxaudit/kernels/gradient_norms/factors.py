"""An example's gradient as a product of two thin matrices, and its squared norm without computing the product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# The Gram form sums terms of both signs, whose rounding is that of their squares; it must save much to be chosen.
GRAM_SAVES = 2


@partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=["assemble", "rows_first"])
@dataclass(frozen=True)
class Factors:
    """The gradient of one array is `assemble(sum_t left[:, t, :, None] * right[:, t, None, :])`.

    A pytree, so its arrays may be abstract, or have an axis of examples in front.

    Attributes:
        left, right: `[groups, positions, rows]` and `[groups, positions, columns]`, multiplied at every position t.
        assemble: from `[groups, rows, columns]` to the array's own shape; it only moves entries.
        rows_first: whether `left` has the shape `[groups, rows, positions]`, which saves XLA a transposed copy.
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

    A pytree, like `Factors`.

    Attributes:
        indices, values: `[positions]` and `[positions, width]`.
        height: the number of rows of the table.
        assemble: from `[height, width]` to the array's own shape; it only moves entries.
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
    """The gradient of a table that is both looked up and multiplied, such as a language model's tied embedding.

    Attributes:
        rows: the gradient of the look-ups.
        factors: the gradient of the products, of one group, with the same rows and columns.
    """

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
    Otherwise the gradient is computed and squared or, if that is much cheaper, sum_st (a_s . a_t)(d_s . d_t) is summed
    over pairs of positions. For a table with more rows than positions, only the rows that occur are summed. Of a sum of
    both, |R|^2 + |F|^2 + 2 <R, F>, the last term needs F in the rows that occur alone.
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
