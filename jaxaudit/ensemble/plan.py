"""Plans which models train together: groups the rows of a membership matrix into chunks of equal size."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from jaxaudit.learners.batch_order import takes_pool_order
from jaxaudit.learners.learner import SteppedLearner
from jaxaudit.membership import AllBut, Membership, member_counts


@dataclass(frozen=True)
class ChunkGroup:
    """Models (rows of the membership matrix) that can be trained in the same chunk.

    Attributes:
        rows: row numbers, those with the most steps first.
        pool: whether these models take minibatches of the whole pool; otherwise each takes its own members.
        shared: whether they also share one key, and so every minibatch: records are then gathered once for all models.
        steps_of_rows: steps per epoch of each row.
        uneven: whether a row may have a step with only weights of 0, which must change nothing. That needs another
            program, whose sums can round differently; so it is decided by each row's own steps alone.
    """

    rows: Int[np.ndarray, " rows"]
    pool: bool
    shared: bool
    steps_of_rows: Int[np.ndarray, " rows"]
    uneven: bool

    @property
    def steps(self) -> int:
        """The largest number of steps per epoch of any row."""
        return int(self.steps_of_rows[0])

    def chunks(self, models_per_batch: int, devices: int = 1) -> "list[ChunkGroup]":
        """The rows in order, in chunks of equal size: see `chunk_places`."""
        return [
            replace(self, rows=self.rows[indices], steps_of_rows=self.steps_of_rows[indices])
            for indices in chunk_places(len(self.rows), models_per_batch, devices)
        ]


def plan_groups(
    key_words: np.ndarray,
    membership: Membership | AllBut,
    learner: SteppedLearner,
    members_only: bool = False,
) -> list[ChunkGroup]:
    """Groups that cover every row once: pool order without empty steps, pool order with some, and own order.

    Args:
        key_words: the rows' random keys, as integers.
        membership: the membership masks.
        learner: gives the batch size, and whether records of a batch affect one another.
        members_only: give every row its own order.
    """
    examples, batch = membership.shape[1], learner.batch_size
    members = member_counts(membership)
    pool = takes_pool_order(members, examples, learner.batch_coupled or members_only)
    steps = -(-examples // batch)
    # A row can have an empty step only if its left-out records could fill a whole minibatch.
    gaps = examples - members >= min(examples - (steps - 1) * batch, batch)
    groups = []
    for uneven in (False, True):
        rows = np.flatnonzero(pool & (gaps == uneven))
        if len(rows):
            shared = bool((key_words[rows] == key_words[rows[0]]).all())
            groups.append(ChunkGroup(rows, True, shared, np.full(len(rows), steps), uneven))
    rows = np.flatnonzero(~pool)
    if len(rows):
        steps_of_rows = -(-members[rows] // batch)
        order = np.argsort(-steps_of_rows, kind="stable")
        groups.append(ChunkGroup(rows[order], False, False, steps_of_rows[order], True))
    return groups


def chunk_places(count: int, models_per_batch: int, devices: int = 1) -> list[Int[np.ndarray, " models"]]:
    """The indices 0 to count - 1 in chunks of `models_per_batch`, rounded to a multiple of `devices`, down if possible.

    All chunks have the same size, because models in chunks of another size are rounded differently. The last chunk is
    padded by repeating the last index. In chunks of one size a model's result is the same bit for bit, whatever the
    other models are.

    >>> [list(map(int, indices)) for indices in chunk_places(5, 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = max(devices, models_per_batch // devices * devices)
    filled = np.minimum(np.arange(-(-count // size) * size), count - 1)
    return list(filled.reshape(-1, size))
