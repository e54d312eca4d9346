"""Naive Bayes over categorical and numeric columns.

Leave-one-out models are a closed form, on the host and in float64: a record affects only its own class (members, counts
of categories, moments) and the floor of variances, which all classes share. So the output of the model without a record
follows from tables that are made once.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.kernels.dtp import log_odds_dtp_bound, smoothed_naive_bayes_delta
from jaxaudit.kernels.likelihoods import precise_log_softmax
from jaxaudit.learners.learner import (
    ByClass,
    Indices,
    Labels,
    LeftOut,
    Pool,
    PoolLabels,
    Progress,
    Rows,
    Weights,
)
from jaxaudit.randomness import OneKey

NumbersOfSome = Float[np.ndarray, "k numeric"]
Moments = Float[Array, "classes numeric"]
Numeric = Float[np.ndarray, " numeric"]

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
    mean: Moments
    variance: Moments


@dataclass(frozen=True)
class NaiveBayes:
    """Naive Bayes as a `LeavesOneOut` learner; made by `naive_bayes`, whose arguments describe the fields."""

    category_counts: tuple[int, ...]
    classes: int
    smoothing: float
    variance_smoothing: float
    kind = "naive Bayes"

    def fit(self, key: OneKey, inputs: Rows, labels: Labels, weights: Weights) -> NaiveBayesParams:
        """The model of the records of weight 1; the key is not used. Counts are exact up to 16,777,216 records."""
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
        self,
        key: OneKey,
        inputs: Pool,
        labels: Int[np.ndarray, " m"],
        records: Indices,
        progress: Progress | None = None,
    ) -> LeftOut:
        """Outputs with and without each record, in closed form: the record's counts and moments are subtracted.

        Time is linear in the records; memory holds a copy of the inputs, the result and some chunks. Equal to refitting
        in float64 up to a relative 1e-10, and to `fit` up to float32 rounding. The key is not used.
        """
        classes = self.classes
        check_shapes((len(inputs), len(self.category_counts)), inputs=inputs)
        check_shapes((len(inputs),), labels=labels)
        check_ranges(f"[0, {classes})", labels=labels)
        check_ranges(f"[0, {len(inputs)})", records=records)
        members = np.bincount(labels, minlength=classes)
        categories = _Categories.of(self, inputs, labels, members)
        numbers = _Numbers.of(self, inputs, labels, members)
        chosen, copies = categories.distinct(labels, records) if not numbers.values.shape[1] else (records, None)
        result = LeftOut(*(np.empty((len(chosen), classes)) for _ in range(2)))
        width = categories.width + classes * (1 + 4 * numbers.values.shape[1])
        step = max(1, CHUNK_CELLS // width)
        for start in range(0, len(chosen), step):
            chunk = slice(start, start + step)
            for whole, part in zip(result, _chunk(categories, numbers, labels, members, chosen[chunk]), strict=True):
                whole[chunk] = part
            if progress is not None:
                progress(min(len(records) * (start + step) // len(chosen), len(records)), len(records))
        return result if copies is None else LeftOut(*(part[copies] for part in result))

    def dtp_bound(self, all_labels: PoolLabels, labels: Indices, left: LeftOut) -> Float[np.ndarray, " k"] | None:
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
    ) -> tuple[Moments, Moments]:
        """Means and variances in two passes; the second corrects what rounding left in the first (Chan et al. 1983)."""
        numeric = inputs[:, self._numeric]
        if not numeric.shape[1]:
            return jnp.zeros((self.classes, 0)), jnp.zeros((self.classes, 0))
        at_least_one = jnp.maximum(members, 1.0)[:, None]

        def mean_of(values: Float[Array, "n numeric"]) -> Moments:
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
        smoothing, variance_smoothing: above 0; without smoothing, a category could be impossible.

    >>> import jax, numpy as np
    >>> learner = naive_bayes((2,), classes=2)
    >>> inputs, labels = np.array([[0.0], [0.0], [1.0]], np.float32), np.array([0, 0, 1])
    >>> left_out = learner.leave_one_out(jax.random.key(3), inputs, labels, np.array([1]))
    >>> np.exp(left_out.with_record).round(3), np.exp(left_out.without_record).round(3)
    (array([[0.818, 0.182]]), array([[0.667, 0.333]]))

    Long, Bindschaedler & Gunter (2017), section 3 and proposition 6.5.
    """
    check_ranges("[1, inf)", columns=len(category_counts), classes=classes)
    check_ranges("[0, inf)", category_counts=category_counts)
    check_ranges("(0, inf]", smoothing=smoothing, variance_smoothing=variance_smoothing)
    return NaiveBayes(tuple(category_counts), classes, float(smoothing), float(variance_smoothing))


CHUNK_CELLS = 2**21
"""The largest size of a temporary array, in numbers (16 MB)."""

