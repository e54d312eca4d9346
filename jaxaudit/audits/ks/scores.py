"""Judges targets by a table of scores: any number a record, from any kind of model. No model is trained.

Beside the verdict stand the field's own numbers, TOFU's forget quality and MUSE's privleak, which decide nothing.
"""

from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar

import msgspec
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.audits.finding import no_confidence
from jaxaudit.audits.ks.judge_outputs import adjusted, conclude
from jaxaudit.audits.ks.result import SCORES, KSAudit, KSResult, Retrained
from jaxaudit.audits.ks.score_evidence import ScoreEvidence, known_columns, score_evidence
from jaxaudit.audits.ks.tests.holdout import EXACT
from jaxaudit.audits.ks.tests.test import Judgement, judgement_of_use, of_use
from jaxaudit.data.scores.table import ScoredModel, ScoreTable, asked
from jaxaudit.errors import InputError
from jaxaudit.json_types import number
from jaxaudit.metrics.blind_baseline import Baseline, blind_baseline, holdout_blind, members_blind
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY, MEMBERS_LIKE_QUERY, Check
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.holdout import swapped
from jaxaudit.metrics.tofu import NOMINAL, SOURCE, between_retrained, forget_quality, mia_auc, privleak
from jaxaudit.metrics.usage import (
    OVER_FORGOTTEN,
    STATED_FRACTION,
    WORDING,
    Question,
    Usage,
    refuse_stated,
    without_fraction,
)
from jaxaudit.metrics.usage import conclude as concluded
from jaxaudit.randomness import stream

WHAT_HELPS = (
    "Add records that the target did use (rows of the set `members`), or scores of models of known truth (columns "
    "`unused.` and `used.`)."
)
LESS = (
    "Look whether query set and holdout are exchanged (column `set`). If they are not, the unlearning went too far: "
    "stop it earlier, or weaken it."
)
MORE = "Give scores of more records, or of baselines: models that used neither set."
NO_TEST = "there is no holdout, and fewer than two models without the query set tell nothing of other seeds"
TEST_HELPS = "Give a holdout, or at least two models that never used the query set."


@dataclass(frozen=True, kw_only=True)
class ScoresTest:
    """Do the target's scores differ between query set and holdout, and how much of the effect of use is there?

    Attributes:
        stated: `forgotten` requires an upper limit of at most this.
        question: `used`: how much of the query set was used. `left`: how much of the effect of use is left in a model
            that was trained on after the use, to unlearn. The numbers are the same.
    """

    stated: float = STATED_FRACTION
    question: Question = "used"
    name: ClassVar[str] = SCORES
    title: ClassVar[str] = "test of scores"
    source: ClassVar[str] = "Hemerik & Goeman 2018; Das, Zhang & Tramer 2024; Fieller 1954"
    errors: ClassVar[str] = (
        "A target that used none of the query set is called not forgotten in at most 5% of random deals of the records "
        "into query set and holdout, whatever the model is."
    )
    assumes: ClassVar[str] = (
        "Test of scores: p (not used) is exact if query set and holdout were dealt at random from one source, and "
        "neither the target nor a baseline used the holdout. The fraction assumes that the query set, if used, was "
        "used like the known members, or as models of known truth used it."
    )


