"""The numbers behind a verdict on a table of scores: the p-value of "never used", and the share of the effect."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Array, Float, Int, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.known_models import (
    NOTHING_SHOWS,
    SHOW,
    WORD,
    ScoreEvidence,
    between_models,
    contrary_scores,
    means_of_units,
    members_within,
    models_that_used,
    of_models,
    of_recipe,
    recipe_evidence,
    ways_by_members,
    ways_of_use,
)
from jaxaudit.audits.ks.tests_of_use.dealt import EXACT
from jaxaudit.audits.ks.tests_of_use.members import FAINT, LEFT, OF_USE, STRANGE, measured_by
from jaxaudit.audits.ks.tests_of_use.test import p_text
from jaxaudit.data.scores.columns import ModelRole
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.metrics.memory import NO_MEMORY, NO_MEMORY_LEFT, MembersAnswer, members_test
from jaxaudit.metrics.permutation import least_permutations, set_effects
from jaxaudit.metrics.score_permutation import ScoreTest, cut_scores, normal_scores, residuals, score_test
from jaxaudit.metrics.shadow import models_like_target
from jaxaudit.metrics.usage import ALPHA, Limits, Question
from jaxaudit.randomness import stream

NO_DIRECTION = "it is not known whether the scores are higher or lower for records that were used"
UNDIRECTED = (
    "{differ}it is not known whether use lowers or raises {names}: a difference is use, or the reverse, as after "
    "over-forgetting{told}"
)
CONTRARY = (
    "by {names}, models that used the query set look less used than {low}, beyond chance: the roles of models (`used`, "
    "`before`, `unused`) may be exchanged"
)
SAY = "Say which way the scores point for records that were used (`lower` or `higher`, with their names)."
LOOK = "Look at the names of the columns, and say which way the scores point (`lower` or `higher`, with their names)."
NOT_COUNTED = "It is not known whether use lowers or raises {names} (`lower`, `higher`), so p (not used) is without."
INNOCENT = (
    "There is no holdout: a target that was trained in another way than the {unused} models without the query set, and "
    "never used it, may be called not forgotten, too."
)


def score_evidence(
    key: Key[Array, ""],
    table: ScoreTable,
    target: ScoredModel,
    question: Question,
    level: float,
    *,
    same_recipe: bool,
) -> ScoreEvidence:
    """How strongly one target's scores show that it used the query set, compared with the holdout or else with models
    that never used it. Known members, or else models that used it, tell what share. The rest is as in `ScoresTest`.
    """
    share = between_models(table, target, level)
    directed = [name for name in target.scores if table.directions[name]]
    exact = _against_holdout(key, table, target) if len(table.rows("holdout")) else None
    if exact is None:
        unused = len(table.of("unused"))
        normal = f"{WORD} The t-test takes the mean scores of {unused} models without the query set as normal."
        p_never = None if share is None else share.p_unused
        evidence = ScoreEvidence(
            p_never,
            Confidence("weak", normal),
            1.0 if p_never is None else 1 - p_never,
            caveats=(INNOCENT.format(unused=unused),),
        )
        if question == "used" and not same_recipe:
            evidence = evidence._replace(unshown=(NOTHING_SHOWS,), helps=SHOW)
        evidence = evidence if directed else evidence._replace(invalid=(_undirected(table, target, ""),), helps=SAY)
    else:
        unknown = [name for name in _asked_names(target, table.rows("query", "holdout")) if not table.directions[name]]
        not_counted = (NOT_COUNTED.format(names=", ".join(unknown)),) if unknown and exact.directed else ()
        evidence = ScoreEvidence(exact.p_never, EXACT, exact.p_smaller, caveats=not_counted)
        if not exact.directed and exact.p_never <= ALPHA:
            differ = f"query set and holdout differ ({p_text(exact.p_never)}), but "
            evidence = evidence._replace(invalid=(_undirected(table, target, differ),))
        evidence = evidence if exact.directed else evidence._replace(helps=SAY)
    if contrary := contrary_scores(table, target):
        low = "models that did not" if table.of("unused") else "the holdout"
        evidence = evidence._replace(
            invalid=(*evidence.invalid, CONTRARY.format(names=", ".join(contrary), low=low)), helps=LOOK
        )
    members = _by_members(key, table, target, question, level, evidence.p_never)
    if isinstance(members, MembersAnswer):
        remembers, usage = members.p_memory <= ALPHA, members.usage
        return evidence._replace(
            p_fully=usage.p_fully,
            limits=Limits(usage.fraction, usage.fraction_low, usage.fraction_high, usage.upper, usage.detectable),
            why="" if remembers else NO_MEMORY if question == "used" else NO_MEMORY_LEFT,
            trust=measured_by(members.memory) if remembers else FAINT,
            words=LEFT if question == "left" else OF_USE,
            invalid=(*usage.invalid, *evidence.invalid),
            strange=() if remembers else (STRANGE[question],),
            by_members=True,
        )
    used = models_that_used(table, target)
    if share is None or not used:
        return evidence._replace(why=members or evidence.why)
    by_models = of_models(evidence, share, len(table.of("unused")), len(used), question)
    if question == "left":
        return by_models
    p_alike = recipe_evidence(table, target)
    with_share = of_recipe(by_models, evidence, p_alike, same_recipe)
    return with_share._replace(checks=(models_like_target(p_alike),))


def _undirected(table: ScoreTable, target: ScoredModel, differ: str) -> str:
    """Why no score of a target shows use, and which way models and members of known truth say that the scores point."""
    ways = {name: way for name, way in (ways_by_members(table, target) | ways_of_use(table, target)).items() if way}
    stated = ", ".join(f"{name} {'higher' if way > 0 else 'lower'}" for name, way in ways.items())
    names = ", ".join(name for name in target.scores if not table.directions[name])
    hint = f" (by models or members that are known to have used the records: {stated})" if stated else ""
    return UNDIRECTED.format(differ=differ, names=names, told=hint)


def known_columns(table: ScoreTable, rows: Int[np.ndarray, " some"]) -> dict[str, Float[np.ndarray, " some"]]:
    """What is known of records without the target: covariates, and scores of models that used neither set."""
    roles: tuple[ModelRole, ...] = ("baseline", "unused")
    models = {
        _column_of(model, name): values[rows]
        for role in roles
        for model in table.of(role)
        for name, values in model.scores.items()
        if is_scored(values, rows)
    }
    return {**{f"covariate.{name}": values[rows] for name, values in table.covariates.items()}, **models}


def _column_of(model: ScoredModel, score: str) -> str:
    return ".".join(filter(None, (model.role, model.name, score)))


def _predictors(
    table: ScoreTable, rows: Int[np.ndarray, " some"], without: Collection[str], scale: Callable[[Any], Any]
) -> Float[np.ndarray, "some columns"]:
    """What is known of the records, on this scale, but for the columns `without`: of models that never used the query
    set the mean of a score. As a column each, eight of them fit what few records show of use, too
    (`experiments/score_rates.py`).
    """
    columns = {name: scale(column) for name, column in known_columns(table, rows).items() if name not in without}
    of_seeds: dict[str, list[np.ndarray]] = {}
    for model in table.of("unused"):
        for score in model.scores:
            if (name := _column_of(model, score)) in columns:
                of_seeds.setdefault(score, []).append(columns.pop(name))
    means = [scale(np.mean(seeds, axis=0)) for seeds in of_seeds.values()]
    predictors = [*columns.values(), *means]
    return np.stack(predictors, axis=1) if predictors else np.zeros((len(rows), 0))


def target_residuals(
    table: ScoreTable, target: ScoredModel, rows: Int[np.ndarray, " some"], without: Collection[str] = ()
) -> tuple[Float[np.ndarray, "scales some kinds"], Int[np.ndarray, " kinds"]]:
    """The target's `normal_scores` and `cut_scores` without what is known of the records, and their directions."""
    names = _asked_names(target, rows)
    if not names:
        return np.zeros((2, len(rows), 0)), np.zeros(0, int)
    left = []
    for scale in (normal_scores, cut_scores):
        scores = np.stack([scale(target.scores[name][rows]) for name in names], axis=1)
        left.append(residuals(scores, _predictors(table, rows, without, scale)))
    return np.stack(left), np.array([table.directions[name] for name in names])


