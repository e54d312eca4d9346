"""Shadow models: their training sets, and their outputs on the records of a pool, wherever they were trained.

Who judges need not have trained: tests of use, attacks and power read `ShadowModels` and nothing else of the models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.examples import Examples, Sets
from jaxaudit.data.labels import number_groups
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.sequences import are_texts, token_counts
from jaxaudit.membership import Membership
from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.scores import RankScale


class Kind(StrEnum):
    """The built-in kinds of shadow models, by their training set; a test of your own names kinds of its own.

    The value also names the kind's random stream.

    Attributes:
        NEVER: a share of the calibration set and none of the query set.
        HALF: a share of the calibration set and a random half of the query set.
        FULLY: a share of the calibration set and all of the query set.
        MIXED: a share of the calibration set and a random choice among query set and holdout.
        OTHER: another part of the query set or holdout, which no test uses.
        QUERY, CALIBRATION, BOTH: for rho: the query set alone, the calibration set alone, both.
    """

    NEVER = "never"
    HALF = "half"
    FULLY = "fully"
    MIXED = "mixed"
    OTHER = "other"
    QUERY = "query"
    CALIBRATION = "calibration"
    BOTH = "control"


OF_QUERY = (Kind.NEVER, Kind.HALF, Kind.FULLY)
"""The kinds that were trained on none, half and all of the query set."""
OF_RHO = (Kind.QUERY, Kind.CALIBRATION, Kind.BOTH)
_OF_QUERY_IN_WORDS = ("without the query set", "with half of the query set", "with all of the query set")


def kind_words(kind: str) -> str:
    """Describes the training set of models of a kind, as a phrase that follows their number.

    >>> kind_words("half"), kind_words("sureness")
    ('with half of the query set', 'of the kind sureness')
    """
    if kind == Kind.MIXED:
        return "on random query and holdout records"
    return dict[str, str](zip(OF_QUERY, _OF_QUERY_IN_WORDS, strict=True)).get(kind, f"of the kind {kind}")


class Pool(NamedTuple):
    """All records of an audit, set after set: query set, holdout, calibration set, known members, then records that
    only simulated targets use.

    Attributes:
        examples: all records; without inputs if they come from a bank.
        query, holdout, calibration: the indices of these sets' records.
        compares_calibration: whether the targets' outputs on the calibration set are known, and compared, too.
        members: the indices of known members.
        kept: by role, which records of a set as it was given are in the pool; no entry if all are.
        sampled_alike: the p-values of "query set and holdout are exchangeable", if measured before, on inputs.
        at_hand: known members, query set and holdout with their inputs, in this order, if `examples` have no inputs.
    """

    examples: Examples
    query: slice
    holdout: slice
    calibration: slice
    compares_calibration: bool = False
    members: slice = slice(0, 0)
    kept: Mapping[str, Bool[np.ndarray, " _"]] = MappingProxyType({})
    sampled_alike: Alike | None = None
    at_hand: Examples | None = None

    @property
    def groups(self) -> Int[np.ndarray, " dealt"] | None:
        """The group of each query and holdout record, numbered from 0, if whole groups were dealt."""
        groups = self.examples.groups
        return None if groups is None else number_groups(groups[: self.holdout.stop])

    @property
    def compared(self) -> Int[np.ndarray, " compared"]:
        """The indices of records whose outputs the tests of use need, set after set; see `compares_calibration`."""
        calibration = self.calibration if self.compares_calibration else slice(0, 0)
        return np.r_[self.query, self.holdout, calibration, self.members]

    @property
    def sets(self) -> Sets[Examples]:
        """The records of each set that has some."""
        parts = Sets(query=self.query, holdout=self.holdout, calibration=self.calibration, members=self.members)
        return parts.map(lambda role, part: self.examples.take(part, role.words) if part.stop > part.start else None)

    @property
    def classless(self) -> bool:
        """Whether records have no classes: each model gives a number for a record, and has no accuracy."""
        return len(self.examples.class_names) < 2

    def comparable(self) -> "Pool":
        """The pool whose texts are counts of their tokens, by which tests compare records; other records are as is."""
        if not are_texts(self.examples):
            return self
        return self._replace(examples=replace(self.examples, inputs=token_counts(self.examples)))

    @property
    def columns(self) -> Int[np.ndarray, " n"]:
        """The index of each record among those of the sets as they were given, if `kept` has an entry for each set."""
        return np.flatnonzero(np.concatenate([*self.kept.values()]))

    @property
    def given_records(self) -> int:
        """The number of records of the sets as they were given, if `kept` has an entry for each set."""
        return sum(map(len, self.kept.values()))

    def take(self, records: Int[np.ndarray, " records"]) -> "Pool":
        """The pool of these records alone (indices, ascending); each stays in its set."""
        query, holdout, calibration, members = (
            slice(*np.searchsorted(records, [part.start, part.stop]).tolist())
            for part in (self.query, self.holdout, self.calibration, self.members)
        )
        return Pool(self.examples.take(records), query, holdout, calibration, self.compares_calibration, members)

    @property
    def training_order(self) -> slice | Int[np.ndarray, " n"]:
        """The order of records in training, on which minibatches depend: the holdout is the third set."""
        if self.holdout.start == self.holdout.stop or self.calibration.start == self.calibration.stop:
            return slice(None)
        return np.r_[self.query, self.calibration, self.holdout, self.calibration.stop : len(self.examples)]


def pool_of_sets(examples: Examples, sizes: Sequence[int], **more: Any) -> Pool:
    """The pool of these records, given the sizes of query set, holdout and calibration set."""
    query, holdout, calibration = (slice(*span) for span in pairwise(np.cumsum([0, *sizes]).tolist()))
    return Pool(examples, query, holdout, calibration, **more)


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Shadow models: their training sets, and their outputs on every record of a pool.

    Attributes:
        kinds: the kind of each model: a `Kind`, or a name that a user's own test defines; empty if no test uses them.
        log_odds: log-odds of each record's own class, in nats; NaN for records without outputs.
        correct: whether each record is classified correctly; with several views, the share of views.
        confidences: the probability of each record's own class.
        own_accuracy: each model's accuracy on its training records; NaN without any.
        resolutions: outputs of some models as they were stored, one for each resolution of the files.
        bank: the bank that the models come from, and its `content_hash`; None and empty if they were trained here.
        views: for attacks, log-odds (nats) in each view of a record, in float64 and all at the coarsest of
            `resolutions`; None unless they were requested.
        scale: of a bank of scores, the scale on which log-odds are the ranks of scores; None for log-odds in nats.
        models_per_batch: the number of models trained at the same time; None if none was trained here.
        form: how convolutions were computed (`kernels.convolutions`); None: as JAX has them, or there are none.
    """

    pool: Pool
    kinds: tuple[str, ...]
    membership: Membership
    log_odds: Float[np.ndarray, "models examples"]
    correct: Shaped[np.ndarray, "models examples"]
    confidences: Float[np.ndarray, "models examples"]
    own_accuracy: Float[np.ndarray, " models"]
    resolutions: tuple[Outputs, ...] = ()
    content_hash: str = ""
    bank: Bank | None = None
    numbers: Int[np.ndarray, " models"] | None = None
    views: Float[np.ndarray, "models views examples"] | None = None
    scale: RankScale | None = None
    models_per_batch: int | None = None
    form: str | None = None

    def __len__(self) -> int:
        return len(self.membership)

    def of(self, *kinds: str) -> Int[np.ndarray, " some"]:
        """The indices of the models of these kinds, kind after kind."""
        indices_by_kind = [
            [index for index, kind_of_model in enumerate(self.kinds) if kind_of_model == kind] for kind in kinds
        ]
        return np.array([index for indices in indices_by_kind for index in indices], int)

    def take(
        self,
        models: slice | Int[np.ndarray, " models"] = slice(None),
        records: Int[np.ndarray, " records"] | None = None,
        pool: Pool | None = None,
    ) -> "ShadowModels":
        """The same with some of the models, and with some of the records; both by indices, in the new order.

        Records must be ascending, unless `pool` has them in their new order.
        """

        def taken(array: Any) -> Any:
            # As `array[models][..., records]`, in C order.
            return array[models] if records is None else np.take(array[models], records, axis=-1)

        by_record = {name: taken(getattr(self, name)) for name in ("membership", "log_odds", "correct", "confidences")}
        return replace(
            self,
            pool=pool or (self.pool if records is None else self.pool.take(records)),
            kinds=tuple(np.array(self.kinds, object)[models].tolist()) if self.kinds else (),
            **by_record,
            own_accuracy=self.own_accuracy[models],
            numbers=None if self.numbers is None else self.numbers[models],
            views=None if self.views is None else taken(self.views),
        )

    @property
    def query_accuracy(self) -> Float[np.ndarray, " models"]:
        """The accuracy of each model on the query set."""
        return self.correct[:, self.pool.query].mean(axis=1, dtype=np.float64)


def no_models(pool: Pool) -> ShadowModels:
    """No shadow models, for an audit that needs none."""
    none = np.zeros((0, len(pool.examples)), np.float32)
    empty = none.astype(bool)
    return ShadowModels(pool, (), empty, none, empty, none, np.zeros(0))
