"""The `power` audit: the minimum detectable fraction of the holdout test, computed before there is a target."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Array, Int, Key, Shaped

from jaxaudit.audits.finding import UNDECIDED
from jaxaudit.audits.ks.models import Design, Rows, draw_records, generators, train_rows
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.audits.ks.tests_of_use.holdout import HoldoutTest
from jaxaudit.audits.ks.tests_of_use.members import MembersTest
from jaxaudit.audits.pool import make_pool, share_row
from jaxaudit.audits.power.finding import Measured, power_finding
from jaxaudit.audits.power.result import FRACTIONS, ByModels, Chance, PowerAudit, PowerResult, Size, conclusions
from jaxaudit.data.examples import Examples
from jaxaudit.data.group_values import checked_groups, number_groups
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.data.roles import Sets
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.membership import Membership, only
from jaxaudit.metrics.difficulty import difficulty
from jaxaudit.metrics.members import LEAST_MEMBERS
from jaxaudit.metrics.power import (
    Separation,
    detection_probability,
    min_detectable_fraction,
    records_needed,
    separation,
)
from jaxaudit.metrics.power_members import Memory, memory_of_models
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, stream
from jaxaudit.shadow_models import Kind, Pool, ShadowModels

MODELS = (20, 40, 80, 160)
LEAST_MODELS = 4
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
HOLDOUTS = (1, 2, 3, 4)
"""Sizes of the holdout, as multiples of the size of the query set."""
ENLARGED = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 4))
"""Sizes of the holdout and of the known members, as multiples of those given."""
LEAST_GROUPS = 4
SOURCES = (HoldoutTest.source, MembersTest.source)


def measure_power(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples,
    learner: Learner,
    *,
    designs: Sequence[Design] = (),
    groups: Shaped[np.ndarray, " n"] | None = None,
    query_size: int | None = None,
    holdout_size: int | None = None,
    members_size: int | None = None,
    fraction: float = 0.1,
    models: int = 40,
    reduced: Sequence[str] = (),
    execution: Execution = DEFAULT_EXECUTION,
) -> PowerAudit:
    """How small a used fraction of a query set would the holdout test detect, and what could be concluded?

    Trains `models` models, each on a random half of the query set and a share of the calibration set; the two models
    of a pair have the same share. Each model is judged by the others as a target would be: one half of the query set is
    its query set, the other its holdout. What the models of a pair have in common shows how much further a target with
    its own data would lie from the others (`own_data_stretch`), and the models are judged as if they lay there. The
    rest is a normal approximation (`jaxaudit.metrics.power`, and `jaxaudit.metrics.power_members` for `forgotten`).

    Args:
        key: random key of all draws.
        calibration: data of the same domain with no query record.
        learner: the model and training recipe of the target, as far as they are known.
        designs: further designs, as for `train_shadows`; a target is assumed to have one of them, it is unknown which.
        groups: one value (integer or text) per query record, if whole groups, such as patients, are assigned to query
            set and holdout.
        query_size: number of query records in the planned audit, of which `query` may be a random part, to save time.
        holdout_size, members_size: numbers of holdout records and known members; by default `query_size`.
        fraction: the used fraction to detect.
        models: number of shadow models, here and in the planned audit.
        reduced: what was reduced to fit the effort, in words, which become part of the finding.

    Raises:
        InputError: the sets overlap, there are too few groups, or an option is out of range.

    >>> import jax
    >>> import jaxaudit as ja
    >>> digits = ja.load("digits")
    >>> flat = ja.Examples(digits.inputs.reshape(-1, 64) / np.float32(255), digits.labels, digits.class_names, "digits")
    >>> query, calibration = flat.take(np.arange(200)), flat.take(np.arange(200, 400))
    >>> learner = ja.nearest_neighbours(10, neighbours=1, smoothing=0.1)
    >>> audit = measure_power(jax.random.key(1), query, calibration, learner, models=20, query_size=5_000)
    >>> audit.finding.verdict, audit.result.given.query, audit.result.given.min_detectable < 1
    ('insufficient', 5000, True)
    """
    size = len(query) if query_size is None else query_size
    sizes = planned_sizes(size, holdout_size, members_size, fraction)
    if len(query) < 4 or models < LEAST_MODELS:
        raise InputError(
            f"power needs at least 4 query records (got {len(query)}) and {LEAST_MODELS} shadow models (got {models})."
        )
    refuse_overlap(query, calibration)
    dealt_groups = None if groups is None else _dealt(groups, len(query))
    pool, draws = make_pool(Sets(query=query, calibration=calibration)), np.arange(models) // 2
    learners = (learner, *(design.learner for design in designs))
    in_turn = draws % len(learners)
    rows: Rows = {Kind.HALF: _halves(stream(key, "draw"), pool, draws, dealt_groups)}
    trained = train_rows(stream(key, "train"), rows, pool, learners, {Kind.HALF: in_turn}, execution=execution)
    membership, odds = trained.membership[:, pool.query], trained.log_odds[:, pool.query]
    taught = taught_difficulty(stream(key, "taught difficulty"), query, dealt_groups).odds
    inputs = None if pool.classless else query.inputs
    predictors = difficulty(stream(key, "difficulty"), query.labels, inputs, dealt_groups, taught)
    measured = separation(odds, membership, draws, in_turn, dealt_groups, predictors)
    memory = memory_of_models(odds, membership, predictors, in_turn, dealt_groups, stretch=measured.stretch)
    audit = audit_of(measured, memory, sizes, fraction, "training", reduced)
    return replace(audit, models_per_batch=trained.models_per_batch, form=trained.form)


def power_of_models(
    shadows: ShadowModels, *, holdout_size: int | None = None, members_size: int | None = None, fraction: float = 0.1
) -> PowerAudit:
    """The same answer, measured on models of a bank trained on random query and holdout records; no model is trained.

    How much further a target with its own data would lie is not measured, since every model of a bank has its own draw
    of the calibration set.

    Args:
        shadows: the shadow models, from `open_bank`.
        holdout_size: number of holdout records; by default as many as the bank has.
        members_size: number of known members; by default the number of the bank's query records.
        fraction: the used fraction to detect.

    Raises:
        InputError: there are too few models for the holdout test, or an option is out of range.
    """
    pool, mixed = shadows.pool, shadows.take(shadows.of(Kind.MIXED))
    query, dealt_stop = pool.query.stop, pool.holdout.stop
    models = len(mixed)
    if models < LEAST_MODELS:
        raise InputError(
            f"power is measured on models of the holdout test, trained on random records of query set and holdout; the "
            f"bank has {models}, and {LEAST_MODELS} are needed."
        )
    sizes = planned_sizes(query, dealt_stop - query if holdout_size is None else holdout_size, members_size, fraction)
    membership, odds, designs = mixed.membership[:, :dealt_stop], mixed.log_odds[:, :dealt_stop], mixed.designs
    predictors = difficulty(None, pool.examples.labels[:dealt_stop])
    measured = separation(odds, membership, None, designs, pool.groups, predictors)
    memory = memory_of_models(odds, membership, predictors, designs, pool.groups, helped=False)
    return audit_of(measured, memory, sizes, fraction, "bank")


def audit_of(
    measured: Separation,
    memory: Memory,
    sizes_given: tuple[int, int, int],
    fraction: float,
    of: Measured,
    reduced: Sequence[str] = (),
    models: int | None = None,
) -> PowerAudit:
    """The audit for given sizes of the three sets, from how far scores separate members from non-members.

    The planned audit has as many shadow models as were measured, unless `models` says another number.
    """
    models = measured.models if models is None else models
    query, holdout, members = sizes_given
    scaled = [tuple(max(2, round(scale * records)) for records in (query, holdout, members)) for scale in SCALES]

    def size_of(n: int, m: int, is_given: bool) -> Size:
        chances = tuple(Chance(fraction, detection_probability(measured, n, m, fraction)) for fraction in FRACTIONS)
        return Size(n, m, is_given, chances, min_detectable_fraction(measured, n, m, models))

    least = ((count, min_detectable_fraction(measured, query, holdout, count)) for count in MODELS)
    result = PowerResult(
        finding=UNDECIDED,
        separation=measured,
        sizes=tuple(size_of(n, m, scale == 1) for scale, (n, m, _) in zip(SCALES, scaled, strict=True)),
        holdouts=tuple(size_of(query, times * query, times * query == holdout) for times in HOLDOUTS),
        by_models=tuple(ByModels(*row) for row in least),
        fraction=fraction,
        records_needed=records_needed(measured, fraction),
        memory=memory,
        conclusions=conclusions(measured, memory, scaled),
        enlarged=conclusions(measured, memory, [(query, h * holdout, m * members) for h, m in ENLARGED]),
    )
    return PowerAudit(msgspec.structs.replace(result, finding=power_finding(result, of, reduced)))


def planned_sizes(query: int, holdout: int | None, members: int | None, fraction: float) -> tuple[int, int, int]:
    """Planned numbers of query and holdout records and known members; by default as many as query records."""
    if members is not None and members < LEAST_MEMBERS:
        raise InputError(
            f"the members test of ks needs at least {LEAST_MEMBERS} known members; plan with as many, or leave their "
            f"number out (got {members})."
        )
    holdout = query if holdout is None else holdout
    if holdout < 2 or not 0 < fraction <= 1:
        raise InputError(
            f"power needs at least 2 holdout records (got {holdout}), and a fraction above 0 and at most 1 (got "
            f"{fraction:g})."
        )
    return query, holdout, query if members is None else members


def _dealt(groups: Shaped[np.ndarray, " n"], records: int) -> Int[np.ndarray, " n"]:
    """The group of each query record, numbered from 0."""
    numbers = number_groups(checked_groups(groups, "query set"))
    if len(numbers) != records:
        raise InputError(f"there are groups of {len(numbers)} records, but the query set has {records}.")
    count = int(numbers.max()) + 1
    if count < LEAST_GROUPS:
        raise InputError(
            f"the query set has {count} groups; a variance over groups on both sides of a deal needs at least "
            f"{LEAST_GROUPS}."
        )
    return numbers


def _halves(
    key: Key[Array, ""], pool: Pool, draws: Int[np.ndarray, " models"], groups: Int[np.ndarray, " n"] | None
) -> Membership:
    """A random half of the query set for each model, and a share of the calibration set for each draw."""
    records = np.arange(pool.query.start, pool.query.stop)
    half = (len(records) if groups is None else int(groups.max()) + 1) // 2
    return np.concatenate(
        [
            share_row(generator_of(stream(key, "calibration", int(draw))), pool, pool.calibration, SHARE)
            | only(draw_records(generator, records, half, groups), len(pool.examples))
            for generator, draw in zip(generators(key, Kind.HALF, len(draws)), draws, strict=True)
        ]
    )
