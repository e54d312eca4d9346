"""What a bank says of its records, or of whole groups where it deals these: who is recognised.

All records of a group are in a training set or none is. Every attack scores records; a group's score is their sum by
the square root of their number: of groups of one size, the order of their means, as in the user inference of Kandpal et
al. (2024), and scores of records without memory vary alike. To attack mean outputs is much weaker: a few that vary most
among models drown the others (areas of .92 in place of .99 in groups of 20 digits).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy import special

from jaxaudit.audits.attack.finding import SURELY
from jaxaudit.audits.attack.result import Exposure, RecordArrays, Riskiest
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import ROLES
from jaxaudit.data.labels import number_groups
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import Integers, Scores
from jaxaudit.metrics.attack import AttackRates, Vulnerability
from jaxaudit.shadow_models import Pool, ShadowModels

ROUNDING = 1e-9
"""Outputs of a record that differ by less, of what they are, are equal."""
SOURCE = "Kandpal, Pillutla, Oprea, Kairouz, Choquette-Choo & Xu 2024"


OfUnits = Int[np.ndarray, " units"]
"""A number for each unit."""


class AttackUnits(NamedTuple):
    """The units that are attacked, records or groups, in the order of their first records. Groups are of query set and
    holdout alone: records of the calibration set have none.

    Attributes:
        of_record: the unit of each attacked record; these are the first records of a bank, or all.
        first: the place of each unit's first record among the attacked records.
        grouped: whether the bank deals whole groups.
    """

    of_record: Int[np.ndarray, " attacked"]
    first: OfUnits
    grouped: bool

    def __len__(self) -> int:
        return len(self.first)

    @property
    def records(self) -> OfUnits:
        """The number of records of each unit."""
        return np.bincount(self.of_record, minlength=len(self))

    @property
    def attacked(self) -> slice:
        """The attacked records among those of a bank."""
        return slice(0, len(self.of_record))

    def scores(self, of_records: Float[np.ndarray, "*rows n"]) -> Float[np.ndarray, "*rows units"]:
        """The score of each unit: the sum over its records by the root of their number; NaN if one is NaN.

        >>> AttackUnits(np.array([0, 1, 0]), np.array([0, 1]), True).scores(np.array([[1.0, 5.0, 3.0]])).round(3)
        array([[2.828, 5.   ]])
        """
        return self.mean(of_records) * np.sqrt(self.records) if self.grouped else of_records

    def mean(self, values: Float[np.ndarray, "*rows n"]) -> Float[np.ndarray, "*rows units"]:
        """The mean over the records of each unit; the values themselves where units are records.

        >>> AttackUnits(np.array([0, 1, 0]), np.array([0, 1]), True).mean(np.array([[1.0, 5.0, 3.0]]))
        array([[2., 5.]])
        """
        if not self.grouped:
            return values
        # Indices of attacked records alone, so that others are not copied.
        order, starts = self._runs
        return np.add.reduceat(values[..., order], starts, axis=-1) / self.records

    def steady_mean(self, log_odds: Scores) -> Float[np.ndarray, "models units"]:
        """The mean log-odds over the records of each unit, weighted by their inverse standard deviations over models.

        >>> outputs = np.array([[1.0, 5.0, 30.0], [3.0, 5.0, 10.0]])
        >>> AttackUnits(np.array([0, 1, 0]), np.array([0, 1]), True).steady_mean(outputs).round(3)
        array([[3.636, 5.   ],
               [3.636, 5.   ]])
        """
        if not self.grouped:
            return log_odds
        outputs = log_odds[:, self.attacked]
        spread = outputs.std(axis=0)
        # Records of one output tell nothing, and may have a spread by rounding; with no other in a unit, all weigh 1.
        varying = spread > ROUNDING * (1 + np.abs(outputs).max(axis=0))
        has_varying = self.mean(varying.astype(float)) > 0
        weights = np.where(varying, 1 / np.where(varying, spread, 1), np.where(has_varying[self.of_record], 0.0, 1.0))
        return self.mean(outputs * weights) / self.mean(weights)

    @property
    def _runs(self) -> tuple[Int[np.ndarray, " attacked"], OfUnits]:
        """The attacked records unit by unit, and where each unit begins among them."""
        return np.argsort(self.of_record, kind="stable"), np.cumsum(self.records) - self.records

    def common(self, values: Integers) -> OfUnits:
        """The value that all records of a unit have; -1 if they differ."""
        return np.where(self.split(values), -1, values[self.first])

    def split(self, values: Shaped[np.ndarray, "*rows n"]) -> Bool[np.ndarray, "*rows units"]:
        """The units whose records differ in value, as those of which a mask has a part."""
        differs = values[..., self.attacked] != values[..., self.first][..., self.of_record]
        order, starts = self._runs
        return np.logical_or.reduceat(differs[..., order], starts, axis=-1)

    def whole(self, membership: Bool[np.ndarray, "*rows n"], of: str) -> Bool[np.ndarray, "*rows units"]:
        """The membership masks over units, of masks over records that have each unit whole or not at all; else an
        `InputError` that names the masks by `of`.
        """
        parts = int(np.atleast_2d(self.split(membership)).any(axis=0).sum())
        if parts:
            raise InputError(
                f"{of}: some records of a group are members and others are not ({parts:,} of {len(self):,} "
                "groups), but the bank deals whole groups, and an attack on it asks of whole groups. Is the mask of "
                "other records, or were the groups changed? Give a mask that has each group whole or not at all."
            )
        return membership[..., self.first]


def attack_units(pool: Pool) -> AttackUnits:
    """What is attacked of a bank: if it deals whole groups, those of query set and holdout; else all records."""
    if pool.groups is None:
        every = np.arange(len(pool.examples))
        return AttackUnits(every, every, False)
    of_record = number_groups(pool.groups)
    return AttackUnits(of_record, np.unique(of_record, return_index=True)[1], True)


NAMED_AT = 0.01
"""The false positive rate at which a record counts as named."""
NUMBERS = ("named", "named_low", "named_high", "separation")
"""What the list of the riskiest records has of `Vulnerability`."""
LISTED = 100
"""The riskiest records that the result lists; records.csv has all."""
OFTEN = 0.5
"""At risk: named in half or more of the models trained on the record."""


def rate_named_at(rates: AttackRates) -> float:
    """The false positive rate at which records count as named; NaN if no such rate can be measured, or none holds."""
    resolved = sorted(rate.fpr for rate in rates.tpr_at_fpr if rate.resolvable and rate.holds and rate.fpr >= NAMED_AT)
    return resolved[0] if resolved else float("nan")


def surely_named(seen: Vulnerability, models: int) -> int:
    """The number of records named by at least half of their models, with outputs that differ by more than chance.

    Calls of one record rest on the same shadow models; outputs of different models are independent. So the rank-sum
    test of the outputs decides (Mann & Whitney 1947; the normal approximation gives too large p-values far in the
    tail), with Bonferroni's correction over all records.
    """
    pairs = seen.inside * seen.outside
    finite = np.isfinite(seen.named) & (pairs > 0)
    if not finite.any():
        return 0
    distance = (seen.separation[finite] - 0.5) * np.sqrt(pairs[finite] * 12 / (models + 1))
    sure = special.ndtr(-distance) * np.count_nonzero(finite) < SURELY
    return int((sure & (seen.named[finite] >= OFTEN)).sum())


def exposure_of(shadows: ShadowModels, units: AttackUnits, arrays: RecordArrays, at_fpr: float) -> Exposure:
    seen = arrays.vulnerability
    often = seen.named[np.isfinite(seen.named)]
    # The riskiest first: by the lower limit of the share of models that name them, then by separation.
    judged = np.flatnonzero(np.isfinite(seen.named))
    order = judged[np.lexsort((-np.nan_to_num(seen.separation[judged]), -seen.named_low[judged]))]
    return Exposure(
        at_fpr=at_fpr,
        surely_named=surely_named(seen, len(shadows)),
        exposed=float((often >= OFTEN).mean()) if len(often) else float("nan"),
        judged=len(often),
        copies=int((arrays.copies >= 0).sum()),
        riskiest=tuple(_riskiest(shadows, units, arrays, at) for at in order[:LISTED].tolist()),
    )


def place_in_set(bank: Bank, column: int) -> tuple[str, int]:
    for role in ROLES:
        columns = getattr(bank, role)
        if column < columns.stop:
            return role.value, column - columns.start
    raise IndexError(column)


def _riskiest(shadows: ShadowModels, units: AttackUnits, arrays: RecordArrays, at: int) -> Riskiest:
    seen, examples, group = arrays.vulnerability, shadows.pool.examples, int(arrays.copies[at])
    assert shadows.bank is not None
    bank, column = shadows.bank, int(shadows.pool.columns[units.first[at]])
    of, place = place_in_set(bank, column)
    label = int(units.common(examples.labels)[at])
    return Riskiest(
        id="" if bank.ids is None else str(bank.ids[column]),
        set=of,
        place=place,
        records=int(units.records[at]),
        label="" if label < 0 else examples.class_names[label],
        models=int(seen.inside[at]),
        **{name: float(getattr(seen, name)[at]) for name in NUMBERS},
        copies=0 if group < 0 else int((arrays.copies == group).sum()) - 1,
    )
