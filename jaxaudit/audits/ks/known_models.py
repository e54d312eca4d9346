"""What models of known truth say of a table of scores: a target's place between them, and which way scores point."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.group_tests import one_sided_groups
from jaxaudit.metrics.resemblance import unlike_models
from jaxaudit.metrics.score_permutation import ShareLeft, normal_scores, share_left

FEWEST_ALIKE = 3
"""Fewer models say nothing of how much models of one recipe differ."""


def models_that_used(table: ScoreTable, target: ScoredModel) -> tuple[ScoredModel, ...]:
    """The models that used the query set, else the target before its deletion: of several, that of the same name."""
    before = table.of("before")
    return table.of("used") or tuple(model for model in before if len(before) == 1 or model.name == target.name)


def between_models(table: ScoreTable, target: ScoredModel, level: float) -> ShareLeft | None:
    """The target's place between models of known truth; None if there are none, or no score that all of them have."""
    names = [name for name in target.scores if table.directions[name]]
    return _place(table, target, names, [table.directions[name] for name in names], ALPHA, level)


def ways_of_use(table: ScoreTable, target: ScoredModel) -> dict[str, int]:
    """Which way the target's scores point by models of known truth, beyond chance.

    By the name of a score, 1 if it is higher for models that used the query set, -1 if it is lower, and 0 if that is
    chance. Only scores that all these models have are named. Over all scores, a direction is taken from models that do
    not differ in at most 5% of tables to either side.
    """
    if not models_that_used(table, target):
        return {}
    places = {name: _place(table, target, [name], [1], ALPHA / len(target.scores)) for name in target.scores}
    return {
        name: int(np.sign(place.effect)) * (abs(place.effect) > place.chance)
        for name, place in places.items()
        if place is not None
    }


def contrary_scores(table: ScoreTable, target: ScoredModel) -> tuple[str, ...]:
    """The target's scores that models of known truth show to point the other way than they are taken to."""
    return tuple(name for name, way in ways_of_use(table, target).items() if way * table.directions[name] < 0)


def ways_by_members(table: ScoreTable, target: ScoredModel) -> dict[str, int]:
    """Which way the target's scores point by its known members beside the holdout, as for `ways_of_use`."""
    members, holdout = table.rows("members"), table.rows("holdout")
    ways: dict[str, int] = {}
    for name, values in target.scores.items():
        if min(len(members), len(holdout)) > 1 and is_scored(values, np.concatenate([members, holdout])):
            sides = means_of_units(table, members, values[members]), means_of_units(table, holdout, values[holdout])
            test = scipy.stats.mannwhitneyu(*sides, alternative="two-sided")
            above = test.statistic > len(sides[0]) * len(sides[1]) / 2
            ways[name] = (1 if above else -1) * int(test.pvalue <= ALPHA / len(target.scores))
    return ways


def means_of_units(
    table: ScoreTable, rows: Int[np.ndarray, " some"], values: Float[np.ndarray, " some"]
) -> Float[np.ndarray, " units"]:
    """One number for each unit that was dealt: for each of these records; with groups, for each group its mean."""
    if table.groups is None:
        return values
    unit_of_record = np.unique(table.groups[rows], return_inverse=True)[1]
    return np.bincount(unit_of_record, values) / np.bincount(unit_of_record)


def members_within(table: ScoreTable) -> bool:
    """Whether the records of each group were dealt over known members and other sets, as far as the numbers tell."""
    if table.strata is None:
        return False
    rows = table.rows("members"), table.rows("query", "holdout")
    least = int(table.strata.max()) + 1
    one_sided, most = one_sided_groups(
        np.stack([np.bincount(table.strata[rows_of_side], minlength=least) for rows_of_side in rows])
    )
    return one_sided <= most


class PlacedScores(NamedTuple):
    """The mean directed normal score that each model gives each record, on the same scale for all of them.

    Attributes:
        rows: the records' indices in the table: those of the query set, and then of the holdout, if all were asked.
        target: the target's scores. `unused`, `used`: those of models of known truth.
    """

    rows: Int[np.ndarray, " n"]
    target: Float[np.ndarray, " n"]
    unused: Float[np.ndarray, "unused n"]
    used: Float[np.ndarray, "used n"]


def placed_scores(
    table: ScoreTable, target: ScoredModel, names: Sequence[str], directions: Sequence[int]
) -> PlacedScores | None:
    """The scores of these names that the target and all models of known truth have; None if nothing is to compare."""
    unused, used = table.of("unused"), models_that_used(table, target)
    query, dealt_rows = table.rows("query"), table.rows("query", "holdout")
    models = (target, *unused, *used)

    def shared(rows: Int[np.ndarray, " some"]) -> dict[str, int]:
        return {
            name: way
            for name, way in zip(names, directions, strict=True)
            if all(name in model.scores and is_scored(model.scores[name], rows) for model in models)
        }

    rows = dealt_rows if len(dealt_rows) > len(query) and shared(dealt_rows) else query
    ways = shared(rows)
    if not ways or not (unused or (used and len(rows) > len(query))):
        return None
    scores = np.mean(
        [way * normal_scores(np.stack([model.scores[name][rows] for model in models])) for name, way in ways.items()],
        axis=0,
    )
    return PlacedScores(rows, scores[0], scores[1 : 1 + len(unused)], scores[1 + len(unused) :])


def recipe_evidence(table: ScoreTable, target: ScoredModel) -> float | None:
    """The p-value of "the target was trained like the models of known truth", on the holdout, which none of them used.

    None where nothing shows it: without a holdout, or with fewer than three of these models.
    """
    names = [name for name in target.scores if table.directions[name]]
    scores = placed_scores(table, target, names, [table.directions[name] for name in names])
    on_holdout = slice(len(table.rows("query")), None)
    if scores is None or len(scores.rows[on_holdout]) < 2:
        return None
    models = np.concatenate([scores.unused, scores.used])[:, on_holdout]
    return unlike_models(scores.target[on_holdout], models) if len(models) >= FEWEST_ALIKE else None


def _place(
    table: ScoreTable,
    target: ScoredModel,
    names: Sequence[str],
    directions: Sequence[int],
    alpha: float,
    level: float = 0.95,
) -> ShareLeft | None:
    """The target's place by these scores, in these directions."""
    scores = placed_scores(table, target, names, directions)
    if scores is None:
        return None
    has_holdout = len(scores.rows) > len(table.rows("query"))
    return share_left(
        scores.target,
        scores.unused,
        scores.used,
        len(table.rows("query")),
        groups=None if table.groups is None else table.groups[scores.rows],
        strata=None if table.strata is None or not has_holdout else table.strata[scores.rows],
        alpha=alpha,
        level=level,
    )
