"""The models of a bank as shadow models, and a target's outputs in the form of a bank's."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.audits.bank_odds import as_logits, own_accuracy, own_logits, said_by
from jaxaudit.audits.ks.advice import BANKED
from jaxaudit.audits.ks.bank.state import kinds_of
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.resolution import as_stored, distinct, grid_of
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import Sizes
from jaxaudit.data.bank.outputs import load_into
from jaxaudit.data.bank.reading import read_models
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.metrics.checks import MIN_ACCURACY
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike
from jaxaudit.shadow_models import Kind, Pool, ShadowModels


def open_bank(bank: Bank, models: Sequence[int] | None = None, *, with_reference: bool = False) -> ShadowModels:
    """The shadow models of a bank that a test of use can use; a few files are read at a time.

    Log-odds of a record with several views are those of their mean, see `said`. Confidences are those of the log-odds.

    Args:
        bank: the bank.
        models: their numbers; by default all that are finished.
        with_reference: whether targets say what they answer on the calibration set, which is then the reference.

    Raises:
        InputError: as `Bank.outputs`.
    """
    numbers = bank.finished().tolist() if models is None else models
    pool, columns = pool_of(bank, with_reference=with_reference)
    odds, correct = (np.empty((len(numbers), len(columns)), np.float32) for _ in range(2))
    own = np.empty(len(numbers))

    def read(place: int, values: Float[np.ndarray, "n views values"]) -> Outputs:
        outputs = said_by(bank, numbers[place], values)
        odds[place], correct[place] = outputs.log_odds[columns], outputs.correct[columns]
        own[place] = own_accuracy(bank, numbers[place], outputs)
        return as_stored(bank, values, f"model {numbers[place]}")

    grids, content_hash = read_models(bank, numbers, read)
    kinds = kinds_of(bank)
    # The others are read for the hash alone.
    used = np.flatnonzero([kinds[number] != Kind.OTHER for number in numbers])
    found = ShadowModels(
        pool=pool,
        kinds=tuple(kinds[number] for number in numbers),
        membership=np.take(bank.membership[numbers], columns, axis=1),
        log_odds=odds,
        correct=correct,
        confidences=special.expit(odds[:, pool.query].astype(np.float64)).astype(np.float32),
        own_accuracy=own,
        designs=bank.designs[numbers],
        design_names=bank.description.designs,
        resolutions=distinct(grids[place] for place in used),
        content_hash=content_hash,
    )
    return found.take(used)


def bank_evidence(
    bank: Bank,
    models: Sequence[int] | None = None,
    *,
    with_reference: bool = False,
    min_accuracy: float = MIN_ACCURACY,
) -> Evidence:
    """What targets are judged by, from the models of a bank; see `open_bank`."""
    found, alike = open_bank(bank, models, with_reference=with_reference), bank.description.sampled_alike
    return Evidence(
        found,
        found.pool.examples.take(found.pool.query, "query set"),
        min_accuracy,
        alike and Alike(alike.labels, alike.inputs, NOT_MEASURED, alike.copies, alike.clustered, alike.mixed),
        advice=BANKED,
    )


def kept_records(bank: Bank) -> dict[str, Int[np.ndarray, " kept"]]:
    """The records of each set of a bank that no test drops: their places among those of the set."""
    return {role: np.flatnonzero(~bank.dropped[getattr(bank, role)]) for role in Sizes._fields}


def pool_of(bank: Bank, *, with_reference: bool = False) -> tuple[Pool, Int[np.ndarray, " kept"]]:
    """The records that tests use, without their inputs, and their columns in the bank."""
    columns, names = np.flatnonzero(~bank.dropped), bank.description.class_names
    kept = kept_records(bank)
    ends = np.cumsum([0, *map(len, kept.values())]).tolist()
    query, holdout, calibration = (slice(*each) for each in pairwise(ends))
    examples = Examples(
        np.zeros((len(columns), 0), np.float32),
        bank.labels[columns],
        names or tuple(map(str, range(bank.description.classes))),
        "records",
    )
    groups = None if bank.groups is None else bank.groups.take(kept["query"], kept["holdout"]).dealt
    reference = calibration if with_reference else slice(0, 0)
    return Pool(examples, query, holdout, calibration, groups, reference), columns


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
