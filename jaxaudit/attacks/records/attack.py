"""The interface of an attack on each record by a bank of shadow models, and what it is given."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError

BLOCK = 1 << 18
"""Numbers of a block of records, for all models together."""
LEAST_UNUSED = 100
"""Records that no model used with which others can be compared; fewer give scores that tie."""
SPREAD = (0.7548776662466927, 0.5698402909980532)
"""Multiples of these, modulo 1, are spread evenly over the unit square (1 / g and 1 / g^2, g^3 = g + 1)."""


class Dealt(NamedTuple):
    """How many models each record was dealt to, by a deal that fixed the number; see `deal_of`.

    Attributes:
        inside: planned models that were trained with the record, `outside` without it; infinite where each model had a
            coin of its own.
        turn: of each record, evenly spread over 0 to 1: whether it is its turn where some of the planned models are not
            finished.
    """

    inside: Float[np.ndarray, " n"]
    outside: Float[np.ndarray, " n"]
    turn: Float[np.ndarray, " n"]


class ShadowScores(NamedTuple):
    """Log-odds (nats) of each record's own class, in one or more views of it.

    Attributes:
        models: of the shadow models.
        membership: which records each shadow model was trained on.
        targets: of the attacked models; None: each shadow model is attacked by the others.
        dealt: how many of all planned models have each record, if a deal fixed it: where each model is attacked by the
            others, one of the other kind is left out, too. None: each model has a coin for each record.
        unused: records that no model was trained on, nor any target, which attacks may compare others with; None
            without. See `unused_records`.
    """

    models: Float[np.ndarray, "models views n"]
    membership: Bool[np.ndarray, "models n"]
    targets: Float[np.ndarray, "targets views n"] | None = None
    dealt: Dealt | None = None
    unused: Bool[np.ndarray, " n"] | None = None

    @property
    def attacked(self) -> Float[np.ndarray, "targets views n"]:
        """The log-odds of the models that are attacked."""
        return self.models if self.targets is None else self.targets

    @property
    def references(self) -> int:
        """Shadow models that attack each target, at least."""
        fixed = self.dealt is not None and bool(np.isfinite(self.dealt.inside).any())
        return len(self.models) - (1 + fixed if self.targets is None else 0)

    def blocks(self) -> Iterator[tuple[slice, "ShadowScores"]]:
        """The same of some records at a time, so that memory does not grow with their number."""
        models, views, records = self.models.shape
        size = max(1, BLOCK // (models * views))
        for start in range(0, records, size):
            part = slice(start, start + size)
            targets = None if self.targets is None else self.targets[:, :, part]
            dealt = None if self.dealt is None else Dealt(*(each[part] for each in self.dealt))
            unused = None if self.unused is None else self.unused[part]
            yield part, ShadowScores(self.models[:, :, part], self.membership[:, part], targets, dealt, unused)


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

    One whose score of a record depends on the target's other records has a method `relative`, which says of what it is
    given whether the target may have used these: what it then calls by chance among records that were never used cannot
    be read from shadow models that used half of theirs.
    """

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def least(self) -> Least: ...

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target; NaN where there are too few models (`least`)."""
        ...


def deal_of(planned: Bool[np.ndarray, "models n"]) -> Dealt:
    """How the records of one set were dealt to models, from the rows of all that were planned.

    A fixed number makes records differ less in how many models have them than a coin for each model does. Of `size`
    models that have it fixed, some `rows` vary by (size - rows) / (size - 1) of what coins vary by: so the size is told
    even where rows are missing here, too. Less than three standard errors below coins is coins.

    >>> deal_of(np.array([[True, False, True], [False, True, False]])).inside
    array([1., 1., 1.])
    """
    records, share = planned.shape[1], planned.mean(axis=1)
    rows, coins = np.count_nonzero(share * (1 - share)), float((share * (1 - share)).sum())
    ratio = float(planned.sum(axis=0).var()) / coins if coins else np.inf
    size = (rows - ratio) / (1 - ratio) if ratio <= max(0.0, 1 - 3 * np.sqrt(2 / records)) else np.inf
    inside = float(share[share < 1].sum()) / max(rows, 1) * size
    turn = np.arange(records) * SPREAD[0] % 1
    return Dealt(np.full(records, inside), np.full(records, size - inside if np.isfinite(size) else np.inf), turn)


def unused_records(planned: Bool[np.ndarray, "models n"]) -> Bool[np.ndarray, " n"] | None:
    """The records that no planned model is trained on, if the bank has them on purpose; None without.

    So it is if there are `LEAST_UNUSED` of them, and ten times as many as no model would happen to have if each had the
    others by coins of its own: those a target may have.

    >>> unused_records(np.arange(300) < np.array([[150], [200]])).sum()
    np.int64(100)
    """
    unused = np.asarray(planned.sum(axis=0) == 0)
    count = int(unused.sum())
    none = float(np.prod(1 - planned[:, ~unused].mean(axis=1))) if count < len(unused) else 1.0
    by_chance = (len(unused) - count) * none / (1 - none) if none < 1 else np.inf
    return unused if count >= max(LEAST_UNUSED, 10 * by_chance) else None


def left_out(shadowed: ShadowScores) -> tuple[Int[np.ndarray, "targets n"], Int[np.ndarray, "targets n"]]:
    """Which model with a record, and which without it, is not among those that attack a target; -1 for none.

    The target itself, and its partner: a model of the other kind. Were the two exchanged, all others would be as they
    are, so their numbers do not tell which of the two has the record. Any planned model of the other kind is as likely
    a partner as any other; one that is not finished need not be left out. Of finished ones it is the next in a circle.
    One row for all targets where these are none of the models.

    >>> member = np.array([[True, False], [False, True], [True, False], [False, True]])
    >>> dealt = deal_of(member)
    >>> [each.T.tolist() for each in left_out(ShadowScores(np.zeros((4, 1, 2)), member, dealt=dealt))]
    [[[0, 2, 2, 0], [1, 1, 3, 3]], [[1, 1, 3, 3], [0, 2, 2, 0]]]
    >>> [each.T.tolist() for each in left_out(ShadowScores(np.zeros((2, 1, 2)), member[:2], dealt=dealt))]
    [[[0, -1], [-1, 1]], [[1, 1], [0, 0]]]
    """
    own = shadowed.membership
    models, records = own.shape
    if shadowed.targets is not None:
        none = np.full((1, records), -1)
        return none, none
    alone, partner = np.arange(models)[:, None], np.full((models, records), -1)
    if shadowed.dealt is not None and np.isfinite(shadowed.dealt.inside).any():
        inside, outside, turn = shadowed.dealt
        with_it = own.sum(axis=0)
        last = np.full((2, records), -1)
        for place in range(2 * models - 1, -1, -1):
            row = own[place % models]
            if place < models:
                finished, planned = np.where(row, [models - with_it, outside], [with_it, inside])
                due = (turn + place * SPREAD[1]) % 1 * planned < finished
                partner[place] = np.where(due, np.where(row, last[0], last[1]), -1)
            last[0][~row] = last[1][row] = place % models
    return np.where(own, alone, partner), np.where(own, partner, alone)


def counts(shadowed: ShadowScores) -> tuple[Int[np.ndarray, "targets n"], Int[np.ndarray, "targets n"]]:
    """How many of the shadow models that attack a target were trained with a record, and without it."""
    inside = shadowed.membership.sum(axis=0)
    of_in, of_out = (without >= 0 for without in left_out(shadowed))
    return inside - of_in, len(shadowed.models) - inside - of_out


def enough(shadowed: ShadowScores, least: Least) -> Bool[np.ndarray, "targets n"]:
    """Where there are as many models as an attack needs."""
    inside, outside = counts(shadowed)
    return (inside >= least.inside) & (outside >= least.outside) & (shadowed.references >= least.together)


def check(shadowed: ShadowScores) -> None:
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
