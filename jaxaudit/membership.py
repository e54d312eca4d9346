"""Who was trained on what: boolean rows over one pool of examples, a row a model.

The one noun of the package. Query, calibration, shadow, leave-one-out and retrained models differ only in their row.
"""

import numpy as np
from jaxtyping import Bool, Int

Membership = Bool[np.ndarray, "models examples"]


def everyone(examples: int) -> Membership:
    """One model trained on all of the pool.

    >>> everyone(3)
    array([[ True,  True,  True]])
    """
    return np.ones((1, examples), bool)


def only(indices: Int[np.ndarray, " members"], examples: int) -> Membership:
    """One model trained on just these records.

    >>> only(np.array([0, 2]), 4)
    array([[ True, False,  True, False]])
    """
    row = np.zeros((1, examples), bool)
    row[0, indices] = True
    return row


def without(indices: Int[np.ndarray, " removed"], examples: int) -> Membership:
    """One model trained on everything but these records.

    >>> without(np.array([1]), 3)
    array([[ True, False,  True]])
    """
    return ~only(indices, examples)


def leave_one_out(indices: Int[np.ndarray, " targets"], examples: int) -> Membership:
    """A model for every target record, trained on all but that record.

    >>> leave_one_out(np.array([0, 2]), 3)
    array([[False,  True,  True],
           [ True,  True, False]])
    """
    rows = np.ones((len(indices), examples), bool)
    rows[np.arange(len(indices)), indices] = False
    return rows


def random_subset(
    generator: np.random.Generator, indices: Int[np.ndarray, " pool"], fraction: float, examples: int
) -> Membership:
    """One model trained on a random share of `indices`, drawn without replacement.

    `round(fraction * len(indices))` records, at least one.

    >>> random_subset(np.random.default_rng(3), np.arange(2, 6), 0.5, 8).sum()
    np.int64(2)
    """
    count = max(1, round(fraction * len(indices)))
    return only(generator.choice(indices, count, replace=False), examples)


def bernoulli_halves(generator: np.random.Generator, models: int, examples: int) -> Membership:
    """Every record is in every model's training set with probability one half, independently.

    >>> bernoulli_halves(np.random.default_rng(3), 2, 5).shape
    (2, 5)
    """
    return generator.random((models, examples)) < 0.5
