"""Balanced accuracy of an attack on models, with the threshold that is best on other models."""

import numpy as np
from jaxtyping import Bool, Float, Int

GRID = 2048
"""The best threshold is chosen among this many."""


def balanced_accuracy(
    scores: Float[np.ndarray, "models n"],
    truth: Bool[np.ndarray, "models n"],
    thresholds_of: tuple[Float[np.ndarray, "others n"], Bool[np.ndarray, "others n"]] | None,
) -> Float[np.ndarray, " models"]:
    """Each model's balanced accuracy, with the best threshold for the others; NaN without members or non-members."""
    of_scores, of_truth = thresholds_of or (scores, truth)
    known = of_scores[~np.isnan(of_scores)]
    grid = np.unique(np.quantile(known, np.linspace(0, 1, GRID), method="lower"))
    own_hits, own_alarms = _above(scores, truth, grid)
    hits, alarms = (own_hits, own_alarms) if thresholds_of is None else _above(of_scores, of_truth, grid)
    found = np.full(len(scores), np.nan)
    for model in range(len(scores)):
        left = 0 if thresholds_of is not None else 1
        others = [counts.sum(axis=0) - left * counts[model] for counts in (hits, alarms)]
        of_others = [np.maximum(counts[0], 1) for counts in others]
        best = int((others[0] / of_others[0] - others[1] / of_others[1]).argmax())
        members, rest = own_hits[model, 0], own_alarms[model, 0]
        if members and rest:
            found[model] = (own_hits[model, best] / members + 1 - own_alarms[model, best] / rest) / 2
    return found


def _above(
    scores: np.ndarray, truth: np.ndarray, grid: np.ndarray
) -> tuple[Int[np.ndarray, "models grid"], Int[np.ndarray, "models grid"]]:
    """How many members, and how many non-members, of each model score at least each threshold; all at the lowest."""
    found = []
    for side in (truth, ~truth):
        rows = [np.sort(own[row & ~np.isnan(own)]) for own, row in zip(scores, side, strict=True)]
        at = [len(row) - np.searchsorted(row, grid, side="left") for row in rows]
        for row, counted in zip(rows, at, strict=True):
            counted[0] = len(row)  # The lowest threshold calls all, also scores below those that the grid came from.
        found.append(np.stack(at))
    return found[0], found[1]
