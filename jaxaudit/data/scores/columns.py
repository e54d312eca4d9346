"""The columns of a table of scores: what their names say, their cells as numbers, and what no column may be.

One model is no evidence of two, and none against itself: a target that is also `unused` can never look used, and a
covariate that copies the target takes its memory away. So copies are refused.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

Numbers = Float[np.ndarray, " n"]
"""A number a record."""

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


def is_number(column: str) -> bool:
    """Whether a column of this name holds the scores of a model, or a covariate."""
    role, _, score = column.partition(".")
    return bool(score) and role in (*ROLES, COVARIATE)


def parts(column: str) -> tuple[str, str, str]:
    """The role, the model, empty if it has no name, and the score, which has no dot.

    >>> parts("target.loss"), parts("unused.1.loss"), parts("target.lr_0.01.loss"), parts("covariate.a.b")
    (('target', '', 'loss'), ('unused', '1', 'loss'), ('target', 'lr_0.01', 'loss'), ('covariate', '', 'a.b'))
    """
    role, _, rest = column.partition(".")
    model, _, score = ("", "", rest) if role == COVARIATE else rest.rpartition(".")
    return role, model, score


def set_names(cells: Iterable[object], name: str) -> list[str]:
    """The set that each cell names. Of cells that name none, an error shows none if there are more than `MOST_SHOWN`:
    another column than that of the sets may be a person's.

    >>> set_names(["query", "train", "train", ""], "a.csv")
    Traceback (most recent call last):
    jaxaudit.errors.InputError: a.csv: 3 of 4 records are in none of the sets ... (column `set`; found: 'train', '')...
    >>> set_names(range(40), "a.csv")
    Traceback (most recent call last):
    jaxaudit.errors.InputError: ... (column `set`; found: 40 different values; is it the column of the sets?)...
    """
    sets = ["" if cell is None else str(cell) for cell in cells]
    unknown = [cell for cell in sets if cell not in SETS]
    if unknown or not sets:
        distinct = [cell[:LONGEST_SHOWN] for cell in dict.fromkeys(unknown)]
        words = f"found: {', '.join(map(repr, distinct))}"
        if len(distinct) > MOST_SHOWN:
            words = f"found: {len(distinct):,} different values; is it the column of the sets?"
        trouble = f"{len(unknown):,} of {len(sets):,} records are in none of the sets {', '.join(SETS)} "
        trouble += f"(column `set`; {words})"
        raise InputError(
            f"{name}: {trouble if sets else 'has no column `set`, or no record in it'}. Say of each record which set "
            "it is in."
        )
    return sets


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
    """The numbers of a model, or a covariate, NaN where there is none; `name` has the parts role, model and score."""

    name: str
    role: str
    model: str
    score: str
    values: Float[np.ndarray, " records"]

    @property
    def present(self) -> Float[np.ndarray, " some"]:
        """The numbers that there are."""
        return self.values[~np.isnan(self.values)]


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
    numbers may be equal by chance: then all scores of both models must be the same. Where three models that are trained
    alike have a score, nearly equal ones are refused, too (`same_models`), except around a deletion.
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


def _nearly_the_same(columns: Sequence[ScoreColumn]) -> Iterator[tuple[int, int]]:
    """Pairs of columns of one score that are nearly the same, by what is usual for models that are trained alike."""
    for score in dict.fromkeys(column.score for column in columns):
        rows = [row for row, column in enumerate(columns) if column.score == score and column.role != COVARIATE]
        alike = np.array([columns[row].role in TRAINED_ALIKE for row in rows], bool)
        if alike.sum() > 2:
            for i, j in same_models(np.array([columns[row].values for row in rows]), alike):
                if {columns[rows[i]].role, columns[rows[j]].role} != {"target", "before"}:
                    yield rows[i], rows[j]


def _in_one_order(numbers: Sequence[Numbers]) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose rank correlation is 1 or -1, but for rounding."""
    return pairs_within(standard_ranks(np.array(numbers)), ALIKE) if numbers else iter(())


def _same(first: Numbers, second: Numbers) -> bool:
    """Whether two columns are in one order; of few different numbers, whether they also lie on a straight line."""
    if not list(_in_one_order([first, second])):
        return False
    enough = min(len(np.unique(first)), len(np.unique(second))) >= ENOUGH
    return enough or bool(1 - abs(np.corrcoef(first, second)[0, 1]) <= CLOSE)


