"""Which models train together: rows of a membership, gathered into chunks of like walks and lengths."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.learners.learner import SteppedLearner
from jaxaudit.learners.walk import walks_pool


@dataclass(frozen=True)
class Group:
    """Rows that can share a chunk without waste.

    Attributes:
        rows: row numbers of the membership.
        pool: whether they take the pool walk (else each its own).
        shared: whether they also share one key, hence every minibatch: then records are gathered once for all.
        steps: steps of one epoch, the most of any row.
        uneven: whether some step of some row has only weights of 0 and must change nothing.
    """

    rows: Int[np.ndarray, " rows"]
    pool: bool
    shared: bool
    steps: int
    uneven: bool


def plan(
    key_words: np.ndarray, membership: Bool[np.ndarray, "models examples"], learner: SteppedLearner
) -> list[Group]:
    """Groups that cover every row once, longest walks first.

    Rows with own walks are grouped by their number of steps; rows within an eighth of the longest may share a group
    when there would otherwise be more groups than needed.
    """
    examples = membership.shape[1]
    members = membership.sum(axis=1)
    pool = walks_pool(members, examples, learner.batch_coupled)
    groups = []
    if pool.any():
        rows = np.flatnonzero(pool)
        shared = bool((key_words[rows] == key_words[rows[0]]).all())
        steps = -(-examples // learner.batch_size)
        # A step is empty only where the left-out records of one row could fill a whole minibatch.
        last = examples - (steps - 1) * learner.batch_size
        uneven = bool((examples - members[rows]).max() >= min(last, learner.batch_size))
        groups.append(Group(rows, True, shared, steps, uneven))
    rows = np.flatnonzero(~pool)
    steps = -(-members[rows] // learner.batch_size)
    order = np.argsort(-steps, kind="stable")
    rows, steps = rows[order], steps[order]
    while len(rows):
        together = int(np.sum(steps >= steps[0] * 7 / 8))
        uneven = bool(steps[0] != steps[together - 1])
        groups.append(Group(rows[:together], False, False, int(steps[0]), uneven))
        rows, steps = rows[together:], steps[together:]
    return groups


def chunks(rows: Int[np.ndarray, " rows"], width: int, devices: int = 1) -> list[Int[np.ndarray, " width"]]:
    """`rows` in equal chunks of at most `width`, each a multiple of `devices` long (hence at least that).

    The last is filled up by repeating its last row.

    >>> [list(map(int, chunk)) for chunk in chunks(np.arange(5), 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    count = -(-len(rows) // max(devices, width // devices * devices))
    size = -(-len(rows) // (count * devices)) * devices
    filled = np.concatenate([rows, np.repeat(rows[-1:], count * size - len(rows))])
    return list(filled.reshape(count, size))
