"""Names of columns of scores: whose score a column is, and which way the scores of known names point."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

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
    """Refuses names of which it is not clear what is the model and what the score: models share the names of scores.

    `scores` are the names of the scores of each role and model.
    """
    for (role, model), score_names in scores.items():
        other_names = {
            other: names_of_other for (of, other), names_of_other in scores.items() if of == role and other != model
        }
        column = ".".join(filter(None, (role, model, score_names[0])))
        numeric = [score for score in score_names if _NUMBER.fullmatch(score)]
        apart = other_names and not any(
            set(score_names) & set(names_of_other) for names_of_other in other_names.values()
        )
        if (
            numeric
            or not score_names[0]
            or (model and (known_as(model) in LOWER | HIGHER or "" in other_names or apart))
        ):
            plain = f"{role}.{model}_{score_names[0]}" if model else f"{role}.NAME"
            raise InputError(
                f"{name}: the column {column} may be the score {score_names[0]!r} of a model {model!r}, or one score "
                "of the "
                f"{role} with a dot in its name. For the second, call it {plain} (`rename`); for the first, give all "
                f"models of the role {role} a name, and a score of the same name, such as {role}.A.loss and "
                f"{role}.B.loss."
            )


def other_sets(cells: Iterable[object], allowed: Sequence[str]) -> str:
    r"""The values of a column of sets that name none, for an error: the most frequent ones, with their numbers.

    No value is shown if there are more than `MOST_SHOWN`: another column than that of the sets may be a person's.

    >>> other_sets(["query", "train", "train", ""], ["query"])
    "found: 'train' (2), '' (1)"
    >>> other_sets(map(str, range(40)), ["query"])
    'found: 40 different values; is it the column of the sets?'
    """
    cell_texts = ("" if cell is None else str(cell) for cell in cells)
    counts = Counter(cell for cell in cell_texts if cell.strip().casefold() not in allowed)
    if len(counts) > MOST_SHOWN:
        return f"found: {len(counts):,} different values; is it the column of the sets?"
    counted_texts = [
        f"'{cell[:LONGEST_SHOWN]}{'...' if len(cell) > LONGEST_SHOWN else ''}' ({count:,})"
        for cell, count in counts.most_common()
    ]
    return f"found: {', '.join(counted_texts)}"
