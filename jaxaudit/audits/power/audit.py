"""The `power` audit: the minimum detectable fraction of a test of use, by models trained here or a pilot's table."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.audits.finding import UNDECIDED
from jaxaudit.audits.ks.known_models import know_members, known_columns, of_rows
from jaxaudit.audits.ks.models import Rows, draw_records, generators, make_pool, share_row, train_rows
from jaxaudit.audits.ks.taught import taught_difficulty
from jaxaudit.audits.ks.tests_of_use.holdout import HoldoutTest
from jaxaudit.audits.ks.tests_of_use.members import MembersTest
from jaxaudit.audits.ks.tests_of_use.test import Judgement, KSTest, TrainingSizes
from jaxaudit.audits.power.result import (
    ENOUGH_MODELS,
    FRACTIONS,
    Conclusion,
    Measured,
    PowerAudit,
    PowerResult,
    Size,
    conclusions,
    power_finding,
)
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.pairs import CALIBRATION, refuse_held
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError, check_ranges
from jaxaudit.learners import Learner
from jaxaudit.membership import Membership, only
from jaxaudit.metrics.arrays import ModelNumbers, OneKey, units_of_records
from jaxaudit.metrics.difficulty import difficulty
from jaxaudit.metrics.memory import LEAST_MEMBERS, SizesOfSets
from jaxaudit.metrics.power import (
    Memory,
    Separation,
    detection_probability,
    memory_of_models,
    min_detectable_fraction,
    records_needed,
    separation,
    separation_of,
)
from jaxaudit.metrics.score_tests import normal_scores, residuals
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.randomness import generator_of, stream
from jaxaudit.shadow_models import Kind, Pool, ShadowModels

LEAST_MODELS = 4
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
HOLDOUTS = (1, 2, 3, 4)
"""Sizes of the holdout, as multiples of the size of the query set."""
LEAST_GROUPS = 4


@dataclass(frozen=True, kw_only=True)
class PowerModels(KSTest):
    """The models that power is measured on, as a test whose training is planned."""

    models: int
    name = "power"
    title = "measurement"
    assumes = ""

    def training_sizes(self, sizes: Sets[int]) -> TrainingSizes:
        return ((self.models, -(-sizes[Role.QUERY] // 2) + round(SHARE * sizes[Role.CALIBRATION])),)

    def lighter(self) -> "KSTest":
        return replace(self, models=min(self.models, ENOUGH_MODELS))

    def judge(self, *_: Any) -> Judgement:
        raise TypeError("power is measured without a target")


SOURCES = (HoldoutTest.source, MembersTest.source)


def measure_power(
    key: OneKey,
    query: Examples,
    calibration: Examples,
    learner: Learner,
    *,
    query_size: int | None = None,
    holdout_size: int | None = None,
    members_size: int | None = None,
    fraction: float = 0.1,
    models: int = 40,
    execution: Execution = DEFAULT_EXECUTION,
) -> PowerAudit:
    """How small a used fraction of a query set would the holdout test detect, and what could be concluded?

    Trains `models` models, each on a random half of the query set and a share of the calibration set; the two models of
    a pair have the same share. Each model is judged by the others as a target would be: one half of the query set is
    its query set, the other its holdout. What the models of a pair have in common shows how much further a target with
    its own data would lie from the others (`own_data_stretch`), and the models are judged as if they lay there. The
    rest is a normal approximation (`jaxaudit.metrics.power`).

    Args:
        query: with the group of each record, if whole groups, such as patients, are assigned to query set and holdout.
        calibration: data of the same domain with no query record.
        learner: the model and training recipe of the target, as far as they are known.
        query_size: number of query records in the planned audit, of which `query` may be a random part, to save time.
        holdout_size, members_size: numbers of holdout records and known members; by default `query_size`.
        fraction: the used fraction to detect.
        models: number of shadow models, here and in the planned audit.

    >>> import jax
    >>> import jaxaudit as ja
    >>> people = ja.ordinal(ja.load_table("breast-cancer"))
    >>> query, calibration = people.take(np.arange(200)), people.take(np.arange(200, 400))
    >>> learner = ja.naive_bayes((0,) * 30, 2)
    >>> audit = measure_power(jax.random.key(1), query, calibration, learner, models=20, query_size=5_000)
    >>> audit.finding.verdict, audit.result.given.query
    ('insufficient', 5000)
    """
    size = len(query) if query_size is None else query_size
    sizes = planned_sizes(size, holdout_size, members_size, fraction)
    check_ranges("[4, inf)", query_records=len(query))
    check_ranges(f"[{LEAST_MODELS}, inf)", models=models)
    refuse_held(query, calibration, Role.QUERY.words, of=CALIBRATION)
    pool, draws = make_pool(Sets(query=query, calibration=calibration)), np.arange(models) // 2
    groups = pool.groups
    if groups is not None:
        more = "power by groups rests on their variance; plan with more"
        check_ranges(f"[{LEAST_GROUPS}, inf)", more, different_groups=int(groups.max()) + 1)
    rows: Rows = {Kind.HALF: _halves(stream(key, "draw"), pool, draws)}
    trained = train_rows(stream(key, "train"), rows, pool, learner, execution=execution)
    membership, odds = trained.membership[:, pool.query], trained.log_odds[:, pool.query]
    taught = taught_difficulty(stream(key, "taught difficulty"), query).odds
    inputs = None if pool.classless else query.inputs
    predictors = difficulty(stream(key, "difficulty"), query.labels, inputs, groups, taught)
    measured = separation(odds, membership, draws, groups, predictors)
    memory = memory_of_models(odds, membership, predictors, groups, stretch=measured.stretch)
    audit = audit_of(measured, memory, sizes, fraction, "training")
    return replace(audit, models_per_batch=trained.models_per_batch, form=trained.form)


def power_of_models(
    shadows: ShadowModels, *, holdout_size: int | None = None, members_size: int | None = None, fraction: float = 0.1
) -> PowerAudit:
    """The same answer, measured on models of a bank (`open_bank`) trained on random query and holdout records.

    How much further a target with its own data would lie is not measured, since every model of a bank has its own draw
    of the calibration set. By default the planned audit has as many holdout records as the bank, and as many known
    members as the bank has query records.
    """
    pool, mixed = shadows.pool, shadows.take(shadows.of(Kind.MIXED))
    query, dealt_stop = pool.query.stop, pool.holdout.stop
    models = len(mixed)
    more = "power is measured on models that were trained on parts of query set and holdout; train more into the bank"
    check_ranges(f"[{LEAST_MODELS}, inf)", more, mixed_models=models)
    sizes = planned_sizes(query, dealt_stop - query if holdout_size is None else holdout_size, members_size, fraction)
    membership, odds = mixed.membership[:, :dealt_stop], mixed.log_odds[:, :dealt_stop]
    predictors = difficulty(None, pool.examples.labels[:dealt_stop])
    measured = separation(odds, membership, None, pool.groups, predictors)
    memory = memory_of_models(odds, membership, predictors, pool.groups, helped=False)
    return audit_of(measured, memory, sizes, fraction, "bank")


def audit_of(
    measured: Separation,
    memory: Memory,
    sizes_given: SizesOfSets,
    fraction: float,
    of: Measured,
    models: int | None = None,
) -> PowerAudit:
    """The audit for these sizes of the three sets, from how far scores separate members from non-members."""
    models = measured.models if models is None else models
    query, holdout, _ = sizes_given
    scaled = [[max(2, round(scale * records)) for records in sizes_given] for scale in SCALES]

    def size_of(n: int, m: int, is_given: bool, concluded: tuple[Conclusion, ...] = ()) -> Size:
        chances = tuple(detection_probability(measured, n, m, used) for used in FRACTIONS)
        return Size(n, m, is_given, chances, min_detectable_fraction(measured, n, m, models), concluded)

    result = PowerResult(
        finding=UNDECIDED,
        separation=measured,
        sizes=tuple(
            size_of(n, m, scale == 1, conclusions(measured, memory, n, m, members))
            for scale, (n, m, members) in zip(SCALES, scaled, strict=True)
        ),
        holdouts=tuple(size_of(query, times * query, times * query == holdout) for times in HOLDOUTS),
        fraction=fraction,
        records_needed=records_needed(measured, fraction),
        memory=memory,
        fractions=FRACTIONS,
    )
    return PowerAudit(msgspec.structs.replace(result, finding=power_finding(result, of)))


def planned_sizes(query: int, holdout: int | None, members: int | None, fraction: float) -> SizesOfSets:
    """Planned numbers of query and holdout records and known members; by default as many as query records."""
    check_ranges(f"[{LEAST_MEMBERS}, inf)", "plan with as many, or leave their number out", members_size=members)
    holdout = query if holdout is None else holdout
    check_ranges("[2, inf)", holdout_size=holdout)
    check_ranges("(0, 1]", fraction=fraction)
    return query, holdout, query if members is None else members


def _halves(key: OneKey, pool: Pool, draws: ModelNumbers) -> Membership:
    """A random half of the query set for each model, and a share of the calibration set for each draw."""
    records, groups = np.arange(pool.query.start, pool.query.stop), pool.groups
    half = len(np.unique(units_of_records(groups, len(records)))) // 2
    return np.concatenate(
        [
            share_row(generator_of(stream(key, "calibration", int(draw))), pool, pool.calibration, SHARE)
            | only(draw_records(generator, records, half, groups), len(pool.examples))
            for generator, draw in zip(generators(key, Kind.HALF, len(draws)), draws, strict=True)
        ]
    )


MANY = 1_000
"""The test of scores estimates no variance between shadow models; so many would estimate it without error."""
DRAWS = 10
"""Random halves of the query set for each pair of models of known truth."""


def power_of_scores(
    key: OneKey,
    table: ScoreTable,
    *,
    query_size: int | None = None,
    holdout_size: int | None = None,
    members_size: int | None = None,
    fraction: float = 0.1,
) -> PowerAudit:
    """How small a used fraction would the test of scores detect, with other numbers of records than a pilot has?

    The pilot's table has models of both truths (`unused`, `used`), or a target with known members and a holdout. Of
    models of both truths, a target that used a random half of the query set is made record by record. Each such target
    is scored as `judge_scores` scores one: the mean of the scores of known direction, without what is known of records.
    The rest is as in `measure_power`. Planned sizes are by default that of the pilot's query set.

    >>> import jax
    >>> from jaxaudit.data.scores.table import score_table
    >>> random = np.random.default_rng(1)
    >>> hard = random.normal(3, 1, 200)
    >>> columns = {"set": ["query"] * 200, "baseline.loss": hard, "unused.loss": hard + random.normal(0, 0.3, 200)}
    >>> columns["used.loss"] = hard - 1 + random.normal(0, 0.3, 200)
    >>> power_of_scores(jax.random.key(1), score_table(columns), query_size=50).result.given.min_detectable < 0.3
    True
    """
    query = len(table.rows("query")) if query_size is None else query_size
    sizes = planned_sizes(query, holdout_size, members_size, fraction)
    if table.of("unused") and table.of("used"):
        rows, (scores, membership) = table.rows("query"), _of_models(key, table)
        models = max(len(table.of("unused")), len(table.of("used")))
    else:
        rows, (scores, membership) = table.rows("members", "holdout"), _of_members(table)
        models = len(scores)
    groups = of_rows(table.groups, rows)
    # One model has no spread between models; of two equal ones it is 0.
    twice = (scores, membership) if len(scores) > 1 else (np.repeat(scores, 2, 0), np.repeat(membership, 2, 0))
    measured = msgspec.structs.replace(separation_of(*twice, groups), models=models)
    units = len(np.unique(units_of_records(groups, len(rows)))) / len(rows)
    return audit_of(measured, Memory(measured, measured, units), sizes, fraction, "scores", models=MANY)


def _score(table: ScoreTable, models: dict[str, np.ndarray], rows: np.ndarray, without: frozenset[str]) -> np.ndarray:
    """The mean of a target's scores of known direction, without what is known of the records but for some columns."""
    covariates = [normal_scores(column) for name, column in known_columns(table, rows).items() if name not in without]
    scores = np.stack([table.directions[name] * normal_scores(column) for name, column in models.items()], axis=1)
    return residuals(scores, np.stack(covariates, axis=1) if covariates else np.zeros((len(rows), 0))).mean(axis=1)


