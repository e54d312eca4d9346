"""The resolution of stored outputs, and rounding of log-odds from several files to the coarsest resolution."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Description
from jaxaudit.data.outputs.outputs import Outputs, match_logits, match_precision
from jaxaudit.data.outputs.precision import MOST_DECIMALS, coarsest_dtype, decimals_of, significant_of, step_near

Coarsening = Callable[[Float[np.ndarray, "*any"]], Float[np.ndarray, "*any"]]
"""Log-odds (nats) in, the same at another resolution out."""
SEEN = 1 << 16
"""Sample size: numbers of a file from which its resolution is found."""


def resolution_of(grids: tuple[Outputs, ...]) -> Coarsening:
    """The function that rounds log-odds to the coarsest resolution of these outputs; the identity if there are none.

    Logits give log-odds directly. Probabilities near 1 carry little information on log-odds: if some outputs are
    probabilities, all log-odds are converted to probabilities, rounded like them, and converted back.
    """
    if not grids:
        return lambda odds: odds
    if as_logits(grids):
        return lambda odds: match_logits(odds, *grids)
    return lambda odds: rounded(special.expit(odds.astype(np.float64)).astype(np.float32), grids)


def rounded(confidences: Float[np.ndarray, "*any"], grids: tuple[Outputs, ...]) -> Float[np.ndarray, "*any"]:
    """Log-odds of confidences rounded as in these files; 0 and 1 count as half a step inside the interval."""
    step = max(map(_step, grids))
    for file in grids:
        confidences = match_precision(confidences, file)
    return special.logit(np.clip(confidences.astype(np.float64), step / 2, 1 - step / 2))


def as_logits(grids: tuple[Outputs, ...]) -> bool:
    """Whether all of these are logits, so that log-odds are compared without a detour over probabilities."""
    return all(each.kind == "logits" for each in grids)


def distinct(grids: Iterable[Outputs]) -> tuple[Outputs, ...]:
    """One of these outputs for each resolution, the first."""
    found: dict[tuple[Any, ...], Outputs] = {}
    for each in grids:
        found.setdefault((each.kind, each.decimals, each.significant, each.dtype), each)
    return tuple(found.values())


def as_stored(bank: Bank, values: Float[np.ndarray, "n views values"], name: str) -> Outputs:
    """A sample of a model's outputs in the first view, with the precision of its file, to find their resolution."""
    kept = np.flatnonzero(~bank.dropped)
    rows = kept[:: max(1, len(kept) * values.shape[2] // SEEN)]
    return grid_of(bank.description, values[rows], values.dtype.name, name)


def grid_of(said: Description, values: Float[np.ndarray, "n views values"], dtype: str, name: str) -> Outputs:
    """The first view of a model's outputs, with the precision at which they are stored.

    Args:
        said: description of the bank.
        values: outputs as stored in a file; log-odds have one value.
        dtype: of the file.
        name: of these outputs.
    """
    first, kind = np.array(values[:, 0], np.float64), "probabilities" if said.outputs == "probabilities" else "logits"
    if first.shape[1] == 1:
        largest = np.finfo(np.float64).max
        first = np.concatenate([np.zeros_like(first), first.clip(-largest, largest)], axis=1)
    dtype = coarsest_dtype(first, dtype)
    decimals = decimals_of(first, dtype, least=int(kind == "probabilities"))
    return Outputs(first, kind, decimals, dtype, name, significant_of(first, dtype))


def _step(file: Outputs) -> float:
    """The step between neighbouring probabilities near 1 in a file."""
    if file.kind == "logits":
        return 10.0**-MOST_DECIMALS
    return max(10.0**-MOST_DECIMALS, step_near(1.0, file.decimals, file.significant, file.dtype))
