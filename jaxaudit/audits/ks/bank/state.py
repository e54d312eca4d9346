"""Which tests the models of a bank allow, and which outputs of it are usable."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.audits.bank_odds import model_outputs, own_accuracy
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.tests import HoldoutTest, KSTest, ReferenceTest, ShadowTest
from jaxaudit.data.bank.bank import Bank, row_blocks
from jaxaudit.data.groups import numbered
from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.reference import LEAST_RECORDS
from jaxaudit.shadow_models import Kind

OF_HOLDOUT = {Kind.MIXED: LEAST}
OF_SHADOW = {Kind.NEVER: LEAST, Kind.FULLY: LEAST, Kind.HALF: 0}
"""The models that a test needs."""
Numbers = Mapping[Kind, int]
"""Of models, by kind."""


class Usable(NamedTuple):
    """The models of a bank that have outputs.

    Attributes:
        accuracy: on its own training records, of each model whose outputs can be used, by its number.
        refused: why those of the others cannot.
    """

    accuracy: dict[int, float]
    refused: dict[int, str]


class Allowed(NamedTuple):
    """Whether the finished models of a bank allow a test. Numbers of models are by kind.

    Attributes:
        test: its name, as for `--tests`.
        title: in words.
        possible: whether it can be made.
        complete: whether it has as many models as it takes by default.
        finished, planned: numbers of models.
        least, usual: how many of them it needs, and takes by default.
        lacks: what it needs beside models, in a sentence.
    """

    test: str
    title: str
    possible: bool
    complete: bool
    finished: dict[Kind, int]
    planned: dict[Kind, int]
    least: dict[Kind, int]
    usual: dict[Kind, int]
    lacks: str = ""

    @property
    def will_be_complete(self) -> bool:
        """Whether it will be, once all models of the bank are finished."""
        return not self.lacks and all(self.planned[kind] >= count for kind, count in self.usual.items())


def usable_models(bank: Bank) -> Usable:
    """Reads the outputs of every finished model, one file at a time.

    Raises:
        InputError: as `Bank.finished`.
    """
    accuracy, refused = {}, {}
    for model in bank.finished().tolist():
        try:
            accuracy[model] = own_accuracy(bank, model, model_outputs(bank, model))
        except InputError as error:
            refused[model] = str(error)
    return Usable(accuracy, refused)


def kinds_of(bank: Bank) -> list[Kind]:
    """What each model is good for, by the query and holdout records that it is trained on.

    Of the holdout test are models trained on some of the query set, some of the holdout, and about as many records, or
    whole groups, as the query set has (`dealt_alike`). One that has exactly one of the two sets was not dealt from
    both.
    """
    kept = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    asked = kept < bank.query.stop
    units = np.arange(len(kept)) if bank.groups is None else numbered(bank.groups.dealt[kept])
    found: list[Kind] = []
    for part in row_blocks(bank.membership):
        found += _kinds(bank.membership[part, : bank.holdout.stop][:, kept], asked, units)
    return found


def _kinds(
    rows: Bool[np.ndarray, "models kept"], asked: Bool[np.ndarray, " kept"], units: Int[np.ndarray, " kept"]
) -> list[Kind]:
    """What models with these rows are good for; units are what was dealt whole: records, or groups of them."""
    query, holdout = rows[:, asked].sum(axis=1), rows[:, ~asked].sum(axis=1)
    of_query, of_holdout = ((count == 0) | (count == side.sum()) for count, side in ((query, asked), (holdout, ~asked)))
    order = np.argsort(units, kind="stable")
    starts = np.unique(units[order], return_index=True)[1]
    some, every = (reduce.reduceat(rows[:, order], starts, axis=1) for reduce in (np.logical_or, np.logical_and))
    alike = dealt_alike(some.sum(axis=1), len(np.unique(units[asked])), len(starts))
    mixed = (some == every).all(axis=1) & alike & ~(of_query & of_holdout)
    alone = np.where(of_query, np.where(query > 0, Kind.FULLY, Kind.NEVER), Kind.HALF)
    return [Kind(kind) for kind in np.where(holdout == 0, alone, np.where(mixed, Kind.MIXED, Kind.OTHER)).tolist()]


def allowed_tests(bank: Bank, finished: Iterable[int]) -> tuple[Allowed, ...]:
    """What each test of use has and needs, with these models of the bank."""
    kinds = kinds_of(bank)
    planned, have = Counter(kinds), Counter(kinds[model] for model in finished)
    calibration = int((~bank.dropped[bank.calibration]).sum())
    no_holdout = "" if bank.description.sizes.holdout else "The bank has no holdout."
    few_records = f"The bank has {calibration} calibration records; it needs {LEAST_RECORDS}."
    return (
        _allowed(HoldoutTest(), have, planned, OF_HOLDOUT, no_holdout),
        _allowed(ReferenceTest(), have, planned, OF_SHADOW, few_records if calibration < LEAST_RECORDS else ""),
        _allowed(ShadowTest(), have, planned, OF_SHADOW, ""),
    )


def _allowed(test: KSTest, have: Numbers, planned: Numbers, least: dict[Kind, int], lacks: str) -> Allowed:
    usual = {kind: int(getattr(test, kind)) for kind in least}
    possible, complete = (
        not lacks and all(have[kind] >= count for kind, count in wanted.items()) for wanted in (least, usual)
    )
    finished, whole = ({kind: numbers[kind] for kind in least} for numbers in (have, planned))
    return Allowed(test.name, test.title, possible, complete, finished, whole, least, usual, lacks)
