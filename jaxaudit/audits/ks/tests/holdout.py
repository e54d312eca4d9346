"""The holdout test as a test of `ks`: see `jaxaudit.metrics.holdout`."""

from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.models import LEAST, Rows, shadow_rows
from jaxaudit.audits.ks.tests.memory import helped, limited, of_holdout
from jaxaudit.audits.ks.tests.test import Judgement, judgement_of_use
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.metrics.before_after import Change, before_after
from jaxaudit.metrics.checks import (
    HOLDOUT_APART,
    HOLDOUT_LIKE_QUERY,
    HOLDOUT_MODELS,
    TARGET_OUTPUTS,
    Check,
    better_recipe,
)
from jaxaudit.metrics.difficulty import difficulty
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike, alike, holdout_apart, holdout_like_query
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.permutation import check_groups, least_permutations
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, refuse_stated
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Kind, Pool

OF_P = frozenset({HOLDOUT_LIKE_QUERY, TARGET_OUTPUTS})
NEEDS = OF_P | {HOLDOUT_APART, HOLDOUT_MODELS}
BY_GROUPS = (
    "Holdout test by groups: {query} groups of the query set and {holdout} of the holdout were permuted whole, as "
    "given. p (not used) is exact if the provider chose at random which whole groups to share. The members test uses "
    "groups, too; other tests do not."
)
EXACT = Confidence("strong", "The test is exact if the provider sampled query set and holdout alike.")


