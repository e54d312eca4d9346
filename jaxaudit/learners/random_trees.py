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
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.kernels.dtp_bounds import log_odds_dtp_bound
from jaxaudit.learners.learner import Indices, Labels, LeftOut, Pool, PoolLabels, Progress, Rows, Weights
from jaxaudit.learners.left_out import check_left_out, in_chunks, log_shares, tell
from jaxaudit.learners.random_splits import TreeSplits, draw_forest, leaf_of

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
    """Random trees as a `LeavesOneOut` learner; made by `random_trees`, whose arguments describe the fields."""

    category_counts: tuple[int, ...]
    classes: int
    trees: int
    depth: int
    smoothing: float
    aggregate: Callable[[TreeLogProbs], LogProbs]

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
        nats). Time is linear in the records; memory is 8 bytes per record and tree.

        A class that loses its last member keeps its smoothing (without smoothing: log-probability minus infinity).

        Raises:
            InputError: labels, records, columns or categories do not exist.
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
        """The largest change of any output by leaving any record out, nats: log(1 + 1 / smoothing), that of its leaf.

        None if no bound is proven: without smoothing, or if trees are not joined by `geometric_mean`.
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

    A tree is complete, `depth` splits deep, and drawn from the key alone; see `draw_splits`.
    A leaf with n records, n_y of them of class y, gives

        p_j(y|x) = (n_y + smoothing) / (n + smoothing * classes),    an empty leaf 1 / classes,

    and the forest is their aggregate, by default the normalised geometric mean. The splits do not depend on the
    records, so removing one changes a single count in each tree: a zero weight deletes the record exactly.

    Proposition 6.8 of Long et al. (2017) is about `smoothing=0` and `aggregate=unnormalised_geometric_mean`, and holds
    with 3/2 in place of 4/3: of a leaf with two records of one class and one of another, removing one of the two takes
    the other's probability from 1/3 to 1/2. See `experiments/stability.py`.

    Args:
        category_counts: the number of categories of each column of the `ordinal` inputs; 0 for a number in [0, 1].
        classes: the number of classes.
        trees: the number of trees; Fan et al. find 10 to 30 enough.
        depth: splits from root to leaf; Fan et al. advise half the number of columns. Memory is
            trees * 2^depth * (classes + largest category count).
        smoothing: added to every count of a leaf (1 is Laplace's). With 0, probabilities may be 0.
        aggregate: `geometric_mean`, `unnormalised_geometric_mean` or `arithmetic_mean`.

    Guarantees: two fits with one key have the same splits, whatever their records. No record moves any output by more
    than log(1 + 1 / smoothing) nats, log 2 with the default: Laplace's smoothing passes the DTP-1 rule by construction.
    Counts are exact up to 16,777,216 records a leaf and class.

    Raises:
        InputError: there is no column, fewer than two classes, no tree, a depth outside 1 to 16, or a negative number.

    >>> learner = random_trees((0, 3), 2, trees=10, depth=2)
    >>> inputs = np.array([[0.1, 0], [0.2, 1], [0.8, 2], [0.9, 2]], np.float32)
    >>> labels = np.array([0, 0, 1, 1])
    >>> told = learner.leave_one_out(jax.random.key(7), inputs, labels, np.array([3]))
    >>> bool(told.with_record[0, 1] > told.without_record[0, 1])
    True
    """
    if not category_counts or min(category_counts) < 0:
        raise InputError(
            f"category counts must be 0 (a number) or more, one per column; got {category_counts}: pass "
            "category_counts(table)."
        )
    if classes < 2 or trees < 1 or not 1 <= depth <= DEEPEST:
        raise InputError(
            f"random trees need 2 classes, 1 tree and a depth from 1 to {DEEPEST}; got {classes}, {trees} and {depth}."
        )
    if not 0 <= smoothing < np.inf:
        raise InputError(f"smoothing must be 0 or more, got {smoothing}; 1 is Laplace's.")
    return RandomTrees(tuple(category_counts), classes, trees, depth, float(smoothing), aggregate)


def _check_ordinal(inputs: np.ndarray, category_counts: tuple[int, ...]) -> None:
    if inputs.shape[1] != len(category_counts):
        raise InputError(
            f"inputs have {inputs.shape[1]} columns but there are {len(category_counts)} category counts; were the "
            "one-hot inputs passed instead of the ordinal ones?"
        )
    for column, count in enumerate(category_counts):
        values = inputs[:, column]
        allowed = (values >= 0) & (values < count) & (values == np.floor(values)) if count else abs(values - 0.5) <= 0.5
        if not allowed.all():
            expected = f"a category from 0 to {count - 1}" if count else "a number in [0, 1]"
            raise InputError(
                f"column {column} contains {values[~allowed][0]:g}, which is not {expected}: pass ordinal(table), "
                "which numbers categories and scales numbers."
            )