def _asked_names(target: ScoredModel, rows: Int[np.ndarray, " some"]) -> list[str]:
    return [name for name, values in target.scores.items() if is_scored(values, rows)]


def _against_holdout(key: Key[Array, ""], table: ScoreTable, target: ScoredModel) -> ScoreTest | None:
    """The exact test; None if the target has no score on both sets."""
    dealt_rows, size = table.rows("query", "holdout"), len(table.rows("query"))
    left, directions = target_residuals(table, target, dealt_rows)
    if not len(directions):
        return None
    return score_test(
        stream(key, "test of scores"),
        left,
        directions,
        size,
        groups=None if table.groups is None else table.groups[dealt_rows],
        pairs=None if table.pairs is None else table.pairs[dealt_rows],
        strata=None if table.strata is None else table.strata[dealt_rows],
        permutations=least_permutations(len(table.of("target"))),
    )


def _by_members(
    key: Key[Array, ""], table: ScoreTable, target: ScoredModel, question: Question, level: float, p_never: float | None
) -> MembersAnswer | str:
    """What known members show; a reason if they show nothing, empty if there are none."""
    sets = [table.rows(role) for role in ("query", "holdout", "members")]
    if not len(sets[2]) or p_never is None or not len(sets[1]):
        return ""
    rows = np.concatenate(sets)
    left, directions = target_residuals(table, target, rows, know_members(table))
    if not directions.any():
        return NO_DIRECTION
    return members_test(
        stream(key, "members of scores"),
        (left[0] * directions)[:, directions != 0].mean(axis=1),
        (len(sets[0]), len(sets[1]), len(sets[2])),
        groups=None if table.groups is None else table.groups[rows],
        strata=table.strata[rows] if table.strata is not None and members_within(table) else None,
        p_never=p_never,
        permutations=least_permutations(len(table.of("target"))),
        level=level,
        question=question,
    )