@dataclass(frozen=True, kw_only=True)
class HoldoutTest:
    """Do the target's outputs differ between query set and holdout: records of its provider that nobody trained on?

    Attributes:
        mixed: number of shadow models, at least 19 for a p-value of 0.05. Each is trained on as many
            records as the query set has, drawn from query set and holdout together, and on as large a share of known
            members, if there are any.
        stated: `forgotten` requires an upper limit of the used fraction of at most this.
    """

    mixed: int = 40
    stated: float = STATED_FRACTION
    name: ClassVar[str] = "holdout"
    title: ClassVar[str] = "holdout test"
    source: ClassVar[str] = "Zhang et al. 2024; Carlini et al. 2022; Fieller 1954; Schilling 1986; Henze 1988"
    errors: ClassVar[str] = (
        "A target that used none of the query set is called not forgotten in at most 5% of random deals of the "
        "records into query set and holdout, whatever the model is. Forgotten is said of a target that is trained by "
        "the shadow models' own recipe alone; one that used more than the stated share is then called so in at most 5%."
    )
    assumes: ClassVar[str] = (
        "Holdout test: p (not used) is exact if the provider sampled query set and holdout alike and trained on none "
        "of the holdout. The other numbers assume that the target is trained by the shadow models' recipe; where its "
        "other data differ from the calibration set, p (all used) is too small."
    )

    @property
    def references(self) -> int:
        return self.mixed

    def training_sizes(self, query: int, calibration: int, reference: int) -> tuple[tuple[int, int], ...]:
        return ((self.mixed, round(SHARE * calibration) + query),)

    def lighter(self) -> "HoldoutTest":
        return replace(self, mixed=min(self.mixed, LEAST))

    def refuse(self, query: Examples, holdout: Examples | None) -> None:
        refuse_stated(self.stated)
        if holdout is None:
            raise InputError("the holdout test needs a holdout: records of the query set's provider (`holdout`).")
        if self.mixed < LEAST:
            raise InputError(
                f"the holdout test needs at least {LEAST} shadow models for a p-value of 0.05; got {self.mixed}."
            )

    def kinds(self, pool: Pool) -> tuple[str, ...]:
        return (Kind.MIXED,)

    def draw(self, key: Key[Array, ""], pool: Pool) -> Rows:
        pooled = np.r_[pool.query, pool.holdout]
        count = pool.query.stop - pool.query.start
        if pool.groups is not None:
            count = check_groups(pool.groups, count, len(pooled))
        rows = shadow_rows(key, pool, Kind.MIXED, pooled, count, self.mixed, pool.groups, with_members=True)
        return {Kind.MIXED: rows}

    def judge(
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        usage = measured(key, outputs, evidence, level, self.stated)
        fit, advice = evidence.fit(HOLDOUT_MODELS, Kind.MIXED), evidence.advice
        usage, trust, lacks = limited(usage, outputs, evidence, (Kind.MIXED,), of_holdout(evidence))
        alikeness = exchangeable(key, evidence)
        checks = (holdout_like_query(alikeness), holdout_apart(alikeness), *(() if evidence.pool.classless else (fit,)))
        change = _change(key, outputs, evidence, level)
        if change is not None and trust.word == "none":
            change = msgspec.structs.replace(change, fraction=None, low=-1.0, high=1.0)
        recipe, groups, n = better_recipe(fit, advice.recipe), evidence.pool.groups, evidence.queries
        query, held = (
            (0, 0) if groups is None else (len(np.unique(groups_of_set)) for groups_of_set in (groups[:n], groups[n:]))
        )
        more = f"Give more records: {advice.power} says how many."
        more = f"Improve the shadow models: {recipe}." if recipe else more
        return judgement_of_use(
            self,
            usage,
            checks,
            needs=NEEDS,
            of_p=OF_P,
            p_trust=EXACT,
            trust=trust,
            more=helped(lacks, "") if lacks else more,
            lacks=lacks,
            last=() if groups is None else (BY_GROUPS.format(query=query, holdout=held),),
            change=change,
        )


def measured(key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, level: float, stated: float) -> Usage:
    """The numbers of the holdout test, computed once for each target."""

    def compute() -> tuple[TargetOutputs, Usage]:
        n, dealt_records, groups = evidence.queries, evidence.dealt_records, evidence.pool.groups
        usage = holdout_test(
            stream(key, "holdout test"),
            outputs.log_odds[:n],
            outputs.log_odds[dealt_records][n:],
            outputs.at_resolution(evidence.log_odds(Kind.MIXED)[:, dealt_records]),
            evidence.members(Kind.MIXED)[:, dealt_records],
            groups=groups,
            predictors=predictors_of(key, outputs, evidence, dealt_records, groups),
            level=level,
            stated=stated,
            permutations=least_permutations(evidence.targets),
            printed=outputs.printed,
            recipe=better_recipe(evidence.fit(HOLDOUT_MODELS, Kind.MIXED), evidence.advice.recipe),
        )._replace(design=evidence.design)
        return outputs, usage

    # The target is stored with its numbers, so that its `id` cannot be reused by another object.
    return evidence.once(f"holdout test {id(outputs)} {level} {stated}", compute)[1]


def predictors_of(
    key: Key[Array, ""],
    outputs: TargetOutputs,
    evidence: Evidence,
    indices: slice | Int[np.ndarray, " some"],
    groups: Int[np.ndarray, " some"] | None,
) -> Float[np.ndarray, "some kinds"]:
    """Predictors of the difficulty of records: class, neighbours, and models with outputs on all of the records."""
    pool, examples = evidence.pool, evidence.pool.examples
    records, (odds, rows) = pool.compared[indices], _models_on(evidence, indices)
    # Of records without classes, neighbours have none that could tell.
    inputs = examples.inputs[records] if examples.inputs.size and not pool.classless else None
    shadows = None if odds is None else outputs.at_resolution(odds)
    return difficulty(stream(key, "difficulty"), examples.labels[records], inputs, shadows, rows, groups)


def _change(key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, level: float) -> Change | None:
    """The used fraction before a deletion minus the fraction after, all outputs at the coarser resolution."""
    before, dealt_records = outputs.before, evidence.dealt_records
    if before is None:
        return None
    return before_after(
        stream(key, "holdout test"),
        outputs.at_resolution(before.log_odds[None])[0],
        before.at_resolution(outputs.log_odds[None])[0, dealt_records],
        evidence.queries,
        outputs.at_resolution(before.at_resolution(evidence.log_odds(Kind.MIXED)[:, dealt_records])),
        evidence.members(Kind.MIXED)[:, dealt_records],
        groups=evidence.pool.groups,
        level=level,
    )


def exchangeable(key: Key[Array, ""], evidence: Evidence) -> Alike:
    """Whether there is evidence that query set and holdout are not exchangeable, as far as it can be measured."""

    def measure() -> Alike:
        measured_anew = sets_alike(
            stream(key, "exchangeability"), evidence, evidence.dealt_records, evidence.queries, evidence.pool.groups
        )
        before = evidence.pool.sampled_alike
        # Labels that were compared when a bank was planned are no classes if records have none.
        labels = measured_anew.labels if before is None or evidence.pool.classless else before.labels
        return measured_anew if before is None else before._replace(difficulty=measured_anew.difficulty, labels=labels)

    return evidence.once("dealt", measure)


def sets_alike(
    key: Key[Array, ""],
    evidence: Evidence,
    indices: slice | Int[np.ndarray, " some"],
    size: int,
    groups: Int[np.ndarray, " some"] | None,
    at_hand: Examples | None = None,
) -> Alike:
    """Whether there is evidence that the first `size` of these compared records are not exchangeable with the others.

    `at_hand` has the records with their inputs, if those of the pool have none.
    """
    examples = evidence.pool.examples.take(evidence.pool.compared[indices])
    at_hand = examples if examples.inputs.size else at_hand
    odds, rows = _models_on(evidence, indices)
    alikeness = alike(
        key,
        None if at_hand is None else at_hand.inputs,
        examples.labels,
        None if odds is None or rows is None else profile(cut(odds), rows).outside,
        None if at_hand is None else at_hand.record_hashes.view("S16"),
        size,
        groups=groups,
    )
    return alikeness._replace(labels=NOT_MEASURED) if evidence.pool.classless else alikeness


def _models_on(
    evidence: Evidence, indices: slice | Int[np.ndarray, " some"]
) -> tuple[Float[np.ndarray, "models some"], Bool[np.ndarray, "models some"]] | tuple[None, None]:
    """Log-odds and training sets of the test's models on these records; None without such models or outputs.

    Models of a bank have no outputs on known members.
    """
    odds = evidence.log_odds(Kind.MIXED)[:, indices]
    if not len(odds) or np.isnan(odds[0]).any():
        return None, None
    return odds, evidence.members(Kind.MIXED)[:, indices]
