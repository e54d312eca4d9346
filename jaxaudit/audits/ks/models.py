"""The models of a `ks` audit: their training sets and outputs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.audits.pool import Pool, shadow_row
from jaxaudit.data.groups import numbered
from jaxaudit.ensemble import Execution, fit_many, kept_models_per_batch, log_probs_many, measure_models_per_batch
from jaxaudit.learners import Learner
from jaxaudit.membership import only
from jaxaudit.metrics.ema import Signals, signals
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, joined, keys_at, several, stream

Designs = Mapping[str, Int[np.ndarray, " models"]]
"""The place of each model's design among those of an audit, by role; roles that are missing have the first."""
Row = Bool[np.ndarray, "1 examples"]
Roles = dict[str, list[Row]]


QUERY, CALIBRATION, CONTROL = OF_RHO = ("query", "calibration", "control")
"""Roles of the models that rho compares: trained on the query set, on the calibration set, on both. Nobody else's."""
LEAST = 19
"""Fewer models of a kind cannot give a p-value of 0.05."""


class Design(NamedTuple):
    """A design of shadow models: a network and its recipe.

    Attributes:
        name: what it is called.
        learner: how its models are trained.
    """

    name: str
    learner: Learner


class Trained(NamedTuple):
    """The models of one role.

    Attributes:
        confidences: probability of the ground-truth class of every query record.
        log_odds: the log-odds (nats) of the records that `Pool.asked` names, without rounding to float32
            probabilities.
        own_accuracy: accuracy on the model's own training records.
        query_accuracy: accuracy on the query set.
        signals: EMA's signals on query and calibration records; empty without EMA.
        on_calibration: the log-odds of calibration records; None where they are not known.
        correct: whether each record of the pool is given its class; None where that is not known.
    """

    confidences: Float[np.ndarray, "models n"]
    log_odds: Float[np.ndarray, "models asked"]
    own_accuracy: Float[np.ndarray, " models"]
    query_accuracy: Float[np.ndarray, " models"]
    signals: Signals
    on_calibration: Float[np.ndarray, "models calibration"] | None = None
    correct: Bool[np.ndarray, "models examples"] | None = None

    def taken(self, rows: Int[np.ndarray, " rows"]) -> "Trained":
        """Only the models at these places, in this order."""
        return Trained(
            *(each[rows] for each in self[:4]),
            signals=Signals(*(each[rows] for each in self.signals)),
            on_calibration=None if self.on_calibration is None else self.on_calibration[rows],
            correct=None if self.correct is None else self.correct[rows],
        )


def generators(key: Key[Array, ""], role: str, models: int) -> Iterator[np.random.Generator]:
    """A function that draws the training set of each model of a role."""
    return (generator_of(stream(key, role, model)) for model in range(models))


def shadow_rows(
    key: Key[Array, ""],
    pool: Pool,
    role: str,
    records: Int[np.ndarray, " records"],
    count: int,
    models: int,
    groups: Int[np.ndarray, " records"] | None = None,
    *,
    with_reference: bool = False,
    with_members: bool = False,
) -> list[Row]:
    """Membership rows: a share of the calibration set and `count` of these records, drawn again for each row.

    With the group of each record, numbered from 0: all records of `count` groups. With the reference: and as large a
    share of it, where it is a set of its own. With the known members: and as large a share of them as of these records.
    """
    known = np.arange(pool.members.start, pool.members.stop) if with_members else records[:0]
    units = groups.max() + 1 if groups is not None else len(records)
    found = []
    for own in generators(key, role, models):
        drawn = draw_records(own, records, count, groups)
        row = shadow_row(own, pool, drawn, SHARE, with_reference=with_reference)
        if len(known):
            of_members = None if pool.member_groups is None else numbered(pool.member_groups)
            size = len(known) if of_members is None else int(of_members.max()) + 1
            row |= only(draw_records(own, known, round(size * count / units), of_members), row.shape[1])
        found.append(row)
    return found


