"""The models of a bank as what the tests of `ks` judge by."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.audits.bank_odds import ModelOutputs, as_logits, own_accuracy, own_logits, said_by
from jaxaudit.audits.ks.advice import BANKED
from jaxaudit.audits.ks.bank.state import HALF, MIXED, WITH, WITHOUT, kinds_of
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import Roles, Trained
from jaxaudit.audits.ks.tests.holdout import ROLE
from jaxaudit.audits.ks.tests.shadow import ROLES
from jaxaudit.audits.pool import Pool
from jaxaudit.audits.resolution import as_stored, distinct, grid_of
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.outputs import load_into
from jaxaudit.data.bank.reading import read_models
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.metrics.checks import MIN_ACCURACY
from jaxaudit.metrics.ema import Signals
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike

ROLE_OF = {MIXED: ROLE, **dict(zip((WITHOUT, HALF, WITH), ROLES, strict=True))}
"""The role that a kind of models of a bank has in an audit."""


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
    trained, grids, content_hash = _read(bank, models, columns, asked, pool.query)
    place_of = {model: place for place, model in enumerate(models)}
    places = {role: [place_of[each] for each in own] for role, own in by_role.items()}
    # A model of no role is read for the hash alone.
    used = sorted(place for own in places.values() for place in own)
    examples = pool.examples
    alike = bank.description.sampled_alike
    return Evidence(
        {role: trained.taken(np.array(own, int)) for role, own in places.items()},
        roles,
        pool,
        examples.take(pool.query, "query set"),
        min_accuracy,
        {role: bank.designs[own] for role, own in by_role.items()},
        alike and Alike(alike.labels, alike.inputs, NOT_MEASURED, alike.copies, alike.clustered, alike.mixed),
        stored=distinct(grids[place] for place in used),
        design_names=bank.description.designs,
        advice=BANKED,
        content_hash=content_hash,
    )


def models_of(evidence: Evidence) -> int:
    """How many models of a bank an audit rests on."""
    return sum(len(rows) for rows in evidence.roles.values())


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
    bank: Bank, models: Sequence[int], columns: Int[np.ndarray, " kept"], asked: Int[np.ndarray, " asked"], query: slice
) -> tuple[Trained, list[Outputs], str]:
    """What these models say, how finely each one's file says it, and the hash of the bank."""
    own, hits = np.empty(len(models)), np.empty(len(models))
    odds = np.empty((len(models), len(asked)), np.float32)

    def read(place: int, values: Float[np.ndarray, "n views values"]) -> Outputs:
        outputs: ModelOutputs = said_by(bank, models[place], values)
        odds[place] = outputs.log_odds[columns[asked]]
        own[place] = own_accuracy(bank, models[place], outputs)
        hits[place] = outputs.correct[columns[query]].mean(dtype=np.float64)
        return as_stored(bank, values, f"model {models[place]}")

    grids, content_hash = read_models(bank, models, read)
    confidences = special.expit(odds[:, query].astype(np.float64)).astype(np.float32)
    none = np.zeros((len(models), 0), np.float32)
    return Trained(confidences, odds, own, hits, Signals(none, none, none)), grids, content_hash


def target_outputs(path: Path, bank: Bank, columns: slice) -> Outputs:
    """A target's outputs on a set of the bank, from a .npy file of the form of the models': several views, log-odds.

    Log-odds of a record are those that `said` would find; logits stand for them, see `as_logits` and `own_logits`. How
    finely they are known is what the file's own numbers say.

    Raises:
        InputError: as `load_into`.
    """
    labels = np.where(bank.dropped, 0, bank.labels)[columns]
    values = load_into(path, msgspec.structs.replace(bank.description, records=len(labels), counts=None))
    grid = grid_of(bank.description, values, "float32", path.name)
    if bank.description.outputs == "log_odds":
        return replace(grid, values=own_logits(values), own_class=True)
    return replace(grid, values=as_logits(bank, values, labels), kind="logits")
