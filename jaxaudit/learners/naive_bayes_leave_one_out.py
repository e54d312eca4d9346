"""Leave-one-out models of naive Bayes in closed form, on the host and in float64.

A record affects only its own class (its number of members, its counts of categories and its moments) and the floor of
variances, which all classes share. So the output of the model without a record follows from tables that are made once.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError
from jaxaudit.learners.learner import LeftOut, Progress
from jaxaudit.learners.left_out import check_columns, check_finite, check_left_out, tell

if TYPE_CHECKING:
    from jaxaudit.learners.naive_bayes import NaiveBayes

CHUNK_CELLS = 2**21
"""The largest size of a temporary array, in numbers (16 MB)."""

FEW_CATEGORIES = 8
"""Columns of up to this many categories are looked up together, by a matrix product; others one by one."""


def left_out_log_probs(
    learner: "NaiveBayes",
    inputs: Float[np.ndarray, "n columns"],
    labels: Int[np.ndarray, " n"],
    records: Int[np.ndarray, " k"],
    progress: Progress | None,
) -> LeftOut:
    """Log-probabilities at each of `records`, of the model of all records and of the model without that record.

    Time is proportional to records times columns times classes. Memory holds a copy of the inputs, the result and some
    chunks. Identical records are computed once if many are expected.
    """
    classes = learner.classes
    check_columns(inputs, len(learner.category_counts))
    check_left_out(inputs, labels, records, classes)
    members = np.bincount(labels, minlength=classes)
    categories = _Categories.of(learner, inputs, labels, members)
    numbers = _Numbers.of(learner, inputs, labels, members)
    chosen, copies = categories.distinct(labels, records) if not numbers.values.shape[1] else (records, None)
    result = LeftOut(*(np.empty((len(chosen), classes)) for _ in range(2)))
    width = categories.width + classes * (1 + 4 * numbers.values.shape[1])
    step = max(1, CHUNK_CELLS // width)
    for start in range(0, len(chosen), step):
        chunk = slice(start, start + step)
        for whole, part in zip(result, _chunk(categories, numbers, labels, members, chosen[chunk]), strict=True):
            whole[chunk] = part
        tell(progress, len(records) * (start + step) // len(chosen), len(records))
    return result if copies is None else LeftOut(*(part[copies] for part in result))


class _Categories(NamedTuple):
    """Categorical columns: the table's row of each record and column, and the tables.

    `table[row, c]` is log p(category | c); `change[row, c]` is added if class c loses a record of that category.
    """

    places: tuple[Int[np.ndarray, " n"], ...]
    counts: tuple[int, ...]
    table: Float[np.ndarray, "categories classes"]
    change: Float[np.ndarray, "categories classes"]

    @classmethod
    def of(cls, learner: "NaiveBayes", inputs: np.ndarray, labels: np.ndarray, members: np.ndarray) -> "_Categories":
        classes, smoothing = learner.classes, learner.smoothing
        columns = np.flatnonzero(learner.category_counts).tolist()
        counts = tuple(filter(None, learner.category_counts))
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

    def log_likelihood(
        self, labels: np.ndarray, records: np.ndarray
    ) -> tuple[Float[np.ndarray, "k classes"], Float[np.ndarray, " k"]]:
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
    """Numeric columns: their values, and the moments of every class and of all records.

    The first record is subtracted from all values, so that the moments of a constant column are exact.
    """

    values: Float[np.ndarray, "n numeric"]
    order: Int[np.ndarray, " n"]
    starts: Int[np.ndarray, " classes_and_one"]
    mean: Float[np.ndarray, "classes numeric"]
    squares: Float[np.ndarray, "classes numeric"]
    overall_mean: Float[np.ndarray, " numeric"]
    overall_squares: Float[np.ndarray, " numeric"]
    variance_smoothing: float

    @classmethod
    def of(cls, learner: "NaiveBayes", inputs: np.ndarray, labels: np.ndarray, members: np.ndarray) -> "_Numbers":
        columns = np.flatnonzero(np.array(learner.category_counts) == 0)
        values = inputs[:, columns].astype(np.float64)
        check_finite(values, columns)
        values -= values[:1]
        order = np.argsort(labels, kind="stable") if len(columns) else np.arange(0)
        starts = np.concatenate([[0], np.cumsum(members)])
        moments = [_moments(values[order[start:stop]]) for start, stop in pairwise(starts)]
        mean, squares = (np.stack(part) for part in zip(*moments, strict=True))
        return cls(values, order, starts, mean, squares, *_moments(values), learner.variance_smoothing)

    def log_likelihood(
        self, members: np.ndarray, labels: np.ndarray, records: np.ndarray
    ) -> tuple[Float[np.ndarray, "k classes"], Float[np.ndarray, "k classes"]]:
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

    def _floor(self, variance: Float[np.ndarray, "k numeric"]) -> Float[np.ndarray, "k 1 1"]:
        largest = variance.max(axis=1)
        return (self.variance_smoothing * np.where(largest > 0, largest, 1.0))[:, None, None]

    def _without(
        self,
        values: Float[np.ndarray, "k numeric"],
        records: Int[np.ndarray, " k"],
        mean: np.ndarray,
        squares: np.ndarray,
        members: Int[np.ndarray, " k"],
        classes: Int[np.ndarray, " k"] | None,
    ) -> tuple[Float[np.ndarray, "k numeric"], Float[np.ndarray, "k numeric"]]:
        """Mean and sum of squared deviations of each record's class (`classes`; None: of all) without the record.

        If the record has half of the sum or more, subtracting it would lose precision, so the sum is computed again.
        That concerns at most three records per class and column.
        """
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
) -> tuple[Float[np.ndarray, " numeric"], Float[np.ndarray, " numeric"]]:
    """The mean, and the sum of squared deviations from it, which is exactly 0 if all values are equal."""
    if not len(values):
        return np.zeros(values.shape[1]), np.zeros(values.shape[1])
    from_first = values - values[0]
    mean = from_first.mean(axis=0)
    return values[0] + mean, np.sum((from_first - mean) ** 2, axis=0)


def _log_gaussian(
    values: Float[np.ndarray, "k numeric"],
    mean: Float[np.ndarray, "*k classes numeric"],
    variance: Float[np.ndarray, "k classes numeric"],
    present: Bool[np.ndarray, "*k classes"],
) -> Float[np.ndarray, "k classes"]:
    away = values[:, None] - mean
    likelihood = -0.5 * (np.log(variance) + away * away / variance)
    # Far from all classes these are huge and nearly equal; subtracting per column keeps the precision.
    likelihood -= np.max(likelihood, axis=1, keepdims=True, where=present[..., None], initial=-np.inf)
    return likelihood.sum(axis=2)


def _chunk(
    categories: _Categories, numbers: _Numbers, labels: np.ndarray, members: np.ndarray, records: np.ndarray
) -> tuple[Float[np.ndarray, "k classes"], Float[np.ndarray, "k classes"]]:
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


def _normalised(joint: Float[np.ndarray, "k classes"]) -> Float[np.ndarray, "k classes"]:
    """Log-softmax that keeps its relative precision for probabilities near 1."""
    rows, largest = np.arange(len(joint)), joint.argmax(axis=1)
    shifted = joint - joint[rows, largest][:, None]
    powers = np.exp(shifted)
    powers[rows, largest] = 0.0
    return shifted - np.log1p(powers.sum(axis=1, keepdims=True))


def _codes(values: np.ndarray, column: int, count: int) -> Int[np.ndarray, " n"]:
    fits = (values >= 0) & (values < count)
    codes = np.where(fits, values, 0).astype(np.int32)
    if not (fits & (codes == values)).all():
        bad = values[~(fits & (codes == values))][0]
        raise InputError(
            f"column {column} contains {bad:g}, which is not one of its {count} categories 0 to {count - 1}: are the "
            "inputs ordinal, with one category index per column?"
        )
    return codes
