"""The reference test as a test of `ks`: see `jaxaudit.metrics.reference`.

With a separate reference, its models are others than those of the shadow test, whose numbers so do not change.

A reference is a part of the pool. It is the calibration set unless another is given, and everything that compares
outputs on it asks the pool where it is. The test must know each record in and out of training, so its models are
trained on a share of a reference of its own as they are on one of the calibration set. They are then models of their
own: no number of another test moves. A reference must be like the target's other data, which accuracies on it show; it
need not be like the query set, so no check compares these two. Records that it shares with another set are dropped from
it alone.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Array, Key
from msgspec.structs import replace

from jaxaudit.audits.finding import no_confidence
from jaxaudit.audits.ks.evidence import Advice, Evidence, TargetOutputs
from jaxaudit.audits.ks.tests_of_use.memory import limited
from jaxaudit.audits.ks.tests_of_use.shadow import ShadowTest
from jaxaudit.audits.ks.tests_of_use.test import Judgement
from jaxaudit.data.roles import Role, Sets
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
from jaxaudit.metrics.usage import without_fraction
from jaxaudit.shadow_models import OF_QUERY, OF_REFERENCE, Pool


@dataclass(frozen=True, kw_only=True)
class ReferenceTest(ShadowTest):
    """Do the target's outputs differ between query set and reference more than those of shadow models?

    The test needs the target's outputs on the reference (known non-members): the calibration set, or a separate set.
    Each shadow model is then also trained on a random share of that set.
    """

    name: ClassVar[str] = "reference"
    title: ClassVar[str] = "reference test"
    assumes: ClassVar[str] = (
        "Reference test: all numbers assume that the target used no record of the reference (the calibration set, "
        "unless another is given), and that its other data are like it. Training on other records of the "
        "query set's provider looks like use of the query set. Only a holdout excludes that."
    )
    of_models: ClassVar[str] = REFERENCE_MODELS
    needs: ClassVar[frozenset[str]] = frozenset(
        {CALIBRATION_LIKE_QUERY, REFERENCE_LIKE_TARGET, REFERENCE_MODELS, TARGET_OUTPUTS}
    )
    with_reference: ClassVar[bool] = True
    roles: ClassVar[frozenset[Role]] = frozenset({Role.REFERENCE})

    def training_sizes(self, sizes: Sets[int]) -> tuple[tuple[int, int], ...]:
        calibration = sizes[Role.CALIBRATION] + sizes.get(Role.REFERENCE, 0)
        return super().training_sizes(Sets(query=sizes[Role.QUERY], calibration=calibration))

    def kinds(self, pool: Pool) -> tuple[str, ...]:
        return OF_REFERENCE if pool.reference_apart else OF_QUERY

    def judge(
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        n, kinds = evidence.queries, self.kinds(evidence.pool)
        fit = evidence.fit(self.of_models, *kinds)
        indices = [*range(n), *range(evidence.referred.start, evidence.referred.stop)]
        answer = reference_test(
            outputs.log_odds[indices],
            outputs.at_resolution(evidence.log_odds(*kinds))[:, indices],
            evidence.members(*kinds)[:, indices],
            n,
            unseen=None if outputs.unseen is None else outputs.unseen[indices],
            level=level,
            stated=self.stated,
            recipe=better_recipe(fit, evidence.advice.recipe),
        )
        checks = (fit, reference_like_target(answer.accuracy, answer.accuracies))
        usage = replace(answer.usage, design=evidence.design)
        usage, trust, lacks = limited(usage, outputs, evidence, kinds, outputs.unseen)
        if usage.doubts:
            # The correction for a reference that was used is missing from the fraction.
            usage, trust = without_fraction(usage, ()), no_confidence("; ".join(usage.doubts))
        return self._decide_by(evidence, usage, checks, trust, lacks)

    def _more(self, advice: Advice) -> str:
        return f"Give more query records, or {advice.holdout}."


TEST = ReferenceTest
