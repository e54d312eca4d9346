"""The columns of a table of scores: what their names say, their cells as numbers, and what no column may be.

One model is no evidence of two, and none against itself: a target that is also `unused` can never look used, and a
covariate that copies the target takes its memory away. So copies are refused.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from jaxaudit.data.labels import MISSING, group_values, number_groups
from jaxaudit.data.outputs.model_copies import ENOUGH, FEW, pairs_within, same_models, standard_ranks
from jaxaudit.data.pairs import SAME, are_copies
from jaxaudit.data.texts import SETS
from jaxaudit.errors import InputError

ModelRole = Literal["target", "before", "baseline", "unused", "used"]
ROLES: tuple[ModelRole, ...] = ("target", "before", "baseline", "unused", "used")
COVARIATE = "covariate"
OWN = ("set", "index", "group", "pair", "text")
"""Columns that are no score and no covariate."""
MOST_SHOWN, LONGEST_SHOWN = 5, 20
"""How many values of a column of sets an error shows, and how many characters of each."""
LOWER = {
    *("loss", "error", "squared_error", "absolute_error", "nll", "perplexity", "truth_ratio"),
    *("min_k", "min_k_plus_plus", "zlib", "reference", "gradnorm"),
}
"""Scores that are lower for records that were used: errors, and attacks with the sign of open-unlearning's `mia_*`."""
HIGHER = {
    *("log_likelihood", "likelihood", "probability", "log_odds", "confidence", "accuracy"),
    *("extraction_strength", "exact_memorization", "rouge"),
}
_MIN_K = re.compile(r"min_?k(_?plus_?plus|_?\+\+)?(_?prob)?(_?[0-9]+(\.[0-9]+)?%?)?")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_DOT = re.compile(r"(?<![0-9])\.|\.(?![0-9])")


def known_as(score: str) -> str:
    """The name of a score as `LOWER` and `HIGHER` have it, whatever its case, and whatever share of tokens it is of.

    >>> known_as("Loss"), known_as("Min-K"), known_as("mink_0.2"), known_as("min_k_plus_plus_0.1"), known_as("mine")
    ('loss', 'min_k', 'min_k', 'min_k_plus_plus', 'mine')
    """
    name = score.casefold().replace("-", "_").replace(" ", "_")
    match = _MIN_K.fullmatch(name)
    return name if match is None else "min_k_plus_plus" if match[1] else "min_k"


def plain_column(column: str) -> str:
    """A column's name without blanks around it, with the first word in small letters if it is known.

    >>> plain_column(" Set "), plain_column("Target.A.Loss"), plain_column("My Note")
    ('set', 'target.A.Loss', 'My Note')
    """
    name = column.strip()
    first, dot, rest = name.partition(".")
    return first.casefold() + dot + rest if first.casefold() in ((*ROLES, COVARIATE) if dot else OWN) else name


def is_number(column: str) -> bool:
    """Whether a column of this name holds the scores of a model, or a covariate."""
    role, _, score = column.partition(".")
    return bool(score) and role in (*ROLES, COVARIATE)


def parts(column: str) -> tuple[str, str, str]:
    """The role, the model, empty if it has no name, and the score; a dot between two digits is a decimal point.

    >>> parts("target.loss"), parts("unused.1.loss"), parts("target.lr_0.01.mink_0.2"), parts("covariate.a.b")
    (('target', '', 'loss'), ('unused', '1', 'loss'), ('target', 'lr_0.01', 'mink_0.2'), ('covariate', '', 'a.b'))
    """
    role, _, rest = column.partition(".")
    *model, score = [rest] if role == COVARIATE else _DOT.split(rest)
    return role, rest[: len(rest) - len(score) - 1] if model else "", score


