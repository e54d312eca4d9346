"""Draws the training sets of a `ks` audit's models, by their kind (`Kind`), trains these, asks for outputs.

Nobody knows a target's design. The models of a test of use take turns among several designs, so that their spread holds
what a design does to outputs. The five usual ones are the smallest set that kept the holdout test's promises; others
are named (`--designs`), and stand behind them, so that no turn of the five moves. At equal numbers of models, choosing
one design by likelihood covered the used fraction less often than mixing them, on worlds that no error rate is reported
of. rho and simulated targets keep the guess. The reference and the shadow test compare the linear share: a score that
is not linear moves up with scatter, and every real target scatters more than shadow models that share one calibration
set. What is taken off for the design is measured on a reference; how far a target scatters, too. Without one, an
analysis of variance keeps the part between designs from being stretched. A design that did not learn is left out of a
test, judged by that test's models alone, unless too few would remain: a test that is weaker, and says so, is better
than none after training.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Real

from jaxaudit.audits.bank_odds import log_odds_of
from jaxaudit.audits.pool import share_row
from jaxaudit.data.group_values import number_groups
from jaxaudit.ensemble import (
    Execution,
    fit_many,
    form_of,
    kept_models_per_batch,
    log_probs_many,
    measure_models_per_batch,
)
from jaxaudit.learners import Learner
from jaxaudit.membership import Membership, only
from jaxaudit.metrics.ema import Signals, signals
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, join_keys, keys_at, several, stream
from jaxaudit.shadow_models import Pool, ShadowModels

Rows = dict[str, Bool[np.ndarray, "_ examples"]]
"""Membership masks, by the kind of the models."""
LEAST = 19
"""The least number of models of a kind that allows a p-value of 0.05."""


class Design(NamedTuple):
    """A design of shadow models: the name of a network and its recipe, and what trains it."""

    name: str
    learner: Learner


def generators(key: Key[Array, ""], kind: str, models: int) -> Iterator[np.random.Generator]:
    """The random generator of the training set of each model of a kind."""
    return (generator_of(stream(key, kind, model)) for model in range(models))


def shadow_rows(
    key: Key[Array, ""],
    pool: Pool,
    kind: str,
    records: Int[np.ndarray, " records"],
    count: int,
    models: int,
    groups: Int[np.ndarray, " records"] | None = None,
    *,
    with_reference: bool = False,
    with_members: bool = False,
) -> Membership:
    """Membership masks: a share of the calibration set and `count` of `records`, drawn anew for each mask.

    Args:
        key, pool: the random key and the records of the audit.
        kind: the kind of the models; each kind has its own random numbers.
        records: the indices of the records to draw from.
        count: the number of records to draw or, with `groups`, of groups whose records are all drawn.
        models: the number of masks.
        groups: the group of each of `records`, numbered from 0.
        with_reference: whether to add the same share of a separate reference (known non-members).
        with_members: whether to add the same share of the known members as of `records`.
    """
    members = np.arange(pool.members.start, pool.members.stop) if with_members else records[:0]
    units = groups.max() + 1 if groups is not None else len(records)
    rows = [np.zeros((0, len(pool.examples)), bool)]
    for generator in generators(key, kind, models):
        row = only(draw_records(generator, records, count, groups), len(pool.examples))
        if pool.calibration.stop > pool.calibration.start:
            row |= share_row(generator, pool, pool.calibration, SHARE)
        if with_reference and pool.reference_apart:
            row |= share_row(generator, pool, pool.reference, SHARE)
        if len(members):
            of_members = None if pool.member_groups is None else number_groups(pool.member_groups)
            size = len(members) if of_members is None else int(of_members.max()) + 1
            row |= only(draw_records(generator, members, round(size * count / units), of_members), row.shape[1])
        rows.append(row)
    return np.concatenate(rows)


def draw_records(
    generator: np.random.Generator,
    records: Int[np.ndarray, " records"],
    count: int,
    groups: Int[np.ndarray, " records"] | None,
) -> Int[np.ndarray, " drawn"]:
    """`count` of these records; with the group of each record, numbered from 0, all records of `count` groups."""
    if groups is not None:
        return records[np.isin(groups, generator.choice(groups.max() + 1, count, replace=False))]
    return records if count == len(records) else generator.choice(records, count, replace=False)


def train_rows(
    key: Key[Array, ""],
    rows: Rows,
    pool: Pool,
    learners: Sequence[Learner],
    designs: Mapping[str, Int[np.ndarray, " _"]],
    *,
    design_names: tuple[str, ...] = (),
    with_signals: bool = False,
    execution: Execution,
) -> ShadowModels:
    """Trains all models of an audit; the seed of a model follows from its kind and number.

    Args:
        key: random key of all models.
        rows: the membership masks of each kind of models.
        pool: the records.
        learners: one for each design (a network with its training recipe).
        designs: the index of each model's design, by kind; models of kinds without an entry have the first design.
        design_names: the name of each design; empty if there is one.
        with_signals: whether to compute EMA's signals.
        execution: how models are trained.
    """
    membership, order = np.concatenate(list(rows.values())), pool.training_order
    keys = join_keys(several(stream(key, kind), len(masks)) for kind, masks in rows.items() if len(masks))
    inputs, labels, in_order = pool.examples.inputs[order], pool.examples.labels[order], membership[:, order]
    design = np.concatenate([designs.get(kind, np.zeros(len(masks), int)) for kind, masks in rows.items()])
    own_rows = [np.flatnonzero(design == index) for index in range(len(learners))]
    # Query set and calibration set come first in training.
    watched = pool.query.stop + pool.calibration.stop - pool.calibration.start if with_signals else 0
    models_per_batch = execution.models_per_batch
    if execution.checkpoints is not None:
        first = own_rows[0]
        kept = kept_models_per_batch(keys_at(keys, first), in_order[first], inputs, labels, execution.checkpoints)
        models_per_batch = kept or models_per_batch
    if models_per_batch is None:
        models_per_batch = measure_models_per_batch(keys, in_order, inputs, labels, learners[0]).models_per_batch

    parts = execution.at(models_per_batch).split(*(len(indices) for indices in own_rows))
    # Without `members_only`, a further set in the pool would change minibatches of models that hold nearly all others.
    fitted = [
        fit_many(
            keys_at(keys, indices),
            in_order[indices],
            inputs,
            labels,
            learner,
            execution=part,
            summarize=partial(_score, learner, inputs, labels, watched),
            members_only=True,
        )
        for learner, indices, part in zip(learners, own_rows, parts, strict=True)
        if len(indices)
    ]
    as_drawn = np.argsort(np.concatenate(own_rows), kind="stable")
    confidences, odds, hits, *seen = (np.concatenate(arrays)[as_drawn] for arrays in zip(*fitted, strict=True))
    by_set = np.argsort(np.arange(len(labels))[order])
    return ShadowModels(
        pool=pool.comparable(),
        kinds=tuple(kind for kind, masks in rows.items() for _ in masks),
        membership=membership,
        log_odds=np.take(odds, by_set, axis=1),
        correct=np.take(hits, by_set, axis=1),
        confidences=np.take(confidences, by_set, axis=1),
        own_accuracy=np.where(in_order, hits, 0).sum(axis=1) / membership.sum(axis=1),
        designs=design,
        design_names=design_names,
        signals=Signals(*seen) if with_signals else None,
        models_per_batch=models_per_batch,
        form=form_of(learners[0]),
    )


def _score(
    learner: Learner,
    inputs: Real[np.ndarray, "n ..."],
    labels: Int[np.ndarray, " n"],
    watched: int,
    params: Any,
    rows: Int[np.ndarray, " models"],
) -> tuple[np.ndarray, ...]:
    """Results of a chunk's models: confidences, log-odds, hits, and EMA's signals on the first `watched` records.

    Of records without classes, whose one column is a mean log-likelihood, as of a bank of these: hits are NaN.
    """
    log_probs = log_probs_many(learner, params, inputs)
    of_label = np.take_along_axis(log_probs, labels[None, :, None], axis=2)[:, :, 0]
    # Computed in float64, so that a confidence near 1 is rounded only once.
    confidences = np.exp(of_label.astype(np.float64)).astype(np.float32)
    hits = log_probs.argmax(axis=2) == labels
    if log_probs.shape[2] == 1:
        odds = np.stack([log_odds_of("log_likelihood", log_prob[:, None], labels)[0] for log_prob in log_probs])
        odds, hits = odds.astype(np.float32), np.full(odds.shape, np.nan, np.float32)
    else:
        odds = log_odds(log_probs.astype(np.float64), labels).astype(np.float32)
    seen = [signals(np.exp(log_prob[:watched].astype(np.float64)), labels[:watched]) for log_prob in log_probs]
    return confidences, odds, hits, *map(np.stack, zip(*seen, strict=True))
