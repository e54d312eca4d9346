"""The pool of examples of a `ks` audit, and its models: draws training sets by kind (`Kind`), trains, asks for outputs.

All have one recipe, and nobody knows whether it is a target's: so their numbers say how much a target remembers only on
the user's word (`tests_of_use/test.py`). The shadow test compares the linear share: a score that is not linear moves up
with scatter, and every real target scatters more than shadow models that share one calibration set. Where a target's
outputs on the calibration set are known, how far it scatters is measured on it. Models that did not learn are kept: a
test that is weaker, and says so, is better than none after training.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Real

from jaxaudit.audits.bank_odds import log_odds_of
from jaxaudit.data import Examples, align_dealt, concatenate
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.groups import groups_by_role
from jaxaudit.data.labels import number_groups
from jaxaudit.data.pairs import HOLDOUT, MEMBERS, refuse_held
from jaxaudit.ensemble import (
    Execution,
    fit_many,
    form_of,
    kept_models_per_batch,
    log_probs_many,
    suitable_models_per_batch,
)
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.membership import Membership, only, random_subset
from jaxaudit.metrics.arrays import Integers, Members, ModelNumbers, OneKey, units_of_records
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, join_keys, several, stream
from jaxaudit.shadow_models import Pool, ShadowModels


class Part(NamedTuple):
    """A random share of a data set, of the classes of the query set; of its groups, if these are kept whole."""

    examples: Examples
    fraction: float


def make_pool(sets: Sets[Examples], targets: Sequence[tuple[str, tuple[Part, ...]]] = ()) -> Pool:
    """The pool of all sets, and of the parts that targets of these names are trained on; a record that several share is
    in it once, matched by its hash. Sets that must not share records or groups, and unfit parts, are refused.
    """
    groups_by_role(sets)
    refuse_shared(sets)
    query, roles = sets[Role.QUERY], (Role.QUERY, Role.HOLDOUT, Role.CALIBRATION, Role.MEMBERS)
    ends = np.cumsum([0, *(len(sets[role]) if role in sets else 0 for role in roles)]).tolist()
    query_at, holdout_at, calibration_at, members_at = (slice(*span) for span in pairwise(ends))
    parts = [sets[role] for role in roles if role in sets]
    record_hashes = {record for examples in parts for record in examples.record_hashes.tolist()}
    for name, part in [(name, part) for name, parts_of_target in targets for part in parts_of_target]:
        if not 0 < part.fraction <= 1:
            raise InputError(
                f"{name}: the fraction of {part.examples.name} is {part.fraction:g}; give one above 0 and at "
                "most 1, such as 0.5."
            )
        extra = align_dealt(query, part.examples)
        if Role.HOLDOUT in sets:
            refuse_held(extra, sets[Role.HOLDOUT], "target's data", "remove them from one of the two")
        fresh = np.flatnonzero([record not in record_hashes for record in extra.record_hashes.tolist()])
        if len(fresh):
            parts.append(extra.take(fresh))
            record_hashes.update(parts[-1].record_hashes.tolist())
    return Pool(concatenate(parts, "pool"), query_at, holdout_at, calibration_at, members=members_at)


TOGETHER = (
    "deal copies together, as `jaxaudit deal` does; of sets that were dealt, leave out every record that has a copy, "
    "and outputs on it"
)
"""To leave out the copies of one set alone would make the sets differ, whatever the target is."""


def refuse_shared(sets: Sets[Examples], advice: str = TOGETHER) -> None:
    """Refuses records of the holdout, or known members, in another set; those of members are told last."""
    for held, of in ((Role.HOLDOUT, HOLDOUT), (Role.MEMBERS, MEMBERS)):
        for role, other in sets.items():
            if held in sets and role not in (held, Role.MEMBERS):
                refuse_held(other, sets[held], role.words, advice, of)


def target_row(generator: np.random.Generator, pool: Pool, parts: tuple[Part, ...]) -> Bool[np.ndarray, "1 examples"]:
    """The membership mask of a simulated target: a random share of each part, by whole groups where there are any."""
    unit_of_record, rows = units_of_records(pool.examples.groups, len(pool.examples)), []
    for part in parts:
        records = _indices(pool, part.examples)
        drawn = random_subset(
            generator, np.unique(unit_of_record[records]), part.fraction, int(unit_of_record.max()) + 1
        )[0]
        rows.append(only(records[drawn[unit_of_record[records]]], len(unit_of_record)))
    return np.any(rows, axis=0)


def _indices(pool: Pool, part: Examples) -> np.ndarray:
    """The indices in the pool of all records of the set of `part`."""
    for part_of_pool in (pool.query, pool.calibration):
        if np.array_equal(pool.examples.record_hashes[part_of_pool], part.record_hashes):
            return np.arange(part_of_pool.start, part_of_pool.stop)
    hashes = pool.examples.record_hashes.tolist()
    # The first index of each record.
    place = dict(zip(reversed(hashes), range(len(hashes) - 1, -1, -1), strict=True))
    return np.unique([place[record] for record in part.record_hashes.tolist()])


def share_row(
    generator: np.random.Generator, pool: Pool, part: slice, fraction: float
) -> Bool[np.ndarray, "1 examples"]:
    """The membership mask of a model trained on a random share of one set of the pool."""
    return random_subset(generator, np.arange(part.start, part.stop), fraction, len(pool.examples))


Rows = dict[str, Bool[np.ndarray, "_ examples"]]
"""Membership masks, by the kind of the models."""
LEAST = 19
"""The least number of models of a kind that allows a p-value of 0.05."""


def generators(key: OneKey, kind: str, models: int) -> Iterator[np.random.Generator]:
    """The random generator of the training set of each model of a kind."""
    return (generator_of(stream(key, kind, model)) for model in range(models))


def shadow_rows(
    key: OneKey,
    pool: Pool,
    kind: str,
    records: Integers,
    count: int,
    models: int,
    groups: Integers | None = None,
    *,
    with_members: bool = False,
) -> Membership:
    """Membership masks: a share of the calibration set and `count` of `records`, drawn anew for each mask.

    Args:
        kind: the kind of the models; each kind has its own random numbers.
        records: the indices in the pool of the records to draw from.
        count: the number of records to draw or, with `groups` (numbered from 0), of groups that are drawn whole.
        with_members: whether to add the same share of the known members as of `records`.
    """
    members = np.arange(pool.members.start, pool.members.stop) if with_members else records[:0]
    units = groups.max() + 1 if groups is not None else len(records)
    rows = [np.zeros((0, len(pool.examples)), bool)]
    for generator in generators(key, kind, models):
        row = only(draw_records(generator, records, count, groups), len(pool.examples))
        if pool.calibration.stop > pool.calibration.start:
            row |= share_row(generator, pool, pool.calibration, SHARE)
        if len(members):
            of_members = number_groups(units_of_records(pool.examples.groups, len(pool.examples))[pool.members])
            share = round((of_members.max() + 1) * count / units)
            row |= only(draw_records(generator, members, share, of_members), row.shape[1])
        rows.append(row)
    return np.concatenate(rows)


def draw_records(
    generator: np.random.Generator,
    records: Integers,
    count: int,
    groups: Integers | None,
) -> Int[np.ndarray, " drawn"]:
    """`count` of these records; with the group of each record, numbered from 0, all records of `count` groups."""
    if groups is not None:
        return records[np.isin(groups, generator.choice(groups.max() + 1, count, replace=False))]
    return records if count == len(records) else generator.choice(records, count, replace=False)


def train_rows(
    key: OneKey,
    rows: Rows,
    pool: Pool,
    learner: Learner,
    *,
    execution: Execution,
) -> ShadowModels:
    """Trains all models of an audit, by the membership masks of each kind; a seed follows from kind and number."""
    membership, order = np.concatenate(list(rows.values())), pool.training_order
    keys = join_keys(several(stream(key, kind), len(masks)) for kind, masks in rows.items() if len(masks))
    in_order, pool_in_order = membership[:, order], (pool.examples.inputs[order], pool.examples.labels[order])
    models_per_batch = (
        kept_models_per_batch(keys, in_order, *pool_in_order, execution.checkpoints)
        or execution.models_per_batch
        or suitable_models_per_batch(keys, in_order, *pool_in_order, learner)
    )
    confidences, odds, hits = fit_many(
        keys,
        in_order,
        *pool_in_order,
        learner,
        execution=execution.at(models_per_batch),
        summarize=partial(_score, learner, *pool_in_order),
        # Else a further set in the pool would change minibatches of models that hold nearly all others.
        members_only=True,
    )
    by_set = np.argsort(np.arange(len(pool.examples))[order])
    return ShadowModels(
        pool=pool.comparable(),
        kinds=tuple(kind for kind, masks in rows.items() for _ in masks),
        membership=membership,
        log_odds=np.take(odds, by_set, axis=1),
        correct=np.take(hits, by_set, axis=1),
        confidences=np.take(confidences, by_set, axis=1),
        own_accuracy=np.where(in_order, hits, 0).sum(axis=1) / membership.sum(axis=1),
        models_per_batch=models_per_batch,
        form=form_of(learner),
    )


def refuse_diverged(bad: Members, numbers: ModelNumbers) -> None:
    """Refuses models, given by their numbers, with outputs on a record that are no numbers (`bad`)."""
    for number, records in zip(numbers.tolist(), bad, strict=True):
        if records.any():
            raise InputError(
                f"model {number} diverged: its outputs on {records.sum():,} of {len(records):,} records are no finite "
                "numbers. Lower the learning rate, clip gradients, or give inputs of a smaller scale."
            )


def _score(
    learner: Learner,
    inputs: Real[np.ndarray, "n ..."],
    labels: Integers,
    params: Any,
    rows: ModelNumbers,
) -> tuple[np.ndarray, ...]:
    """Confidences, log-odds and hits of a chunk's models; hits are NaN for records without classes."""
    log_probs = log_probs_many(learner, params, inputs)
    of_label = np.take_along_axis(log_probs, labels[None, :, None], axis=2)[:, :, 0]
    refuse_diverged(np.isnan(of_label), rows)
    # Computed in float64, so that a confidence near 1 is rounded only once.
    confidences = np.exp(of_label.astype(np.float64)).astype(np.float32)
    hits = log_probs.argmax(axis=2) == labels
    if log_probs.shape[2] == 1:
        odds = np.stack([log_odds_of("log_likelihood", log_prob[:, None], labels)[0] for log_prob in log_probs])
        odds, hits = odds.astype(np.float32), np.full(odds.shape, np.nan, np.float32)
    else:
        odds = log_odds(log_probs.astype(np.float64), labels).astype(np.float32)
    return confidences, odds, hits
