"""Whether outputs are those of the model that they are added to a bank for; see `jaxaudit.metrics.row_fit`."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.bank_odds import model_outputs
from jaxaudit.data.bank.bank import Bank
from jaxaudit.errors import InputError
from jaxaudit.metrics.row_fit import RATE, Dealt, dealt_records, limit, other_row, row_fits

COMPARED = 8
"""Models whose outputs tell how difficult a record is: more hardly help."""
LOOK = RATE / COMPARED
"""How often, at most, a look at right outputs refuses them: those of the first few models are looked at again when the
next ones are there to compare them with."""


class Whose(NamedTuple):
    """Which training set the outputs of a model fit.

    Attributes:
        own: how well they fit that of their own model, in standard deviations.
        fit: how well they fit the one that they fit best of all others.
        other: its model, if they fit it overwhelmingly: they are that model's outputs.
        shown: whether they show that they are their own model's; those of models that hardly remember do not.
    """

    own: float
    fit: float
    other: int | None
    shown: bool


def first_models(bank: Bank) -> dict[int, Float[np.ndarray, " n"]]:
    """Log-odds of the first few finished models of a bank whose outputs can be used."""
    found = {}
    for model in bank.finished().tolist():
        if len(found) == COMPARED:
            break
        with suppress(InputError):
            found[model] = model_outputs(bank, model).log_odds
    return found


def whose(
    bank: Bank, model: int, log_odds: Float[np.ndarray, " n"], known: dict[int, Float[np.ndarray, " n"]]
) -> Whose | None:
    """Which training set of a bank these log-odds fit; None where nobody knows how training sets were dealt.

    Only rows that were dealt at random by `jaxaudit shadows plan` are judged. Then right outputs are taken for another
    model's at most once in 100 times, all looks at them together.

    Args:
        bank: the bank.
        model: whose outputs they are said to be.
        log_odds: of each record's own class.
        known: log-odds of other models by number, see `first_models`.
    """
    if bank.description.seed is None or len(bank) < 2:
        return None
    others = {number: each for number, each in known.items() if number != model}
    stacked = np.array(list(others.values())) if others else None
    fits = row_fits(log_odds, bank.membership, _dealt(bank), stacked, list(others))
    own, fit = float(fits[model]), float(np.delete(fits, model).max())
    shown = own > max(limit(len(fits), LOOK), fit)
    return Whose(own, fit, other_row(fits, model, LOOK), shown)


def _dealt(bank: Bank) -> list[Dealt]:
    """Query set and holdout together, and the calibration set: each was dealt by itself."""
    asked = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    sets = [dealt_records(asked)]
    if bank.groups is not None:
        units = bank.groups.dealt[asked]
        sets = [Dealt(asked, np.unique(units, return_inverse=True)[1])]
    calibration = bank.holdout.stop + np.flatnonzero(~bank.dropped[bank.calibration])
    return [*sets, dealt_records(calibration)] if len(calibration) else sets