def refuse_unclear(scores: Mapping[tuple[ModelRole, str], Sequence[str]], name: str) -> None:
    """Refuses names of which it is not clear what is the model and what the score: models share the names of scores."""
    models = Counter(role for role, _ in scores)
    score_counts = Counter((role, score) for (role, _), of_model in scores.items() for score in of_model)
    for (role, model), of_model in scores.items():
        apart = models[role] > 1 and all(score_counts[role, score] == 1 for score in of_model)
        nameless = models[role] > 1 and model == ""
        if apart or nameless or known_as(model) in LOWER | HIGHER or not all(map(_is_name, of_model)):
            column = ".".join(filter(None, (role, model, of_model[0])))
            raise InputError(
                f"{name}: the column {column} may be a score of a model, or one score with a dot in its name. Call it "
                f"{role}.SCORE, with no further dot, if there is one {role}; else give each of them a name, and a "
                f"score of the same name, such as {role}.A.loss and {role}.B.loss."
            )


def _is_name(score: str) -> bool:
    return bool(score) and not _NUMBER.fullmatch(score)


def other_sets(cells: Iterable[object], allowed: Sequence[str]) -> str:
    """The values of a column of sets that name none, for an error. None is shown if there are more than `MOST_SHOWN`:
    another column than that of the sets may be a person's.

    >>> other_sets(["query", "train", "train", ""], ["query"])
    "found: 'train', ''"
    >>> other_sets(map(str, range(40)), ["query"])
    'found: 40 different values; is it the column of the sets?'
    """
    distinct = dict.fromkeys("" if cell is None else str(cell) for cell in cells)
    other_names = [cell[:LONGEST_SHOWN] for cell in distinct if cell.strip().casefold() not in allowed]
    if len(other_names) > MOST_SHOWN:
        return f"found: {len(other_names):,} different values; is it the column of the sets?"
    return f"found: {', '.join(map(repr, other_names))}"


BOTH = (
    *({"before", "used"}, {"baseline", "unused"}),
    *({"baseline", "covariate"}, {"unused", "covariate"}),
)
"""Roles that one model may have at a time; a covariate may be a number of a model that used neither set."""
TRAINED_ALIKE = ("target", "unused", "used")
"""Roles of models that are trained alike, so that their distances tell how near two of them are."""
ALIKE = 1e-7
"""How far the rank correlation of copies may be from 1: numbers may be rounded. Two seeds are thousands of times as far
apart."""
CLOSE = 1e-12
"""How far from 1 the correlation of a few numbers that lie on a straight line may be."""
REFUSAL = "a model is no evidence against itself"


class ScoreColumn(NamedTuple):
    """One column of a table of scores: the numbers of a model, or a covariate; NaN where there is none. The heading
    `name` has the three parts role, model and score.
    """

    name: str
    role: str
    model: str
    score: str
    values: Float[np.ndarray, " records"]


def refuse_repeated(paths: Mapping[Any, Sequence[Path]]) -> None:
    """Refuses one file or folder in two roles, or twice in one, links followed. A model before a deletion may also be
    one that used the query set, and a baseline one that did not.
    """
    role_paths = [(role, path) for role, of_role in paths.items() for path in of_role]
    for (first, path), (second, again) in combinations(role_paths, 2):
        if os.path.realpath(path) == os.path.realpath(again) and {first, second} not in BOTH:
            words = " and as ".join("a target" if role == "target" else f"`{role}`" for role in (first, second))
            raise InputError(f"{path} is given as {words}: {REFUSAL}. Leave one out.")


