"""What the models of a bank say: log-odds of each record's own class, and accuracy. One file is read at a time."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int
from scipy import special

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Kind
from jaxaudit.metrics.scores import LIMIT, cut, log_odds

BLOCK = 1 << 19
"""Numbers that are converted at a time."""
FINEST = 103.0
"""Log-odds (nats) of the smallest probability that float32 holds, less a little."""


class ModelOutputs(NamedTuple):
    """What one model of a bank says; NaN of records that were dropped.

    Attributes:
        log_odds: nats, of each record's own class; the mean over the views of a record.
        correct: the share of its views for which the record's own class has the largest output (of a bank of log-odds
            that does not say: a probability above one half).
    """

    log_odds: Float32[np.ndarray, " n"]
    correct: Float32[np.ndarray, " n"]


def model_outputs(bank: Bank, model: int) -> ModelOutputs:
    """The outputs of one model of a bank, from its file; see `said`.

    Raises:
        InputError: as `Bank.outputs`.
    """
    return decode_outputs(bank, model, bank.outputs(model))


def decode_outputs(bank: Bank, model: int, values: Float[np.ndarray, "n views values"]) -> ModelOutputs:
    """What the outputs of this model say, which were read before."""
    found = said(bank, values)
    if bank.correct is None:
        return found
    return found._replace(correct=np.where(bank.dropped, np.nan, bank.correct[model] > 0).astype(np.float32))


def said(bank: Bank, values: Float[np.ndarray, "n views values"]) -> ModelOutputs:
    """What outputs of the kind of this bank say.

    Log-odds of several views are cut at 20 nats, as every test cuts them, and then averaged; those of one view may be
    infinite, where a probability was rounded to 0 or 1.
    """
    labels = np.where(bank.dropped, 0, bank.labels)
    odds, correct = (np.empty(len(values), np.float32) for _ in range(2))
    for part in _parts(values):
        found, hits = _of_class(bank.description.outputs, values[part], labels[part])
        with np.errstate(over="ignore"):
            odds[part] = _mean_of_views(found)
        correct[part] = hits.mean(axis=1)
    odds[bank.dropped] = correct[bank.dropped] = np.nan
    return ModelOutputs(odds, correct)


def as_logits(
    bank: Bank, values: Float[np.ndarray, "n views values"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n classes"]:
    """One row of logits a record that says what outputs of the kind of this bank say of its class: the same log-odds.

    The other classes share the rest as in the mean over views of their probabilities.

    Args:
        bank: the bank, for its kind of outputs: logits or probabilities.
        values: outputs on some records.
        labels: their classes.
    """
    made = np.empty((len(values), values.shape[2]))
    own = np.arange(values.shape[2]) == labels[:, None]
    for part in _parts(values):
        found, _ = _of_class(bank.description.outputs, values[part], labels[part])
        made[part] = np.log(np.maximum(_probabilities(bank, values[part]).mean(axis=1), np.exp(-LIMIT)))
        rest = special.logsumexp(np.where(own[part], -np.inf, made[part]), axis=1)
        made[part][own[part]] = cut(_mean_of_views(found)) + rest
    return made


def own_logits(values: Float[np.ndarray, "n views 1"]) -> Float[np.ndarray, "n 2"]:
    """Logits of all other classes together and of each record's own, from log-odds; cut at 20 nats, as tests cut them.

    A record counts as correct where `ModelOutputs.correct` says so, and nothing here depends on the number of classes.
    """
    odds = cut(_mean_of_views(values[:, :, 0].astype(np.float64)))
    return np.stack([np.zeros_like(odds), odds], axis=1)


def _parts(values: np.ndarray) -> Iterator[slice]:
    rows = max(1, BLOCK // (values.shape[1] * values.shape[2]))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def _mean_of_views(found: Float[np.ndarray, "n views"]) -> Float[np.ndarray, " n"]:
    return found[:, 0] if found.shape[1] == 1 else cut(found).mean(axis=1)


def _probabilities(bank: Bank, values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float64)
    return special.softmax(values, axis=2) if bank.description.outputs == "logits" else values.clip(0, 1)


def bank_log_odds(bank: Bank, models: Sequence[int] | None = None) -> Float32[np.ndarray, "models n"]:
    """Log-odds (nats) of each record's own class, of these models of a bank; see `ModelOutputs`.

    Args:
        bank: the bank.
        models: their numbers; by default all that are finished.

    Raises:
        InputError: as `Bank.outputs`.
    """
    chosen = bank.finished().tolist() if models is None else models
    found = np.empty((len(chosen), bank.description.records), np.float32)
    for place, model in enumerate(chosen):
        found[place] = model_outputs(bank, model).log_odds
    return found


def bank_accuracy(bank: Bank, models: Sequence[int] | None = None) -> Float[np.ndarray, " models"]:
    """The accuracy of these models of a bank on their own training records; NaN where the bank has none of them.

    Args:
        bank: the bank.
        models: their numbers; by default all that are finished.

    Raises:
        InputError: as `Bank.outputs`.
    """
    chosen = bank.finished().tolist() if models is None else models
    return np.array([own_accuracy(bank, model, model_outputs(bank, model)) for model in chosen])


def log_odds_by_view(bank: Bank, model: int) -> Float[np.ndarray, "views n"]:
    """Log-odds (nats) of each record's own class in each view, in float64; NaN of records that were dropped.

    Raises:
        InputError: as `Bank.outputs`.
    """
    odds = log_odds_of(bank.description.outputs, bank.outputs(model), np.where(bank.dropped, 0, bank.labels))
    odds[:, bank.dropped] = np.nan
    return odds


def log_odds_of(
    kind: Kind, values: Float[np.ndarray, "n views values"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "views n"]:
    """Log-odds (nats) of each record's own class in each view, in float64, of outputs of this kind.

    Cut where a file cannot say more: of logits at `FINEST`, of probabilities and given log-odds at 20.
    """
    odds = np.empty((values.shape[1], len(values)))
    for part in _parts(values):
        odds[:, part] = _of_class(kind, values[part], labels[part])[0].T
    most = FINEST if kind == "logits" else LIMIT
    return np.clip(odds, -most, most, out=odds)


def own_accuracy(bank: Bank, model: int, outputs: ModelOutputs) -> float:
    """The accuracy of a model on its own training records; NaN where the bank has none of them."""
    members = bank.membership[model]
    return float(outputs.correct[members].mean(dtype=np.float64)) if members.any() else float("nan")


def _of_class(kind: Kind, values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds, and whether the class is right, of each view of these records."""
    values = values.astype(np.float64)
    if kind == "log_odds":
        return values[:, :, 0], values[:, :, 0] > 0
    hits = values.argmax(axis=2) == labels[:, None]
    if kind == "probabilities":
        with np.errstate(divide="ignore"):
            values = np.log(np.maximum(values, 0))
    return log_odds(values.transpose(1, 0, 2), labels).T, hits
