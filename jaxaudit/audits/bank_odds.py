"""Log-odds of each record's own class of the models of a bank, read a file at a time, and their resolution.

Outputs are compared at the coarsest resolution: else rounding alone would part a target's file of four decimals from
shadow models near 1. `attack` compares log-odds, which a file tells by two numbers, of the record's class and of all
others; so there only what the other file would not have is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Float32
from scipy import special

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Description, Kind, load_into
from jaxaudit.data.outputs.form import OutputsPlace, as_place
from jaxaudit.data.outputs.kinds import (
    MOST_DECIMALS,
    as_dtype,
    coarsest_dtype,
    decimals_of,
    round_decimals,
    round_significant,
    significant_of,
    step_near,
)
from jaxaudit.data.outputs.outputs import Outputs, logit_step, match_logits, match_precision
from jaxaudit.metrics.arrays import Integers, Numbers
from jaxaudit.metrics.scores import LIMIT, cut, log_odds

AnyOdds = Float[np.ndarray, "*any"]
StoredOutputs = Float[np.ndarray, "n views values"]
Grids = tuple[Outputs, ...]
"""Outputs of files or models, for the resolutions that they show."""
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
        correct: the share of views in which the record's own class has the largest output; NaN without classes.
    """

    by_view: Float[np.ndarray, "n views"]
    correct: Float32[np.ndarray, " n"]

    @property
    def log_odds(self) -> Float32[np.ndarray, " n"]:
        """Log-odds of each record's own class. Those of several views are cut at 20 nats, then averaged."""
        with np.errstate(over="ignore"):
            return mean_of_views(self.by_view).astype(np.float32)


def model_outputs(bank: Bank, values: StoredOutputs, model: int | None = None) -> ModelOutputs:
    """The outputs of one model as a bank stores them; a bank that has this model may know which are correct."""
    labels = np.where(bank.dropped, 0, bank.labels)
    odds, correct = np.empty(values.shape[:2]), np.empty(len(values), np.float32)
    for part in _parts(values):
        odds[part], hits = _of_class(bank.description.outputs, upward(bank.description, values[part]), labels[part])
        correct[part] = hits.mean(axis=1)
    if bank.correct is not None and model is not None:
        correct[:] = bank.correct[model] > 0
    odds[bank.dropped] = correct[bank.dropped] = np.nan
    return ModelOutputs(odds, correct)


def as_logits(bank: Bank, values: StoredOutputs, labels: Integers) -> Float[np.ndarray, "n classes"]:
    """A row of logits for each record: of its class the mean log-odds over views, cut at 20 nats."""
    logits = np.empty((len(values), values.shape[2]))
    own_class = np.arange(values.shape[2]) == labels[:, None]
    for part in _parts(values):
        own_odds, _ = _of_class(bank.description.outputs, values[part], labels[part])
        some = values[part].astype(np.float64)
        shares = special.softmax(some, axis=2) if bank.description.outputs == "logits" else some.clip(0, 1)
        logits[part] = np.log(np.maximum(shares.mean(axis=1), np.exp(-LIMIT)))
        rest = special.logsumexp(np.where(own_class[part], -np.inf, logits[part]), axis=1)
        logits[part][own_class[part]] = cut(mean_of_views(own_odds)) + rest
    return logits


