"""Scores whose numbers contradict their names: a loss that is a log-likelihood, and the like."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.errors import InputError


class _Sign(NamedTuple):
    """The sign that numbers with a name have, the way that the name says, and what numbers of the other sign are."""

    sign: int
    way: str
    likely: str


_ERRORS = _Sign(1, "lower", "log-likelihoods or means of them, which are higher for records that were used")
_SHARES = _Sign(1, "higher", "logarithms, or have the other sign")
_LIKELIHOODS = _Sign(-1, "higher", "losses (negative log-likelihoods), which are lower for records that were used")
SIGNS = {
    **dict.fromkeys(("loss", "error", "squared_error", "absolute_error", "perplexity", "truth_ratio"), _ERRORS),
    **dict.fromkeys(("min_k", "min_k_plus_plus", "zlib", "gradnorm"), _ERRORS),
    **dict.fromkeys(("likelihood", "probability", "accuracy"), _SHARES),
    **dict.fromkeys(("extraction_strength", "exact_memorization", "rouge"), _SHARES),
    "log_likelihood": _LIKELIHOODS,
}
"""Of densities, `nll` and `log_odds` have either sign."""


def refuse_contrary(columns: Mapping[str, tuple[str, Float[np.ndarray, " n"]]], name: str) -> None:
    """Refuses scores whose direction follows from their names, if no number has the sign that the name promises.

    `columns` are the name and the numbers of the score of each column; NaN is no number.
    """
    contrary = {column: score for column, (score, values) in columns.items() if _is_contrary(score, values)}
    if not contrary:
        return
    column, score = next(iter(contrary.items()))
    sign, way, likely = SIGNS[score]
    side, other = ("above", "lower" if way == "higher" else "higher") if sign > 0 else ("below", "lower")
    others = ", ".join(each for each in dict.fromkeys(contrary.values()) if each != score)
    raise InputError(
        f"{name}: no number of the column {column} is {side} 0. By the name {score} it is {way} for records that were "
        f"used, but such numbers are more likely {likely}. Say which: name {score} in `{other}`, or in `{way}` if the "
        f"name is right.{f' The same holds of {others}.' if others else ''}"
    )


def _is_contrary(score: str, values: Float[np.ndarray, " n"]) -> bool:
    there = values[~np.isnan(values)] * (SIGNS[score].sign if score in SIGNS else 0)
    return bool(there.max() <= 0 and there.min() < 0)
