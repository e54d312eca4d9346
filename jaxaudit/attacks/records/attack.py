"""The interface of an attack on each record by a bank of shadow models, and what it is given."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError

BLOCK = 1 << 18
"""Numbers of a block of records, for all models together."""


class Shadowed(NamedTuple):
    """Log-odds (nats) of each record's own class, in one or more views of it.

    Attributes:
        models: of the shadow models.
        membership: which records each shadow model was trained on.
        targets: of the attacked models; None: each shadow model is attacked by the others.
        paired: the records for which, where each model is attacked by the others, one model of the other kind is left
            out, too; see `dealt_evenly`. One answer may stand for all.
    """

    models: Float[np.ndarray, "models views n"]
    membership: Bool[np.ndarray, "models n"]
    targets: Float[np.ndarray, "targets views n"] | None = None
    paired: Bool[np.ndarray, " n"] | bool = False

    @property
    def attacked(self) -> Float[np.ndarray, "targets views n"]:
        """The log-odds of the models that are attacked."""
        return self.models if self.targets is None else self.targets

    @property
    def references(self) -> int:
        """Shadow models that attack each target."""
        return len(self.models) - (1 + bool(np.any(self.paired)) if self.targets is None else 0)

    def blocks(self) -> Iterator[tuple[slice, "Shadowed"]]:
        """The same of some records at a time, so that memory does not grow with their number."""
        models, views, records = self.models.shape
        size = max(1, BLOCK // (models * views))
        for start in range(0, records, size):
            part = slice(start, start + size)
            targets = None if self.targets is None else self.targets[:, :, part]
            paired = self.paired if isinstance(self.paired, bool) else self.paired[part]
            yield part, Shadowed(self.models[:, :, part], self.membership[:, part], targets, paired)


class Least(NamedTuple):
    """How many shadow models, beside the target, an attack needs to say anything of a record.

    Attributes:
        inside: trained with it.
        outside: trained without it.
        together: of both kinds, for any record.
    """

    inside: int = 0
    outside: int = 0
    together: int = 1


@runtime_checkable
class RecordAttack(Protocol):
    """An attack that gives each record of each target a score, larger for a member.

    Attributes:
        name: letters, digits and hyphens.
        meaning: what it does, in one sentence.
        source: the paper or code it is from.
        least: how many shadow models it needs.

    One whose score of a record depends on the target's other records has an attribute `relative` that is true: what it
    calls by chance among records that were never used cannot be read from shadow models that used half of theirs.
    """

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def least(self) -> Least: ...

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target; NaN where there are too few models (`least`)."""
        ...


def dealt_evenly(membership: Bool[np.ndarray, "models n"]) -> bool:
    """Whether each record was dealt to a fixed number of models, rather than to each by its own coin.

    If it was, the number of other models with a record tells whether a model itself has it, and attacks on the model
    would look better than they are: a model of the other kind has to be left out as well. If each had its own coin,
    that would itself tell. Fixed numbers vary less over records than half of what coins do.
    """
    share = membership.mean(axis=0)
    coins = len(membership) * float((share * (1 - share)).mean())
    return float(membership.sum(axis=0).var()) < coins / 2


def left_out(shadowed: Shadowed) -> tuple[Int[np.ndarray, "targets n"], Int[np.ndarray, "targets n"]]:
    """Which model with a record, and which without it, is not among those that attack a target; -1 for none.

    The target itself, and its partner: the next model, in a circle, of the other kind. One row for all targets where
    these are none of the models.

    >>> member = np.array([[True, True], [False, True], [True, True]])
    >>> [each.T.tolist() for each in left_out(Shadowed(np.zeros((3, 1, 2)), member, paired=True))]
    [[[0, 2, 2], [0, 1, 2]], [[1, 1, 1], [-1, -1, -1]]]
    """
    own = shadowed.membership
    models, records = own.shape
    if shadowed.targets is not None:
        none = np.full((1, records), -1)
        return none, none
    alone, partner = np.arange(models)[:, None], np.full((models, records), -1)
    last = np.full((2, records), -1)
    for place in range(2 * models - 1, -1, -1) if np.any(shadowed.paired) else ():
        row = own[place % models]
        if place < models:
            partner[place] = np.where(shadowed.paired, np.where(row, last[0], last[1]), -1)
        last[0][~row] = last[1][row] = place % models
    return np.where(own, alone, partner), np.where(own, partner, alone)


def counts(shadowed: Shadowed) -> tuple[Int[np.ndarray, "targets n"], Int[np.ndarray, "targets n"]]:
    """How many of the shadow models that attack a target were trained with a record, and without it."""
    inside = shadowed.membership.sum(axis=0)
    of_in, of_out = (without >= 0 for without in left_out(shadowed))
    return inside - of_in, len(shadowed.models) - inside - of_out


def enough(shadowed: Shadowed, least: Least) -> Bool[np.ndarray, "targets n"]:
    """Where there are as many models as an attack needs."""
    inside, outside = counts(shadowed)
    return (inside >= least.inside) & (outside >= least.outside) & (shadowed.references >= least.together)


def check(shadowed: Shadowed) -> None:
    """Refuses arrays that do not fit one another.

    Raises:
        InputError: shapes disagree, a number is NaN or infinite, or no shadow model is left to attack a target.
    """
    models, views, records = shadowed.models.shape
    fits = shadowed.membership.shape == (models, records) and shadowed.attacked.shape[1:] == (views, records)
    if not fits:
        raise InputError(
            f"the shadow models have log-odds of shape {shadowed.models.shape}, their membership has "
            f"{shadowed.membership.shape}, and the targets have {shadowed.attacked.shape}: models, views, records."
        )
    if shadowed.references < 1:
        raise InputError(
            f"{len(shadowed.models)} shadow models leave none to attack another; train at least 4, preferably 32."
        )
    bad = int((~np.isfinite(shadowed.models)).sum() + (~np.isfinite(shadowed.attacked)).sum())
    if bad:
        raise InputError(f"{bad} log-odds are NaN or infinite; did a model diverge?")
