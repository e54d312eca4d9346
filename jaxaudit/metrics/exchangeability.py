"""Tests whether the holdout and the query set are exchangeable, as the holdout test assumes.

The records cannot prove that, but they can show many violations: other classes, other inputs, easier or harder records,
duplicates or similar records that are all in one set.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import HOLDOUT_APART, HOLDOUT_LIKE_QUERY, Check
from jaxaudit.metrics.deal import groups_in_sample, merge_groups
from jaxaudit.metrics.permutation import shuffled
from jaxaudit.randomness import generator_of, stream

PERMUTATIONS = 999
MOST_RECORDS = 5_000
"""From sets of more records, a random sample of this many is used; with groups, whole groups of about as many."""
MOST_FEATURES = 64
"""At most this many features are used; more are replaced by this many random combinations."""
NOT_MEASURED = float("nan")
DEALT_LEVEL = 0.01
WRONG = {
    "labels": "class frequencies differ",
    "inputs": "inputs differ in mean or spread",
    "difficulty": "one of them is easier for models that were not trained on it",
    "copies": "duplicate records have all their copies in one of them",
    "clustered": "similar records are in the same one of them, as if groups were dealt whole (then name them)",
}
ROWS = 64
BLOCK = 1024


class Alike(NamedTuple):
    """p-values of "query set and holdout are exchangeable", one per statistic; NaN if it was not measured.

    Attributes:
        labels: compares class frequencies.
        inputs: compares means and spreads of the inputs.
        difficulty: compares how well models perform on records that they were not trained on.
        copies: counts duplicate records whose copies are in different sets.
        clustered, mixed: counts records whose nearest neighbour is in the same set; small if it is too often, as if
            whole groups of similar records were assigned to a set, or if it is too seldom.
    """

    labels: float
    inputs: float
    difficulty: float
    copies: float
    clustered: float
    mixed: float


def alike(
    key: Key[Array, ""],
    inputs: Shaped[np.ndarray, "n_plus_m ..."] | None,
    labels: Int[np.ndarray, " n_plus_m"],
    difficulty: Float[np.ndarray, " n_plus_m"] | None,
    copies: Shaped[np.ndarray, " n_plus_m"] | None,
    size: int,
    *,
    groups: Int[np.ndarray, " n_plus_m"] | None = None,
    permutations: int = PERMUTATIONS,
) -> Alike:
    """Is there evidence that the first `size` records (query set) and the others (holdout) were sampled differently?

    The first three are permutation tests of the squared distance between the two sets' means: of class indicators; of
    standardised inputs and their squares; of `difficulty`. If the sets are exchangeable, each p-value is at most u with
    probability at most u. The p-value of `copies` is 1 if a duplicate record is in both sets. Otherwise it is the
    probability that none is, which is small for many duplicates, since at random about half of them would be. The last
    two are permutation tests of the number of records whose nearest neighbour (by standardised inputs, or random
    combinations of them) is in the same set (Schilling 1986; Henze 1988). Nearest neighbours do not depend on the sets,
    and ties are broken at random, so these tests are exact, too.

    Args:
        key: random key of the permutations.
        inputs: the features of all records, of any shape; values that are not finite count as 0.
        labels: the classes of all records.
        difficulty: one number per record that does not depend on its set, such as its mean log-odds among models
            that were not trained on it.
        copies: equal for equal records, such as a hash. If this, `inputs` or `difficulty` is None, its p-values are
            NaN.
        size: the number of query records.
        groups: the group of each record, if whole groups were assigned at random: then whole groups are permuted and
            sampled, and copies and nearest neighbours are sought in other groups only.
        permutations: random permutations.

    Raises:
        InputError: a set is empty.

    >>> import jax, numpy as np
    >>> random = np.random.default_rng(1)
    >>> inputs, labels = random.normal(size=(200, 3)), random.integers(0, 2, 200)
    >>> p_values = alike(jax.random.key(1), inputs, labels, inputs[:, 0], np.arange(200), 100)
    >>> min(p_values) > 0.05
    True
    >>> inputs[100:] *= 2
    >>> alike(jax.random.key(1), inputs, labels, labels + 0.0, np.arange(200), 100).inputs
    0.001
    """
    if not 0 < size < len(labels):
        raise InputError(
            f"{size} of {len(labels)} records are query records: neither query set nor holdout may be empty."
        )
    generator = generator_of(key)
    most = MOST_RECORDS if groups is None else groups_in_sample(MOST_RECORDS, groups)
    query, holdout = (sampled(generator, side, groups, most) for side in np.split(np.arange(len(labels)), [size]))
    chosen, count = np.concatenate([query, holdout]), len(query)
    classes = (labels[chosen, None] == np.unique(labels)).astype(np.float32)
    flat = None if inputs is None else features(generator, inputs[chosen])
    moments = None if flat is None else np.concatenate([flat, flat**2], axis=1)
    unlike = None if difficulty is None else difficulty[chosen, None].astype(np.float32)
    whole = None if groups is None else np.unique(groups[chosen], return_inverse=True)[1]
    # A random stream of its own, so that the p-value is the same without inputs.
    of_models = generator_of(stream(key, "difficulty"))
    p_values = [
        NOT_MEASURED
        if features is None
        else _p_value(generator_of_test, standardised(features), count, permutations, whole)
        for generator_of_test, features in ((generator, classes), (generator, moments), (of_models, unlike))
    ]
    more = fewer = duplicates = NOT_MEASURED
    if flat is not None:
        more, fewer = _neighbours(generator_of(stream(key, "neighbours")), flat, count, permutations, whole)
    if copies is not None:
        units, inside = copies, size
        if groups is not None:
            # Two groups are copies if they share a record; those that are so connected count as one pair, which makes
            # the p-value larger (conservative).
            first = np.sort(np.unique(groups, return_index=True)[1])
            units, inside = merge_groups(groups, copies)[first], int((first < size).sum())
        duplicates = _copies(units, inside)
    return Alike(
        labels=p_values[0], inputs=p_values[1], difficulty=p_values[2], copies=duplicates, clustered=more, mixed=fewer
    )


def sampled(
    generator: np.random.Generator, records: Int[np.ndarray, " n"], groups: np.ndarray | None, most: int
) -> Int[np.ndarray, " some"]:
    """A random sample of at most `most` records; with groups, all records of at most `most` groups."""
    units = records if groups is None else np.unique(groups[records])
    if len(units) <= most:
        return records
    drawn = generator.choice(units, most, replace=False)
    return drawn if groups is None else records[np.isin(groups[records], drawn)]


def features(generator: np.random.Generator, inputs: Shaped[np.ndarray, "n ..."]) -> Float[np.ndarray, "n features"]:
    """Standardised inputs, or `MOST_FEATURES` random combinations of more; values that are not finite count as 0."""
    flat = standardised(np.nan_to_num(inputs.reshape(len(inputs), -1).astype(np.float32), posinf=0, neginf=0))
    if flat.shape[1] > MOST_FEATURES:
        flat = standardised(flat @ generator.normal(size=(flat.shape[1], MOST_FEATURES)).astype(np.float32))
    return flat


def standardised(features: np.ndarray) -> np.ndarray:
    """Features with mean 0 and variance 1; a constant feature becomes 0."""
    centred = features - features.mean(axis=0)
    deviation = centred.std(axis=0)
    return np.where(deviation > 1e-6, centred / np.maximum(deviation, 1e-6), 0)


def dealt_rows(
    generator: np.random.Generator, row: Shaped[np.ndarray, " n"], groups: np.ndarray | None, permutations: int
) -> Iterator[Shaped[np.ndarray, "some n"]]:
    """Permutations of `row`, some at a time; with groups numbered from 0, all records of a group move together."""
    once = row if groups is None else row[np.unique(groups, return_index=True)[1]]
    for rows in shuffled(generator, once, permutations, ROWS):
        yield rows if groups is None else rows[:, groups]


def _p_value(
    generator: np.random.Generator, features: np.ndarray, size: int, permutations: int, groups: np.ndarray | None
) -> float:
    """The p-value of the distance between the sets' means; features are centred, so one set's sum determines it."""

    def distances(rows: np.ndarray) -> np.ndarray:
        squared = ((rows @ features) ** 2).sum(axis=1)
        if groups is None:
            return squared
        inside = rows.sum(axis=1)
        return squared * (1 / inside + 1 / (rows.shape[1] - inside)) ** 2

    row = (np.arange(len(features)) < size).astype(np.float32)
    observed = float(distances(row[None])[0])
    # A distance that equals the observed one up to rounding counts as at least as large, which is conservative.
    drawn_rows = dealt_rows(generator, row, groups, permutations)
    as_far = sum(int((distances(rows) >= observed * (1 - 1e-4)).sum()) for rows in drawn_rows)
    return (1 + as_far) / (1 + permutations)


def _neighbours(
    generator: np.random.Generator, features: np.ndarray, size: int, permutations: int, groups: np.ndarray | None
) -> tuple[float, float]:
    """p-values: records have their nearest neighbour in the same set more often, and less often, than by chance."""
    # In random order, since `argmin` takes the first of several nearest neighbours.
    order = generator.permutation(len(features))
    groups = None if groups is None else groups[order]
    nearest = _nearest(features[order], np.arange(len(order)) if groups is None else groups)
    row = order < size
    observed = int((row == row[nearest]).sum())
    drawn_rows = dealt_rows(generator, row, groups, permutations)
    counts = np.concatenate([(rows == rows[:, nearest]).sum(axis=1) for rows in drawn_rows])
    more, fewer = (
        (1 + int(reached.sum())) / (1 + permutations) for reached in (counts >= observed, counts <= observed)
    )
    return more, fewer


def _nearest(features: Float[np.ndarray, "n features"], groups: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """For each record, the index of the nearest record in another group."""
    squares, parts = (features**2).sum(axis=1), []
    for start in range(0, len(features), BLOCK):
        block = slice(start, start + BLOCK)
        distances = squares - 2 * features[block] @ features.T
        distances[groups[block, None] == groups] = np.inf
        parts.append(distances.argmin(axis=1))
    return np.concatenate(parts)


def _copies(copies: np.ndarray, size: int) -> float:
    """1 if a duplicate record is in both sets; else the probability that none is, as if each had one copy."""
    _, where, counts = np.unique(copies, return_inverse=True, return_counts=True)
    inside = np.bincount(where[:size], minlength=len(counts))
    if ((inside > 0) & (inside < counts)).any():
        return 1.0
    total, holdout_size = len(copies), len(copies) - size
    together = (size * (size - 1) + holdout_size * (holdout_size - 1)) / (total * (total - 1))
    return float(together ** int((counts > 1).sum()))


def holdout_like_query(
    alikeness: Alike, *, name: str = HOLDOUT_LIKE_QUERY, sets: str = "query set and holdout"
) -> Check:
    """There is no evidence that query set and holdout were sampled differently (or other `sets`).

    The number is the smallest p-value times the number of p-values (Bonferroni): five, or fewer if some were not
    measured. If the sets are exchangeable, the check fails with probability at most 1% (`DEALT_LEVEL`).
    """
    measured = {name: value for name, value in alikeness._asdict().items() if name in WRONG and not math.isnan(value)}
    if not measured:
        message = f"not measured whether {sets} were sampled differently, because the records are not at hand"
        return Check(name, False, None, DEALT_LEVEL, False, message)
    smallest = min(1.0, len(measured) * min(measured.values()))
    if smallest > DEALT_LEVEL:
        words = {name: "near-copies" if name == "clustered" else name for name in WRONG} | {"labels": "classes"}
        left = [words[name] for name in WRONG if name not in measured and name != "difficulty"]
        message = (
            f"no evidence that {sets} were sampled differently "
            f"({', '.join(words[name] for name in measured)}: p = {smallest:.2g})"
        )
        message += f"; not measured, because the records are not at hand: {', '.join(left)}" if left else ""
        message += (
            "" if "difficulty" in measured else "; which set is more difficult is not compared without shadow models"
        )
    else:
        wrong = [WRONG[name] for name, value in measured.items() if len(measured) * value <= DEALT_LEVEL]
        message = (
            f"{sets} were sampled differently (p = {smallest:.2g}): {', and '.join(wrong)}; a "
            "difference between them need not be use. Split the provider's records at random, with one copy of each"
        )
    return Check(name, smallest > DEALT_LEVEL, smallest, DEALT_LEVEL, True, message)


def holdout_apart(alikeness: Alike) -> Check:
    """Near-copies of query records are no more frequent in the holdout than by chance.

    A failure is a warning: if the target used the query set, the holdout then looks used, too, and the difference is
    harder to detect. The check also fails, as a warning, if near-copies were not counted.
    """
    if math.isnan(alikeness.mixed):
        message = "near-copies of query records in the holdout were not counted, because the records are not at hand"
        return Check(HOLDOUT_APART, False, None, DEALT_LEVEL, False, message)
    passed = alikeness.mixed > DEALT_LEVEL
    message = f"near-copies of query records in the holdout: {'no more' if passed else 'more'} than by chance"
    advice = "" if passed else "; use of the query set also shows on the holdout. Deal near-copies as one group"
    return Check(
        HOLDOUT_APART, passed, alikeness.mixed, DEALT_LEVEL, False, f"{message} (p = {alikeness.mixed:.2g}){advice}"
    )
