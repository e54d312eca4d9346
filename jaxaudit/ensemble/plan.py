"""Which models train together: rows of a membership, gathered into chunks of one size."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from jaxaudit.learners.batch_order import takes_pool_order
from jaxaudit.learners.learner import SteppedLearner
from jaxaudit.membership import AllBut, Membership, member_counts


@dataclass(frozen=True)
class Group:
    """Rows that can share a chunk.

    Attributes:
        rows: row numbers of the membership, most steps first.
        pool: whether they take their minibatches in the pool order (else each in its own).
        shared: whether they also share one key, hence every minibatch: then records are gathered once for all.
        steps_of_rows: steps of one epoch of each row.
        uneven: whether some step of some row may have only weights of 0 and must change nothing. This takes another
            program, whose sums can round differently; so it depends on a row's own steps only.
    """

    rows: Int[np.ndarray, " rows"]
    pool: bool
    shared: bool
    steps_of_rows: Int[np.ndarray, " rows"]
    uneven: bool

    @property
    def steps(self) -> int:
        """Steps of one epoch, the most of any row."""
        return int(self.steps_of_rows[0])

    def chunks(self, models_per_batch: int, devices: int = 1) -> "list[Group]":
        """The rows in order, in chunks of one size: see `chunk_places`."""
        return [
            replace(self, rows=self.rows[places], steps_of_rows=self.steps_of_rows[places])
            for places in chunk_places(len(self.rows), models_per_batch, devices)
        ]


def plan(
    key_words: np.ndarray,
    membership: Membership | AllBut,
    learner: SteppedLearner,
    members_only: bool = False,
) -> list[Group]:
    """Groups that cover every row once: in the pool order, without and with empty steps, and in an order of their own.

    Args:
        key_words: the rows' keys, as numbers.
        membership: who is trained on what.
        learner: for its batch size, and whether records touch one another.
        members_only: give every row an order of its own.
    """
    examples, batch = membership.shape[1], learner.batch_size
    members = member_counts(membership)
    pool = takes_pool_order(members, examples, learner.batch_coupled or members_only)
    steps = -(-examples // batch)
    # A step is empty only where the left-out records of a row could fill a whole minibatch.
    gaps = examples - members >= min(examples - (steps - 1) * batch, batch)
    groups = []
    for uneven in (False, True):
        rows = np.flatnonzero(pool & (gaps == uneven))
        if len(rows):
            shared = bool((key_words[rows] == key_words[rows[0]]).all())
            groups.append(Group(rows, True, shared, np.full(len(rows), steps), uneven))
    rows = np.flatnonzero(~pool)
    if len(rows):
        steps_of_rows = -(-members[rows] // batch)
        order = np.argsort(-steps_of_rows, kind="stable")
        groups.append(Group(rows[order], False, False, steps_of_rows[order], True))
    return groups


def chunk_places(count: int, models_per_batch: int, devices: int = 1) -> list[Int[np.ndarray, " models"]]:
    """The places 0 to count - 1 in chunks of `models_per_batch`, made a multiple of `devices` (hence at least that).

    All are of the same size, whatever the count, because models of chunks of another size are rounded differently: the
    last is filled up by repeating the last place. At one size a model's result has the same bits whatever its
    neighbours are.

    >>> [list(map(int, places)) for places in chunk_places(5, 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = max(devices, models_per_batch // devices * devices)
    filled = np.minimum(np.arange(-(-count // size) * size), count - 1)
    return list(filled.reshape(-1, size))
