"""Log-odds of each record's own class, and accuracy, of the models of a bank. One file is read at a time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Float32, Int
from scipy import special

from jaxaudit.audits.resolution import grid_of
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Description, Kind
from jaxaudit.data.bank.outputs import load_into
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.metrics.scores import LIMIT, cut, log_odds

BLOCK = 1 << 19
"""Number of values that are converted at a time."""
FINEST = 103.0
"""Just below the log-odds (nats) of the smallest probability that float32 holds."""
LARGEST: dict[Kind, float] = {
    "logits": FINEST,
    "probabilities": LIMIT,
    "log_odds": LIMIT,
    "log_likelihood": LIMIT,
    "score": float("inf"),
}
"""The largest log-odds (nats) that attacks tell apart in outputs of each kind; larger ones are cut to it."""


class ModelOutputs(NamedTuple):
    """The outputs of one model of a bank; NaN for dropped records.

    Attributes:
        by_view: log-odds (nats) of each record's own class in each view; infinite where a probability was rounded to 0
            or 1. Of a bank of scores the scores themselves, larger for records that were used.
        correct: the share of views in which the record's own class has the largest output, or of a bank of log-odds a
            probability above one half. NaN where records have no classes.
    """

    by_view: Float[np.ndarray, "n views"]
    correct: Float32[np.ndarray, " n"]

    @property
    def log_odds(self) -> Float32[np.ndarray, " n"]:
        """Log-odds of each record's own class. Those of several views are cut at 20 nats, then averaged."""
        with np.errstate(over="ignore"):
            return _mean_of_views(self.by_view).astype(np.float32)


def model_outputs(bank: Bank, model: int, values: Float[np.ndarray, "n views values"] | None = None) -> ModelOutputs:
    """The outputs of one model of a bank, read from its file unless the values are given."""
    outputs = as_model_outputs(bank, bank.outputs(model) if values is None else values)
    if bank.correct is None:
        return outputs
    return outputs._replace(correct=np.where(bank.dropped, np.nan, bank.correct[model] > 0).astype(np.float32))


def as_model_outputs(bank: Bank, values: Float[np.ndarray, "n views values"]) -> ModelOutputs:
    """The outputs of a model from values of the kind that this bank stores."""
    labels = np.where(bank.dropped, 0, bank.labels)
    odds, correct = np.empty(values.shape[:2]), np.empty(len(values), np.float32)
    for part in _parts(values):
        odds[part], hits = _of_class(bank.description.outputs, upward(bank.description, values[part]), labels[part])
        correct[part] = hits.mean(axis=1)
    odds[bank.dropped] = correct[bank.dropped] = np.nan
    return ModelOutputs(odds, correct)


def as_logits(
    bank: Bank, values: Float[np.ndarray, "n views values"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n classes"]:
    """A row of logits for each record: of its class the mean log-odds over views, cut at 20 nats."""
    logits = np.empty((len(values), values.shape[2]))
    own_class = np.arange(values.shape[2]) == labels[:, None]
    for part in _parts(values):
        own_odds, _ = _of_class(bank.description.outputs, values[part], labels[part])
        some = values[part].astype(np.float64)
        shares = special.softmax(some, axis=2) if bank.description.outputs == "logits" else some.clip(0, 1)
        logits[part] = np.log(np.maximum(shares.mean(axis=1), np.exp(-LIMIT)))
        rest = special.logsumexp(np.where(own_class[part], -np.inf, logits[part]), axis=1)
        logits[part][own_class[part]] = cut(_mean_of_views(own_odds)) + rest
    return logits


def own_logits(values: Float[np.ndarray, "n views 1"]) -> Float[np.ndarray, "n 2"]:
    """Logits of all other classes together and of each record's own class, from log-odds cut at 20 nats."""
    odds = cut(_mean_of_views(values[:, :, 0].astype(np.float64)))
    return np.stack([np.zeros_like(odds), odds], axis=1)


def _parts(values: np.ndarray) -> Iterator[slice]:
    rows = max(1, BLOCK // (values.shape[1] * values.shape[2]))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def _mean_of_views(odds: Float[np.ndarray, "n views"]) -> Float[np.ndarray, " n"]:
    return odds[:, 0] if odds.shape[1] == 1 else cut(odds).mean(axis=1)


def log_odds_of(
    kind: Kind, values: Float[np.ndarray, "n views values"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "views n"]:
    """The log-odds (nats) of each record's own class in each view (augmented query), cut at +-`LARGEST` of their kind.

    Args:
        kind: what `values` are, such as `logits`. Values of the kind `score` are returned as they are.
        values: a model's outputs, as read from a file.
        labels: the class of each record.
    """
    odds, most = np.empty(values.shape[:2]), LARGEST[kind]
    for part in _parts(values):
        odds[part] = _of_class(kind, values[part], labels[part])[0]
    return odds.T.clip(-most, most)


def own_accuracy(bank: Bank, model: int, outputs: ModelOutputs) -> float:
    """The accuracy of a model on its own training records; NaN if the bank holds none of them."""
    members = bank.membership[model]
    return float(outputs.correct[members].mean(dtype=np.float64)) if members.any() else float("nan")


def upward(description: Description, values: np.ndarray) -> np.ndarray:
    """The same outputs, or where a `lower` score means that a record was used, their negatives."""
    return -values if description.direction == "lower" else values


def score_outputs(path: Path, description: Description, records: int, of: str | None = None) -> Outputs:
    """A model's outputs on this many records without classes, from a file of one column, or a table with this set.

    The second column has log-odds, or scores that are larger for records that were used; the first, of all others, 0.
    """
    values = load_into(path, msgspec.structs.replace(description, records=records, counts=None), of)
    odds = log_odds_of(description.outputs, upward(description, values), np.zeros(records, int))[0]
    grid = grid_of(description, values, "float32", path.name)
    return replace(grid, values=np.stack([np.zeros_like(odds), odds], axis=1), own_class=True)


def load_log_likelihoods(path: str | Path, rows: int, *, of: str | None = None) -> Outputs:
    r"""A language model's outputs on a set of texts: a file with one column, each text's mean log-likelihood.

    Args:
        path: .npz, .npy, .csv or .parquet, in the order of the texts; nats a token, at most 0.
        rows: the number of texts.
        of: the set in a table of scores, such as "holdout"; by default the file has one column.

    Raises:
        InputError: as `load_outputs`; or a number is above 0.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "said.csv"
    >>> _ = file.write_text("mean\n-0.5\n-4\n")
    >>> load_log_likelihoods(file, 2).probabilities[:, 1].round(3)
    array([0.607, 0.018], dtype=float32)
    """
    description = Description(format=1, outputs="log_likelihood", direction="higher", records=rows, models=1)
    return score_outputs(Path(path).expanduser(), description, rows, of)


def _of_class(kind: Kind, values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds, and whether the class is predicted correctly, of each view of these records."""
    values = values.astype(np.float64)
    if kind in ("score", "log_likelihood"):
        with np.errstate(divide="ignore"):
            odds = values[:, :, 0] if kind == "score" else values[:, :, 0] - np.log(-np.expm1(values[:, :, 0]))
        return odds, np.full(odds.shape, np.nan)
    if kind == "log_odds":
        return values[:, :, 0], values[:, :, 0] > 0
    hits = values.argmax(axis=2) == labels[:, None]
    if kind == "probabilities":
        with np.errstate(divide="ignore"):
            values = np.log(np.maximum(values, 0))
    return log_odds(values.transpose(1, 0, 2), labels).T, hits
