"""What is known of a table of scores without the target's use: of records, and of models of known truth.

Models of known truth say which way scores point, and what share of the query set a target used, if it was trained like
them. Data show that where there are a holdout and three of these models; elsewhere the user may state it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from jaxaudit.audits.finding import Confidence, no_confidence, plural
from jaxaudit.audits.ks.tests_of_use.test import NO_FRACTION, NOT_KNOWN, USED, Words, p_text
from jaxaudit.data.scores.columns import ModelRole
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.metrics.arrays import Indices, Integers, Numbers
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.permutation import set_effects
from jaxaudit.metrics.score_tests import ShareLeft, cut_scores, normal_scores, one_sided_groups, residuals, share_left
from jaxaudit.metrics.shadow import undamaged_on_holdout, unlike_models
from jaxaudit.metrics.usage import ALPHA, UNKNOWN, Limits, Question

FEWEST_ALIKE = 3
"""Fewer models say nothing of how much models of one recipe differ."""


def models_that_used(table: ScoreTable, target: ScoredModel) -> tuple[ScoredModel, ...]:
    """The models that used the query set, else the target before its deletion: of several, that of the same name."""
    before = table.of("before")
    return table.of("used") or tuple(model for model in before if len(before) == 1 or model.name == target.name)


def directed_scores(table: ScoreTable, target: ScoredModel) -> dict[str, int]:
    """The directions of the target's scores, where they are known."""
    return {name: table.directions[name] for name in target.scores if table.directions[name]}


def ways_of_use(table: ScoreTable, target: ScoredModel) -> dict[str, int]:
    """Which way each score that all have points, by models of known truth: 1 if it is higher with use, -1 if lower, 0
    if that is chance. Over all scores, models that do not differ give a direction in at most 5% of tables to either
    side.
    """
    if not models_that_used(table, target):
        return {}
    places = {name: between_models(table, target, {name: 1}, ALPHA / len(target.scores)) for name in target.scores}
    return {
        name: int(np.sign(place.effect)) * (abs(place.effect) > place.chance) for name, place in places.items() if place
    }


def means_of_units(table: ScoreTable, rows: Indices, values: Float[np.ndarray, " some"]) -> Float[np.ndarray, " units"]:
    """One number for each unit that was dealt: for each of these records; with groups, for each group its mean."""
    if table.groups is None:
        return values
    unit_of_record = np.unique(table.groups[rows], return_inverse=True)[1]
    return np.bincount(unit_of_record, values) / np.bincount(unit_of_record)


def of_rows(column: Integers | None, rows: Indices) -> Indices | None:
    """The groups, pairs or strata of these records; None if the table has none."""
    return None if column is None else column[rows]


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
    """The mean directed normal score that each model gives each record, on one scale: the target's, and those of models
    of known truth. `rows` of the table are the query set's, and then the holdout's if all models have scores of it.
    """

    rows: Integers
    target: Numbers
    unused: Float[np.ndarray, "unused n"]
    used: Float[np.ndarray, "used n"]