def refuse_copies(columns: Sequence[ScoreColumn], sets: np.ndarray, name: str) -> None:
    """Refuses two columns of different models with the same numbers on some set, in roles that one model cannot have.

    The same are also numbers in the same or the reverse order, such as a loss and its log-likelihood. Few different
    numbers, such as right or wrong, may be equal by chance: then all scores of both models must be the same. Where
    three models that are trained alike have a score, nearly the same numbers are refused, too (`same_models`), except
    before and after a deletion.
    """
    for set_name in dict.fromkeys(sets.tolist()):
        of_set = [column._replace(values=column.values[sets == set_name]) for column in columns]
        complete = [column for column in of_set if np.isfinite(column.values).all()]
        near = set(_nearly_the_same(complete))
        for i, j in (*near, *_in_one_order([column.values for column in complete])):
            first, second = complete[i], complete[j]
            if first[1:3] == second[1:3] or {first.role, second.role} in BOTH:
                continue
            if (i, j) not in near and not _same(first.values, second.values):
                continue
            if not _few(first.values) or _same_throughout(complete, first, second):
                raise InputError(
                    f"{name}: the columns {first.name} and {second.name} hold the same numbers on the records of "
                    f"{set_name}, but for rounding, or the same on another scale: they are of one model, and "
                    f"{REFUSAL}. Leave one out, or give the scores of the model that its name says. (A target that "
                    "answers exactly as before a deletion was not changed by it.)"
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


def _nearly_the_same(columns: Sequence[ScoreColumn]) -> Iterator[tuple[int, int]]:
    """Pairs of columns of one score that are nearly the same, by what is usual for models that are trained alike."""
    for score in dict.fromkeys(column.score for column in columns):
        rows = [row for row, column in enumerate(columns) if column.score == score and column.role != COVARIATE]
        alike = np.array([columns[row].role in TRAINED_ALIKE for row in rows], bool)
        if alike.sum() > 2:
            for i, j in same_models(np.array([columns[row].values for row in rows]), alike):
                if {columns[rows[i]].role, columns[rows[j]].role} != {"target", "before"}:
                    yield rows[i], rows[j]


def _in_one_order(numbers: Sequence[Float[np.ndarray, " n"]]) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose rank correlation is 1 or -1, but for rounding."""
    return pairs_within(standard_ranks(np.array(numbers)), ALIKE) if numbers else iter(())


def _same(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> bool:
    """Whether two columns are in one order; of few different numbers, whether they also lie on a straight line."""
    if not list(_in_one_order([first, second])):
        return False
    enough = min(len(np.unique(first)), len(np.unique(second))) >= ENOUGH
    return enough or bool(1 - abs(np.corrcoef(first, second)[0, 1]) <= CLOSE)


def _few(values: Float[np.ndarray, " n"]) -> bool:
    """Whether two models may have these numbers by chance: few different ones, or most of them the same."""
    counts = np.unique(values, return_counts=True)[1]
    return bool(len(counts) < FEW or 2 * counts.max() > len(values))


def _same_throughout(columns: Sequence[ScoreColumn], first: ScoreColumn, second: ScoreColumn) -> bool:
    """Whether all scores that two models have are the same, and one of them differs between enough records to tell."""
    of_first, of_second = (
        {column.score: column.values for column in columns if column[1:3] == model[1:3]} for model in (first, second)
    )
    shared = of_first.keys() & of_second.keys()
    counts = (np.unique(of_first[score], return_counts=True)[1] for score in shared)
    telling = any(count.sum() - count.max() >= FEW for count in counts)
    return telling and all(_same(of_first[score], of_second[score]) for score in shared)


LONGEST, MOST = 100, 1e75
"""Characters of a name, and how far a number may be from 0."""
ENOUGH_DIFFERENT = 20
"""Different rows from which on it is no chance that each occurs twice."""
CODES = tuple(sign * (10.0**digits - 1) for digits in range(2, 9) for sign in (-1, 1))
"""What tables have in place of a number that is missing: -99, 999 and the like."""
AWAY = 0.25
"""How far from all other numbers a code lies, as a share of their range; scores that are cut at 99 come closer."""


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of a column; texts are not made an array, whose cells would all be as wide as the longest."""
    return tuple(values.shape) if hasattr(values, "shape") else (len(values),)


def columns_of(columns: Mapping[str, Any], name: str) -> list[ScoreColumn]:
    """The columns with scores and covariates, each cell a number."""
    return [
        ScoreColumn(column, *parts(column), column_numbers(column, values, name))
        for column, values in columns.items()
        if is_number(column)
    ]


def check_lengths(shapes: Mapping[str, tuple[int, ...]], name: str) -> None:
    """Rejects columns that have not one value for each record, by their shapes alone."""
    records = shapes["set"]
    wrong = {column: shape for column, shape in shapes.items() if shape != records}
    if wrong or len(records) != 1:
        listed = "; ".join(f"{column[:100]} has shape {shape}" for column, shape in list(wrong.items())[:5])
        raise InputError(
            f"{name}: the column set has shape {records}, and every column must have one value for each record"
            + (f": {listed}." if listed else ".")
        )


def column_numbers(column: str, values: Any, name: str) -> Float[np.ndarray, " records"]:
    """A column's cells as numbers, NaN where a cell is empty, as none of a covariate's may be."""
    try:
        numbers = np.array(_with_gaps(values), np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([np.inf])
    gaps = column.startswith(f"{COVARIATE}.") and np.isnan(numbers).any()
    # Infinite ones included; squares and their sums stay finite.
    if gaps or (np.abs(numbers) > MOST).any() or len(column) > 3 * LONGEST:
        raise InputError(
            f"{name}: the column {column[: 3 * LONGEST]} has a cell that is no number up to {MOST:g}, is a covariate "
            f"with an empty cell, or has a name of more than {3 * LONGEST} characters; leave such records out, or give "
            "the logarithms of all."
        )
    return numbers


def _with_gaps(values: Any) -> Any:
    """The cells, with NaN for a text that stands for no number, such as NA of R; truth values stand by themselves."""
    if getattr(getattr(values, "dtype", None), "kind", "O") not in "OU":
        return values
    are_truths = {isinstance(cell, bool) for cell in values if isinstance(cell, int | float) and cell == cell}
    if len(are_truths) > 1:
        raise TypeError("a truth value beside numbers")
    return [np.nan if isinstance(cell, str) and cell.strip().casefold() in MISSING else cell for cell in values]


def refuse_useless(column: ScoreColumn, sets: np.ndarray, name: str) -> None:
    """Refuses scores that are missing on part of a set, by a gap or a code, the same everywhere, or one value a set."""
    of_sets = {set_name: column.values[sets == set_name] for set_name in SETS}
    partly = [of for of, values in of_sets.items() if 0 < np.isnan(values).sum() < len(values)]
    present = column.values[~np.isnan(column.values)]
    ends = (present.min(initial=np.inf), present.max(initial=-np.inf))
    codes = " and ".join(f"{code:g}" for code in ends if _is_code(code, present))
    compared = (of_sets["query"], of_sets["holdout"])
    troubles = (
        (partly, f"is empty for some records of {' and '.join(partly)}; leave these out, or ask the model again"),
        (codes, f"has records of {codes}, far from all others, as tables have it for a missing value; leave these out"),
        # A difference of the largest numbers would be infinite.
        (not ends[0] < ends[1], "has no number, or the same one for all records; is it a score?"),
        (
            all(len(values) > 1 and values.min() == values.max() for values in compared),
            "has one value on each set: it is the set, not a score",
        ),
    )
    for holds, words in troubles:
        if holds:
            raise InputError(f"{name}: the column {column.name} {words}.")


def _is_code(code: float, present: Float[np.ndarray, " n"]) -> bool:
    """Whether the least or the largest number of a column stands for a missing one."""
    coded = present == code
    rest = present[~coded]
    if code not in CODES or coded.sum() < 2 or len(np.unique(rest)) <= SAME * len(rest):
        return False
    return bool((code < 0 <= rest.min()) or np.abs(rest - code).min() > AWAY * np.ptp(rest))


def refuse_repeated_records(cleaned: Mapping[str, Any], sets: np.ndarray, name: str) -> None:
    """Refuses a record that occurs twice, by its index within its set or by its text."""
    for column in ("index", "text"):
        if column in cleaned:
            # The records of different sets may be numbered from 0 each.
            labels = (
                map(str, cleaned[column]) if column == "text" else zip(sets, map(str, cleaned[column]), strict=True)
            )
            twice = len(sets) - len(set(labels))
            if twice:
                raise InputError(f"{name}: {twice} records occur twice (column {column}); keep one: a copy hides use.")


def refuse_repeated_rows(columns: Sequence[ScoreColumn], sets: np.ndarray, name: str) -> None:
    """Refuses a table in which all rows of a set occur twice, or three times, as after joining it with itself. Single
    records may be alike by chance.
    """
    # The numbers of one column nearly always tell that rows are not repeated.
    if any(np.gcd.reduce(np.unique(column.values, return_counts=True)[1]) == 1 for column in columns):
        return
    numbers = [np.unique(sets, return_inverse=True)[1], *(np.nan_to_num(of.values, nan=-np.inf) for of in columns)]
    counts = np.unique(np.stack(numbers, axis=1), axis=0, return_counts=True)[1]
    times = int(np.gcd.reduce(counts))
    if times > 1 and len(counts) >= ENOUGH_DIFFERENT:
        raise InputError(
            f"{name}: every record occurs {times} times, with the same numbers: was the table joined with itself? Keep "
            "one of each: a copy is no further evidence."
        )


SHARES = ("probability", "confidence", "accuracy", "extraction_strength", "exact_memorization", "rouge")
"""Numbers from 0 to 1, or percentages."""
PERCENT, EXCESS = 50, 1e-6
"""Percentages have a number above the first; shares may be out of their range by the second."""
SIGNS = {**dict.fromkeys(LOWER - {"reference"}, 1), "likelihood": 1, "log_likelihood": -1}
"""The sign of the numbers of a score, by its name. `log_odds` have either; so has the `nll` of a density, which must be
said."""


def refuse_contrary(column: ScoreColumn, sets: Shaped[np.ndarray, " n"], name: str) -> None:
    """Refuses scores whose numbers are not what their names promise: none has the sign of the name, shares are none, or
    they are shares on one set and percentages on another, where the scale would look like memory. Of percentages hardly
    a whole set is at 1% or less, unless all of it is 0.
    """
    promise, present = known_as(column.score), column.values[~np.isnan(column.values)]
    if promise in SHARES:
        least, most = float(present.min()), float(present.max())
        largest = [float(np.nanmax(column.values[sets == of], initial=0)) for of in SETS]
        mixed = any(0 < size <= 1 + EXCESS for size in largest) and most > PERCENT
        wrong = mixed or least < -EXCESS or most > 100 + EXCESS or 1 + EXCESS < most <= PERCENT
        usual = "are shares from 0 to 1, or percentages, on all sets alike"
    else:
        signed = SIGNS.get(promise, 0) * present
        wrong = bool(signed.max() <= 0 and signed.min() < 0)
        usual = f"are {'above' if SIGNS.get(promise) == 1 else 'below'} 0"
    if wrong:
        raise InputError(
            f"{name}: the column {column.name} is {'higher' if promise in HIGHER else 'lower'} for records that were "
            f"used by its name, {column.score}, whose numbers {usual}, and these are not. Say which way they point, of "
            f"all sets alike: name {column.score} in `lower` or in `higher`."
        )


def partition(
    cleaned: Mapping[str, Any], column: str, sets: np.ndarray, of: Sequence[str], name: str
) -> Int[np.ndarray, " records"] | None:
    """The values of a column as numbers from 0; -1 for records of other sets than these."""
    if column not in cleaned:
        return None
    rows = np.flatnonzero(np.isin(sets, of))
    numbers = np.full(len(sets), -1)
    numbers[rows] = number_groups(group_values(cleaned[column], rows, f"table {name} (column {column})"))
    return numbers