FEW_CATEGORIES = 8
"""Columns of up to this many categories are looked up together, by a matrix product; others one by one."""


class _Categories(NamedTuple):
    """Each record's rows in the table of log p(category | c), and what losing a record of a category adds to it."""

    places: tuple[PoolLabels, ...]
    counts: tuple[int, ...]
    table: Float[np.ndarray, "categories classes"]
    change: Float[np.ndarray, "categories classes"]

    @classmethod
    def of(cls, learner: "NaiveBayes", inputs: np.ndarray, labels: np.ndarray, members: np.ndarray) -> "_Categories":
        classes, smoothing = learner.classes, learner.smoothing
        columns = np.flatnonzero(learner.category_counts).tolist()
        counts = learner._category_counts
        places, seen = [], []
        for column, count in zip(columns, counts, strict=True):
            code = _codes(inputs[:, column], column, count)
            seen.append(np.bincount(code * classes + labels, minlength=count * classes).reshape(count, classes))
            places.append(code)
        count = np.concatenate([np.zeros((0, classes), int), *seen])
        possible = smoothing * np.repeat(counts, counts)[:, None]
        with_record = np.log(count + smoothing) - np.log(members + possible)
        without = np.log(np.maximum(count - 1, 0) + smoothing) - np.log(np.maximum(members - 1, 0) + possible)
        return cls(tuple(places), counts, with_record, without - with_record)

    @property
    def width(self) -> int:
        return sum(count for count in self.counts if count <= FEW_CATEGORIES)

    def distinct(self, labels: np.ndarray, records: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Distinct records, and which of them each of `records` equals; None if duplicates need not be frequent."""
        classes = self.table.shape[1]
        if classes * np.prod(self.counts, dtype=float) > len(records):
            return records, None
        cell = labels[records].astype(np.intp)
        for place, count in zip(self.places, self.counts, strict=True):
            cell *= count
            cell += place[records]
        stands_for = np.full(classes * int(np.prod(self.counts)), -1)
        stands_for[cell] = np.arange(len(records))
        occupied = np.flatnonzero(stands_for >= 0)
        chosen = records[stands_for[occupied]]
        stands_for[occupied] = np.arange(len(occupied))
        return chosen, stands_for[cell]

    def log_likelihood(self, labels: np.ndarray, records: np.ndarray) -> tuple[ByClass, Float[np.ndarray, " k"]]:
        """The log-likelihood summed over columns, and its change for the record's own class without the record."""
        classes = self.table.shape[1]
        total, change = np.zeros((len(records), classes)), np.zeros(len(records))
        indicators = np.zeros((len(records), self.width))
        rows, narrow, start = np.arange(len(records)), [], 0
        for place, count in zip(self.places, self.counts, strict=True):
            code = place[records]
            change += self.change[start + code, labels[records]]
            if count <= FEW_CATEGORIES:
                indicators[rows, len(narrow) + code] = 1.0
                narrow.extend(range(start, start + count))
            else:
                total += self.table[start + code]
            start += count
        return total + indicators @ self.table[narrow], change


class _Numbers(NamedTuple):
    """Numeric columns: values minus the first record (so that moments of a constant column are exact), and moments."""

    values: Float[np.ndarray, "n numeric"]
    order: PoolLabels
    starts: Int[np.ndarray, " classes_and_one"]
    mean: Float[np.ndarray, "classes numeric"]
    squares: Float[np.ndarray, "classes numeric"]
    overall_mean: Numeric
    overall_squares: Numeric
    variance_smoothing: float

    @classmethod
    def of(cls, learner: "NaiveBayes", inputs: np.ndarray, labels: np.ndarray, members: np.ndarray) -> "_Numbers":
        columns = learner._numeric
        values = inputs[:, columns].astype(np.float64)
        bad = ~np.isfinite(values).all(axis=0)
        if bad.any():
            raise InputError(
                f"column {columns[bad.argmax()]} contains a number that is NaN or infinite: drop such records, or give "
                "missing values their own category."
            )
        values -= values[:1]
        order = np.argsort(labels, kind="stable") if len(columns) else np.arange(0)
        starts = np.concatenate([[0], np.cumsum(members)])
        moments = [_moments(values[order[start:stop]]) for start, stop in pairwise(starts)]
        mean, squares = (np.stack(part) for part in zip(*moments, strict=True))
        return cls(values, order, starts, mean, squares, *_moments(values), learner.variance_smoothing)

    def log_likelihood(self, members: np.ndarray, labels: np.ndarray, records: np.ndarray) -> tuple[ByClass, ByClass]:
        """Log-densities summed over columns, minus the largest of any class, with and without each record."""
        values, classes = self.values[records], labels[records]
        if not values.shape[1]:
            nothing = np.zeros((len(records), len(members)))
            return nothing, nothing
        rows, count = np.arange(len(records)), len(self.values)
        squares = np.repeat((self.squares / np.maximum(members, 1)[:, None])[None], len(records), axis=0)
        floor = self._floor(self.overall_squares[None] / count)
        with_record = _log_gaussian(values, self.mean, squares + floor, members > 0)
        remaining = members - (np.arange(len(members)) == classes[:, None])
        mean = np.repeat(self.mean[None], len(records), axis=0)
        mean[rows, classes], less = self._without(
            values, records, self.mean[classes], self.squares[classes], members[classes], classes
        )
        squares[rows, classes] = less / np.maximum(members[classes] - 1, 1)[:, None]
        everyone = np.full(len(records), count)
        _, overall = self._without(values, records, self.overall_mean, self.overall_squares, everyone, None)
        floor = self._floor(overall / max(count - 1, 1))
        return with_record, _log_gaussian(values, mean, squares + floor, remaining > 0)

    def _floor(self, variance: NumbersOfSome) -> Float[np.ndarray, "k 1 1"]:
        largest = variance.max(axis=1)
        return (self.variance_smoothing * np.where(largest > 0, largest, 1.0))[:, None, None]

    def _without(
        self,
        values: NumbersOfSome,
        records: Indices,
        mean: np.ndarray,
        squares: np.ndarray,
        members: Indices,
        classes: Indices | None,
    ) -> tuple[NumbersOfSome, NumbersOfSome]:
        """Mean and sum of squared deviations of each record's class (`classes`; None: of all) without the record."""
        remaining = np.maximum(members - 1, 1)[:, None]
        away = values - mean
        less = squares - away**2 * (members[:, None] / remaining)
        new = np.where(members[:, None] > 1, mean - away / remaining, 0.0)
        for row, column in np.argwhere(less < 0.5 * squares):
            group = (
                self.order if classes is None else self.order[self.starts[classes[row]] : self.starts[classes[row] + 1]]
            )
            others_values = self.values[group[group != records[row]]][:, [column]]
            new[row, [column]], less[row, [column]] = _moments(others_values)
        return new, np.maximum(less, 0.0)


def _moments(
    values: Float[np.ndarray, "n numeric"],
) -> tuple[Numeric, Numeric]:
    """The mean, and the sum of squared deviations from it, which is exactly 0 if all values are equal."""
    if not len(values):
        return np.zeros(values.shape[1]), np.zeros(values.shape[1])
    from_first = values - values[0]
    mean = from_first.mean(axis=0)
    return values[0] + mean, np.sum((from_first - mean) ** 2, axis=0)


def _log_gaussian(
    values: NumbersOfSome,
    mean: Float[np.ndarray, "*k classes numeric"],
    variance: Float[np.ndarray, "k classes numeric"],
    present: Bool[np.ndarray, "*k classes"],
) -> ByClass:
    away = values[:, None] - mean
    likelihood = -0.5 * (np.log(variance) + away * away / variance)
    # Far from all classes these are huge and nearly equal; subtracting per column keeps the precision.
    likelihood -= np.max(likelihood, axis=1, keepdims=True, where=present[..., None], initial=-np.inf)
    return likelihood.sum(axis=2)


def _chunk(
    categories: _Categories, numbers: _Numbers, labels: np.ndarray, members: np.ndarray, records: np.ndarray
) -> tuple[ByClass, ByClass]:
    with np.errstate(divide="ignore"):
        log_members, log_others = np.log(members), np.log(np.maximum(members - 1, 0))
    rows, classes = np.arange(len(records)), labels[records]
    categorical, change = categories.log_likelihood(labels, records)
    with_numbers, without_numbers = numbers.log_likelihood(members, labels, records)
    with_record = _normalised(log_members + categorical + with_numbers)
    if len(labels) == 1:
        return with_record, np.full_like(with_record, -np.log(len(members)))
    without = log_members + categorical
    without[rows, classes] += change + log_others[classes] - log_members[classes]
    return with_record, _normalised(without + without_numbers)


def _normalised(joint: ByClass) -> ByClass:
    """Log-softmax that keeps its relative precision for probabilities near 1."""
    rows, largest = np.arange(len(joint)), joint.argmax(axis=1)
    shifted = joint - joint[rows, largest][:, None]
    powers = np.exp(shifted)
    powers[rows, largest] = 0.0
    return shifted - np.log1p(powers.sum(axis=1, keepdims=True))


def _codes(values: np.ndarray, column: int, count: int) -> PoolLabels:
    fits = (values >= 0) & (values < count)
    codes = np.where(fits, values, 0).astype(np.int32)
    if not (fits & (codes == values)).all():
        bad = values[~(fits & (codes == values))][0]
        raise InputError(
            f"column {column} contains {bad:g}, which is not one of its {count} categories 0 to {count - 1}: are the "
            "inputs ordinal, with one category index per column?"
        )
    return codes
