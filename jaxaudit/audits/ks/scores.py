"""Judges targets by a table of scores: any number a record, from any kind of model. No model is trained.

TOFU's forget quality and MUSE's privleak stand beside the verdict, and decide nothing.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from jaxaudit.audits.finding import Confidence, no_confidence, undecided
from jaxaudit.audits.ks.by_group import dealt_groups_of, refuse_groups_of_members, with_groups
from jaxaudit.audits.ks.judge_outputs import adjusted, target_result
from jaxaudit.audits.ks.known_models import (
    NOTHING_SHOWS,
    SAY,
    SHOW,
    WORD,
    ScoreEvidence,
    asked_names,
    between_models,
    directed_scores,
    know_members,
    known_columns,
    members_within,
    models_that_used,
    of_models,
    of_recipe,
    of_rows,
    recipe_evidence,
    target_residuals,
    undamaged,
    unlike_recipe,
    ways_of_use,
)
from jaxaudit.audits.ks.result import SCORES, KSAudit, KSResult, TofuDetails
from jaxaudit.audits.ks.tests_of_use.members import FAINT, measured_by, words_of
from jaxaudit.audits.ks.tests_of_use.test import EXACT, Judgement, judgement_of_use, of_use, p_text
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, is_scored
from jaxaudit.errors import InputError, check_ranges
from jaxaudit.json_types import number
from jaxaudit.metrics.arrays import Integers, Numbers, OneKey
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.exchangeability import (
    Baseline,
    blind_baseline,
    holdout_blind,
    members_blind,
    members_of_other_groups,
)
from jaxaudit.metrics.forgetting_quality import TOFU_SOURCE, between_retrained, forget_quality, mia_auc, privleak
from jaxaudit.metrics.holdout import swapped
from jaxaudit.metrics.memory import NO_MEMORY, NO_MEMORY_LEFT, MemoryAnswer, members_test
from jaxaudit.metrics.permutation import least_permutations
from jaxaudit.metrics.score_tests import DRIFT_SOURCE, ScoreTest, score_test
from jaxaudit.metrics.score_tests import SOURCE as GROUP_SOURCE
from jaxaudit.metrics.shadow import models_like_target
from jaxaudit.metrics.usage import (
    ALPHA,
    FAR_BEYOND_CHANCE,
    LEVEL,
    STATED_FRACTION,
    UNKNOWN,
    WORDING,
    Limits,
    Question,
    decided,
    less_used,
    without_fraction,
)
from jaxaudit.metrics.usage import conclude as concluded
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
LOOK = "Look at the names of the columns, and say which way the scores point (`lower` or `higher`, with their names)."
NOT_COUNTED = "It is not known whether use lowers or raises {names} (`lower`, `higher`), so p (not used) is without."
INNOCENT = (
    "There is no holdout: a target that was trained in another way than the {unused} models without the query set, and "
    "never used it, may be called not forgotten, too."
)


def score_evidence(
    key: OneKey,
    table: ScoreTable,
    target: ScoredModel,
    question: Question,
    *,
    same_recipe: bool,
) -> ScoreEvidence:
    """How strongly one target's scores show that it used the query set, compared with the holdout or else with models
    that never used it. Known members, or else models that used it, tell what share. The rest is as in `ScoresTest`.
    """
    directed = directed_scores(table, target)
    share = between_models(table, target, directed)
    exact = _against_holdout(key, table, target) if len(table.rows("holdout")) else None
    if not exact:
        unused = len(table.of("unused"))
        normal = f"{WORD} The t-test takes the mean scores of {unused} models without the query set as normal."
        p_never = share and share.p_unused
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
        unknown = [name for name in asked_names(target, table.rows("query", "holdout")) if not table.directions[name]]
        not_counted = (NOT_COUNTED.format(names=", ".join(unknown)),) if unknown and exact.directed else ()
        evidence = ScoreEvidence(exact.p_never, EXACT, exact.p_smaller, caveats=not_counted)
        if not exact.directed and exact.p_never <= ALPHA:
            differ = f"query set and holdout differ ({p_text(exact.p_never)}), but "
            evidence = evidence._replace(invalid=(_undirected(table, target, differ),))
        evidence = evidence if exact.directed else evidence._replace(helps=SAY)
    ways = ways_of_use(table, target)
    if contrary := [name for name, way in ways.items() if way * table.directions[name] < 0]:
        low = "models that did not" if table.of("unused") else "the holdout"
        evidence = evidence._replace(
            invalid=(*evidence.invalid, CONTRARY.format(names=", ".join(contrary), low=low)), helps=LOOK
        )
    members = _by_members(key, table, target, question, evidence.p_never)
    if isinstance(members, MemoryAnswer):
        remembers, usage = members.p_memory <= ALPHA, members.usage
        return evidence._replace(
            p_fully=usage.p_fully,
            limits=Limits(usage.fraction, usage.fraction_low, usage.fraction_high, usage.upper, usage.detectable),
            why="" if remembers else NO_MEMORY if question == "used" else NO_MEMORY_LEFT,
            trust=measured_by(members.memory) if remembers else FAINT,
            words=words_of(question, remembers),
            invalid=(*usage.invalid, *evidence.invalid),
            by_members=True,
        )
    used = models_that_used(table, target)
    if not (share and used):
        return evidence._replace(why=members or evidence.why)
    by_models = of_models(evidence, share, len(table.of("unused")), len(used), question)
    if question == "left":
        return by_models
    p_alike = recipe_evidence(table, target)
    with_share = of_recipe(by_models, evidence, p_alike, same_recipe)
    return with_share._replace(checks=(models_like_target(p_alike),))


def _undirected(table: ScoreTable, target: ScoredModel, differ: str) -> str:
    """Why no score of a target shows use, and which way models of known truth say that the scores point."""
    ways = {name: way for name, way in ways_of_use(table, target).items() if way}
    stated = ", ".join(f"{name} {'higher' if way > 0 else 'lower'}" for name, way in ways.items())
    names = ", ".join(name for name in target.scores if not table.directions[name])
    hint = f" (by models that are known to have used the records: {stated})" if stated else ""
    return UNDIRECTED.format(differ=differ, names=names, told=hint)


def _against_holdout(key: OneKey, table: ScoreTable, target: ScoredModel) -> ScoreTest | None:
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
        groups=of_rows(table.groups, dealt_rows),
        pairs=of_rows(table.pairs, dealt_rows),
        strata=of_rows(table.strata, dealt_rows),
        permutations=least_permutations(len(table.of("target"))),
    )


def _by_members(
    key: OneKey, table: ScoreTable, target: ScoredModel, question: Question, p_never: float | None
) -> MemoryAnswer | str:
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
        groups=of_rows(table.groups, rows),
        strata=table.strata[rows] if table.strata is not None and members_within(table) else None,
        p_never=p_never,
        permutations=least_permutations(len(table.of("target"))),
        question=question,
    )


WHAT_HELPS = (
    "Add records that the target did use (rows of the set `members`), or scores of models of known truth (columns "
    "`unused.` and `used.`)."
)
LESS = (
    "Look whether query set and holdout are exchanged (column `set`). If they are not, the unlearning went too far: "
    "stop it earlier, or weaken it."
)
MORE = "Give scores of more records, or of baselines: models that used neither set."
OF_ANSWERS = (
    "The verdict is of what the model answers, not of what its weights hold: an unlearned model that is trained on a "
    "part of the query set again may have the rest back."
)
NO_TEST = "there is no holdout, and fewer than two models without the query set tell nothing of other seeds"
TEST_HELPS = "Give a holdout, or at least two models that never used the query set."


@dataclass(frozen=True, kw_only=True)
class ScoresTest:
    """Do the target's scores differ between query set and holdout, and how much of the effect of use is there?

    Attributes:
        stated: `forgotten` requires an upper limit of at most this.
        question: `used`: how much of the query set was used. `left`: how much of the effect of use is left after
            unlearning. The numbers are the same.
        same_recipe: whether the user states that the target was trained like the models of known truth, but for the
            query set. Unless a holdout and three such models show it, a verdict by them on `used` needs the statement.
    """

    stated: float = STATED_FRACTION
    question: Question = "used"
    same_recipe: bool = False
    name: ClassVar[str] = SCORES
    title: ClassVar[str] = "test of scores"
    source: ClassVar[str] = "Hemerik & Goeman 2018; Das, Zhang & Tramer 2024; Fieller 1954"
    errors: ClassVar[str] = (
        "A target that used none of the query set is called not forgotten in at most 5% of random deals of the records "
        "into query set and holdout, whatever the model is; without a holdout, if it was trained like the models that "
        "never used the query set."
    )
    assumes: ClassVar[str] = (
        "Test of scores: p (not used) is exact if query set and holdout were dealt at random from one source, and "
        "neither the target nor a baseline used the holdout. The fraction assumes that the query set, if used, was "
        "used like the known members, or as models of known truth used it."
    )


def judge_scores(
    key: OneKey,
    table: ScoreTable,
    *,
    test: ScoresTest = ScoresTest(),
    by: Literal["group"] | None = None,
) -> KSAudit:
    """Has each target of a table of scores forgotten the query set, or never used it?

    `test` has the stated share and the question, `key` serves permutations. `by` asks for a
    verdict on each group, too; groups with records of both sets are then taken for names of records that were dealt one
    by one. Groups that were dealt neither way are an `InputError`.

    >>> import jax
    >>> from jaxaudit.data.scores.table import score_table
    >>> random = np.random.default_rng(1)
    >>> sets = np.repeat(["query", "holdout"], 100)
    >>> hard = random.normal(3, 1, 200)
    >>> loss = hard - 0.4 * (sets == "query") + 0.3 * random.normal(size=200)
    >>> found = judge_scores(jax.random.key(7), score_table({"set": sets, "target.loss": loss, "baseline.loss": hard}))
    >>> found.targets[0].verdict, found.targets[0].usage[0].p_never
    ('not forgotten', 0.0005)
    """
    check_ranges("(0, 1)", stated=test.stated)
    if not table.of("target"):
        raise InputError(f"{table.name}: has no target; call the column of its scores target.SCORE, as target.loss.")
    query, holdout = table.rows("query"), table.rows("holdout")
    if not len(query) or not (len(holdout) or table.of("unused")):
        raise InputError(
            f"{table.name}: no record is in the {'query set' if not len(query) else 'holdout'} (column `set`). A "
            "target is judged by records that it may have used, beside records of the same source that nobody trained "
            "on."
        )
    dealt_groups, by_groups = None if by is None else dealt_groups_of(table), table
    if dealt_groups is not None and dealt_groups.within:
        table = replace(table, groups=None, strata=table.groups)
    refuse_groups_of_members(table)
    checks: tuple[Check, ...] = ()
    if len(holdout):
        dealt_rows = table.rows("query", "holdout")
        pairs = of_rows(table.pairs, dealt_rows)
        columns = known_columns(table, dealt_rows)
        checks = (
            holdout_blind(_blind(stream(key, "blind baseline"), table, columns, "query", "holdout", pairs=pairs)),
        )
    if len(holdout) and len(table.rows("members")):
        sets = ("members", "query", "holdout")
        # What no model made.
        columns = {f"covariate.{name}": covariate[table.rows(*sets)] for name, covariate in table.covariates.items()}
        is_told = table.strata is not None and not members_within(table)
        alike = (
            members_of_other_groups()
            if is_told
            else members_blind(_blind(stream(key, "blind members"), table, columns, *sets))
        )
        checks = (*checks, alike)
    models = table.of("target")
    judged = adjusted([(_judgement(key, table, model, test, checks),) for model in models])
    targets = tuple(
        target_result(model.name or table.name, None, (judgement, *_tofu(table, model)), ())
        for model, (judgement,) in zip(models, judged, strict=True)
    )
    if dealt_groups is not None:
        of_set = [judgement.details for judgement, *_ in judged]
        is_left = test.question == "left"
        unlike = ["" if is_left else unlike_recipe(recipe_evidence(table, model), test.same_recipe) for model in models]
        targets = with_groups(stream(key, "groups"), by_groups, targets, of_set, unlike, dealt_groups)
    nothing = np.zeros((0, len(query)), np.float32)
    result = KSResult(level=LEVEL, targets=targets, noise_floor=None)
    has_tofu = any(target.tofu for target in targets)
    sources = (test.source, *((TOFU_SOURCE,) if has_tofu else ()), *((GROUP_SOURCE, DRIFT_SOURCE) if by else ()))
    return KSAudit(result, *[nothing] * 4, labels=np.zeros(len(query), int), sources=sources)


def or_direction(reasons: tuple[str, ...], table: ScoreTable, target: ScoredModel) -> tuple[str, ...]:
    """Reasons that take sets for swapped, with the other cause: a score that is read the wrong way round."""
    ways = {1: "higher", -1: "lower"}
    taken = ", ".join(f"{name} as {ways[way]}" for name in target.scores if (way := table.directions[name]))
    other = f"; or a score points the other way than it is taken to for records that were used ({taken})"
    return tuple(reason + other for reason in reasons) if taken else reasons


def _blind(
    key: OneKey,
    table: ScoreTable,
    columns: dict[str, Numbers],
    *sets: Any,
    pairs: Integers | None = None,
) -> Baseline:
    """How well the first of these sets is told apart from the others without the target."""
    rows = table.rows(*sets)
    texts = None if table.texts is None else [table.texts[index] for index in rows]
    groups = of_rows(table.groups, rows)
    strata = of_rows(table.strata, rows)
    return blind_baseline(key, columns, texts, len(table.rows(sets[0])), groups=groups, pairs=pairs, strata=strata)


def _judgement(
    key: OneKey,
    table: ScoreTable,
    target: ScoredModel,
    test: ScoresTest,
    checks: tuple[Check, ...],
) -> Judgement:
    evidence = score_evidence(key, table, target, test.question, same_recipe=test.same_recipe)
    damage = undamaged(table, target, test.stated)
    checks = (*checks, *evidence.checks, *damage)
    # A t-test over seeds uses no holdout.
    of_p = frozenset({HOLDOUT_LIKE_QUERY}) if evidence.p_trust is EXACT else frozenset[str]()
    if evidence.p_never is None:
        undetermined = concluded(test.name, 1.0, None, UNKNOWN, invalid=evidence.invalid or (NO_TEST,))
        finding = of_use(test, undetermined, evidence.helps or TEST_HELPS, evidence.trust)
        return Judgement(test.name, test.title, finding, of_p, checks)
    less = or_direction(_less_used(evidence, len(table.of("unused")), test.question), table, target)
    usage = concluded(
        test.name,
        evidence.p_never,
        evidence.p_fully,
        evidence.limits,
        doubts=less,
        invalid=(*or_direction(evidence.invalid, table, target), *evidence.unshown, *_contradiction(evidence)),
        stated=test.stated,
        question=test.question,
    )
    if evidence.why:
        usage = without_fraction(msgspec.structs.replace(usage, doubts=()), (evidence.why,))
        usage = decided(msgspec.structs.replace(usage, doubts=less))
    needs = of_p | {check.name for check in damage if check.decisive}
    needs |= {MEMBERS_LIKE_QUERY} if evidence.by_members else set[str]()
    judgement = judgement_of_use(
        test,
        usage,
        checks,
        (evidence.p_trust, of_p),
        (evidence.trust, needs),
        more=evidence.helps or _what_helps(evidence),
        words=evidence.words,
        first=evidence.caveats,
        last=(OF_ANSWERS,) if test.question == "left" or table.of("before") else (),
    )
    unlike = [check for check in checks if check.name == MEMBERS_LIKE_QUERY and check.decisive and not check.passed]
    if unlike and evidence.by_members:
        return judgement._replace(fraction=(no_confidence(unlike[0].message), needs))
    return judgement


def _less_used(evidence: ScoreEvidence, unused: int, question: Question) -> tuple[str, ...]:
    """Returns a doubt if the query set looks less used than what nobody used: over-forgetting is no evidence of use."""
    if evidence.p_trust is EXACT or evidence.p_smaller > ALPHA / 2:
        return swapped(evidence.p_smaller, question)
    return (
        f"the query set {WORDING[question].less} than by the {unused} models that never used it "
        f"(p = {evidence.p_smaller:.3g}): {less_used(evidence.p_smaller)}, and no evidence of use; or the target "
        "was not trained like these models",
    )


def _what_helps(evidence: ScoreEvidence) -> str:
    far = evidence.p_smaller <= FAR_BEYOND_CHANCE
    return LESS if far else WHAT_HELPS if evidence.why else MORE


def _contradiction(evidence: ScoreEvidence) -> tuple[str, ...]:
    """Returns a reason against any verdict if some of the evidence shows use, and other evidence shows the reverse."""
    if evidence.p_never is None or evidence.p_never > ALPHA:
        return ()
    if evidence.p_smaller <= ALPHA / 2:
        return (
            f"the scores contradict one another: some look as after use (p = {evidence.p_never:.3g}), others less used "
            f"than the holdout (p = {evidence.p_smaller:.3g}), as if over-forgotten; is the direction of one wrong "
            "(`lower`, `higher`)?",
        )
    if evidence.limits.high == 0:
        return (
            f"the evidence contradicts itself: p = {evidence.p_never:.3g} if nothing was used, and by the models or "
            "members of known truth nothing was",
        )
    return ()


TRUTH_RATIO, MIN_K = "truth_ratio", "min_k"
DECIDES_NOTHING = "These are open-unlearning's numbers, which decide nothing."


def _tofu(table: ScoreTable, target: ScoredModel) -> tuple[Judgement, ...]:
    """Forget quality and privleak beside the first retrained model, and between these; none without their scores."""
    retrained, rows = table.of("unused"), {role: table.rows(role) for role in ("query", "holdout")}

    def scores_of(name: str, *sets: str) -> list[list[np.ndarray]]:
        """The score `name` on each of `sets`, of the target and each retrained model; empty where a record has none."""
        values = [model.scores.get(name, np.full(len(table.sets), np.nan)) for model in (target, *retrained)]
        return [
            [scores[rows[of]] for of in sets] if all(is_scored(scores, rows[of]) for of in sets) else []
            for scores in values
        ]

    ratios, *other_ratios = scores_of(TRUTH_RATIO, "query")
    of_ratios = [scores[0] for scores in other_ratios if scores]
    qualities = tuple(number(forget_quality(ratios[0], other_ratio)) for other_ratio in of_ratios if ratios)
    losses, *other_losses = scores_of(MIN_K, "query", "holdout")
    of_areas = [mia_auc(*scores) for scores in other_losses if scores]
    leaks = [number(privleak(mia_auc(*losses), area)) for area in of_areas[:1] if losses]
    if not qualities and not leaks:
        return ()
    between, several = None, (len(of_ratios) > 1, len(of_areas) > 1)
    if any(several):
        between = between_retrained(
            np.stack(of_ratios) if several[0] else None, np.array(of_areas) if several[1] else None
        )
        between = msgspec.structs.replace(between, models=len(retrained), forget_quality=qualities)
    details = TofuDetails(qualities[0] if qualities else None, leaks[0] if leaks else None, between)
    finding = undecided(DECIDES_NOTHING, (DECIDES_NOTHING,), DECIDES_NOTHING)
    return (Judgement("tofu", "forget quality and privleak", finding, frozenset(), details=details),)
