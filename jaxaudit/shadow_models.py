"""Shadow models, wherever they were trained: their training sets, and what they say of the records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.membership import Membership
from jaxaudit.metrics.ema import Signals


class Kind(StrEnum):
    """What a shadow model was trained on, beside a share of the calibration set; also its random stream's name.

    Attributes:
        NEVER: none of the query set.
        HALF: a random half of it.
        FULLY: all of it.
        MIXED: records of query set and holdout, dealt together.
        OTHER: another part of them, which no test uses.
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
        """What models of this kind were trained on, to be said after their number."""
        return {
            Kind.NEVER: "without the query set",
            Kind.HALF: "with half of the query set",
            Kind.FULLY: "with all of the query set",
            Kind.MIXED: "on random query and holdout records",
        }.get(self, f"of the kind {self.value}")


OF_QUERY = (Kind.NEVER, Kind.HALF, Kind.FULLY)
"""None, half and all of the query set."""
OF_RHO = (Kind.QUERY, Kind.CALIBRATION, Kind.BOTH)


class Pool(NamedTuple):
    """The records of an audit, set after set: query set, holdout, calibration set, a reference of its own, known
    members, then what only simulated targets use.

    Attributes:
        examples: all of them; without inputs where they come from a bank.
        query, holdout, calibration: their places.
        groups: of each query and holdout record, where groups were dealt whole.
        reference: records that a target is known not to have used, where its outputs on them are known: the calibration
            set, or a set of its own; else empty.
        members: records that the targets are known to have used; `member_groups` the group of each, in one numbering
            with `groups`.
    """

    examples: Examples
    query: slice
    holdout: slice
    calibration: slice
    groups: Int[np.ndarray, " dealt"] | None = None
    reference: slice = slice(0, 0)
    members: slice = slice(0, 0)
    member_groups: Int[np.ndarray, " members"] | None = None

    @property
    def asked(self) -> Int[np.ndarray, " asked"]:
        """The records whose outputs the tests of use compare: query set, holdout, reference, members."""
        return np.r_[self.query, self.holdout, self.reference, self.members]

    @property
    def reference_apart(self) -> bool:
        """Whether the reference is a set of its own."""
        return self.reference.start >= self.calibration.stop

    @property
    def training_order(self) -> slice | Int[np.ndarray, " n"]:
        """The order in which training has the records, on which minibatches depend: the holdout is third."""
        if self.holdout.start == self.holdout.stop or self.calibration.start == self.calibration.stop:
            return slice(None)
        return np.r_[self.query, self.calibration, self.holdout, self.calibration.stop : len(self.examples)]


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Shadow models: what each was trained on, and what it says of every record of a pool.

    Attributes:
        pool: the records.
        kinds: what each model was trained on: a `Kind`, or the name that a test of one's own gives.
        membership: which records each was trained on.
        log_odds: nats, of each record's own class; NaN of records that the models were not asked about.
        correct: whether each record is given its class; of several views, the share of them.
        confidences: the probability of each query record's own class.
        own_accuracy: of each model on all records that it was trained on; NaN where there are none.
        designs: the place of each model's design; `design_names` of all designs, none where there is one.
        signals: EMA's, on query and calibration records; None where nobody asked for them.
        resolutions: outputs of some models as they were stored, one for each resolution that files have; none where
            the outputs were not stored.
        content_hash: of the bank that they come from; empty where they were trained here.
    """

    pool: Pool
    kinds: tuple[str, ...]
    membership: Membership
    log_odds: Float[np.ndarray, "models examples"]
    correct: Shaped[np.ndarray, "models examples"]
    confidences: Float[np.ndarray, "models query"]
    own_accuracy: Float[np.ndarray, " models"]
    designs: Int[np.ndarray, " models"]
    design_names: tuple[str, ...] = ()
    signals: Signals | None = None
    resolutions: tuple[Outputs, ...] = ()
    content_hash: str = ""

    def __len__(self) -> int:
        return len(self.kinds)

    def of(self, *kinds: str) -> Int[np.ndarray, " some"]:
        """The places of the models of these kinds: kind after kind."""
        found = [[place for place, each in enumerate(self.kinds) if each == kind] for kind in kinds]
        return np.array([place for places in found for place in places], int)

    def take(
        self,
        models: slice | Int[np.ndarray, " models"] = slice(None),
        records: Int[np.ndarray, " records"] | None = None,
        pool: Pool | None = None,
    ) -> "ShadowModels":
        """Some of the models, and some of the records.

        Args:
            models: places of models.
            records: places of records. `pool` must then be given: these records, which may be in other sets than
                before. Its query records have to be among those of `confidences`, which are not taken along.
            pool: of `records`.
        """

        def taken(array: Any) -> Any:
            # As `array[models][:, records]`, with the records of a model side by side.
            return array[models] if records is None else np.take(array[models], records, axis=1)

        kinds: Sequence[str] = np.array(self.kinds, object)[models].tolist()
        return replace(
            self,
            pool=self.pool if pool is None else pool,
            kinds=tuple(kinds),
            membership=taken(self.membership),
            log_odds=taken(self.log_odds),
            correct=taken(self.correct),
            confidences=self.confidences[models] if pool is None else self.confidences[models][:, :0],
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
    return ShadowModels(pool, (), empty, none, empty, none[:, pool.query], np.zeros(0), np.zeros(0, int))
