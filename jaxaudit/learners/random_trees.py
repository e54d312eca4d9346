"""Random decision trees: splits depend on the key only; the counts in the leaves depend on the records.

Fan, Wang, Yu & Ma (2003), "Is random model better? On its accuracy and efficiency", aggregated as in proposition 6.8 of
Long, Bindschaedler & Gunter (2017), "Towards measuring membership privacy".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log1p
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.kernels.dtp import log_odds_dtp_bound
from jaxaudit.learners.learner import (
    Indices,
    Labels,
    LeftOut,
    Pool,
    PoolLabels,
    Progress,
    Rows,
    Weights,
    check_columns,
    check_left_out,
    in_chunks,
    log_shares,
    tell,
)

GRID = 1 << 20
"""Cuts are multiples of 1 / GRID, which float32 represents exactly, so a record's leaf does not depend on rounding."""


class TreeSplits(NamedTuple):
    """The splits at the inner nodes of a tree, level by level: the children of node v are 2 v + 1 (left) and 2 v + 2.
    Numbers of at least `cut` in `column` go right, and the categories that `right` marks.
    """

    column: Int[Array, "*trees nodes"]
    cut: Float[Array, "*trees nodes"]
    right: Bool[Array, "*trees nodes categories"]


def draw_splits(key: Key[Array, ""], category_counts: tuple[int, ...], depth: int) -> TreeSplits:
    """A complete binary tree of this depth, drawn from the key alone.

    Every node uses a random column that can still vary on its path, all with the same probability. A number is cut
    uniformly within the remaining range of [0, 1]. Of the remaining categories, two random ones are separated; every
    other goes right with probability 1/2. If one value of every column remains, splits have no effect.
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


DEEPEST = 16
RECORDS_AT_A_TIME = 1 << 16
NUMBERS_AT_A_TIME = 1 << 20

TreeLogProbs = Float[Array | np.ndarray, "trees n classes"]
LogProbs = Float[Array | np.ndarray, "n classes"]


def unnormalised_geometric_mean(log_probs: TreeLogProbs) -> LogProbs:
    """The mean over trees of log p_j(y|x), as in proposition 6.8; probabilities may sum to less than 1.

    >>> np.exp(unnormalised_geometric_mean(np.log([[[0.5, 0.5]], [[0.9, 0.1]]]))).round(3)
    array([[0.671, 0.224]])
    """
    return log_probs.mean(axis=0)


def geometric_mean(log_probs: TreeLogProbs) -> LogProbs:
    """The geometric mean of proposition 6.8, scaled to sum to 1.

    If it is 0 for every class (possible without smoothing), all classes are equally likely.

    >>> np.exp(geometric_mean(np.log([[[0.5, 0.5]], [[0.9, 0.1]]]))).round(3)
    array([[0.75, 0.25]])
    """
    xp: Any = log_probs.__array_namespace__()
    scores = log_probs.mean(axis=0)
    largest = scores.max(axis=-1, keepdims=True)
    some = largest > -xp.inf
    scores = xp.where(some, scores - xp.where(some, largest, 0), 0)
    return scores - xp.log(xp.exp(scores).sum(axis=-1, keepdims=True))


def arithmetic_mean(log_probs: TreeLogProbs) -> LogProbs:
    """The logarithm of the trees' mean probability, as in Fan et al. (2003); its stability is not proven.

    >>> np.exp(arithmetic_mean(np.log([[[0.5, 0.5]], [[0.9, 0.1]]]))).round(3)
    array([[0.7, 0.3]])
    """
    xp: Any = log_probs.__array_namespace__()
    return xp.log(xp.exp(log_probs).mean(axis=0))


class Forest(NamedTuple):
    """A trained model: the splits of its trees, and the number of records of each class in every leaf."""

    splits: TreeSplits
    counts: Float[Array, "trees leaves classes"]


@dataclass(frozen=True)
class RandomTrees:
    """Random trees as a `LeavesOneOut` learner; fields: the arguments of `random_trees`."""

    category_counts: tuple[int, ...]
    classes: int
    trees: int
    depth: int
    smoothing: float
    aggregate: Callable[[TreeLogProbs], LogProbs]

    @property
    def kind(self) -> str:
        return f"{self.trees} random trees of depth {self.depth}"

    def fit(self, key: Key[Array, ""], inputs: Rows, labels: Labels, weights: Weights) -> Forest:
        def count(splits: TreeSplits) -> Float[Array, "leaves classes"]:
            empty = jnp.zeros((2**self.depth, self.classes), weights.dtype)
            return empty.at[leaf_of(splits, inputs, self.category_counts), labels].add(weights)

        splits = draw_forest(key, self.category_counts, self.trees, self.depth)
        return Forest(splits, jax.lax.map(count, splits))

    def log_probs(self, params: Forest, inputs: Float[Array, "n columns"]) -> Float[Array, "n classes"]:
        def reached(tree: Forest) -> Float[Array, "n classes"]:
            return tree.counts[leaf_of(tree.splits, inputs, self.category_counts)]

        return self._forest_log_probs(jax.lax.map(reached, params))

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Removes each record from its leaf in every tree; see `LeavesOneOut`.

        Counts are integers and logarithms float64, so the result equals refits up to their float32 rounding (1e-5
        nats). Time is linear in the records; memory is 8 bytes per record and tree. A class that loses its last member
        keeps its smoothing (without smoothing: log-probability -inf). Labels, records, columns or categories that do
        not exist are an `InputError`.
        """
        check_left_out(inputs, labels, records, self.classes)
        _check_ordinal(inputs, self.category_counts)
        leaves = self._leaves(key, inputs)
        cells = 2**self.depth * self.classes
        counts = np.stack([np.bincount(tree * self.classes + labels, minlength=cells) for tree in leaves])
        counts = counts.reshape(self.trees, -1, self.classes)
        itself = np.eye(self.classes, dtype=int)
        result = LeftOut(*np.empty((2, len(records), self.classes)))
        step = max(1, NUMBERS_AT_A_TIME // (self.trees * self.classes))
        for start in range(0, len(records), step):
            chosen = records[start : start + step]
            votes = counts[np.arange(self.trees)[:, None], leaves[:, chosen]]
            result.with_record[start : start + step] = self._forest_log_probs(votes)
            result.without_record[start : start + step] = self._forest_log_probs(votes - itself[labels[chosen]])
            tell(progress, start + step, len(records))
        return result

    @property
    def largest_dtp(self) -> float | None:
        """log(1 + 1 / smoothing) nats, the largest change of a leaf; None if no bound is proven: without smoothing, or
        if trees are not joined by `geometric_mean`.
        """
        return log1p(1 / self.smoothing) if self._is_bounded else None

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """`log_odds_dtp_bound` with delta 1, for forests with smoothing and `geometric_mean`. See `BoundsDTP`."""
        return log_odds_dtp_bound(*left, labels) if self._is_bounded else None

    @property
    def _is_bounded(self) -> bool:
        return self.smoothing > 0 and self.aggregate is geometric_mean

    def _forest_log_probs(self, counts: Any) -> Any:
        with np.errstate(divide="ignore"):
            return self.aggregate(log_shares(counts, self.smoothing))

    def _leaves(self, key: Key[Array, ""], inputs: np.ndarray) -> Int[np.ndarray, "trees n"]:
        splits = _draw_forest(key, self.category_counts, self.trees, self.depth)
        chunks = in_chunks(inputs, RECORDS_AT_A_TIME)
        leaves = [np.asarray(_leaves_of(splits, chunk, self.category_counts)) for chunk in chunks]
        return np.concatenate(leaves, axis=1)[:, : len(inputs)]


_draw_forest = jax.jit(draw_forest, static_argnums=(1, 2, 3))


@partial(jax.jit, static_argnums=2)
def _leaves_of(splits: TreeSplits, inputs: Array, category_counts: tuple[int, ...]) -> Int[Array, "trees n"]:
    return jax.lax.map(lambda tree: leaf_of(tree, inputs, category_counts), splits)


def random_trees(
    category_counts: tuple[int, ...],
    classes: int,
    *,
    trees: int,
    depth: int,
    smoothing: float = 1.0,
    aggregate: Callable[[TreeLogProbs], LogProbs] = geometric_mean,
) -> RandomTrees:
    """The learner of random decision trees.

    A tree is complete, `depth` splits deep, and drawn from the key alone; see `draw_splits`. A leaf with n records, n_y
    of them of class y, gives

        p_j(y|x) = (n_y + smoothing) / (n + smoothing * classes),    an empty leaf 1 / classes,

    and the forest is their aggregate, by default the normalised geometric mean. The splits do not depend on the
    records, so removing one changes a single count in each tree: a zero weight deletes the record exactly.

    Proposition 6.8 of Long et al. (2017) is about `smoothing=0` and `aggregate=unnormalised_geometric_mean`, and holds
    with 3/2 in place of 4/3: of a leaf with two records of one class and one of another, removing one of the two takes
    the other's probability from 1/3 to 1/2.

    Args:
        category_counts: the number of categories of each column of the `ordinal` inputs; 0 for a number in [0, 1].
        trees: the number of trees; Fan et al. find 10 to 30 enough.
        depth: splits from root to leaf, 1 to 16; Fan et al. advise half the number of columns. Memory is trees *
            2^depth * (classes + largest category count).
        smoothing: added to every count of a leaf (1 is Laplace's). With 0, probabilities may be 0.
        aggregate: `geometric_mean`, `unnormalised_geometric_mean` or `arithmetic_mean`.

    Guarantees: No record moves any output by more than log(1 + 1 / smoothing) nats, log 2 with the default: Laplace's
    smoothing passes the DTP-1 rule by construction. Counts are exact up to 16,777,216 records a leaf and class.

    >>> learner = random_trees((0, 3), 2, trees=10, depth=2)
    >>> inputs = np.array([[0.1, 0], [0.2, 1], [0.8, 2], [0.9, 2]], np.float32)
    >>> labels = np.array([0, 0, 1, 1])
    >>> told = learner.leave_one_out(jax.random.key(7), inputs, labels, np.array([3]))
    >>> bool(told.with_record[0, 1] > told.without_record[0, 1])
    True
    """
    check_ranges("[0, inf)", category_counts=category_counts)
    check_ranges("[1, inf)", columns=len(category_counts), trees=trees)
    check_ranges("[2, inf)", classes=classes)
    check_ranges(f"[1, {DEEPEST}]", depth=depth)
    check_ranges("[0, inf)", smoothing=smoothing)
    return RandomTrees(tuple(category_counts), classes, trees, depth, float(smoothing), aggregate)


def _check_ordinal(inputs: np.ndarray, category_counts: tuple[int, ...]) -> None:
    check_columns(inputs, len(category_counts))
    for column, count in enumerate(category_counts):
        values = inputs[:, column]
        allowed = (values >= 0) & (values < count) & (values == np.floor(values)) if count else abs(values - 0.5) <= 0.5
        if not allowed.all():
            expected = f"a category from 0 to {count - 1}" if count else "a number in [0, 1]"
            raise InputError(
                f"column {column} contains {values[~allowed][0]:g}, which is not {expected}: pass ordinal(table), "
                "which numbers categories and scales numbers."
            )
