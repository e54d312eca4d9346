"""The result of the attacks on records by a bank."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.record_attack.beside_pdtp import BesidePDTP
from jaxaudit.audits.record_attack.epsilon import RecipeBound
from jaxaudit.audits.record_attack.finding import find
from jaxaudit.metrics.attack_rates import AttackRates
from jaxaudit.metrics.vulnerability import Likeness, Vulnerability

NAMED_AT = 0.01
"""The false positive rate at which a record counts as named."""


@dataclass(frozen=True, eq=False)
class RecordAttackResult:
    """One attack on every record.

    Attributes:
        name, meaning, source: as of the attack.
        scores: of each record under each attacked model, larger for a member; NaN where the attack says nothing.
        rates: how often it is right on the shadow models, each attacked by the others.
        of_targets: the same on targets of known membership; None without.
    """

    name: str
    meaning: str
    source: str
    scores: Float[np.ndarray, "attacked n"]
    rates: AttackRates
    of_targets: AttackRates | None = None


class Named(NamedTuple):
    """The records of a target that are called members at a stated false positive rate.

    Attributes:
        stated: the rate.
        count: records called.
        by_chance: records that would be called if the target had used none: the mean over shadow models of their
            realised false positive rate, times the records.
        at_most: as many are called by chance at most, with probability `level`: a prediction bound over models.
    """

    stated: float
    count: int
    by_chance: float
    at_most: float
    level: float


@dataclass(frozen=True, eq=False)
class TargetRecords:
    """What the deciding attack says of one target's records.

    Attributes:
        name: of its file.
        called: which records are called members at the rate that records are named at.
        named: how many are, at each false positive rate that the bank resolves and its thresholds hold at.
        likeness: whether its outputs are such as the shadow models give; None where too few models tell.
        finding: what the audit concludes of it.
    """

    name: str
    called: Bool[np.ndarray, " n"]
    named: tuple[Named, ...]
    likeness: Likeness | None
    finding: Finding


@dataclass(frozen=True, eq=False)
class RecordAudit:
    """The results of all attacks, and their context.

    Attributes:
        attacks: one result each; the first decides.
        left_out: attacks that the bank has too few models for, by name.
        targets: one result per target; none where each shadow model is a target.
        usual: whether the deciding attack is the one that decides where none is named.
        named_at: the false positive rate at which records count as named: `NAMED_AT`, or the smallest above it that
            can be told and whose thresholds hold; NaN if there is none.
        surely_named: how many records are named more often than chance explains, whatever their number.
        vulnerability: of each record, by the deciding attack at `named_at`.
        saturated: of each record the share of shadow models, over its views, whose log-odds lie where the files of the
            bank can say no more: a probability of 1, or log-odds beyond 20 nats of probabilities. There the gap of a
            record is not known; where it is 0, the gap is that of the models' logits.
        copies: the group of records with the same outputs in every model; -1 of one alone.
        revealing: the class that gives each record away; None if the bank does not say.
        models: numbers of the shadow models in the bank; `membership`: which records each was trained on.
        columns: of the records in the bank; `records`: those that are attacked, dropped ones included.
        content_hash: of the bank.
        references: shadow models that attack each target.
        views: of each record.
        level: confidence level of the intervals.
        epsilon: a lower bound on the epsilon of the recipe; None where it was not asked for.
        pdtp: of the records, beside the deciding attack; None where it was not given.
    """

    attacks: tuple[RecordAttackResult, ...]
    left_out: tuple[str, ...]
    targets: tuple[TargetRecords, ...]
    usual: bool
    named_at: float
    surely_named: int
    vulnerability: Vulnerability
    saturated: Float[np.ndarray, " n"]
    copies: Int[np.ndarray, " n"]
    revealing: Int[np.ndarray, " n"] | None
    models: Int[np.ndarray, " models"]
    membership: Bool[np.ndarray, "models n"]
    columns: Int[np.ndarray, " n"]
    records: int
    content_hash: str
    references: int
    views: int
    level: float
    epsilon: RecipeBound | None = None
    pdtp: BesidePDTP | None = None

    @cached_property
    def finding(self) -> Finding:
        """What the audit concludes of models of this recipe."""
        return find(self)

    @property
    def exposed(self) -> float:
        """The share of judged records that the deciding attack names in half or more of the models trained on them."""
        named = self.vulnerability.named
        known = np.isfinite(named)
        return float((named[known] >= 0.5).mean()) if known.any() else float("nan")
