"""Which records teach which models how difficult each record is, and what the models then say: numbers alone.

Small models that learn the classes of the records of a test show how difficult each of these records is, if what a
model learned from the record itself is left out (Feldman & Zhang 2020 ask what a model gains from a record). A third of
the models were not trained on a record. The others were, and what they gained by it, the usual gain of all records for
the most part, is taken off (`odds_without`): a mean over nine models scatters less than one over three. What they say
is a function of the records alone, so a test on what it leaves of a target's outputs stays exact, if

- no output of the target and no set enters it, and
- it is the same in whatever order the records come: the order of a file is the sets' order.

So records are sorted by their contents (`order_of_contents`), and everything random is drawn for this order. Copies of
a record are taught together, since one would tell the class of the other; so are the records of a group.

Each of the models learns from two thirds of the units: records, with their copies, or groups. The thirds are drawn
`ROUNDS` times, and each of a round's three models goes without one of them, so that every record is judged by as many.
"""

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jaxaudit.data.group_values import number_groups
from jaxaudit.metrics.deal import merge_groups
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import cut

ROUNDS, PARTS = 3, 3
MODELS = ROUNDS * PARTS
MOST_TEACHERS = 10_000
"""If there are more records, whole units of about so many are drawn at random: they teach, and all are judged."""


def order_of_contents(hashes: Shaped[np.ndarray, " n"], labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The indices of the records sorted by contents: the same records in any order are the same after sorting.

    `hashes` are 16 bytes a record; records of one hash are ordered by their classes, and are else copies.
    """
    words = np.ascontiguousarray(hashes).view("<u8").reshape(-1, 2)
    return np.lexsort((labels, words[:, 1], words[:, 0]))


def units_of(hashes: Shaped[np.ndarray, " n"], groups: Int[np.ndarray, " n"] | None) -> Int[np.ndarray, " n"]:
    """The unit of each record: its copies and, if there are groups, its group; numbered by first appearance.

    >>> units_of(np.array([b"b", b"a", b"b", b"c"]), np.array([7, 5, 5, 9])).tolist()
    [0, 0, 0, 1]
    """
    return number_groups(merge_groups(np.arange(len(hashes)) if groups is None else groups, hashes))


def taught_rows(
    generator: np.random.Generator, units: Int[np.ndarray, " n"], most: int = MOST_TEACHERS
) -> Bool[np.ndarray, "models n"]:
    """Which records each of the `MODELS` models learns from: the units of two of three random thirds.

    Of more than `most` records, the others are in no model's row.
    """
    sizes = np.bincount(units)
    drawn = generator.permutation(len(sizes))
    # The last unit that is drawn may exceed the number.
    teaches = np.zeros(len(sizes), bool)
    teaches[drawn[: 1 + int((np.cumsum(sizes[drawn]) < most).sum())]] = True
    teachers, rows = np.flatnonzero(teaches), []
    for _ in range(ROUNDS):
        part = np.full(len(sizes), -1)
        part[generator.permutation(teachers)] = np.arange(len(teachers)) % PARTS
        rows += [teaches & (part != left_out) for left_out in range(PARTS)]
    return np.stack(rows)[:, units]


def odds_without(
    log_odds: Float[np.ndarray, "models n"], rows: Bool[np.ndarray, "models n"]
) -> Float[np.ndarray, " n"]:
    """The mean log-odds (nats) of each record, without what models gained by learning from it (`Profile.outside`).

    Models that did not learn from the record count as they are; of the others, the gain of this record is taken off,
    shrunk towards the mean gain of all records. Of a record that no model learned from, it is the plain mean.
    """
    return profile(cut(log_odds), rows).outside