def _parts(values: np.ndarray) -> Iterator[slice]:
    rows = max(1, BLOCK // (values.shape[1] * values.shape[2]))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def mean_of_views(odds: Float[np.ndarray, "n views"]) -> Numbers:
    return odds[:, 0] if odds.shape[1] == 1 else cut(odds).mean(axis=1)


def log_odds_of(kind: Kind, values: StoredOutputs, labels: Integers) -> Float[np.ndarray, "views n"]:
    """The log-odds (nats) of each record's own class in each view, cut at +-`LARGEST` of a kind; scores stay."""
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


def score_outputs(
    path: str | Path | OutputsPlace, description: Description, records: int, of: str | None = None
) -> Outputs:
    """A model's outputs of one number a record, from a file; of records without classes also from a table with the set
    `of`. The first column is 0, the second the mean log-odds over views, or scores that are larger for used records.
    """
    place = as_place(path)
    values = load_into(place, msgspec.structs.replace(description, records=records, counts=None), of)
    odds = log_odds_of(description.outputs, upward(description, values), np.zeros(records, int)).mean(axis=0)
    grid = outputs_of_first_view(description, values, "float32", place.name)
    return replace(grid, values=np.stack([np.zeros_like(odds), odds], axis=1), own_class=True)


def load_log_likelihoods(path: str | Path | OutputsPlace, rows: int, *, of: str | None = None) -> Outputs:
    r"""A language model's outputs on a set of texts: a file with one column, each text's mean log-likelihood.

    Args:
        path: .npz, .npy, .csv or .parquet, in the order of the texts; nats a token, at most 0.
        rows: the number of texts.
        of: the set in a table of scores, such as "holdout"; by default the file has one column.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "said.csv"
    >>> _ = file.write_text("mean\n-0.5\n-4\n")
    >>> load_log_likelihoods(file, 2).probabilities[:, 1].round(3)
    array([0.607, 0.018], dtype=float32)
    """
    description = Description(format=1, outputs="log_likelihood", direction="higher", records=rows, models=1)
    return score_outputs(path, description, rows, of)


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


Coarsening = Callable[[AnyOdds], AnyOdds]
"""Log-odds (nats) in, the same at another resolution out."""
SEEN = 1 << 16
"""Sample size: numbers of a file from which its resolution is found."""
FEW = 1 << 12
"""Sample size: numbers of a file from which its grid is found."""
MOST_PRINTED = 12
"""The most decimals of a grid that float64 can resolve."""


def resolution_of(grids: Grids) -> Coarsening:
    """Rounds log-odds to the coarsest resolution of these outputs; beside probabilities, by a detour over these."""
    if not grids:
        return lambda odds: odds
    if all_logits(grids):
        return lambda odds: match_logits(odds, *grids)
    return lambda odds: rounded(special.expit(odds.astype(np.float64)).astype(np.float32), grids)


def rounded(confidences: AnyOdds, grids: Grids) -> AnyOdds:
    """Log-odds of confidences rounded as in these files; 0 and 1 count as half a step inside the interval."""
    step = 10.0**-MOST_DECIMALS
    for file in grids:
        confidences = match_precision(confidences, file)
        if file.kind != "logits":
            step = max(step, step_near(1.0, file.decimals, file.significant, file.dtype))
    return special.logit(np.clip(confidences.astype(np.float64), step / 2, 1 - step / 2))


def all_logits(grids: Grids) -> bool:
    """Whether all of these are logits, so that log-odds are compared without a detour over probabilities."""
    return all(grid.kind == "logits" for grid in grids)


def distinct_resolutions(grids: Iterable[Outputs]) -> Grids:
    by_kind: dict[tuple[Any, ...], Outputs] = {}
    for grid in grids:
        by_kind.setdefault((grid.kind, grid.decimals, grid.significant, grid.dtype), grid)
    return tuple(by_kind.values())


def outputs_of_first_view(description: Description, values: StoredOutputs, dtype: str, file_name: str) -> Outputs:
    """The first view of a model's outputs, and its precision; one value becomes the second of two logits."""
    view, kind = (
        np.array(values[:, 0], np.float64),
        "probabilities" if description.outputs == "probabilities" else "logits",
    )
    if view.shape[1] == 1:
        largest = np.finfo(np.float64).max
        view = np.concatenate([np.zeros_like(view), view.clip(-largest, largest)], axis=1)
    dtype = coarsest_dtype(view, dtype)
    decimals = decimals_of(view, dtype, least=int(kind == "probabilities"))
    return Outputs(view, kind, decimals, dtype, file_name, significant_of(view, dtype))


class Detail(NamedTuple):
    """The resolution at which a file stores log-odds: of `logits` (or log-odds), else of probabilities.

    `step` is that between neighbouring log-odds (nats); of probabilities that of a grid on which all of them lie, or 0
    if small ones have relative precision, as a float32 softmax has. The rest is as in `Outputs`.
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

    def round(self, odds: AnyOdds) -> AnyOdds:
        """Log-odds (nats) in float64, rounded as the file rounds the probabilities of the own class and others."""
        odds = odds.astype(np.float64)
        if self.logits:
            return np.rint(odds / self.step) * self.step

        def log_of(shares: AnyOdds) -> AnyOdds:
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


def at_resolution(odds: AnyOdds, details: Sequence[Detail]) -> AnyOdds:
    """Log-odds (nats) rounded to each of these resolutions in turn; unchanged if there are none."""
    for detail in details:
        odds = detail.round(odds)
    return odds


def detail_of(file: Outputs) -> Detail:
    logits = file.kind == "logits"
    step = logit_step(file) if logits else _step_of(file)
    return Detail(logits, file.decimals, file.significant, file.dtype, step)


def _step_of(file: Outputs) -> float:
    """The step of a grid on which all probabilities of a file lie, small ones included; 0 without such a grid."""
    if file.decimals is not None:
        return 10.0**-file.decimals
    near = step_near(1.0, None, None, file.dtype)
    # With one column, the probability of the other class is 1 minus it.
    if file.values.shape[1] == 1:
        return near
    # An odd stride samples all classes.
    sample = file.values[:: file.values.size // FEW | 1].astype(np.float64)
    printed = [10.0**-decimals for decimals in range(1, MOST_PRINTED + 1)]
    # Of two classes, one probability may have been computed as 1 minus the other.
    parts = sample.T if sample.shape[1] == 2 else [sample]
    for step in sorted([near, *(step_size for step_size in printed if step_size > near)], reverse=True):
        # Equal up to the last bits of float64; a small number must not round to 0.
        if any(np.allclose(np.rint(part / step) * step, part, rtol=1e-15, atol=0) for part in parts):
            return step
    return 0.0
