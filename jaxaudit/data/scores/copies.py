"""Refuses one model as evidence of two: a log or a folder that is given twice, and columns with the same numbers; and
one set's scores as those on two.

A model is no evidence against itself. If the target is also `unused`, nothing of it can look used; a second `unused`
model that copies the first says that seeds do not matter; a covariate that copies the target takes its memory away.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.data.overlap import are_copies
from jaxaudit.data.scores.names import COVARIATE
from jaxaudit.errors import InputError

BOTH = (
    *({"before", "used"}, {"baseline", "unused"}),
    *({"baseline", "covariate"}, {"unused", "covariate"}),
)
"""Roles that one model may have at a time; a covariate may be a number of a model that used neither set."""
FEW, ENOUGH = 10, 50
"""Columns of fewer different numbers may be equal by chance, and so may the order of fewer."""
ALIKE = 1e-7
"""How far the rank correlation of copies may be from 1: numbers may be rounded. Two seeds are thousands of times as far
apart."""
CLOSE = 1e-6
"""How far a few numbers may lie from a straight line, in standard deviations."""
BLOCK = 512
"""Columns that are compared with all others at a time."""
REFUSAL = "a model is no evidence against itself"


class ScoreColumn(NamedTuple):
    """One column of a table of scores: the numbers of a model, or a covariate; NaN where there is none.

    Attributes:
        name: the heading of the column.
        role, model, score: the three parts of the heading: what is known of the model, its name, and the score's name.
        values: the number of each record.
    """

    name: str
    role: str
    model: str
    score: str
    values: Float[np.ndarray, " records"]


def refuse_repeated(paths: Mapping[Any, Sequence[Path]]) -> None:
    """Refuses one file or folder in two roles, or twice in one, links followed; `paths` are by role.

    A model before a deletion may also be one that used the query set, and a baseline one that did not.
    """
    seen: dict[str, str] = {}
    for role, of_role in paths.items():
        for path in of_role:
            other = seen.setdefault(os.path.realpath(path), role)
            repeated = sum(os.path.realpath(role_path) == os.path.realpath(path) for role_path in of_role) > 1
            if repeated or (other != role and {role, other} not in BOTH):
                role_words, first = (
                    "a target" if role_name == "target" else f"`{role_name}`" for role_name in (role, other)
                )
                where = f"twice as {role_words}" if repeated else f"as {first} and as {role_words}"
                raise InputError(f"{path} is given {where}: {REFUSAL}. Leave one out.")


def refuse_copies(columns: Sequence[ScoreColumn], sets: np.ndarray, name: str) -> None:
    """Refuses two columns of different models with the same numbers on some set, in roles that one model cannot have.

    The same are also numbers in the same or the reverse order, such as a loss and its log-likelihood: two scores of one
    model, and never those of two. Columns of few different numbers, such as right or wrong, may be equal by chance:
    they are refused if all scores that both models have are the same.

    Raises:
        InputError: there are such columns; the message names both.
    """
    for set_name in dict.fromkeys(sets.tolist()):
        rows = sets == set_name
        complete = [column for column in columns if np.isfinite(column.values[rows]).all()]
        numbers = [column.values[rows] for column in complete]
        for i, j in _in_one_order(numbers):
            first, second = complete[i], complete[j]
            if first[1:3] == second[1:3] or {first.role, second.role} in BOTH or not _same(numbers[i], numbers[j]):
                continue
            if _few(numbers[i]) and not _same_throughout(complete, numbers, first, second):
                continue
            raise InputError(
                f"{name}: the columns {first.name} and {second.name} hold the same numbers on the records of "
                f"{set_name}, or the same on another scale: {_meaning(first.role, second.role)}"
            )


def refuse_same_on_two_sets(columns: Sequence[ScoreColumn], sets: np.ndarray, name: str) -> None:
    """Refuses a model's scores on one set that are, record by record, those on another: see `are_copies`."""
    scores = [column for column in columns if column.role != COVARIATE]
    for first, second in combinations(dict.fromkeys(sets.tolist()), 2):
        for column in scores:
            if are_copies(column.values[sets == first, None], column.values[sets == second, None]):
                raise InputError(
                    f"{name}: the column {column.name} has the same numbers on {second} as on {first}, and these are "
                    "different records: was the model asked for one set twice? Give its scores on each set."
                )


def _meaning(first: str, second: str) -> str:
    """What the same numbers of two models in these roles mean, and what to do."""
    if {first, second} == {"target", "before"}:
        return (
            "the target answers exactly as before the deletion: it is the same model, or its file. Give the scores of "
            "the model after the deletion; if these are its scores, the deletion changed nothing: leave `before` out."
        )
    if first == second == "target":
        return "one model is given twice, and would count as two targets. Leave one of the two out."
    return f"{REFUSAL}. Leave one of the two out, or give the scores of the model that its name says."


def _in_one_order(numbers: Sequence[Float[np.ndarray, " n"]]) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose rank correlation is 1 or -1, but for rounding."""
    # Commands that read no table of scores do not wait for it.
    from scipy.stats import rankdata

    ranks = np.array([_standardised(rankdata(column_numbers)) for column_numbers in numbers])
    for start in range(0, len(ranks), BLOCK):
        alike = np.abs(ranks[start : start + BLOCK] @ ranks.T) >= ranks.shape[1] * (1 - ALIKE)
        yield from ((start + i, j) for i, j in np.argwhere(alike).tolist() if start + i < j)


def _same(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> bool:
    """Whether two columns are in one order; of few different numbers, whether they also lie on a straight line."""
    if not list(_in_one_order([first, second])):
        return False
    if min(len(np.unique(first)), len(np.unique(second))) >= ENOUGH:
        return True
    x, y = _standardised(first), _standardised(second)
    return bool(np.abs(x - np.sign(x @ y) * y).max() <= CLOSE)


def _standardised(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """With mean 0 and standard deviation 1; zeros if all numbers are equal."""
    # Squares of very large numbers overflow, and so do their sums.
    values = values / max(float(np.abs(values).max()), 1.0)
    centred = values - values.mean()
    deviation = float(centred.std())
    return centred / deviation if deviation > 0 else np.zeros_like(centred)


def _few(values: Float[np.ndarray, " n"]) -> bool:
    """Whether two models may have these numbers by chance: few different ones, or most of them the same."""
    counts = np.unique(values, return_counts=True)[1]
    return bool(len(counts) < FEW or 2 * counts.max() > len(values))


def _same_throughout(
    columns: Sequence[ScoreColumn], numbers: Sequence[Float[np.ndarray, " n"]], first: ScoreColumn, second: ScoreColumn
) -> bool:
    """Whether all scores that two models have are the same, and one of them differs between enough records to tell."""

    def of(model: ScoreColumn) -> dict[str, Float[np.ndarray, " n"]]:
        return {
            column.score: column_numbers
            for column, column_numbers in zip(columns, numbers, strict=True)
            if column[1:3] == model[1:3]
        }

    first_scores, second_scores = of(first), of(second)
    shared = first_scores.keys() & second_scores.keys()
    counts = (np.unique(first_scores[score], return_counts=True)[1] for score in shared)
    telling = any(count.sum() - count.max() >= FEW for count in counts)
    return telling and all(_same(first_scores[score], second_scores[score]) for score in shared)
