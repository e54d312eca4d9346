"""Checks whether outputs belong to the model that they are added to a bank for; see `jaxaudit.metrics.row_fit`."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.bank_odds import model_outputs
from jaxaudit.data.bank.bank import Bank
from jaxaudit.errors import InputError
from jaxaudit.metrics.rank_scale import rank_scale
from jaxaudit.metrics.row_fit import RATE, Dealt, dealt_records, limit, other_row, row_fits

COMPARED = 8
"""Number of models whose outputs show how difficult a record is; more hardly help."""
LOOK = RATE / COMPARED
"""The largest probability that one check rejects right outputs. The outputs of the first models are checked again when
there are further models to compare them with."""


class RowMatch(NamedTuple):
    """How well outputs fit membership masks of a bank.

    Attributes:
        own_fit: fit to the mask of their own model, in standard deviations. `fit`: the best fit to that of another.
        other: another model whose mask the outputs fit overwhelmingly, so that they must be its outputs; or None.
        shown: whether the outputs demonstrably belong to their own model; a model that hardly memorises cannot show it.
    """

    own_fit: float
    fit: float
    other: int | None
    shown: bool


def first_models(bank: Bank) -> dict[int, Float[np.ndarray, " n"]]:
    """Log-odds of the first finished models of a bank with usable outputs."""
    log_odds = {}
    for model in bank.finished().tolist():
        if len(log_odds) == COMPARED:
            break
        with suppress(InputError):
            log_odds[model] = model_outputs(bank, model).log_odds
    return log_odds


def match_row(
    bank: Bank, model: int, log_odds: Float[np.ndarray, " n"], odds_by_model: dict[int, Float[np.ndarray, " n"]]
) -> RowMatch | None:
    """How well log-odds fit the membership masks of a bank; None with one model, or masks not drawn at random here.

    A test of your own draws masks as it likes, so models of its kinds are compared with nothing. Over all checks
    together, right outputs are attributed to another model with a probability of at most 1%.
    """
    first = bank.description.own_models
    if bank.description.seed is None or len(bank) - first < 2 or model < first:
        return None
    other_odds = {number: odds for number, odds in odds_by_model.items() if number != model and number >= first}
    stacked = np.array(list(other_odds.values())) if other_odds else None
    if bank.description.outputs == "score":
        log_odds, *rest = (rank_scale(odds[None, None])(odds) for odds in (log_odds, *other_odds.values()))
        stacked = np.array(rest) if other_odds else None
    rows = [number - first for number in other_odds]
    fits = row_fits(log_odds, bank.membership[first:], _dealt(bank), stacked, rows)
    own_fit, fit = float(fits[model - first]), float(np.delete(fits, model - first).max())
    shown, other = own_fit > max(limit(len(fits), LOOK), fit), other_row(fits, model - first, LOOK)
    return RowMatch(own_fit, fit, None if other is None else other + first, shown)


def _dealt(bank: Bank) -> list[Dealt]:
    """The sets that were randomised separately: query set with holdout, and the calibration set."""
    compared = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    sets = [dealt_records(compared)]
    if bank.groups is not None:
        units = bank.groups.dealt_sets[compared]
        sets = [Dealt(compared, np.unique(units, return_inverse=True)[1])]
    calibration = bank.holdout.stop + np.flatnonzero(~bank.dropped[bank.calibration])
    return [*sets, dealt_records(calibration)] if len(calibration) else sets