def placed_scores(table: ScoreTable, target: ScoredModel, directions: Mapping[str, int]) -> PlacedScores | None:
    """Scores of these directions that the target and all models of known truth have; None if there are none."""
    unused, used = table.of("unused"), models_that_used(table, target)
    query, dealt_rows = table.rows("query"), table.rows("query", "holdout")
    models = (target, *unused, *used)

    def shared(rows: Indices) -> dict[str, int]:
        return {
            name: way
            for name, way in directions.items()
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
    """The p-value of "the target was trained like the models of known truth", on the holdout, which none of them used;
    None without a holdout, or with fewer than three of these models.
    """
    scores = placed_scores(table, target, directed_scores(table, target))
    on_holdout = slice(len(table.rows("query")), None)
    if not scores or len(scores.rows[on_holdout]) < 2:
        return None
    models = np.concatenate([scores.unused, scores.used])[:, on_holdout]
    return unlike_models(scores.target[on_holdout], models) if len(models) >= FEWEST_ALIKE else None


def undamaged(table: ScoreTable, target: ScoredModel, stated: float) -> tuple[Check, ...]:
    """Whether the target is about as good on the holdout as retrained models, or one that used the query set, or a
    baseline: by the first of these that there are, and the first score with a direction that all have.
    """
    used = models_that_used(table, target)
    models = table.of("unused") or used or table.of("baseline")
    by_unit = table if table.strata is None else replace(table, groups=table.strata)
    holdout, rows = table.rows("holdout"), table.rows("query" if used else "members")
    sides = ((target,), holdout), (models, holdout), (used or (target,), rows)
    for name in target.scores if models else ():
        shared = (name in model.scores and is_scored(model.scores[name], of) for side, of in sides for model in side)
        if table.directions[name] and all(shared):
            means = (np.mean([model.scores[name][of] for model in side], axis=0) for side, of in sides)
            on_holdout, of_models, of_used = (
                means_of_units(by_unit, of, table.directions[name] * mean)
                for (_, of), mean in zip(sides, means, strict=True)
            )
            check = undamaged_on_holdout(on_holdout, of_models, of_used, stated, of=models[0].role)
            return (check,) if check else ()
    return ()


def between_models(
    table: ScoreTable, target: ScoredModel, directions: Mapping[str, int], alpha: float = ALPHA
) -> ShareLeft | None:
    """The target's place between models of known truth; None if there are none, or no score that all of them have."""
    scores = placed_scores(table, target, directions)
    if not scores:
        return None
    has_holdout = len(scores.rows) > len(table.rows("query"))
    return share_left(
        scores.target,
        scores.unused,
        scores.used,
        len(table.rows("query")),
        groups=of_rows(table.groups, scores.rows),
        strata=of_rows(table.strata, scores.rows) if has_holdout else None,
        alpha=alpha,
    )


def known_columns(table: ScoreTable, rows: Indices) -> dict[str, Float[np.ndarray, " some"]]:
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
    table: ScoreTable, rows: Indices, without: Collection[str], scale: Callable[[Any], Any]
) -> Float[np.ndarray, "some columns"]:
    """What is known of the records; of models without the query set a mean, as eight columns fit use, too."""
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
    table: ScoreTable, target: ScoredModel, rows: Indices, without: Collection[str] = ()
) -> tuple[Float[np.ndarray, "scales some kinds"], Int[np.ndarray, " kinds"]]:
    """The target's `normal_scores` and `cut_scores` without what is known of the records, and their directions."""
    names = asked_names(target, rows)
    if not names:
        return np.zeros((2, len(rows), 0)), np.zeros(0, int)
    left = []
    for scale in (normal_scores, cut_scores):
        scores = np.stack([scale(target.scores[name][rows]) for name in names], axis=1)
        left.append(residuals(scores, _predictors(table, rows, without, scale)))
    return np.stack(left), np.array([table.directions[name] for name in names])


def asked_names(target: ScoredModel, rows: Indices) -> list[str]:
    return [name for name, values in target.scores.items() if is_scored(values, rows)]


def know_members(table: ScoreTable) -> frozenset[str]:
    """The columns that may know the members: all of models without the query set, and what tells members from holdout.

    They would predict away what the target remembers of its members: fractions above 100%, or members that look less
    used than the holdout. The query set has no part in the choice. Where whole groups were dealt, their means are
    compared: by records, groups of ten equal ones told sets apart in half of all deals, and good covariates were lost.
    Where the records of each group were dealt over the sets, they are compared within groups.
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


def _differ(first: Numbers, second: Float[np.ndarray, " m"]) -> bool:
    """Whether two samples differ beyond chance, by Welch's t-test; one number tells nothing of its spread."""
    # Texts of one length have one number of tokens, which tells nothing, and of which SciPy warns.
    if min(len(first), len(second)) < 2 or not np.ptp(np.concatenate([first, second])) > 0:
        return False
    return bool(np.asarray(scipy.stats.ttest_ind(first, second, equal_var=False))[1] <= ALPHA)


def _differ_within(sides: Sequence[Float[np.ndarray, " _"]], strata: Sequence[Int[np.ndarray, " _"]]) -> bool:
    """Whether two samples differ beyond chance within strata, by a t-test."""
    sets = np.repeat([0, 1], [len(side) for side in sides])
    effects, covariance, freedom = set_effects(np.concatenate(sides), sets, np.concatenate(strata))
    error = float(np.sqrt(covariance[0, 0]))
    return error > 0 and bool(2 * scipy.special.stdtr(freedom, -abs(float(effects[0])) / error) <= ALPHA)