def draw_records(
    own: np.random.Generator,
    records: Int[np.ndarray, " records"],
    count: int,
    groups: Int[np.ndarray, " records"] | None = None,
) -> Int[np.ndarray, " drawn"]:
    """`count` of these records, or with the group of each record, numbered from 0, all records of `count` groups."""
    if groups is not None:
        return records[np.isin(groups, own.choice(groups.max() + 1, count, replace=False))]
    return records if count == len(records) else own.choice(records, count, replace=False)


def train_roles(
    key: Key[Array, ""],
    roles: Roles,
    pool: Pool,
    learners: Sequence[Learner],
    designs: Designs,
    *,
    with_signals: bool,
    execution: Execution,
) -> tuple[dict[str, Trained], int]:
    """Trains all models, each with the seed of its role and number; also returns the models per batch.

    Args:
        key: random key.
        roles: the training sets.
        pool: the records.
        learners: of each design.
        designs: which design each model has.
        with_signals: whether EMA's signals are wanted.
        execution: models per batch, progress, and where finished models are kept.
    """
    membership = np.concatenate([row for rows in roles.values() for row in rows])
    keys = joined(several(stream(key, role), len(rows)) for role, rows in roles.items() if rows)
    inputs, labels = pool.examples.inputs, pool.examples.labels
    design = np.concatenate([designs.get(role, np.zeros(len(rows), int)) for role, rows in roles.items()])
    own_rows = [np.flatnonzero(design == place) for place in range(len(learners))]
    watched = np.r_[pool.query, pool.calibration] if with_signals else np.zeros(0, int)
    models_per_batch = execution.models_per_batch
    if execution.checkpoints is not None:
        first = own_rows[0]
        kept = kept_models_per_batch(keys_at(keys, first), membership[first], inputs, labels, execution.checkpoints)
        models_per_batch = kept or models_per_batch
    if models_per_batch is None:
        models_per_batch = measure_models_per_batch(keys, membership, inputs, labels, learners[0]).models_per_batch

    parts = execution.at(models_per_batch).split(*(len(rows) for rows in own_rows))
    # `members_only`: else a set that is added to the pool would change the minibatches of models that hold nearly all
    # of the others.
    fitted = [
        fit_many(
            *(keys_at(keys, rows), membership[rows], inputs, labels, learner),
            execution=part,
            summarize=partial(_score, learner, pool, watched),
            members_only=True,
        )
        for learner, rows, part in zip(learners, own_rows, parts, strict=True)
        if len(rows)
    ]
    order = np.argsort(np.concatenate(own_rows), kind="stable")
    confidences, odds, further, hits, *seen = (np.concatenate(arrays)[order] for arrays in zip(*fitted, strict=True))
    own = (hits & membership).sum(axis=1) / membership.sum(axis=1)
    everyone = confidences, odds, own, hits[:, pool.query].mean(axis=1)
    ends = np.cumsum([len(rows) for rows in roles.values()])
    spans = [slice(end - len(rows), end) for rows, end in zip(roles.values(), ends, strict=True)]
    trained = {
        role: Trained(
            *(array[span] for array in everyone),
            signals=Signals(*(array[span] for array in seen)),
            on_calibration=further[span],
            correct=hits[span],
        )
        for role, span in zip(roles, spans, strict=True)
    }
    return trained, models_per_batch


def _score(
    learner: Learner, pool: Pool, watched: Int[np.ndarray, " watched"], params: Any, rows: Int[np.ndarray, " models"]
) -> tuple[np.ndarray, ...]:
    """What is kept of a chunk's models: confidences, log-odds, hits, and EMA's signals on `watched`."""
    labels = pool.examples.labels
    log_probs = log_probs_many(learner, params, pool.examples.inputs)
    of_label = np.take_along_axis(log_probs, labels[None, :, None], axis=2)[:, :, 0]
    # Through float64, so that a confidence near 1 is rounded once and not twice.
    confidences = np.exp(of_label[:, pool.query].astype(np.float64)).astype(np.float32)
    odds, further = (
        log_odds(log_probs[:, part].astype(np.float64), labels[part]).astype(np.float32)
        for part in (pool.asked, pool.calibration)
    )
    seen = [signals(np.exp(each[watched].astype(np.float64)), labels[watched]) for each in log_probs]
    return confidences, odds, further, log_probs.argmax(axis=2) == labels, *map(np.stack, zip(*seen, strict=True))
