"""The holdout test as a test of `ks`: see `jaxaudit.metrics.holdout`."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.models import LEAST, Rows, shadow_rows
from jaxaudit.audits.ks.taught import predictors_of, taught_by_records
from jaxaudit.audits.ks.tests_of_use.test import (
    EXACT,
    NO_FRACTION,
    NOT_KNOWN,
    OF_P,
    Judgement,
    KSTest,
    TrainingSizes,
    checks_of_sets,
    helped,
    judgement_of_use,
    limited,
    of_holdout,
)
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.checks import (
    HOLDOUT_APART,
    HOLDOUT_MODELS,
    Check,
    better_recipe,
)
from jaxaudit.metrics.difficulty import residual_scores
from jaxaudit.metrics.holdout import holdout_test, swapped
from jaxaudit.metrics.permutation import check_groups, least_permutations, permutation_test
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import STATED_FRACTION, UNKNOWN, Usage, conclude, without_fraction
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Kind, Pool

NEEDS = OF_P | {HOLDOUT_APART, HOLDOUT_MODELS}
BY_GROUPS = (
    "Holdout test by groups: {query} groups of the query set and {holdout} of the holdout were permuted whole, as "
    "given. p (not used) is exact if the provider chose at random which whole groups to share. The members test uses "
    "groups, too; other tests do not."
)

OF_DEALS = (
    "Holdout test: p (not used) is exact if the provider sampled query set and holdout alike and trained on none of "
    "the holdout."
)
OF_RECIPE = (
    " The other numbers assume that the target is trained by the shadow models' recipe; where its other data differ "
    "from the calibration set, p (all used) is too small."
)
ALONE = (
    "Give its outputs on records that it did use, or those of the model before a deletion; or train shadow models by "
    "its own recipe",
    "",
)
"""What allows `forgotten` where the target's outputs on query set and holdout are all there is."""


@dataclass(frozen=True, kw_only=True)
class HoldoutTest(KSTest):
    """Do the target's outputs differ between query set and holdout: records of its provider that nobody trained on?

    Attributes:
        mixed: number of shadow models, at least 19 for a p-value of 0.05. Each is trained on as many
            records as the query set has, drawn from query set and holdout together, and on as large a share of known
            members, if there are any. With 0 the target's own outputs decide alone: `not forgotten` or `inconclusive`,
            since nothing then tells how much the target remembers of what it used.
        stated: `forgotten` requires an upper limit of the used fraction of at most this.
    """

    mixed: int = 40
    stated: float = STATED_FRACTION
    name = "holdout"
    title = "holdout test"
    source = "Zhang et al. 2024; Carlini et al. 2022; Fieller 1954; Schilling 1986; Henze 1988"
    errors = (
        "A target that used none of the query set is called not forgotten in at most 5% of random deals of the "
        "records into query set and holdout, whatever the model is. Forgotten is said of a target that is trained by "
        "the shadow models' own recipe alone; one that used more than the stated share is then called so in at most 5%."
    )
    roles = frozenset({Role.HOLDOUT})
    least = MappingProxyType({"mixed": LEAST})
    left_out = "dealt"

    @property
    def assumes(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return OF_DEALS + (OF_RECIPE if self.mixed else "")

    def training_sizes(self, sizes: Sets[int]) -> TrainingSizes:
        return ((self.mixed, round(SHARE * sizes[Role.CALIBRATION]) + sizes[Role.QUERY]),) if self.mixed else ()

    def lighter(self) -> "KSTest":
        return replace(self, mixed=min(self.mixed, LEAST))

    def refuse(self, sets: Sets[Examples]) -> None:
        super().refuse(sets)
        if self.mixed and self.mixed < LEAST:
            raise InputError(
                f"the holdout test needs at least {LEAST} shadow models for a p-value of 0.05; got {self.mixed}."
            )

    def kinds(self) -> tuple[str, ...]:
        return (Kind.MIXED,) if self.mixed else ()

    def draw(self, key: OneKey, pool: Pool) -> Rows:
        if not self.mixed:
            return {}
        pooled = np.r_[pool.query, pool.holdout]
        count = pool.query.stop - pool.query.start
        if pool.groups is not None:
            count = check_groups(pool.groups, count, len(pooled))
        rows = shadow_rows(key, pool, Kind.MIXED, pooled, count, self.mixed, pool.groups, with_members=True)
        return {Kind.MIXED: rows}

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        checks, recipe = checks_of_sets(key, evidence), ""
        if self.mixed:
            fit = evidence.fit(HOLDOUT_MODELS, Kind.MIXED)
            checks, recipe = (*checks, *(() if evidence.pool.classless else (fit,))), better_recipe(fit)
            usage = _usage_by_models(key, outputs, evidence, self.stated, recipe)
            usage, confidence, obstacles = limited(usage, outputs, evidence, (Kind.MIXED,), of_holdout(evidence))
        else:
            usage, confidence, obstacles = _usage_by_outputs(key, outputs, evidence, self.stated), NO_FRACTION, (ALONE,)
        groups, by_groups = evidence.pool.groups, ()
        if groups is not None:
            query, holdout = (len(np.unique(part)) for part in np.split(groups, [evidence.queries]))
            by_groups = (BY_GROUPS.format(query=query, holdout=holdout),)
        advice = "Give more records: `jaxaudit power` says how many."
        advice = f"Improve the shadow models: {recipe}." if recipe else advice
        return judgement_of_use(
            self,
            usage,
            checks,
            (EXACT, OF_P),
            (confidence, NEEDS if self.mixed else NEEDS - {HOLDOUT_MODELS}),
            more=helped(obstacles, "") if obstacles else advice,
            lacks=obstacles,
            last=(*by_groups, *taught_by_records(key, evidence).caveats),
        )


TEST = HoldoutTest


def _usage_by_models(key: OneKey, outputs: TargetOutputs, evidence: Evidence, stated: float, recipe: str) -> Usage:
    """The numbers of the test with its shadow models; `recipe` says how to get better ones."""
    queries, dealt_records = evidence.queries, evidence.dealt_records
    return holdout_test(
        stream(key, "holdout test"),
        outputs.log_odds[:queries],
        outputs.log_odds[dealt_records][queries:],
        outputs.at_resolution(evidence.log_odds(Kind.MIXED)[:, dealt_records]),
        evidence.members(Kind.MIXED)[:, dealt_records],
        groups=evidence.pool.groups,
        predictors=predictors_of(key, evidence, dealt_records),
        stated=stated,
        permutations=least_permutations(evidence.targets),
        printed=outputs.printed,
        own_recipe=outputs.trained_here or evidence.own_recipe,
        recipe=recipe,
    )


def _usage_by_outputs(key: OneKey, outputs: TargetOutputs, evidence: Evidence, stated: float) -> Usage:
    """The numbers of the test without a shadow model: the exact p-value of the members test's score."""
    queries, dealt_records = evidence.queries, evidence.dealt_records
    scores = residual_scores(outputs.log_odds[dealt_records], predictors_of(key, evidence, dealt_records))
    test = permutation_test(
        stream(key, "holdout test"),
        scores[:queries],
        scores[queries:],
        groups=evidence.pool.groups,
        permutations=least_permutations(evidence.targets),
    )
    usage = conclude("holdout", test.p_larger, None, UNKNOWN, swapped(test.p_smaller), stated=stated)
    return without_fraction(usage, (f"no use was detected, and {NOT_KNOWN}",))