SAY = "Say which way the scores point for records that were used (`lower` or `higher`, with their names)."
NO_EFFECT = "models that used the query set hardly differ from models that did not"
LEFT_OF_USE = Words(
    "The model shows the effect of the query set ({p}).",
    "Of the effect that use has on models of known truth, {share} is left.",
    "No effect of the query set was detected ({p}). Of the effect that use has on models of known truth, at most "
    "{most} is left ({level} upper limit); less is not ruled out.",
    "How much effect of the query set is left is not determined: {why}.",
    "was trained without the query set",
    USED.beyond,
)
ONE_MODEL = (
    "There is one model of known truth of a kind ({kinds}): a model of another seed has other scores, and the interval "
    "does not know by how much."
)
WORD = "It rests on the word alone that the target was trained like the models of known truth."
ALIKE = "On the holdout, the target does not differ from the models of known truth more than they do from one another."
NOT_ALIKE = (
    "on the holdout, which nobody used, the target differs from the models of known truth more than they do from one "
    "another ({p} if all had one recipe), so what these remember says nothing of the target"
)
NOTHING_SHOWS = "nothing shows that the target was trained like the models of known truth"
SHOW = (
    "Give a holdout and three or more models of known truth, which show it; or a holdout and known members (set "
    "`members`), which need none. If the target was trained like these models but for the query set, say so "
    "(`same_recipe`)."
)
OWN_MODELS = (
    "Give records that the target did use (set `members`) beside the holdout, or models of known truth that were "
    "trained like the target."
)
OTHER_RECIPE = (
    "Models of known truth must be trained like the target. Beside models of another recipe limits were too low, where "
    "the comparison on the holdout missed it, too; records that the target did use (set `members`) need no such models."
)
"""Measured on fine-tunes by adapters of other rank and length (`experiments/score_rates_adapters.py`)."""


class ScoreEvidence(NamedTuple):
    """What a target's scores show.

    Attributes:
        p_never: p-value of "never used"; None if nothing tells. `p_trust`: how far to trust it.
        p_smaller: p-value of a query set that looks less used than the holdout, or than by models that never used it.
        limits: see `Usage`. `why`: why they are unknown, else empty. `trust`: how far to trust them.
        invalid: reasons why no verdict can be given. `unshown`: the same, where only the user's statement is missing.
        by_members: whether the limits are by known members.
        helps: what leads to a verdict, where that is known.
        checks: of what the limits rest on.
    """

    p_never: float | None
    p_trust: Confidence
    p_smaller: float = 1.0
    p_fully: float | None = None
    limits: Limits = UNKNOWN
    why: str = NOT_KNOWN
    trust: Confidence = NO_FRACTION
    words: Words = USED
    invalid: tuple[str, ...] = ()
    unshown: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    by_members: bool = False
    helps: str = ""
    checks: tuple[Check, ...] = ()


def of_models(evidence: ScoreEvidence, share: ShareLeft, unused: int, used: int, question: Question) -> ScoreEvidence:
    counted = {"without the query set": unused, "with it": used}
    single = [kind for kind, count in counted.items() if count == 1]
    low = f"{plural(unused, 'model')} without the query set" if unused else "the holdout"
    is_known = share.p_used is not None
    of_recipe = question == "used"
    trust = Confidence(
        "weak" if single or of_recipe else "fair",
        f"{f'{WORD} ' if of_recipe else ''}It is measured between {low} and {plural(used, 'model')} that used the "
        f"query set, which are {share.effect:.1f} standard errors apart.",
    )
    # What is left after unlearning is a share of the effect on these models, whatever the target's recipe was.
    caveats = (
        *((ONE_MODEL.format(kinds=" and ".join(single)),) if single else ()),
        *((OTHER_RECIPE,) if is_known and of_recipe else ()),
        *evidence.caveats,
    )
    return evidence._replace(
        p_fully=share.p_used,
        limits=share.limits,
        why="" if is_known else NO_EFFECT,
        trust=trust if is_known else no_confidence(NO_EFFECT),
        words=LEFT_OF_USE if question == "left" else USED,
        caveats=caveats,
    )


def of_recipe(
    evidence: ScoreEvidence, without_models: ScoreEvidence, p_alike: float | None, is_stated: bool
) -> ScoreEvidence:
    """The evidence of models of known truth, as far as data or a statement show that the target was trained like them.
    What the data contradict (`p_alike`), no statement upholds.
    """
    if evidence.why:
        return evidence
    if not (why := unlike_recipe(p_alike, is_stated)):
        basis = WORD if p_alike is None else ALIKE
        return evidence._replace(trust=Confidence(evidence.trust.word, evidence.trust.why.replace(WORD, basis)))
    helps = SHOW if p_alike is None else OWN_MODELS
    return without_models._replace(why=why, trust=no_confidence(why), helps=helps)


def unlike_recipe(p_alike: float | None, is_stated: bool) -> str:
    """Why models of known truth tell no share of a target's; empty if data show its recipe, or a statement has to."""
    if p_alike is None:
        return "" if is_stated else NOTHING_SHOWS
    return "" if p_alike > ALPHA else NOT_ALIKE.format(p=p_text(p_alike))
