"""The reference test as a test of `ks`: see `jaxaudit.metrics.reference`.

By default the reference is the calibration set, and the models are the shadow test's. With a reference of its own they
are others, also trained on a share of it, so that the numbers of the shadow test stay as they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import TRAINED, Advice, Evidence, TargetOutputs
from jaxaudit.audits.ks.models import Rows
from jaxaudit.audits.ks.tests.memory import TRUSTED, Lack, limited, none_because
from jaxaudit.audits.ks.tests.shadow import ShadowTest, by_rank, draw_shadows, few_models, shadows_fit
from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.metrics.checks import (
    CALIBRATION_LIKE_QUERY,
    REFERENCE_LIKE_TARGET,
    REFERENCE_MODELS,
    TARGET_OUTPUTS,
    Check,
    better_recipe,
    reference_like_target,
)
from jaxaudit.metrics.reference import reference_test
from jaxaudit.metrics.usage import Usage, without_fraction
from jaxaudit.shadow_models import OF_QUERY, Pool

APART = ("reference_never", "reference_half", "reference_fully")
"""Kinds of its models where the reference is a set of its own."""
NEEDS = frozenset({CALIBRATION_LIKE_QUERY, REFERENCE_LIKE_TARGET, REFERENCE_MODELS, TARGET_OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class ReferenceTest(ShadowTest):
    """Do the target's outputs differ between the query set and the reference more than those of shadow models?

    It needs the target's outputs on the reference, of which the target is known to have used nothing: the calibration
    set, or a set of its own. Each shadow model is then also trained on a random share of that one.
    """

    name: ClassVar[str] = "reference"
    title: ClassVar[str] = "reference test"
    assumes: ClassVar[str] = (
        "Reference test: all numbers assume that the target used no record of the reference (the calibration set, "
        "unless --reference gives another), and that its other data are like it. Training on other records of the "
        "query set's provider looks like use of the query set. Only a holdout (--holdout) excludes that."
    )

    def training_sizes(self, query: int, calibration: int, reference: int) -> tuple[tuple[int, int], ...]:
        return super().training_sizes(query, calibration + reference, 0)

    def kinds(self, pool: Pool) -> tuple[str, ...]:
        return APART if pool.reference_apart else OF_QUERY

    def draw(self, key: Key[Array, ""], pool: Pool) -> Rows:
        return draw_shadows(self, key, pool, with_reference=True)

    def judge(
        self, key: Key[Array, ""], said: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        n, kinds = evidence.queries, self.kinds(evidence.pool)
        places = [*range(n), *range(evidence.referred.start, evidence.referred.stop)]
        fit = shadows_fit(REFERENCE_MODELS, evidence, kinds)
        answer = reference_test(
            said.log_odds[places],
            said.at_resolution(evidence.log_odds(*kinds))[:, places],
            evidence.members(*kinds)[:, places],
            n,
            unseen=None if said.unseen is None else said.unseen[places],
            level=level,
            stated=self.stated,
            recipe=better_recipe(fit, evidence.advice.recipe),
        )
        checks = (fit, reference_like_target(answer.accuracy, answer.accuracies))
        usage = answer.usage._replace(design=evidence.design)
        usage, trust, lacks = limited(usage, said, evidence, kinds, said.unseen)
        lacks = (*few_models(evidence, kinds), *lacks)
        if usage.doubts:
            # What is taken off for a reference that was used is missing from the fraction.
            usage, trust = without_fraction(usage, ()), none_because("; ".join(usage.doubts))

        def judged(usage: Usage) -> Judgement:
            return self.decide(usage, checks, evidence.advice, trust, lacks)._replace(again=judged)

        return judged(usage)

    def decide(
        self,
        usage: Usage,
        checks: tuple[Check, ...],
        advice: Advice = TRAINED,
        trust: Confidence = TRUSTED,
        lacks: Sequence[Lack] = (),
    ) -> Judgement:
        """What its numbers say."""
        recipe = next((better_recipe(check, advice.recipe) for check in checks if check.name == REFERENCE_MODELS), "")
        more = f"Give more query records, or {advice.holdout}."
        return by_rank(self, usage, checks, NEEDS, recipe, more, trust, lacks)
