"""Draws the splits of random decision trees and finds the leaf of a record. Labels are never used here."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

GRID = 1 << 20
"""Cuts are multiples of 1 / GRID, which float32 represents exactly, so a record's leaf does not depend on rounding."""


class TreeSplits(NamedTuple):
    """The splits at the inner nodes of a tree, level by level: the children of node v are 2 v + 1 (left) and 2 v + 2.

    A node splits its `column`: numbers of at least `cut` go right, and the categories that `right` marks.
    """

    column: Int[Array, "*trees nodes"]
    cut: Float[Array, "*trees nodes"]
    right: Bool[Array, "*trees nodes categories"]


def draw_splits(key: Key[Array, ""], category_counts: tuple[int, ...], depth: int) -> TreeSplits:
    """A complete binary tree of this depth, drawn from the key alone.

    Every node uses a random column that can still vary on its path, all with the same probability. A number is cut
    uniformly within the remaining range of [0, 1]. Of the remaining categories, two random ones are separated; every
    other goes right with probability 1/2. If one value of every column remains, splits have no effect.

    Args:
        key: random key.
        category_counts: the number of categories of each column; 0 for a number in [0, 1].
        depth: splits from root to leaf.

    >>> tree = draw_splits(jax.random.key(2), (0, 3), 4)
    >>> tree.column.shape, tree.cut.shape, tree.right.shape
    ((15,), (15,), (15, 3))
    """
    counts = np.asarray(category_counts)
    categories = max(1, counts.max())
    words = jax.random.bits(key, (2**depth - 1, len(counts) + 1 + categories))
    leaf = jnp.arange(2**depth)

    def ask(seen: tuple[Array, Array, Array], level: Array) -> tuple[tuple[Array, Array, Array], TreeSplits]:
        """The node above every leaf on this level, and the values that can still reach the leaf after its split."""
        low, high, possible = seen
        drawn = words[2**level - 1 + (leaf >> (depth - level))]
        open_ = jnp.where(counts == 0, high - low > 1, possible.sum(axis=2) > 1)
        column = _argmax(drawn[:, : len(counts)], open_)
        is_of_column = column[:, None] == jnp.arange(len(counts))
        lowest, highest = jnp.sum(low * is_of_column, axis=1), jnp.sum(high * is_of_column, axis=1)
        inside = jnp.maximum(highest - lowest - 1, 1).astype(jnp.uint32)
        cut = lowest + 1 + (drawn[:, len(counts)] % inside).astype(jnp.int32)
        right = _some_go_right(drawn[:, -categories:], jnp.any(possible & is_of_column[:, :, None], axis=1))
        went_right = (leaf >> (depth - 1 - level) & 1 == 1)[:, None]
        low = jnp.where(is_of_column & went_right, cut[:, None], low)
        high = jnp.where(is_of_column & ~went_right, cut[:, None], high)
        possible &= ~is_of_column[:, :, None] | (right == went_right)[:, None]
        return (low, high, possible), TreeSplits(column, cut.astype(jnp.float32) / GRID, right)

    # The values of each column that can reach a leaf: numbers from low to high (in units of 1 / GRID), and categories.
    shape = len(leaf), len(counts)
    possible = jnp.broadcast_to(np.arange(categories) < counts[:, None], (*shape, categories))
    start = jnp.zeros(shape, jnp.int32), jnp.full(shape, GRID, jnp.int32), possible
    _, above = jax.lax.scan(ask, start, jnp.arange(depth))
    level = np.repeat(np.arange(depth), 2 ** np.arange(depth))
    first_leaf = (np.arange(2**depth - 1) - (2**level - 1)) << (depth - level)
    return jax.tree.map(lambda nodes: nodes[level, first_leaf], above)


def draw_forest(key: Key[Array, ""], category_counts: tuple[int, ...], trees: int, depth: int) -> TreeSplits:
    """The splits of many trees. A smaller forest with the same key has the first trees of a larger one."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(trees))
    return jax.lax.map(lambda tree: draw_splits(tree, category_counts, depth), keys)


def _some_go_right(
    words: UInt32[Array, "nodes categories"], possible: Bool[Array, "nodes categories"]
) -> Bool[Array, "nodes categories"]:
    category = jnp.arange(words.shape[1])
    first, last = (_argmax(order, possible)[:, None] == category for order in (~words, words))
    return (words & 1 == 1) & ~first | last


def _argmax(words: UInt32[Array, "nodes n"], among: Bool[Array, "nodes n"]) -> Int[Array, " nodes"]:
    return jnp.argmax(jnp.where(among, words | 1, 0), axis=1)


def leaf_of(
    splits: TreeSplits, inputs: Float[Array, "n columns"], category_counts: tuple[int, ...]
) -> Int[Array, " n"]:
    """The leaf of every record in one tree, counted from the left."""
    numeric = jnp.asarray(np.asarray(category_counts) == 0)
    inner = splits.column.shape[0]

    def down(level: Array, node: Int[Array, " n"]) -> Int[Array, " n"]:
        column = splits.column[node]
        value = jnp.take_along_axis(inputs, column[:, None], axis=1)[:, 0]
        right = jnp.where(numeric[column], value >= splits.cut[node], splits.right[node, value.astype(jnp.int32)])
        return 2 * node + 1 + right

    depth = (inner + 1).bit_length() - 1
    return jax.lax.fori_loop(0, depth, down, jnp.zeros(len(inputs), jnp.int32)) - inner