def _names(table: ScoreTable, models: tuple[ScoredModel, ...], rows: np.ndarray) -> list[str]:
    """The scores of known direction that all of these models have."""
    names = [
        name
        for name, direction in table.directions.items()
        if direction and all(name in model.scores and is_scored(model.scores[name], rows) for model in models)
    ]
    if not names:
        raise InputError(
            f"{table.name}: there is no score that these models have and whose direction is known (`lower`, `higher`)."
        )
    return names


def _of_models(key: OneKey, table: ScoreTable) -> tuple[Float[np.ndarray, "targets n"], Bool[np.ndarray, "targets n"]]:
    """Targets that used a random half of the query set, from models that used none and all of it."""
    unused, used, rows = table.of("unused"), table.of("used"), table.rows("query")
    names = _names(table, (*unused, *used), rows)
    _, units = np.unique(units_of_records(table.groups, len(table.sets))[rows], return_inverse=True)
    count, scores, membership = int(units.max()) + 1, [], []
    for pair in range(max(len(unused), len(used))):
        low, high = unused[pair % len(unused)], used[pair % len(used)]
        # The scores of the model itself would predict the target's without fault.
        own_prefix = f"unused.{low.name}." if low.name else "unused."
        own_columns = frozenset(name for name in known_columns(table, rows) if name.startswith(own_prefix))
        for draw in range(DRAWS):
            generator = generator_of(stream(key, "halves", pair, draw))
            half = np.isin(units, generator.choice(count, count // 2, replace=False))
            scores_by_name = {name: np.where(half, high.scores[name][rows], low.scores[name][rows]) for name in names}
            scores.append(_score(table, scores_by_name, rows, own_columns))
            membership.append(half)
    return np.stack(scores), np.stack(membership)


def _of_members(table: ScoreTable) -> tuple[Float[np.ndarray, "targets n"], Bool[np.ndarray, "targets n"]]:
    """Targets on their known members and on the holdout."""
    rows, targets = table.rows("members", "holdout"), table.of("target")
    if not targets or not len(table.rows("members")) or not len(table.rows("holdout")):
        raise InputError(
            f"{table.name}: nothing shows what use looks like; a pilot needs models of both truths (columns `unused.` "
            "and `used.`), or a target with records of the sets `members` and `holdout`."
        )
    names, covariates = _names(table, targets, rows), know_members(table)
    scores = [
        _score(table, {name: target.scores[name][rows] for name in names}, rows, covariates) for target in targets
    ]
    inside = np.arange(len(rows)) < len(table.rows("members"))
    return np.stack(scores), np.repeat(inside[None], len(targets), 0)
