"""Scores of predictions of numbers: errors and likelihoods, and whether predictions and truth are on one scale."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.data.scores.columns import MOST
from jaxaudit.errors import InputError

LEAST = 20
"""Records of a set from which on it is compared with its mean."""
ALIKE = 0.7
"""Rank correlation from which on predictions follow the truth, on whatever scale."""


class Fit(NamedTuple):
    """How well predictions fit the truth.

    Attributes:
        r2: 1 - (sum of squared errors) / (sum of squared distances from the mean); below 0 the mean fits better.
        ranks: Spearman's rank correlation.
        typical: the median error, in units of the median distance from the median.
    """

    r2: float
    ranks: float
    typical: float


def squared_errors(
    prediction: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"], source: str
) -> Float[np.ndarray, " n"]:
    """The squared errors; numbers that have none that is finite are refused."""
    with np.errstate(over="ignore"):
        squared = (prediction - truth) ** 2
    if squared.max(initial=0) > MOST:
        raise InputError(
            f"{source}: {int((squared > MOST).sum())} squared errors are beyond {MOST:g}; give predictions and true "
            "values in a larger unit, such as millions."
        )
    return squared


def refuse_other_scale(
    prediction: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"], sets: Iterable[str], source: str
) -> tuple[str, ...]:
    """Refuses predictions that follow the truth on another scale; returns notes on those that do not follow it.

    Each set is looked at for itself, since one alone may have been transformed.
    """
    notes, of = list[str](), np.array(list(sets))
    for name in dict.fromkeys(of.tolist()):
        predicted, true = prediction[of == name], truth[of == name]
        fit = fit_of(predicted, true) if len(predicted) >= LEAST else None
        if fit is None or fit.r2 >= 0:
            continue
        worse = f"predictions of the set {name} fit worse than the mean of its true values (R2 = {fit.r2:.3g})"
        if abs(fit.ranks) >= ALIKE and fit.typical > 1:
            raise InputError(
                f"{source}: {worse}, but have the same order (rank correlation {fit.ranks:.2f}): they are "
                f"{_likely_scale(predicted, true, fit)}. Bring them to the scale of the true values. If the model is "
                "that far off, give its errors as a score of your own in a table of scores."
            )
        notes.append(f"{worse}; are they of this model, on the scale of the true values and in their order?")
    return tuple(notes)


def fit_of(prediction: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"]) -> Fit | None:
    """How well predictions fit; None if all true values or all predictions are the same.

    >>> fit_of(np.array([1.0, 2.0, 3.0]), np.array([10.0, 100.0, 1000.0])).ranks
    1.0
    """
    from scipy.stats import rankdata

    if truth.min() == truth.max() or prediction.min() == prediction.max():
        return None
    largest = max(np.abs(truth).max(), np.abs(prediction).max())
    # Scaled, so that squares are neither infinite nor 0.
    error, away = (prediction - truth) / largest, truth / largest
    apart = float(((away - away.mean()) ** 2).sum())
    distance = float(np.median(np.abs(away - np.median(away))))
    ranks = float(np.corrcoef(rankdata(prediction), rankdata(truth))[0, 1])
    if not apart or not distance:
        return None
    return Fit(1 - float((error**2).sum()) / apart, round(ranks, 12), float(np.median(np.abs(error))) / distance)


def _likely_scale(prediction: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"], unscaled_fit: Fit) -> str:
    maps = {"natural logarithms, of x or of 1 + x": np.exp, "logarithms to base 10": lambda x: 10.0**x}
    with np.errstate(over="ignore"):
        mapped = {name: back(prediction) for name, back in maps.items()}
    fits = {
        name: fit_of(mapped_values, truth)
        for name, mapped_values in mapped.items()
        if np.abs(mapped_values).max() < MOST
    }
    best = max((name for name, fit in fits.items() if fit), key=lambda name: getattr(fits[name], "r2", 0), default="")
    fit = fits.get(best)
    if fit is not None and fit.r2 > 0:
        return best
    if unscaled_fit.ranks < 0:
        return "turned round, as by another sign"
    straight = float(np.corrcoef(prediction, truth)[0, 1])
    return "shifted or stretched, as standardised values are" if straight > ALIKE else "on another scale"
