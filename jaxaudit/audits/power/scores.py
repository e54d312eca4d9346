"""The power of the test of scores, measured on the table of a pilot."""

import numpy as np
from jaxtyping import Array, Bool, Float, Key
from msgspec.structs import replace

from jaxaudit.audits.ks.score_evidence import know_members, known_columns
from jaxaudit.audits.power.audit import audit_of, planned_sizes
from jaxaudit.audits.power.result import PowerAudit
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.errors import InputError
from jaxaudit.metrics.power import separation_of
from jaxaudit.metrics.power_members import Memory
from jaxaudit.metrics.score_permutation import normal_scores, residuals
from jaxaudit.randomness import generator_of, stream

MANY = 1_000
"""The test of scores estimates no variance between shadow models; so many would estimate it without error."""
DRAWS = 10
"""Random halves of the query set for each pair of models of known truth."""


def power_of_scores(
    key: Key[Array, ""],
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
    The rest is a normal approximation, as in `measure_power`.

    Args:
        key: random key of the halves.
        table: the pilot.
        query_size, holdout_size, members_size: planned numbers of records; by default those of the pilot's query set.
        fraction: the used fraction to detect.

    Raises:
        InputError: the table has neither models of both truths nor known members with a holdout, no score of known
            direction, or a number is out of range.

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
    groups = None if table.groups is None else table.groups[rows]
    # One model has no spread between models; of two equal ones it is 0.
    twice = (scores, membership) if len(scores) > 1 else (np.repeat(scores, 2, 0), np.repeat(membership, 2, 0))
    measured = replace(separation_of(*twice, groups), models=models)
    units = 1.0 if groups is None else len(np.unique(groups)) / len(groups)
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


def _of_models(
    key: Key[Array, ""], table: ScoreTable
) -> tuple[Float[np.ndarray, "targets n"], Bool[np.ndarray, "targets n"]]:
    """Targets that used a random half of the query set, from models that used none and all of it."""
    unused, used, rows = table.of("unused"), table.of("used"), table.rows("query")
    names = _names(table, (*unused, *used), rows)
    _, units = np.unique(np.arange(len(rows)) if table.groups is None else table.groups[rows], return_inverse=True)
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
