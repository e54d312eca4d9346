"""Naive Bayes over categorical and numeric columns."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.kernels.dtp_bounds import log_odds_dtp_bound, smoothed_naive_bayes_delta
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.learners import naive_bayes_leave_one_out
from jaxaudit.learners.learner import Indices, Labels, LeftOut, Pool, PoolLabels, Progress, Rows, Weights

ONE_HOT_CELLS = 2**22
"""The largest number of indicators in a block of records (16 MB)."""

EXACT = jax.lax.Precision.HIGHEST  # an accelerator would else round the factors of a product to 10 bits


class NaiveBayesParams(NamedTuple):
    """A trained naive Bayes model: log p(class), and log p(category | class), in nats; moments of numeric columns.

    A class without members has a prior of -inf. The categories of all columns are one after another. Variances have the
    floor added.
    """

    log_prior: Float[Array, " classes"]
    log_likelihood: Float[Array, "categories classes"]
    mean: Float[Array, "classes numeric"]
    variance: Float[Array, "classes numeric"]


@dataclass(frozen=True)
class NaiveBayes:
    """Naive Bayes as a `LeavesOneOut` learner; made by `naive_bayes`, whose arguments describe the fields."""

    category_counts: tuple[int, ...]
    classes: int
    smoothing: float
    variance_smoothing: float
    largest_dtp = None
    """None, since a class vanishes with its only member."""

    def fit(self, key: Key[Array, ""], inputs: Rows, labels: Labels, weights: Weights) -> NaiveBayesParams:
        """The model of the records whose weight is 1; the key is not used.

        Counts are exact up to 16,777,216 records.
        """
        of_class = weights[:, None] * jax.nn.one_hot(labels, self.classes)
        members = jnp.sum(of_class, axis=0)
        total = jnp.sum(members)
        log_prior = jnp.where(total > 0, jnp.log(members) - jnp.log(total), -np.log(self.classes))
        counts = self._count(inputs, of_class)
        possible = np.repeat(self._category_counts, self._category_counts)[:, None]
        log_likelihood = jnp.log(counts + self.smoothing) - jnp.log(members + self.smoothing * possible)
        return NaiveBayesParams(log_prior, log_likelihood, *self._moments(inputs, labels, weights, of_class, members))

    def log_probs(self, params: NaiveBayesParams, inputs: Float[Array, "n columns"]) -> Float[Array, "n classes"]:
        """The normalised posterior's logarithm, in nats; -inf for a class without members."""
        # A term that all classes share cancels; it is subtracted first, so that it costs no precision.
        present = jnp.isfinite(params.log_prior)
        table = params.log_likelihood - jnp.max(params.log_likelihood, axis=1, keepdims=True, initial=-jnp.inf)

        def joint(record: Float[Array, " columns"]) -> Float[Array, " classes"]:
            squared = (record[self._numeric] - params.mean) ** 2
            likelihood = -0.5 * (jnp.log(params.variance) + squared / params.variance)
            likelihood -= jnp.max(jnp.where(present[:, None], likelihood, -jnp.inf), axis=0)
            likely = jnp.sum(likelihood, axis=1)
            return params.log_prior + jnp.matmul(self._indicators(record), table, precision=EXACT) + likely

        width = sum(self._category_counts) + self.classes * len(self._numeric)
        return precise_log_softmax(jax.lax.map(joint, inputs, batch_size=max(1, ONE_HOT_CELLS // width)))

    def leave_one_out(
        self, key: Key[Array, ""], inputs: Pool, labels: PoolLabels, records: Indices, progress: Progress | None = None
    ) -> LeftOut:
        """Outputs with and without each record, in closed form: the record's counts and moments are subtracted.

        Computed in float64 on the host, in time linear in the records. Equal to refitting in float64 up to a relative
        1e-10, and to `fit` up to float32 rounding. The key is not used. See `naive_bayes_leave_one_out`.

        Raises:
            InputError: shapes disagree, an input is not finite or not a category of its column, or a label or a record
                is out of range.
        """
        return naive_bayes_leave_one_out.left_out_log_probs(self, inputs, labels, records, progress)

    def dtp_bound(
        self, all_labels: Int[np.ndarray, " n"], labels: Int[np.ndarray, " k"], left: LeftOut
    ) -> Float[np.ndarray, " k"] | None:
        """`log_odds_dtp_bound` with `smoothed_naive_bayes_delta`: for categorical columns only. See `BoundsDTP`."""
        if 0 in self.category_counts:
            return None
        members = np.bincount(all_labels)
        delta = smoothed_naive_bayes_delta(int(members[members > 0].min()), self.category_counts, self.smoothing)
        return log_odds_dtp_bound(*left, labels, delta)

    @property
    def _category_counts(self) -> tuple[int, ...]:
        return tuple(count for count in self.category_counts if count)

    @property
    def _numeric(self) -> np.ndarray:
        return np.flatnonzero(np.array(self.category_counts) == 0)

    def _indicators(self, inputs: Float[Array, "*n columns"]) -> Float[Array, "*n categories"]:
        column = np.repeat(np.arange(len(self.category_counts)), self.category_counts)
        category = np.concatenate([np.arange(0), *(np.arange(count) for count in self._category_counts)])
        return (inputs[..., column] == category).astype(jnp.float32)

    def _count(
        self, inputs: Float[Array, "n columns"], of_class: Float[Array, "n classes"]
    ) -> Float[Array, "categories classes"]:
        """The number of members of every class in every category, by one matrix product per block of records."""

        def add(counts: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            records, block_weights = block
            return counts + jnp.matmul(self._indicators(records).T, block_weights, precision=EXACT), None

        categories = sum(self._category_counts)
        rows = min(len(inputs), ONE_HOT_CELLS // max(categories, 1)) or 1
        missing = -len(inputs) % rows

        def blocks(array: Array) -> Array:
            return jnp.pad(array, ((0, missing), (0, 0))).reshape(-1, rows, array.shape[1])

        return jax.lax.scan(add, jnp.zeros((categories, self.classes)), (blocks(inputs), blocks(of_class)))[0]

    def _moments(
        self, inputs: Array, labels: Array, weights: Array, of_class: Array, members: Array
    ) -> tuple[Float[Array, "classes numeric"], Float[Array, "classes numeric"]]:
        """Means and variances in two passes; the second corrects what rounding left in the first (Chan et al. 1983)."""
        numeric = inputs[:, self._numeric]
        if not numeric.shape[1]:
            return jnp.zeros((self.classes, 0)), jnp.zeros((self.classes, 0))
        at_least_one = jnp.maximum(members, 1.0)[:, None]

        def mean_of(values: Float[Array, "n numeric"]) -> Float[Array, "classes numeric"]:
            return jnp.matmul(of_class.T, values, precision=EXACT) / at_least_one

        mean = mean_of(numeric)
        centred = numeric - mean[labels]
        error = mean_of(centred)
        mean, within = mean + error, jnp.maximum(mean_of(centred**2) - error**2, 0.0)
        share = (members / jnp.maximum(jnp.sum(members), 1.0))[:, None]
        overall = jnp.sum(share * (within + (mean - jnp.sum(share * mean, axis=0)) ** 2), axis=0)
        is_member = weights[:, None] > 0
        varies = jnp.max(numeric, axis=0, where=is_member, initial=-jnp.inf) > jnp.min(
            numeric, axis=0, where=is_member, initial=jnp.inf
        )
        largest = jnp.where(jnp.any(varies), jnp.max(overall), 1.0)
        return mean, within + self.variance_smoothing * largest


def naive_bayes(
    category_counts: tuple[int, ...], classes: int, *, smoothing: float = 1.0, variance_smoothing: float = 1e-9
) -> NaiveBayes:
    """The naive Bayes learner: p(class | record) ~ p(class) * product over columns of p(value | class).

    Records are `ordinal`: one input per column, which is the index of the category (0, 1, ...) or the number of a
    numeric column. With n members, n_c of them in class c:

        p(c)             n_c / n
        p(category | c)  (count + smoothing) / (n_c + smoothing * v), v categories      (Laplace; paper, prop. 6.5)
        p(number | c)    Gaussian: the class's mean, its variance (divided by n_c) + floor
        floor            variance_smoothing * the largest variance of any numeric column over all members

    as in scikit-learn's `CategoricalNB` and `GaussianNB`; a mixed record multiplies both. The floor is computed from
    the members only, so a left-out record does not affect it. Long et al. (2017) state neither prior nor floor; Weka
    also smooths the prior, (n_c + 1) / (n + classes), and resolves numbers only up to the gaps between them.

    A class without members (including one that lost its last) has probability 0, log-probability -inf, and does not
    affect the others. Without any member, all classes are equally likely. If every numeric column is constant, the
    floor is `variance_smoothing` itself. An input that is not a category of its column is ignored. Nothing is NaN.

    Args:
        category_counts: the number of categories of every column, 0 for a numeric one.
        classes: the number of classes.
        smoothing: added to every count; above 0, so that no category is impossible.
        variance_smoothing: the floor of variances, relative to the largest; above 0.

    Raises:
        InputError: there is no column or class, a count is negative, or a smoothing is not above 0.

    >>> import jax, numpy as np
    >>> learner = naive_bayes((2,), classes=2)
    >>> inputs, labels = np.array([[0.0], [0.0], [1.0]], np.float32), np.array([0, 0, 1])
    >>> left_out = learner.leave_one_out(jax.random.key(3), inputs, labels, np.array([1]))
    >>> np.exp(left_out.with_record).round(3), np.exp(left_out.without_record).round(3)
    (array([[0.818, 0.182]]), array([[0.667, 0.333]]))

    Long, Bindschaedler & Gunter (2017), section 3 and proposition 6.5.
    """
    if not category_counts or classes < 1 or min(category_counts) < 0:
        raise InputError(
            f"naive Bayes needs at least one column and one class; got category counts {category_counts} and {classes} "
            "classes: give one count per column, 0 for a numeric column."
        )
    if not (smoothing > 0 and variance_smoothing > 0):
        raise InputError(
            f"smoothing and variance_smoothing must be above 0, got {smoothing:g} and {variance_smoothing:g}: without "
            "them a value that a class has not seen makes its probability 0."
        )
    return NaiveBayes(tuple(category_counts), classes, float(smoothing), float(variance_smoothing))
