"""Were the holdout and the query set sampled differently? Tests for evidence of it.

The holdout test is exact if the provider chose at random which records to share. The records cannot prove that, but
they can show many violations: other classes, other inputs, easier or harder records, duplicates that are all in one
set. Arrays in, numbers out.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from jaxaudit.errors import InputError
from jaxaudit.randomness import generator_of

PERMUTATIONS = 999
MOST_RECORDS = 5_000
"""Records of each set that are used; from larger sets this many are drawn."""
MOST_FEATURES = 64
"""Features that are used; of more, this many random combinations."""
ROWS = 64


class Alike(NamedTuple):
    """p-values of "query set and holdout were sampled alike", each from another statistic.

    Attributes:
        labels: class frequencies.
        inputs: means and spreads of the inputs.
        difficulty: how well models do on records that they were not trained on.
        copies: how often copies of a record are in different sets.
    """

    labels: float
    inputs: float
    difficulty: float
    copies: float


def alike(
    key: Key[Array, ""],
    inputs: Shaped[np.ndarray, "n_plus_m ..."],
    labels: Int[np.ndarray, " n_plus_m"],
    difficulty: Float[np.ndarray, " n_plus_m"],
    copies: Shaped[np.ndarray, " n_plus_m"],
    size: int,
    *,
    permutations: int = PERMUTATIONS,
) -> Alike:
    """Is there evidence that the first `size` records (query set) and the others (holdout) were sampled differently?

    The first three are permutation tests of the squared distance between the two sets' means: of class indicators; of
    standardised inputs and their squares; of `difficulty`. If the sets are exchangeable, each p-value is at most u with
    probability u at most. The p-value of copies is the probability that no duplicate record is in both sets, although
    each would be in about half of the cases; it is 1 if one is.

    Args:
        key: random key of the permutations.
        inputs: of all records, numbers of any shape; values that are not finite count as 0.
        labels: their classes.
        difficulty: one number per record that does not depend on its set, such as its mean log-odds among models
            that were not trained on it.
        copies: equal for equal records, such as a hash of each.
        size: the number of query records.

    Raises:
        InputError: a set is empty.

    >>> import jax, numpy as np
    >>> random = np.random.default_rng(1)
    >>> inputs, labels = random.normal(size=(200, 3)), random.integers(0, 2, 200)
    >>> told = alike(jax.random.key(1), inputs, labels, inputs[:, 0], np.arange(200), 100)
    >>> min(told) > 0.05
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
    chosen = np.concatenate([_some(generator, np.arange(size)), _some(generator, np.arange(size, len(labels)))])
    count = min(size, MOST_RECORDS)
    features = (
        (labels[chosen, None] == np.unique(labels)).astype(np.float32),
        _moments(generator, inputs[chosen]),
        difficulty[chosen, None].astype(np.float32),
    )
    found = (_p_value(generator, _standardised(each), count, permutations) for each in features)
    return Alike(*found, copies=_copies(copies, size))


def _some(generator: np.random.Generator, records: np.ndarray) -> np.ndarray:
    return records if len(records) <= MOST_RECORDS else generator.choice(records, MOST_RECORDS, replace=False)


def _moments(generator: np.random.Generator, inputs: np.ndarray) -> np.ndarray:
    """Inputs, or random combinations of them, and their squares."""
    flat = _standardised(np.nan_to_num(inputs.reshape(len(inputs), -1).astype(np.float32), posinf=0, neginf=0))
    if flat.shape[1] > MOST_FEATURES:
        flat = _standardised(flat @ generator.normal(size=(flat.shape[1], MOST_FEATURES)).astype(np.float32))
    return np.concatenate([flat, flat**2], axis=1)


def _standardised(features: np.ndarray) -> np.ndarray:
    """Features with mean 0 and variance 1; a constant feature becomes 0."""
    centred = features - features.mean(axis=0)
    deviation = centred.std(axis=0)
    return np.where(deviation > 1e-6, centred / np.maximum(deviation, 1e-6), 0)


def _p_value(generator: np.random.Generator, features: np.ndarray, size: int, permutations: int) -> float:
    """p = (1 + #{as far apart}) / (1 + permutations); features are centred, so one set's sum gives the distance."""
    row = (np.arange(len(features)) < size).astype(np.float32)
    observed = float(((row @ features) ** 2).sum())
    as_far = 0
    for start in range(0, permutations, ROWS):
        rows = generator.permuted(np.tile(row, (min(ROWS, permutations - start), 1)), axis=1)
        # Equal but for rounding counts as equal, on the safe side.
        as_far += int((((rows @ features) ** 2).sum(axis=1) >= observed * (1 - 1e-4)).sum())
    return (1 + as_far) / (1 + permutations)


def _copies(copies: np.ndarray, size: int) -> float:
    """The probability that no duplicate record is in both sets, as if each had one copy; 1 if one is."""
    _, where, counts = np.unique(copies, return_inverse=True, return_counts=True)
    inside = np.bincount(where[:size], minlength=len(counts))
    if ((inside > 0) & (inside < counts)).any():
        return 1.0
    total, others = len(copies), len(copies) - size
    together = (size * (size - 1) + others * (others - 1)) / (total * (total - 1))
    return float(together ** int((counts > 1).sum()))