def _few(values: Numbers) -> bool:
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
SHARES = ("probability", "confidence", "accuracy", "extraction_strength", "exact_memorization", "rouge")
"""Numbers from 0 to 1, or percentages."""
PERCENT, EXCESS = 50, 1e-6
"""Percentages have a number above the first; shares may be out of their range by the second."""
SIGNS = {**dict.fromkeys(LOWER - {"reference"}, 1), "likelihood": 1, "log_likelihood": -1}
"""The sign of the numbers of a score, by its name. `log_odds` have either; so has the `nll` of a density, which must be
said."""


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of a column; texts are not made an array, whose cells would all be as wide as the longest."""
    return tuple(values.shape) if hasattr(values, "shape") else (len(values),)


def columns_of(columns: Mapping[str, Any], name: str) -> list[ScoreColumn]:
    """The columns with scores and covariates, each cell a number; NaN where one is empty, as no covariate's may be."""
    score_columns = list[ScoreColumn]()
    for column in filter(is_number, columns):
        try:
            numbers = np.array(_with_gaps(columns[column]), np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array([np.inf])
        gaps = column.startswith(f"{COVARIATE}.") and np.isnan(numbers).any()
        # Infinite ones included; squares and their sums stay finite.
        if gaps or (np.abs(numbers) > MOST).any() or len(column) > 3 * LONGEST:
            raise InputError(
                f"{name}: the column {column[: 3 * LONGEST]} has a cell that is no number up to {MOST:g}, is a "
                f"covariate with an empty cell, or has a name of more than {3 * LONGEST} characters; leave such "
                "records out, or give the logarithms of all."
            )
        score_columns.append(ScoreColumn(column, *parts(column), numbers))
    return score_columns


def _with_gaps(values: Any) -> Any:
    """The cells, with NaN for a text that stands for no number, such as NA of R; truth values stand by themselves."""
    if getattr(getattr(values, "dtype", None), "kind", "O") not in "OU":
        return values
    are_truths = {isinstance(cell, bool) for cell in values if isinstance(cell, int | float) and cell == cell}
    if len(are_truths) > 1:
        raise TypeError("a truth value beside numbers")
    return [np.nan if isinstance(cell, str) and cell.strip().casefold() in MISSING else cell for cell in values]


class Draft(NamedTuple):
    """A table of scores that is not checked yet; `guessed`: scores whose direction follows from their names alone."""

    columns: Mapping[str, Any]
    sets: Shaped[np.ndarray, " records"]
    numbers: Sequence[ScoreColumn]
    guessed: Sequence[str]

    @property
    def scores(self) -> list[ScoreColumn]:
        """The columns of models."""
        return [column for column in self.numbers if column.role != COVARIATE]


def repeated_records(draft: Draft) -> Iterator[str]:
    """A record that occurs twice, by its index within its set or by its text."""
    for column in filter(draft.columns.__contains__, ("index", "text")):
        cells = map(str, draft.columns[column])
        # The records of different sets may be numbered from 0 each.
        labels = cells if column == "text" else zip(draft.sets, cells, strict=True)
        twice = len(draft.sets) - len(set(labels))
        if twice:
            yield f"{twice} records occur twice (column {column}); keep one: a copy hides use."


def unclear_names(draft: Draft) -> Iterator[str]:
    """Names of which it is not clear what is the model and what the score: models share the names of scores."""
    scores_of = {model: [column for column in draft.scores if column[1:3] == model] for model in models_of(draft)}
    counts = Counter((column.role, column.score) for column in draft.scores)
    for (role, model), columns in scores_of.items():
        several = sum(other == role for other, _ in scores_of) > 1
        apart = several and (model == "" or all(counts[role, column.score] == 1 for column in columns))
        if apart or model in LOWER | HIGHER or any(column.score.isdecimal() or not column.score for column in columns):
            yield (
                f"the column {columns[0].name} may be a score of a model, or one score with a dot in its name. Call it "
                f"{role}.SCORE, with no further dot, if there is one {role}; else give each of them a name, and a "
                f"score of the same name, such as {role}.A.loss and {role}.B.loss."
            )


def models_of(draft: Draft) -> list[tuple[str, str]]:
    """The role and the name of each model, in the order of the columns."""
    return list(dict.fromkeys((column.role, column.model) for column in draft.scores))


def partly_missing(draft: Draft) -> Iterator[str]:
    for column in draft.scores:
        gaps = {of: np.isnan(column.values[draft.sets == of]) for of in SETS}
        partly = [of for of, missing in gaps.items() if 0 < missing.sum() < len(missing)]
        if partly:
            yield (
                f"the column {column.name} is empty for some records of {' and '.join(partly)}; leave these out, or "
                "ask the model again."
            )


def coded(draft: Draft) -> Iterator[str]:
    for column in draft.scores:
        present = column.present
        ends = (present.min(initial=np.inf), present.max(initial=-np.inf))
        codes = " and ".join(f"{code:g}" for code in ends if _is_code(code, present))
        if codes:
            yield (
                f"the column {column.name} has records of {codes}, far from all others, as tables have it for a "
                "missing value; leave these out."
            )


def _is_code(code: float, present: Numbers) -> bool:
    """Whether the least or the largest number of a column stands for a missing one."""
    is_code = present == code
    rest = present[~is_code]
    if code not in CODES or is_code.sum() < 2 or len(np.unique(rest)) <= SAME * len(rest):
        return False
    return bool((code < 0 <= rest.min()) or np.abs(rest - code).min() > AWAY * np.ptp(rest))


def constant(draft: Draft) -> Iterator[str]:
    for column in draft.scores:
        if len(np.unique(column.present)) < 2:
            yield f"the column {column.name} has no number, or the same one for all records; is it a score?"
        compared = [column.values[draft.sets == of] for of in SETS[:2]]
        if all(len(values) > 1 and values.min() == values.max() for values in compared):
            yield f"the column {column.name} has one value on each set: it is the set, not a score."


def repeated_rows(draft: Draft) -> Iterator[str]:
    """A table in which all rows of a set occur equally often, twice or more. Single records may be alike by chance."""
    # The numbers of one column nearly always tell that rows are not repeated.
    if any(np.gcd.reduce(np.unique(column.values, return_counts=True)[1]) == 1 for column in draft.numbers):
        return
    of_set = np.unique(draft.sets, return_inverse=True)[1]
    rows = np.stack([of_set, *(np.nan_to_num(column.values, nan=-np.inf) for column in draft.numbers)], axis=1)
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    times = int(np.gcd.reduce(counts))
    if times > 1 and len(counts) >= ENOUGH_DIFFERENT:
        yield (
            f"every record occurs {times} times, with the same numbers: was the table joined with itself? Keep one of "
            "each: a copy is no further evidence."
        )


def same_on_two_sets(draft: Draft) -> Iterator[str]:
    """A model's scores on one set that are, record by record, those on another: see `are_copies`."""
    for first, second in combinations(dict.fromkeys(draft.sets.tolist()), 2):
        for column in draft.scores:
            if are_copies(column.values[draft.sets == first, None], column.values[draft.sets == second, None]):
                yield (
                    f"the column {column.name} has the same numbers on {second} as on {first}, and these are "
                    "different records: was the model asked for one set twice? Give its scores on each set."
                )


def contrary(draft: Draft) -> Iterator[str]:
    """Scores whose numbers are not what their names promise: none has the sign of the name, shares are none, or they
    are shares on one set and percentages on another, where the scale would look like memory. Of percentages hardly a
    whole set is at 1% or less, unless all of it is 0.
    """
    for column in draft.scores:
        promise, present = column.score, column.present
        if promise in SHARES:
            least, most = float(present.min()), float(present.max())
            largest = [float(np.nanmax(column.values[draft.sets == of], initial=0)) for of in SETS]
            mixed = any(0 < size <= 1 + EXCESS for size in largest) and most > PERCENT
            wrong = mixed or least < -EXCESS or most > 100 + EXCESS or 1 + EXCESS < most <= PERCENT
            usual = "are shares from 0 to 1, or percentages, on all sets alike"
        else:
            signed = SIGNS.get(promise, 0) * present
            wrong = bool(signed.max() <= 0 and signed.min() < 0)
            usual = f"are {'above' if SIGNS.get(promise) == 1 else 'below'} 0"
        if wrong and promise in draft.guessed:
            yield (
                f"the column {column.name} is {'higher' if promise in HIGHER else 'lower'} for records that were used "
                f"by its name, {promise}, whose numbers {usual}, and these are not. Say which way they point, of all "
                f"sets alike: name {promise} in `lower` or in `higher`."
            )


CHECKS: tuple[Callable[[Draft], Iterator[str]], ...] = (
    *(repeated_records, partly_missing, coded, constant),
    *(unclear_names, contrary, repeated_rows, same_on_two_sets),
)
"""What no table of scores may have, in the order in which it is looked for."""


def partition(
    columns: Mapping[str, Any], column: str, sets: np.ndarray, of: Sequence[str], name: str
) -> Int[np.ndarray, " records"] | None:
    """The values of a column as numbers from 0; -1 for records of other sets than these."""
    if column not in columns:
        return None
    rows = np.flatnonzero(np.isin(sets, of))
    numbers = np.full(len(sets), -1)
    numbers[rows] = number_groups(group_values(columns[column], rows, f"table {name} (column {column})"))
    return numbers
