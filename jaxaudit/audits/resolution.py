"""The resolution of stored outputs, and rounding of log-odds from several files to the coarsest resolution.

Confidences are compared at one resolution. A target's file may hold float16 numbers or four decimals; the shadow
models' confidences are rounded alike, to its decimals or significant digits, else rounding alone would part the two
distributions near 1. `attack` by a bank compares log-odds, which a file tells by two numbers, of the record's class and
of all others; a softmax knows a small one as well as a large one. So there only what the other file would not have is
lost.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Description
from jaxaudit.data.outputs.outputs import Outputs, logit_step, match_logits, match_precision
from jaxaudit.data.outputs.precision import (
    MOST_DECIMALS,
    as_dtype,
    coarsest_dtype,
    decimals_of,
    round_decimals,
    round_significant,
    significant_of,
    step_near,
)
from jaxaudit.metrics.scores import LIMIT, cut

Coarsening = Callable[[Float[np.ndarray, "*any"]], Float[np.ndarray, "*any"]]
"""Log-odds (nats) in, the same at another resolution out."""
SEEN = 1 << 16
"""Sample size: numbers of a file from which its resolution is found."""
FEW = 1 << 12
"""Sample size: numbers of a file from which its grid is found."""
MOST_PRINTED = 12
"""The most decimals of a grid that float64 can resolve."""


def resolution_of(grids: tuple[Outputs, ...]) -> Coarsening:
    """The function that rounds log-odds to the coarsest resolution of these outputs; the identity if there are none.

    Logits give log-odds directly. Probabilities near 1 carry little information on log-odds: if some outputs are
    probabilities, all log-odds are converted to probabilities, rounded like them, and converted back.
    """
    if not grids:
        return lambda odds: odds
    if all_logits(grids):
        return lambda odds: match_logits(odds, *grids)
    return lambda odds: rounded(special.expit(odds.astype(np.float64)).astype(np.float32), grids)


def rounded(confidences: Float[np.ndarray, "*any"], grids: tuple[Outputs, ...]) -> Float[np.ndarray, "*any"]:
    """Log-odds of confidences rounded as in these files; 0 and 1 count as half a step inside the interval."""
    step = 10.0**-MOST_DECIMALS
    for file in grids:
        confidences = match_precision(confidences, file)
        if file.kind != "logits":
            step = max(step, step_near(1.0, file.decimals, file.significant, file.dtype))
    return special.logit(np.clip(confidences.astype(np.float64), step / 2, 1 - step / 2))


def all_logits(grids: tuple[Outputs, ...]) -> bool:
    """Whether all of these are logits, so that log-odds are compared without a detour over probabilities."""
    return all(grid.kind == "logits" for grid in grids)


def distinct_resolutions(grids: Iterable[Outputs]) -> tuple[Outputs, ...]:
    """One of these outputs for each resolution, the first."""
    by_kind: dict[tuple[Any, ...], Outputs] = {}
    for grid in grids:
        by_kind.setdefault((grid.kind, grid.decimals, grid.significant, grid.dtype), grid)
    return tuple(by_kind.values())


def as_stored(bank: Bank, values: Float[np.ndarray, "n views values"], name: str) -> Outputs:
    """A sample of one model's stored outputs, with the precision at which the file stores numbers.

    The precision (decimals, significant digits, type) is found from the sample. Dropped records are left out.

    Args:
        bank: the bank that the model belongs to.
        values: the model's outputs as read from disk: record, view (augmented query), value. Only view 0 is used.
        name: the name of the outputs, for messages.
    """
    kept = np.flatnonzero(~bank.dropped)
    rows = kept[:: max(1, len(kept) * values.shape[2] // SEEN)]
    return grid_of(bank.description, values[rows], values.dtype.name, name)


def grid_of(description: Description, values: Float[np.ndarray, "n views values"], dtype: str, name: str) -> Outputs:
    """The first view of a model's outputs, with the precision at which they are stored (decimals, digits, type).

    Args:
        description: of the bank, which says what the outputs are.
        values: the outputs: record, view (augmented query), value. A single value becomes the second of two logits.
        dtype: the number type of the file.
        name: the name of the outputs, for messages.
    """
    first, kind = (
        np.array(values[:, 0], np.float64),
        "probabilities" if description.outputs == "probabilities" else "logits",
    )
    if first.shape[1] == 1:
        largest = np.finfo(np.float64).max
        first = np.concatenate([np.zeros_like(first), first.clip(-largest, largest)], axis=1)
    dtype = coarsest_dtype(first, dtype)
    decimals = decimals_of(first, dtype, least=int(kind == "probabilities"))
    return Outputs(first, kind, decimals, dtype, name, significant_of(first, dtype))


class Detail(NamedTuple):
    """The resolution at which a file stores log-odds.

    Attributes:
        logits: whether the file holds logits or log-odds; else probabilities.
        decimals, significant, dtype: as in `Outputs`.
        step: of logits, the step between neighbouring log-odds (nats). Of probabilities, the step of a grid on which
            all of them lie, or 0 if small ones have relative precision, as a float32 softmax has.
    """

    logits: bool
    decimals: int | None
    significant: int | None
    dtype: str
    step: float

    def coarsens(self, other: "Detail") -> bool:
        """Whether log-odds of the other file lose precision when they are rounded to this resolution."""
        if self[:4] == other[:4] and (self.logits or self.step == other.step):
            return False
        if self.logits:
            # The resolution of logits cannot be seen in a softmax of them.
            return other.logits and self.step > other.step
        # Steps between neighbouring probabilities near 1, from their digits alone.
        own_step, other_step = (step_near(1.0, None, detail.significant, detail.dtype) for detail in (self, other))
        return other.logits or self.step > other.step or own_step > other_step

    def round(self, odds: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """Log-odds (nats) in float64, rounded to this resolution.

        A file holds the probability of a record's class and those of others, so both are rounded.
        """
        odds = odds.astype(np.float64)
        if self.logits:
            return np.rint(odds / self.step) * self.step

        def log_of(shares: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
            if self.significant is not None:
                shares = round_significant(shares, self.significant)
            if self.decimals is not None:
                shares = round_decimals(shares, self.decimals)
            elif self.step:
                shares = np.rint(shares / self.step) * self.step
            return np.log(as_dtype(shares, self.dtype))

        with np.errstate(divide="ignore"):
            by_probability = log_of(special.expit(odds)) - log_of(special.expit(-odds))
        # Scores of equal log-odds must stay equal, so log-odds beyond the cut are not rounded.
        return cut(np.where(np.abs(odds) < LIMIT, by_probability, odds))


def coarser(details: Sequence[Detail], other_details: Sequence[Detail]) -> tuple[Detail, ...]:
    """The resolutions among `other_details` that are coarser than every resolution in `details`."""
    return tuple(other for other in other_details if all(other.coarsens(detail) for detail in details))


def at_resolution(odds: Float[np.ndarray, "*any"], details: Sequence[Detail]) -> Float[np.ndarray, "*any"]:
    """Log-odds (nats) rounded to each of these resolutions in turn; unchanged if there are none."""
    for detail in details:
        odds = detail.round(odds)
    return odds


def detail_of(file: Outputs) -> Detail:
    """The resolution at which these outputs store log-odds."""
    logits = file.kind == "logits"
    step = logit_step(file) if logits else _grid_of(file)
    return Detail(logits, file.decimals, file.significant, file.dtype, step)


def _grid_of(file: Outputs) -> float:
    """The step of a grid on which all probabilities of a file lie, small ones included; 0 without such a grid."""
    if file.decimals is not None:
        return 10.0**-file.decimals
    near = step_near(1.0, None, None, file.dtype)
    # With one column, the probability of the other class is 1 minus it.
    if file.values.shape[1] == 1:
        return near
    # An odd stride samples all classes.
    some = file.values[:: file.values.size // FEW | 1].astype(np.float64)
    printed = [10.0**-decimals for decimals in range(1, MOST_PRINTED + 1)]
    # Of two classes, one probability may have been computed as 1 minus the other.
    parts = some.T if some.shape[1] == 2 else [some]
    for step in sorted([near, *(step_size for step_size in printed if step_size > near)], reverse=True):
        # Equal up to the last bits of float64; a small number must not round to 0.
        if any(np.allclose(np.rint(part / step) * step, part, rtol=1e-15, atol=0) for part in parts):
            return step
    return 0.0
