"""Whether outputs are those of the model that they are added to a bank for; see `jaxaudit.metrics.row_fit`."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.bank_odds import model_outputs
from jaxaudit.data.bank.bank import Bank
from jaxaudit.errors import InputError
from jaxaudit.metrics.row_fit import Dealt, dealt_records, other_row, row_fits

COMPARED = 8
"""Models whose outputs tell how difficult a record is: more hardly help."""


class Misplaced(NamedTuple):
    """Outputs that fit another training set of a bank overwhelmingly better than that of their own model.

    Attributes:
        model: the model whose training set they fit.
        fit, own_fit: how well they fit that of this and of their own model, in standard deviations.
    """

    model: int
    fit: float
    own_fit: float


def first_models(bank: Bank) -> dict[int, Float[np.ndarray, " n"]]:
    """Log-odds of the first few finished models of a bank whose outputs can be used."""
    found = {}
    for model in bank.finished().tolist():
        if len(found) == COMPARED:
            break
        with suppress(InputError):
            found[model] = model_outputs(bank, model).log_odds
    return found


def misplaced(
    bank: Bank, model: int, log_odds: Float[np.ndarray, " n"], known: dict[int, Float[np.ndarray, " n"]]
) -> Misplaced | None:
    """The model that these log-odds seem to be of, if it is another than `model`.

    Only rows that were dealt at random by `jaxaudit shadows plan` are judged. Then right outputs are taken for another
    model's at most once in 10,000 times.

    Args:
        bank: the bank.
        model: whose outputs they are said to be.
        log_odds: of each record's own class.
        known: log-odds of other models by number, see `first_models`.
    """
    if bank.description.seed is None:
        return None
    others = {number: each for number, each in known.items() if number != model}
    stacked = np.array(list(others.values())) if others else None
    fits = row_fits(log_odds, bank.membership, _dealt(bank), stacked, list(others))
    found = other_row(fits, model)
    return None if found is None else Misplaced(found, float(fits[found]), float(fits[model]))


def _dealt(bank: Bank) -> list[Dealt]:
    """Query set and holdout together, and the calibration set: each was dealt by itself."""
    asked = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    sets = [dealt_records(asked)]
    if bank.groups is not None:
        units = bank.groups.dealt[asked]
        sets = [Dealt(asked, np.unique(units, return_inverse=True)[1])]
    calibration = bank.holdout.stop + np.flatnonzero(~bank.dropped[bank.calibration])
    return [*sets, dealt_records(calibration)] if len(calibration) else sets
