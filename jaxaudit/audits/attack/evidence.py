"""Outputs of a bank's shadow models, and of targets, on the bank's records, as attacks on records need them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records import ShadowScores
from jaxaudit.attacks.records.attack import Dealt, deal_of, unused_records
from jaxaudit.audits.attack.detail import at_resolution, coarser, detail_of
from jaxaudit.audits.bank_odds import BLOCK, FINEST, log_odds_of
from jaxaudit.audits.resolution import as_stored, distinct
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.reading import read_models
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import LIMIT

LEAST_MODELS = 4


class BankOutputs(NamedTuple):
    """Outputs of the finished models of a bank on the records that are not dropped.

    Attributes:
        bank: the bank.
        models: their numbers in the bank.
        columns: index in the bank of each record that is not dropped.
        records: number of attacked records, dropped ones included.
        shadowed: log-odds and membership masks. If files differ in resolution, all log-odds are at the coarsest one.
        stored: outputs of some models as stored in their files, one for each resolution.
        limit: the largest absolute log-odds (nats) that these files can represent; larger ones are cut to it.
        content_hash: of the bank; see `read_models`.
    """

    bank: Bank
    models: Int[np.ndarray, " models"]
    columns: Int[np.ndarray, " n"]
    records: int
    shadowed: ShadowScores
    stored: tuple[Outputs, ...]
    limit: float
    content_hash: str


def bank_outputs(bank: Bank, attacks: int, records: int | None = None) -> BankOutputs:
    """Reads the outputs of every finished model, a few files at a time.

    Args:
        bank: the bank.
        attacks: number of attacks that score all records, for the estimate of memory.
        records: attack only the first `records` of the bank; by default all.

    Raises:
        InputError: fewer than `LEAST_MODELS` models are finished; no record is a member of some models and a non-member
            of others; all models have equal outputs; there is too little memory; or as `Bank.outputs`.
    """
    models, columns = bank.finished(), np.flatnonzero(~bank.dropped[:records])
    if len(models) < LEAST_MODELS:
        raise InputError(
            f"the bank has {len(models)} finished shadow model{'' if len(models) == 1 else 's'}, and an attack "
            f"compares each with others: finish at least {LEAST_MODELS}, preferably 32."
        )
    views = bank.description.queries
    needed = memory_of(len(models), views, len(columns), attacks)
    if needed > MAX_BYTES:
        raise InputError(
            f"{len(models)} models of {len(columns):,} records need {needed >> 30} GiB of memory for {attacks} "
            "attacks; name fewer (`attacks`)."
        )
    odds = np.empty((len(models), views, len(columns)))
    labels = np.where(bank.dropped, 0, bank.labels)

    def read(index: int, values: Float[np.ndarray, "n views values"]) -> Outputs:
        odds[index] = log_odds_of(bank.description.outputs, values, labels)[:, columns]
        return as_stored(bank, values, f"model {models[index]}")

    grids, content_hash = read_models(bank, models.tolist(), read)
    stored = distinct(grids)
    if len(stored) > 1:
        details = [detail_of(each) for each in stored]
        for index, file in enumerate(grids):
            odds[index] = at_resolution(odds[index], coarser([detail_of(file)], details))
    membership = np.array(bank.membership[models][:, columns])
    inside = membership.sum(axis=0)
    if not ((inside > 0) & (inside < len(models))).any():
        raise InputError("no record was in the training sets of some finished models and not of others.")
    if np.ptp(odds, axis=0).max() == 0:
        raise InputError("all finished models say the same of every record; were the same outputs saved for each?")
    shadowed = ShadowScores(
        odds, membership, dealt=_dealt(bank, columns), unused=unused_records(bank.membership[:, columns])
    )
    limit = FINEST if bank.description.outputs == "logits" else LIMIT
    return BankOutputs(
        bank, models, columns, records or bank.description.records, shadowed, stored, limit, content_hash
    )


def memory_of(models: int, views: int, records: int, attacks: int, others: int = 0) -> int:
    """Bytes of memory that attacks on all records take.

    Args:
        models, views, records: numbers in the bank.
        attacks: number of attacks.
        others: number of further resolutions at which targets are compared with the models. Each takes the log-odds of
            all models once more, and the scores of two attacks.
    """
    return 8 * models * records * (views + attacks + 12 + others * (views + 2))


def _dealt(bank: Bank, columns: Int[np.ndarray, " n"]) -> Dealt:
    """How records were assigned to models (see `deal_of`), set by set, from the masks of all planned models."""
    found = Dealt(*(np.full(bank.description.records, np.inf) for _ in Dealt._fields))
    for part in (bank.query, bank.holdout, bank.calibration):
        kept = np.flatnonzero(~bank.dropped[part]) + part.start
        if len(kept):
            for whole, own in zip(found, deal_of(np.array(bank.membership[:, kept])), strict=True):
                whole[kept] = own
    return Dealt(*(each[columns] for each in found))


def revealing_classes(
    bank: Bank, models: Sequence[int], columns: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"] | None:
    """The class whose probability differs most, on average, between models with a record and models without it.

    None if the bank stores log-odds, which have no other class, or has too many classes; -1 for a record that all
    models or none were trained on.
    """
    classes = bank.description.classes
    if bank.description.outputs == "log_odds" or 16 * len(columns) * classes > MAX_BYTES // 4:
        return None
    sums = np.zeros((2, len(columns), classes))
    inside: Bool[np.ndarray, "models n"] = bank.membership[np.asarray(models)][:, columns]
    for model, own in zip(models, inside, strict=True):
        values = bank.outputs(model)
        rows = max(1, BLOCK // (values.shape[1] * classes))
        for start in range(0, len(columns), rows):
            part = slice(start, start + rows)
            said = _probabilities(bank, values[columns[part]].astype(np.float64))
            sums[0, part] += np.where(own[part, None], said, 0.0)
            sums[1, part] += np.where(own[part, None], 0.0, said)
    times = inside.sum(axis=0)
    both = (times > 0) & (times < len(models))
    apart = sums[0] / np.maximum(times, 1)[:, None] - sums[1] / np.maximum(len(models) - times, 1)[:, None]
    return np.where(both, np.abs(apart).argmax(axis=1), -1)


def _probabilities(bank: Bank, values: Float[np.ndarray, "n views classes"]) -> Float[np.ndarray, "n classes"]:
    if bank.description.outputs == "logits":
        values = np.exp(values - values.max(axis=2, keepdims=True))
    return (values / values.sum(axis=2, keepdims=True)).mean(axis=1)
