"""How finely files know log-odds, and log-odds made as coarse as another file would have them, and no coarser."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.data.outputs.outputs import Outputs, logit_step
from jaxaudit.data.outputs.precision import as_dtype, round_decimals, round_significant, step_near
from jaxaudit.metrics.scores import LIMIT, cut

FEW = 1 << 12
"""Numbers of a file that tell its grid."""
MOST_PRINTED = 12
"""Decimals of a grid that float64 can still tell from none."""


class Detail(NamedTuple):
    """How finely a file knows log-odds.

    Attributes:
        logits: whether it holds logits or log-odds; else probabilities.
        decimals, significant, dtype: as in `Outputs`.
        step: of logits, between neighbouring log-odds (nats); of probabilities, of the grid that even small ones lie
            on, or 0 where small ones are known as well as large ones, as a softmax in float32 is.
    """

    logits: bool
    decimals: int | None
    significant: int | None
    dtype: str
    step: float

    @property
    def relative(self) -> float:
        """The step between neighbouring probabilities near 1, from their digits alone."""
        return step_near(1.0, None, self.significant, self.dtype)

    def coarsens(self, other: "Detail") -> bool:
        """Whether log-odds of the other file lose something in this one."""
        if self[:4] == other[:4] and (self.logits or self.step == other.step):
            return False
        if self.logits:
            # A softmax does not tell how coarse its logits were.
            return other.logits and self.step > other.step
        return other.logits or self.step > other.step or self.relative > other.relative

    def round(self, odds: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """Log-odds (nats) in float64 as a file like this one gives them.

        Of probabilities: those of a record's class and of all others are rounded one by one, as the file holds both. A
        class whose probability is rounded to 1 is as sure as `log_odds_of` finds it: 20 nats.
        """
        odds = odds.astype(np.float64)
        if self.logits:
            return np.rint(odds / self.step) * self.step
        with np.errstate(divide="ignore"):
            made = np.log(self._rounded(special.expit(odds))) - np.log(self._rounded(special.expit(-odds)))
        # Scores of equal log-odds must stay equal, so rounding moves none that is cut.
        return cut(np.where(np.abs(odds) < LIMIT, made, odds))

    def _rounded(self, shares: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        if self.significant is not None:
            shares = round_significant(shares, self.significant)
        if self.decimals is not None:
            shares = round_decimals(shares, self.decimals)
        elif self.step:
            shares = np.rint(shares / self.step) * self.step
        return as_dtype(shares, self.dtype)


def coarser(own: Sequence[Detail], others: Sequence[Detail]) -> tuple[Detail, ...]:
    """Those of the others in which log-odds lose something that are as coarse as all of `own` already."""
    return tuple(other for other in others if all(other.coarsens(each) for each in own))


def at_resolution(odds: Float[np.ndarray, "*any"], details: Sequence[Detail]) -> Float[np.ndarray, "*any"]:
    """Log-odds (nats) as coarse as each of these; themselves without any."""
    for each in details:
        odds = each.round(odds)
    return odds


def detail_of(file: Outputs) -> Detail:
    """How finely these outputs know log-odds."""
    logits = file.kind == "logits"
    step = logit_step(file) if logits else _grid_of(file)
    return Detail(logits, file.decimals, file.significant, file.dtype, step)


def _grid_of(file: Outputs) -> float:
    """The step of the grid that all probabilities of a file lie on, small ones, too; 0 without such a grid."""
    if file.decimals is not None:
        return 10.0**-file.decimals
    near = step_near(1.0, None, None, file.dtype)
    # One column leaves the other class what is missing to 1.
    if file.values.shape[1] == 1:
        return near
    # An odd stride meets all classes where they take turns.
    some = file.values[:: file.values.size // FEW | 1].astype(np.float64)
    printed = [10.0**-decimals for decimals in range(1, MOST_PRINTED + 1)]
    # Of two classes, one may have been subtracted from 1.
    parts = some.T if some.shape[1] == 2 else [some]
    for step in sorted([near, *(each for each in printed if each > near)], reverse=True):
        # But for the last bits of float64, and never 0 in place of a small number.
        if any(np.allclose(np.rint(part / step) * step, part, rtol=1e-15, atol=0) for part in parts):
            return step
    return 0.0
