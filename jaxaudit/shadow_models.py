"""Shadow models, wherever they were trained: their membership masks, and their outputs on the records of an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.membership import Membership
from jaxaudit.metrics.ema import Signals
from jaxaudit.metrics.exchangeability import Alike


class Kind(StrEnum):
    """What a shadow model was trained on, beside a share of the calibration set; also the name of its random stream.

    Attributes:
        NEVER: none of the query set.
        HALF: a random half of it.
        FULLY: all of it.
        MIXED: a random part of query set and holdout together.
        OTHER: another part of these sets, which no test uses.
        QUERY, CALIBRATION, BOTH: the models that rho compares: the query set alone, the calibration set alone, both.
    """

    NEVER = "never"
    HALF = "half"
    FULLY = "fully"
    MIXED = "mixed"
    OTHER = "other"
    QUERY = "query"
    CALIBRATION = "calibration"
    BOTH = "control"

    @property
    def words(self) -> str:
        """What models of this kind were trained on, as a phrase that follows their number."""
        return {
            Kind.NEVER: "without the query set",
            Kind.HALF: "with half of the query set",
            Kind.FULLY: "with all of the query set",
            Kind.MIXED: "on random query and holdout records",
        }.get(self, f"of the kind {self.value}")


OF_QUERY = (Kind.NEVER, Kind.HALF, Kind.FULLY)
"""Kinds trained on none, half and all of the query set."""
OF_RHO = (Kind.QUERY, Kind.CALIBRATION, Kind.BOTH)


class Pool(NamedTuple):
    """The records of an audit, set by set.

    The order is: query set, holdout, calibration set, a separate reference, known members, records of simulated
        targets.

    Attributes:
        examples: all records; without inputs if they come from a bank.
        query, holdout, calibration: index ranges of these sets.
        groups: of each query and holdout record, if groups are kept whole.
        reference: known non-members with known outputs of the target: the calibration set or a separate set; else
            empty.
        members: known members of the targets. `member_groups`: the group of each, numbered together with `groups`.
        kept: for each set as given, by role, which of its records are in the pool; a set without an entry is complete.
        sampled_alike: an earlier test whether query set and holdout are exchangeable, if their inputs are not
            available.
        at_hand: the known members, the query set and the holdout with their inputs, in this order, if `examples` has no
            inputs. They are used only to test whether the sets are exchangeable.
    """

    examples: Examples
    query: slice
    holdout: slice
    calibration: slice
    groups: Int[np.ndarray, " dealt"] | None = None
    reference: slice = slice(0, 0)
    members: slice = slice(0, 0)
    member_groups: Int[np.ndarray, " members"] | None = None
    kept: Mapping[str, Bool[np.ndarray, " _"]] = MappingProxyType({})
    sampled_alike: Alike | None = None
    at_hand: Examples | None = None

    @property
    def asked(self) -> Int[np.ndarray, " asked"]:
        """Indices of the records whose outputs the tests of use compare: query set, holdout, reference, members."""
        return np.r_[self.query, self.holdout, self.reference, self.members]

    @property
    def reference_apart(self) -> bool:
        """Whether the reference is a separate set, not the calibration set."""
        return self.reference.start >= self.calibration.stop

    def take(self, records: Int[np.ndarray, " records"]) -> "Pool":
        """The pool of only these records, in ascending order, each in its own set."""
        query, holdout, calibration, reference, members = (
            slice(*np.searchsorted(records, [part.start, part.stop]).tolist())
            for part in (self.query, self.holdout, self.calibration, self.reference, self.members)
        )
        groups, of_members = self.groups, self.member_groups
        return Pool(
            self.examples.take(records),
            *(query, holdout, calibration),
            groups=None if groups is None else groups[records[: holdout.stop]],
            reference=reference,
            members=members,
            member_groups=None if of_members is None else of_members[records[members] - self.members.start],
        )

    @property
    def training_order(self) -> slice | Int[np.ndarray, " n"]:
        """The order of records in training, on which minibatches depend: the holdout comes third."""
        if self.holdout.start == self.holdout.stop or self.calibration.start == self.calibration.stop:
            return slice(None)
        return np.r_[self.query, self.calibration, self.holdout, self.calibration.stop : len(self.examples)]


def pool_of_sets(examples: Examples, sizes: Sequence[int], **more: Any) -> Pool:
    """The pool of these records, with the given numbers of records in query set, holdout and calibration set."""
    query, holdout, calibration = (slice(*each) for each in pairwise(np.cumsum([0, *sizes]).tolist()))
    return Pool(examples, query, holdout, calibration, **more)


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Shadow models: the membership mask of each, and its outputs on every record of a pool.

    Attributes:
        pool: the records.
        kinds: what each model was trained on: a `Kind`, or a kind that your own test names.
        membership: which records each model was trained on.
        log_odds: nats, of each record's own class; NaN for records without outputs.
        correct: whether each record is classified correctly; with several views, the share of them.
        confidences: the probability of each record's own class.
        own_accuracy: the accuracy of each model on all of its training records; NaN if it has none.
        designs: the index of each model's design. `design_names`: of all designs, empty if there is one.
        signals: EMA's signals on query and calibration records; None unless requested.
        resolutions: outputs of some models as stored, one for each resolution of files; empty if outputs were not
            stored.
        content_hash: of the bank that they come from; empty if they were trained by this process.
        models_per_batch: how many were trained at the same time; None if none was trained.
    """

    pool: Pool
    kinds: tuple[str, ...]
    membership: Membership
    log_odds: Float[np.ndarray, "models examples"]
    correct: Shaped[np.ndarray, "models examples"]
    confidences: Float[np.ndarray, "models examples"]
    own_accuracy: Float[np.ndarray, " models"]
    designs: Int[np.ndarray, " models"]
    design_names: tuple[str, ...] = ()
    signals: Signals | None = None
    resolutions: tuple[Outputs, ...] = ()
    content_hash: str = ""
    models_per_batch: int | None = None

    def __len__(self) -> int:
        return len(self.kinds)

    def of(self, *kinds: str) -> Int[np.ndarray, " some"]:
        """Indices of the models of these kinds, kind after kind."""
        found = [[index for index, each in enumerate(self.kinds) if each == kind] for kind in kinds]
        return np.array([index for indices in found for index in indices], int)

    def take(
        self,
        models: slice | Int[np.ndarray, " models"] = slice(None),
        records: Int[np.ndarray, " records"] | None = None,
        pool: Pool | None = None,
    ) -> "ShadowModels":
        """Some of the models, and some of the records.

        Args:
            models: indices of models.
            records: indices of records, ascending unless `pool` is given.
            pool: these records, if they change sets.
        """

        def taken(array: Any) -> Any:
            # As `array[models][:, records]`, with the records of a model contiguous in memory.
            return array[models] if records is None else np.take(array[models], records, axis=1)

        kinds: Sequence[str] = np.array(self.kinds, object)[models].tolist()
        return replace(
            self,
            pool=pool or (self.pool if records is None else self.pool.take(records)),
            kinds=tuple(kinds),
            membership=taken(self.membership),
            log_odds=taken(self.log_odds),
            correct=taken(self.correct),
            confidences=taken(self.confidences),
            own_accuracy=self.own_accuracy[models],
            designs=self.designs[models],
            signals=self.signals and Signals(*(each[models] for each in self.signals)),
        )

    @property
    def query_accuracy(self) -> Float[np.ndarray, " models"]:
        """The accuracy of each model on the query set."""
        return self.correct[:, self.pool.query].mean(axis=1, dtype=np.float64)


def no_models(pool: Pool) -> ShadowModels:
    """No shadow models, for an audit that needs none."""
    none = np.zeros((0, len(pool.examples)), np.float32)
    empty = none.astype(bool)
    return ShadowModels(pool, (), empty, none, empty, none, np.zeros(0), np.zeros(0, int))


def examples_of(pool: Pool, part: slice) -> Examples | None:
    """The records of a set of a pool; None if the set is empty."""
    return pool.examples.take(part) if part.stop > part.start else None