def judge_scores(
    key: Key[Array, ""], table: ScoreTable, *, test: ScoresTest | None = None, level: float = 0.95
) -> KSAudit:
    """Has each target of a table of scores forgotten the query set, or never used it?

    `test` has the stated share and the question, `key` serves permutations, and no verdict depends on `level`.

    Raises:
        InputError: there is no target, no query set, or neither a holdout nor models that never used the query set.

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
    test = ScoresTest() if test is None else test
    refuse_stated(test.stated)
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must be between 0 and 1; got {level:g}.")
    if not table.of("target"):
        raise InputError(f"{table.name}: has no target; call the column of its scores target.SCORE, as target.loss.")
    query, holdout = table.rows("query"), table.rows("holdout")
    if not len(query) or not (len(holdout) or table.of("unused")):
        raise InputError(
            f"{table.name}: no record is in the {'query set' if not len(query) else 'holdout'} (column `set`). A "
            "target is judged by records that it may have used, beside records of the same source that nobody trained "
            "on."
        )
    checks: tuple[Check, ...] = ()
    if len(holdout):
        dealt = table.rows("query", "holdout")
        pairs = None if table.pairs is None else table.pairs[dealt]
        columns = known_columns(table, dealt)
        checks = (
            holdout_blind(_blind(stream(key, "blind baseline"), table, columns, "query", "holdout", pairs=pairs)),
        )
    if len(holdout) and len(table.rows("members")):
        sets = ("members", "query", "holdout")
        # What no model made.
        columns = {f"covariate.{name}": each[table.rows(*sets)] for name, each in table.covariates.items()}
        checks = (*checks, members_blind(_blind(stream(key, "blind members"), table, columns, *sets)))
    models = table.of("target")
    judged = [_judgement(key, table, model, test, checks, level) for model in models]
    # Only targets that were tested count for the adjustment.
    after = iter(adjusted([(each,) for each in judged if each.usage is not None]))
    judged = [(each,) if each.usage is None else next(after) for each in judged]
    targets = tuple(
        msgspec.structs.replace(conclude(model.name or table.name, None, each, ()), **field_numbers(table, model))
        for model, each in zip(models, judged, strict=True)
    )
    nothing = np.zeros((0, len(query)), np.float32)
    result = KSResult(level=level, targets=targets, noise_floor=None)
    asked = any(each.forget_quality is not None or each.privleak is not None for each in targets)
    sources = (test.source, *((SOURCE,) if asked else ()))
    return KSAudit(result, *[nothing] * 4, labels=np.zeros(len(query), int), sources=sources)


def or_direction(reasons: tuple[str, ...], table: ScoreTable, target: ScoredModel) -> tuple[str, ...]:
    """Reasons that take sets for swapped, with the other cause: a score that is read the wrong way round."""
    ways = {1: "higher", -1: "lower"}
    taken = ", ".join(f"{name} as {ways[way]}" for name in target.scores if (way := table.directions[name]))
    other = f"; or a score points the other way than it is taken to for records that were used ({taken})"
    return tuple(reason + other for reason in reasons) if taken else reasons


def _blind(
    key: Key[Array, ""],
    table: ScoreTable,
    columns: dict[str, Float[np.ndarray, " n"]],
    *sets: Any,
    pairs: Int[np.ndarray, " n"] | None = None,
) -> Baseline:
    """How well the first of these sets is told apart from the others without the target."""
    rows = table.rows(*sets)
    texts = None if table.texts is None else [table.texts[index] for index in rows]
    groups = None if table.groups is None else table.groups[rows]
    return blind_baseline(key, columns, texts, len(table.rows(sets[0])), groups=groups, pairs=pairs)


def _judgement(
    key: Key[Array, ""],
    table: ScoreTable,
    target: ScoredModel,
    test: ScoresTest,
    checks: tuple[Check, ...],
    level: float,
) -> Judgement:
    found = score_evidence(key, table, target, test.question, level)
    # A t-test over seeds uses no holdout.
    of_p = frozenset({HOLDOUT_LIKE_QUERY}) if found.p_trust is EXACT else frozenset[str]()
    if found.p_never is None:
        undetermined = Usage(test.name, "inconclusive", 1.0, None, nan, 0.0, 1.0, None, found.invalid or (NO_TEST,))
        finding = of_use(test, undetermined, found.helps or TEST_HELPS, found.trust)
        return Judgement(test.name, test.title, finding, of_p, checks)
    less = or_direction(_less_used(found, len(table.of("unused")), test.question), table, target)
    usage = concluded(
        *(test.name, found.p_never, found.p_fully, found.limits),
        doubts=less,
        invalid=(*or_direction(found.invalid, table, target), *_contradiction(found)),
        stated=test.stated,
        question=test.question,
    )
    usage = without_fraction(usage._replace(doubts=()), (*less, found.why)) if found.why else usage
    unlike = [each for each in checks if each.name == MEMBERS_LIKE_QUERY and each.decisive and not each.passed]
    return judgement_of_use(
        *(test, usage._replace(design="none"), checks),
        needs=of_p | ({MEMBERS_LIKE_QUERY} if found.by_members else set[str]()),
        of_p=of_p,
        p_trust=found.p_trust,
        trust=found.trust,
        more=found.helps or (LESS if less else WHAT_HELPS if found.why else MORE),
        words=found.words,
        first=found.caveats,
        strange=found.strange,
        fraction_trust=no_confidence(unlike[0].message) if unlike and found.by_members else None,
    )


def _less_used(found: ScoreEvidence, unused: int, question: Question) -> tuple[str, ...]:
    """Returns a doubt if the query set looks less used than what nobody used: over-forgetting is no evidence of use."""
    if found.p_trust is EXACT or found.p_smaller > ALPHA / 2:
        return swapped(found.p_smaller, ALPHA, question)
    return (
        f"the query set {WORDING[question].less} than by the {unused} models that never used it "
        f"(p = {found.p_smaller:.3g}): {OVER_FORGOTTEN}, and no evidence of use; or the target was not trained like "
        "these models",
    )


def _contradiction(found: ScoreEvidence) -> tuple[str, ...]:
    """Returns a reason against any verdict if some of the evidence shows use, and other evidence shows the reverse."""
    if found.p_never is None or found.p_never > ALPHA:
        return ()
    if found.p_smaller <= ALPHA / 2:
        return (
            f"the scores contradict one another: some look as after use (p = {found.p_never:.3g}), others less used "
            f"than the holdout (p = {found.p_smaller:.3g}), as if over-forgotten; is the direction of one wrong "
            "(`lower`, `higher`)?",
        )
    if found.limits.high == 0:
        return (
            f"the evidence contradicts itself: p = {found.p_never:.3g} if nothing was used, and by the models or "
            "members of known truth nothing was",
        )
    return ()


TRUTH_RATIO, MIN_K = "truth_ratio", "min_k"


def field_numbers(table: ScoreTable, target: ScoredModel) -> dict[str, Any]:
    """Forget quality and privleak of a target beside the first retrained model, and both between retrained models."""
    retrained = table.of("unused")

    def scores_of(name: str, *sets: Any) -> list[list[np.ndarray] | None]:
        """These scores of the target and of each retrained model on these sets; None where there are not all."""
        rows = [table.rows(each) for each in sets]
        values = (model.scores.get(name) for model in (target, *retrained))
        return [
            [each[own] for own in rows] if each is not None and all(asked(each, own) for own in rows) else None
            for each in values
        ]

    ratios = [None if each is None else each[0] for each in scores_of(TRUTH_RATIO, "query")]
    areas = [None if each is None else mia_auc(*each) for each in scores_of(MIN_K, "query", "holdout")]
    of_ratios = [each for each in ratios[1:] if each is not None]
    of_areas = [each for each in areas[1:] if each is not None]
    found: dict[str, Any] = {}
    qualities: tuple[float, ...] = ()
    if ratios[0] is not None and of_ratios:
        qualities = tuple(forget_quality(ratios[0], each) for each in of_ratios)
        found["forget_quality"] = number(qualities[0])
    if areas[0] is not None and of_areas:
        found["privleak"] = number(privleak(areas[0], of_areas[0]))
    several = len(of_ratios) > 1, len(of_areas) > 1
    if found and any(several):
        between = between_retrained(
            np.stack(of_ratios) if several[0] else None, np.array(of_areas) if several[1] else None
        )
        found["retrained"] = Retrained(
            len(retrained),
            tuple(map(number, qualities)),
            tuple(map(number, between.p_values)),
            number(between.share_below),
            tuple(map(number, between.privleak)),
            NOMINAL,
        )
    return found
