"""The models of a bank as what the tests of `ks` judge by."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.audits.bank_odds import ModelOutputs, as_logits, own_accuracy, said_by
from jaxaudit.audits.ks.advice import BANKED
from jaxaudit.audits.ks.bank.state import HALF, MIXED, WITH, WITHOUT, kinds_of
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import Roles, Trained
from jaxaudit.audits.ks.tests.holdout import ROLE
from jaxaudit.audits.ks.tests.shadow import ROLES
from jaxaudit.audits.pool import Pool
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.outputs import load_into
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.outputs.precision import coarsest_dtype, decimals_of, significant_of
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import MIN_ACCURACY
from jaxaudit.metrics.ema import Signals
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike

ROLE_OF = {MIXED: ROLE, **dict(zip((WITHOUT, HALF, WITH), ROLES, strict=True))}
"""The role that a kind of models of a bank has in an audit."""


SEEN = 1 << 16
"""Numbers of a file that tell how finely it was written."""
READERS = 4
"""Files of outputs that are read at the same time."""


class Kept(NamedTuple):
    """The records of a bank that no test drops: their places among those of each set."""

    query: Int[np.ndarray, " query"]
    holdout: Int[np.ndarray, " holdout"]
    calibration: Int[np.ndarray, " calibration"]


def kept_records(bank: Bank) -> Kept:
    """The records that the tests use."""
    return Kept(*(np.flatnonzero(~bank.dropped[part]) for part in (bank.query, bank.holdout, bank.calibration)))


def bank_evidence(
    bank: Bank, models: Sequence[int], *, with_reference: bool = False, min_accuracy: float = MIN_ACCURACY
) -> Evidence:
    """The outputs of these models of a bank, in the roles that the tests know; a few files are read at a time.

    Args:
        bank: the bank.
        models: their numbers; each has usable outputs.
        with_reference: whether the targets say what they answer on the calibration set, which is then the reference.
        min_accuracy: minimum training accuracy of a model that fits its data.

    Raises:
        InputError: as `Bank.outputs`.
    """
    pool, columns = pool_of(bank, with_reference=with_reference)
    asked, kinds = pool.asked, kinds_of(bank)
    by_role = {role: [each for each in models if kinds[each] == kind] for kind, role in ROLE_OF.items()}
    roles: Roles = {role: [bank.membership[each][None, columns] for each in own] for role, own in by_role.items()}
    read = {role: _read(bank, own, columns, asked, pool.query) for role, own in by_role.items()}
    # Of models of one resolution the first stands for all.
    stored: dict[tuple[Any, ...], Outputs] = {}
    for grid in (grid for _, grids in read.values() for grid in grids):
        stored.setdefault((grid.decimals, grid.significant, grid.dtype), grid)
    examples = pool.examples
    alike = bank.description.sampled_alike
    return Evidence(
        {role: trained for role, (trained, _) in read.items()},
        roles,
        pool,
        examples.take(pool.query, "query set"),
        min_accuracy,
        {role: bank.designs[own] for role, own in by_role.items()},
        alike and Alike(alike.labels, alike.inputs, NOT_MEASURED, alike.copies, alike.clustered, alike.mixed),
        tuple(stored.values()),
        bank.description.designs,
        BANKED,
    )


def models_of(evidence: Evidence) -> int:
    """How many models of a bank an audit rests on."""
    return sum(len(rows) for rows in evidence.roles.values())


def content_hash(evidence: Evidence) -> str:
    """`blake2b:...` of the labels, membership and log-odds that an audit of a bank rests on."""
    digest = hashlib.blake2b(evidence.pool.examples.labels.astype("<i4").tobytes(), digest_size=16)
    for role, trained in evidence.trained.items():
        digest.update(f"{role} {len(trained.log_odds)}".encode())
        for row, odds in zip(evidence.roles[role], trained.log_odds, strict=True):
            digest.update(np.packbits(row).tobytes())
            digest.update(odds.astype("<f4").tobytes())
    return f"blake2b:{digest.hexdigest()}"


def pool_of(bank: Bank, *, with_reference: bool = False) -> tuple[Pool, Int[np.ndarray, " kept"]]:
    """The records that tests use, without their inputs, and their columns in the bank; as `audit_ks` orders them."""
    kept, names = kept_records(bank), bank.description.class_names
    # A pool has the calibration set before the holdout.
    columns = np.concatenate([kept.query, bank.calibration.start + kept.calibration, bank.holdout.start + kept.holdout])
    query, calibration = slice(0, len(kept.query)), slice(len(kept.query), len(kept.query) + len(kept.calibration))
    examples = Examples(
        np.zeros((len(columns), 0), np.float32),
        bank.labels[columns],
        names or tuple(map(str, range(bank.description.classes))),
        "records",
    )
    groups = None if bank.groups is None else bank.groups.take(kept.query, kept.holdout).dealt
    held = slice(calibration.stop, len(columns))
    return Pool(examples, query, calibration, held, groups, calibration if with_reference else slice(0, 0)), columns


def _read(
    bank: Bank, models: list[int], columns: Int[np.ndarray, " kept"], asked: Int[np.ndarray, " asked"], query: slice
) -> tuple[Trained, list[Outputs]]:
    """What the models of one role say, and how finely each one's file says it."""
    own, hits = np.empty(len(models)), np.empty(len(models))
    odds = np.empty((len(models), len(asked)), np.float32)

    def read(place: int) -> Outputs:
        try:
            values = bank.outputs(models[place])
        except InputError as error:
            raise InputError(
                f"{bank.directory.name}, model {models[place]} of {len(bank)}: {error} Make these outputs again; the "
                "bank can also be used without that file."
            ) from error
        outputs: ModelOutputs = said_by(bank, models[place], values)
        odds[place] = outputs.log_odds[columns[asked]]
        own[place] = own_accuracy(bank, models[place], outputs)
        hits[place] = outputs.correct[columns[query]].mean(dtype=np.float64)
        return _as_stored(bank, models[place], values)

    with ThreadPoolExecutor(READERS) as threads:
        grids = list(threads.map(read, range(len(models))))
    confidences = special.expit(odds[:, query].astype(np.float64)).astype(np.float32)
    none = np.zeros((len(models), 0), np.float32)
    return Trained(confidences, odds, own, hits, Signals(none, none, none)), grids


