"""Scores whose numbers contradict their names: a loss that is a log-likelihood, and the like."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Shaped

from jaxaudit.data.scores.names import known_as
from jaxaudit.errors import InputError

_ERRORS = 1, "lower", "log-likelihoods or means of them, which are higher for records that were used"
_DENSITIES = 1, "higher", "logarithms, or have the other sign"
SHARES = ("probability", "confidence", "accuracy", "extraction_strength", "exact_memorization", "rouge")
"""Numbers from 0 to 1, or percentages."""
PERCENT, EXCESS = 50, 1e-6
"""Percentages have a number above the first; shares may be out of their range by the second."""
_LIKELIHOODS = -1, "higher", "losses (negative log-likelihoods), which are lower for records that were used"
SIGNS = {
    **dict.fromkeys(("loss", "error", "squared_error", "absolute_error", "perplexity", "truth_ratio"), _ERRORS),
    **dict.fromkeys(("nll", "min_k", "min_k_plus_plus", "zlib", "gradnorm"), _ERRORS),
    "likelihood": _DENSITIES,
    "log_likelihood": _LIKELIHOODS,
}
"""By the name of a score: the sign of its numbers, the way that it points, and what numbers of the other sign are.

`log_odds` have either sign. So has the `nll` of a density, which must be said."""


def refuse_contrary(columns: Mapping[str, tuple[str, Float[np.ndarray, " n"]]], name: str) -> None:
    """Refuses scores whose direction follows from their names, if their numbers are not what the name promises.

    That is a score of which no number has the sign of the name, and a share with numbers that are none. `columns` are
    the name and the numbers of the score of each column; NaN is no number.
    """
    contrary = {column: score for column, (score, values) in columns.items() if _is_contrary(known_as(score), values)}
    if not contrary:
        return
    column, score = next(iter(contrary.items()))
    other_scores = ", ".join(other for other in dict.fromkeys(contrary.values()) if other != score)
    if known_as(score) in SHARES:
        way, other = "higher", "lower"
        trouble = "has numbers that are neither from 0 to 1 nor from 0 to 100"
        such = "may be losses or errors, which are lower, or logarithms or counts, which are higher"
    else:
        sign, way, likely = SIGNS[known_as(score)]
        side, other = ("above", "lower" if way == "higher" else "higher") if sign > 0 else ("below", "lower")
        trouble, such = f"has no number {side} 0", f"are more likely {likely}"
    raise InputError(
        f"{name}: the column {column} {trouble}. By the name {score} it is {way} for records that were used, but such "
        f"numbers {such}. Say which: name {score} in `{other}`, or in `{way}` if the name is right."
        f"{f' The same holds of {other_scores}.' if other_scores else ''}"
    )


def refuse_mixed_scales(
    columns: Mapping[str, tuple[str, Float[np.ndarray, " n"]]], sets: Shaped[np.ndarray, " n"], name: str
) -> None:
    """Refuses shares that are from 0 to 1 on one set and percentages on another: the scale would look like memory.

    Of percentages hardly a whole set is at 1% or less, unless all of it is 0. `columns` are as for `refuse_contrary`,
    and `sets` is the set of each number.
    """
    for column, (score, values) in columns.items():
        if known_as(score) not in SHARES:
            continue
        largest = {set_name: np.nanmax(values[sets == set_name], initial=0) for set_name in np.unique(sets).tolist()}
        shares = [set_name for set_name, most in largest.items() if 0 < most <= 1 + EXCESS]
        percentages = [set_name for set_name, most in largest.items() if most > PERCENT]
        if shares and percentages:
            raise InputError(
                f"{name}: the column {column} has no number above 1 on {shares[0]}, and numbers above {PERCENT} on "
                f"{percentages[0]}, as if the first were shares and the second percentages, which would look like "
                f"memory. Give all on one scale; if they are, name {score} in `higher`."
            )


def _is_contrary(score: str, values: Float[np.ndarray, " n"]) -> bool:
    present = values[~np.isnan(values)]
    least, most = float(present.min()), float(present.max())
    if score in SHARES:
        return least < -EXCESS or most > 100 + EXCESS or 1 + EXCESS < most <= PERCENT
    sign = SIGNS[score][0] if score in SIGNS else 0
    return (sign > 0 and most <= 0 and least < 0) or (sign < 0 and least >= 0 and most > 0)
