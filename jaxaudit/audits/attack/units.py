"""What a bank is attacked by: record by record, or group by group where it deals whole groups.

All records of a group, such as the texts of an author, are in a training set or none is. They are one piece of
evidence on one question: was this group used? So every attack scores records, and a group's score is the sum over its
records by the square root of their number: of groups of one size that is the order of their means, as in the user
inference of Kandpal et al. (2024), and of others, scores of records without memory vary alike. Rates, their intervals
and a bound on epsilon are then over groups. To attack the mean outputs of groups is much weaker: a few outputs that
vary most among models, whatever these were trained on, drown the others (areas of .92 in place of .99 in groups of 20
digits, `experiments/group_attacks.py`).
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.data.group_values import number_groups
from jaxaudit.errors import InputError
from jaxaudit.shadow_models import Pool

ROUNDING = 1e-9
"""Outputs of a record that differ by less, of what they are, are equal."""
SOURCE = "Kandpal, Pillutla, Oprea, Kairouz, Choquette-Choo & Xu 2024"


class AttackUnits(NamedTuple):
    """The units that are attacked, each a record or a group of records, in the order of their first records.

    Where groups are attacked, records of the calibration set, which have none, are not: rates are over groups alone.

    Attributes:
        of_record: the unit of each attacked record; these are the first records of a bank, or all.
        first: the place of each unit's first record among the attacked records.
        grouped: whether the bank deals whole groups.
    """

    of_record: Int[np.ndarray, " attacked"]
    first: Int[np.ndarray, " units"]
    grouped: bool

    def __len__(self) -> int:
        """The number of units."""
        return len(self.first)

    @property
    def noun(self) -> Literal["record", "group"]:
        """What a unit is, in a word."""
        return "group" if self.grouped else "record"

    @property
    def records(self) -> Int[np.ndarray, " units"]:
        """The number of records of each unit."""
        return np.bincount(self.of_record, minlength=len(self))

    @property
    def attacked(self) -> slice:
        """The attacked records among those of a bank."""
        return slice(0, len(self.of_record))

    def scores(self, of_records: Float[np.ndarray, "*rows records"]) -> Float[np.ndarray, "*rows units"]:
        """The score of each unit: the sum over its records by the root of their number; NaN if one is NaN.

        >>> AttackUnits(np.array([0, 1, 0]), np.array([0, 1]), True).scores(np.array([[1.0, 5.0, 3.0]])).round(3)
        array([[2.828, 5.   ]])
        """
        return self.mean(of_records) * np.sqrt(self.records) if self.grouped else of_records

    def mean(self, values: Float[np.ndarray, "*rows records"]) -> Float[np.ndarray, "*rows units"]:
        """The mean over the records of each unit; the values themselves where units are records.

        >>> AttackUnits(np.array([0, 1, 0]), np.array([0, 1]), True).mean(np.array([[1.0, 5.0, 3.0]]))
        array([[2., 5.]])
        """
        if not self.grouped:
            return values
        # Indices of attacked records alone, so that others are not copied.
        order, starts = self._runs
        return np.add.reduceat(values[..., order], starts, axis=-1) / self.records

    def steady_mean(self, log_odds: Float[np.ndarray, "models records"]) -> Float[np.ndarray, "models units"]:
        """The mean output over the records of each unit, of each model, where a record weighs less if its outputs vary.

        Weights are inverse standard deviations over models, whatever these were trained on. The values themselves where
        units are records.

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
    def _runs(self) -> tuple[Int[np.ndarray, " attacked"], Int[np.ndarray, " units"]]:
        """The attacked records unit by unit, and where each unit begins among them."""
        return np.argsort(self.of_record, kind="stable"), np.cumsum(self.records) - self.records

    def largest(self, values: Float[np.ndarray, " records"]) -> Float[np.ndarray, " units"]:
        """The largest value among the records of each unit; NaN if all are NaN."""
        largest = np.full(len(self), np.nan)
        np.fmax.at(largest, self.of_record, values[self.attacked])
        return largest

    def common(self, values: Int[np.ndarray, " records"]) -> Int[np.ndarray, " units"]:
        """The value that all records of a unit have; -1 if they differ."""
        firsts = values[self.first]
        differs = np.zeros(len(self), bool)
        np.logical_or.at(differs, self.of_record, values[self.attacked] != firsts[self.of_record])
        return np.where(differs, -1, firsts)

    def split(self, membership: Bool[np.ndarray, "*rows records"]) -> Bool[np.ndarray, "*rows units"]:
        """Which units each mask over records has a part of."""
        differs = membership[..., self.attacked] != membership[..., self.first][..., self.of_record]
        order, starts = self._runs
        return np.logical_or.reduceat(differs[..., order], starts, axis=-1)

    def whole(self, membership: Bool[np.ndarray, "*rows records"], of: str) -> Bool[np.ndarray, "*rows units"]:
        """The membership masks over units, of masks over records that have each unit whole or not at all.

        Raises:
            InputError: a mask has a part of a group; `of` names the masks.
        """
        parts = int(np.atleast_2d(self.split(membership)).any(axis=0).sum())
        if parts:
            raise InputError(
                f"{of}: some records of a group are members and others are not ({parts:,} of {len(self):,} "
                "groups), but the bank deals whole groups, and an attack on it asks of whole groups. Is the mask of "
                "other records, or were the groups changed? Give a mask that has each group whole or not at all."
            )
        return membership[..., self.first]


def single_records(records: int) -> AttackUnits:
    """Each of so many records is a unit."""
    return AttackUnits(np.arange(records), np.arange(records), False)


def attack_units(pool: Pool) -> AttackUnits:
    """What is attacked of a bank: if it deals whole groups, those of query set and holdout; else all records."""
    if pool.groups is None:
        return single_records(len(pool.examples))
    of_record = number_groups(pool.groups)
    return AttackUnits(of_record, np.unique(of_record, return_index=True)[1], True)