def target_outputs(path: Path, bank: Bank, columns: slice) -> Outputs:
    """A target's outputs on a set of the bank, from a .npy file of the form of the models': several views, log-odds.

    Log-odds of a record are those that `said` would find; rows of logits stand for them, see `as_logits`. How finely
    they are known is what the file's own numbers say.

    Raises:
        InputError: as `load_into`.
    """
    labels = np.where(bank.dropped, 0, bank.labels)[columns]
    values = load_into(path, msgspec.structs.replace(bank.description, records=len(labels), counts=None))
    grid = _grid(bank, values[:, 0].astype(np.float64), "float32", path.name)
    return replace(grid, values=as_logits(bank, values, labels), kind="logits")


def _as_stored(bank: Bank, model: int, values: Float[np.ndarray, "n views values"]) -> Outputs:
    """Some of a model's outputs as its file has them, of one view: they tell how finely they are known."""
    kept = np.flatnonzero(~bank.dropped)
    rows = kept[:: max(1, len(kept) * values.shape[2] // SEEN)]
    return _grid(bank, np.array(values[rows, 0], np.float64), values.dtype.name, f"model {model}")


def _grid(bank: Bank, values: Float[np.ndarray, "n values"], dtype: str, name: str) -> Outputs:
    kind = "probabilities" if bank.description.outputs == "probabilities" else "logits"
    if values.shape[1] == 1:
        largest = np.finfo(np.float64).max
        values = np.concatenate([np.zeros_like(values), values.clip(-largest, largest)], axis=1)
    dtype = coarsest_dtype(values, dtype)
    decimals = decimals_of(values, dtype, least=int(kind == "probabilities"))
    return Outputs(values, kind, decimals, dtype, name, significant_of(values, dtype))
