"""The interface of an attack on each record by a bank of shadow models, and what it is given."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError

BLOCK = 1 << 20
"""Numbers of a block of records, for all models together."""


class Shadowed(NamedTuple):
    """Log-odds (nats) of each record's own class, in one or more views of it.

    Attributes:
        models: of the shadow models.
        membership: which records each shadow model was trained on.
        targets: of the attacked models; None: each shadow model is attacked by all others.
    """

    models: Float[np.ndarray, "models views n"]
    membership: Bool[np.ndarray, "models n"]
    targets: Float[np.ndarray, "targets views n"] | None = None

    @property
    def attacked(self) -> Float[np.ndarray, "targets views n"]:
        """The log-odds of the models that are attacked."""
        return self.models if self.targets is None else self.targets

    @property
    def references(self) -> int:
        """Shadow models that attack each target."""
        return len(self.models) - (self.targets is None)

    def blocks(self) -> Iterator[tuple[slice, "Shadowed"]]:
        """The same of some records at a time, so that memory does not grow with their number."""
        models, views, records = self.models.shape
        size = max(1, BLOCK // (models * views))
        for start in range(0, records, size):
            part = slice(start, start + size)
            targets = None if self.targets is None else self.targets[:, :, part]
            yield part, Shadowed(self.models[:, :, part], self.membership[:, part], targets)


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


def counts(shadowed: Shadowed) -> tuple[Int[np.ndarray, "targets n"], Int[np.ndarray, "targets n"]]:
    """How many of the shadow models that attack a target were trained with a record, and without it.

    One row for all targets, where these are none of the models.
    """
    inside, own = shadowed.membership.sum(axis=0), shadowed.membership
    if shadowed.targets is not None:
        return inside[None], len(own) - inside[None]
    return inside - own, len(own) - inside - ~own


def enough(shadowed: Shadowed, least: Least) -> Bool[np.ndarray, "targets n"]:
    """Where there are as many models as an attack needs."""
    inside, outside = counts(shadowed)
    return (inside >= least.inside) & (outside >= least.outside) & (shadowed.references >= least.together)


def check(shadowed: Shadowed) -> None:
    """Refuses arrays that do not fit one another.

    Raises:
        InputError: shapes disagree, a number is NaN or infinite, or there are fewer than two shadow models.
    """
    models, views, records = shadowed.models.shape
    fits = shadowed.membership.shape == (models, records) and shadowed.attacked.shape[1:] == (views, records)
    if not fits:
        raise InputError(
            f"the shadow models have log-odds of shape {shadowed.models.shape}, their membership has "
            f"{shadowed.membership.shape}, and the targets have {shadowed.attacked.shape}: models, views, records."
        )
    if shadowed.references < 1:
        raise InputError("one shadow model has no other to be compared with; train at least 2, preferably 32.")
    bad = int((~np.isfinite(shadowed.models)).sum() + (~np.isfinite(shadowed.attacked)).sum())
    if bad:
        raise InputError(f"{bad} log-odds are NaN or infinite; did a model diverge?")