def know_members(table: ScoreTable) -> frozenset[str]:
    """The columns that may know the members: all of models without the query set, and what tells members from holdout.

    They would predict away what the target remembers of its members: fractions above 100%, or members that look less
    used than the holdout. The query set has no part in the choice. Where whole groups were dealt, their means are
    compared: by records, groups of ten equal ones told sets apart in half of all deals, and covariates were lost that
    tell how difficult a record is. Where the records of each group were dealt over the sets, they are compared within
    groups.
    """
    sides = [(rows, known_columns(table, rows)) for rows in (table.rows("members"), table.rows("holdout"))]
    within = table.strata if members_within(table) else None
    trained = {_column_of(model, name) for model in table.of("unused") for name in model.scores}
    return frozenset(trained) | {
        name
        for name in (sides[0][1].keys() & sides[1][1].keys()) - trained
        if (
            _differ(*(means_of_units(table, rows, columns[name]) for rows, columns in sides))
            if within is None
            else _differ_within([columns[name] for _, columns in sides], [within[rows] for rows, _ in sides])
        )
    }


def _differ(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> bool:
    """Whether two samples differ beyond chance, by Welch's t-test; one number tells nothing of its spread."""
    # Texts of one length have one number of tokens, which tells nothing, and of which SciPy warns.
    if min(len(first), len(second)) < 2 or not np.ptp(np.concatenate([first, second])) > 0:
        return False
    return bool(np.asarray(scipy.stats.ttest_ind(first, second, equal_var=False))[1] <= ALPHA)


def _differ_within(sides: Sequence[Float[np.ndarray, " _"]], strata: Sequence[Int[np.ndarray, " _"]]) -> bool:
    """Whether two samples differ beyond chance within strata, by a t-test."""
    sets = np.repeat([0, 1], [len(side) for side in sides])
    difference = set_effects(np.concatenate(sides), sets, np.concatenate(strata))
    error = float(np.sqrt(difference.covariance[0, 0]))
    return error > 0 and bool(
        2 * scipy.special.stdtr(difference.freedom, -abs(float(difference.effects[0])) / error) <= ALPHA
    )
