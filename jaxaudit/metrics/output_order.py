"""Whether the rows and the columns of a target's outputs are in the order of its records and of the classes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.kernels.ranking import mid_ranks

ORDER_LEVEL = 1e-4
"""How often columns that are in order may be taken for others: at most, for one target."""
MARGIN = 0.1
"""How much higher the mean recall of the moved classes must be in another order."""
KNOWN, HALF_KNOWN = 0.5, 0.1
"""How far from guessing to no mistake a model must come in the other order, or in the given one, for columns to be
moved: one that knows less of the classes may take each for some other."""
RANK_LEVEL = 1e-2
"""How often rows in a random order may be taken for rows in order. A lower one refuses more models of little skill."""
MOST_SHOWN = 10
_BLOCK = 1 << 19


class Ranked(NamedTuple):
    """How well a model ranks the records of each class before all others.

    Attributes:
        area: the area under the ROC curve of a class's column, averaged over the classes that occur.
        p: how often records in a random order reach it, by the normal approximation of all permutations.
    """

    area: float
    p: float


def moved_columns(
    counts: Sequence[Int[np.ndarray, "classes classes"]],
) -> tuple[int, dict[int, int]] | None:
    """The first of some tables in which another order of columns fits the labels far better than the given one, and the
    column that fits each moved class; None if the given order stands in all of them.

    A table counts, for each class (row), the records that a model calls each class (column), as by `counted`. Classes
    without a record stay. Of all orders the one with the highest mean recall is tried, cycle by cycle: that of classes
    a and b, say, whose columns are exchanged. A cycle is moved if the mean recall of its classes is higher by more than
    `MARGIN` than in the given order, beyond chance: by Hoeffding's inequality (1963, theorem 2), adjusted for all
    cycles there are (Bonferroni), and for the number of tables. A model that always answers one class, however common,
    has the same mean recall in every order. One that knows little of the classes in any order is left alone (`KNOWN`).
    """
    # Imported here because it takes a tenth of a second.
    from scipy.optimize import linear_sum_assignment

    for index, table in enumerate(counts):
        sizes = table.sum(axis=1)
        classes_there = np.flatnonzero(sizes)
        shares = table[np.ix_(classes_there, classes_there)] / sizes[classes_there, None]
        # Where two orders are as good, the given one stands.
        columns = linear_sum_assignment(shares + 1e-9 * np.eye(len(classes_there)), maximize=True)[1]
        if (
            max(_reach(np.diag(shares)) - HALF_KNOWN, _reach(shares[np.arange(len(classes_there)), columns]) - KNOWN)
            < 0
        ):
            continue
        moved: dict[int, int] = {}
        for cycle in _cycles(columns):
            gain = float((shares[cycle, columns[cycle]] - shares[cycle, cycle]).sum()) - MARGIN * len(cycle)
            bound = -(gain**2) / (2 * float((1 / sizes[classes_there[cycle]]).sum())) if gain > 0 else 0.0
            if bound + _log_cycles(len(classes_there), len(cycle)) <= np.log(ORDER_LEVEL / len(counts)):
                moved |= {
                    int(classes_there[class_place]): int(classes_there[columns[class_place]]) for class_place in cycle
                }
        if moved:
            return index, moved
    return None


def described(moved: Mapping[int, int], names: Sequence[str]) -> str:
    """The columns that fit moved classes better, in words.

    >>> described({0: 1, 1: 0}, ("no", "yes"))
    "column 2 ('yes') as 'no', column 1 ('no') as 'yes'"
    """
    return listed(
        [f"column {column + 1} ({names[column][:40]!r}) as {names[of][:40]!r}" for of, column in moved.items()]
    )


def listed(items: Sequence[str]) -> str:
    """The first of some items, and dots if there are more."""
    return ", ".join(items[:MOST_SHOWN]) + (", ..." if len(items) > MOST_SHOWN else "")


def counted(
    probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]
) -> Int[np.ndarray, "classes classes"]:
    """How many records of each class (row) a model calls each class (column).

    It calls a record the class whose probability is highest relative to the mean of its column: of classes of very
    different sizes, the commonest would have the largest output of nearly every record.
    """
    classes, n = probabilities.shape[1], len(probabilities)
    usual = np.maximum(probabilities.mean(axis=0, dtype=np.float64), 1 / n)
    rows = max(1, _BLOCK // classes)
    called = [(probabilities[at : at + rows] / usual).argmax(axis=1) for at in range(0, n, rows)]
    return np.bincount(labels * classes + np.concatenate(called), minlength=classes**2).reshape(classes, classes)


def ranked(probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]) -> Ranked | None:
    """How well a model ranks the records of each class, whatever the sizes of the classes; None of a single class."""
    classes, class_places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    n = len(labels)
    if len(classes) < 2:
        return None
    ranks = np.stack([mid_ranks(probabilities[:, index]) - (n + 1) / 2 for index in classes], axis=1)
    # What a record adds to the mean area for each class that it could have, as in Hoeffding's combinatorial statistic
    # (1951).
    parts = ranks / (sizes * (n - sizes) * len(classes))
    total = float(parts[np.arange(n), class_places].sum())
    apart = parts - (parts @ sizes / n)[:, None]
    variance = float((apart**2).sum(axis=0) @ sizes) / (n - 1)
    p = float(special.ndtr(-total / variance**0.5)) if variance > 0 else 1.0
    return Ranked(0.5 + total, p)


def _reach(recalls: Float[np.ndarray, " classes"]) -> float:
    """How much of the way from guessing to 1 the mean recall covers."""
    guess = 1 / len(recalls)
    return (float(recalls.mean()) - guess) / (1 - guess) if guess < 1 else 0.0


def _cycles(columns: Int[np.ndarray, " classes"]) -> Iterator[list[int]]:
    """The cycles of a permutation that move something."""
    seen: set[int] = set()
    for start in range(len(columns)):
        cycle, at = [], start
        while at not in seen:
            seen.add(at)
            cycle.append(at)
            at = int(columns[at])
        if len(cycle) > 1:
            yield cycle


def _log_cycles(classes: int, length: int) -> float:
    """The logarithm of the number of cycles of this length, times the number of lengths."""
    orders = special.gammaln(classes + 1) - special.gammaln(classes - length + 1)
    return float(orders - np.log(length) + np.log(classes - 1))
