"""The reference test as a test of `ks`: see `jaxaudit.metrics.reference`. It uses the shadow test's models."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.tests.shadow import ROLES, ShadowTest
from jaxaudit.audits.ks.tests.test import Judgement, of_use
from jaxaudit.metrics.checks import (
    CALIBRATION_LIKE_QUERY,
    REFERENCE_LIKE_TARGET,
    SHADOW_MODELS,
    TARGET_OUTPUTS,
    Check,
    better_recipe,
    models_of_test,
    reference_like_target,
)
from jaxaudit.metrics.reference import reference_test
from jaxaudit.metrics.usage import Usage

NEEDS = frozenset({CALIBRATION_LIKE_QUERY, REFERENCE_LIKE_TARGET, SHADOW_MODELS, TARGET_OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class ReferenceTest(ShadowTest):
    """Do the target's outputs differ between the query set and the calibration set more than those of shadow models?

    It needs the target's outputs on the calibration set, of which the target is known to have used nothing.
    """

    name: ClassVar[str] = "reference"
    title: ClassVar[str] = "reference test"
    assumes: ClassVar[str] = (
        "Reference test: all numbers assume that the target used no calibration record, and that its other data are "
        "like the calibration set. Training on other records of the query set's provider looks like use of the query "
        "set. Only a holdout (--holdout) excludes that."
    )

    def judge(
        self, key: Key[Array, ""], said: Said, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        pool, n = evidence.pool, evidence.queries
        places = [*range(n), *range(evidence.dealt.stop, len(pool.asked))]
        own = np.concatenate([evidence.trained[role].own_accuracy for role in ROLES])
        fit = models_of_test(SHADOW_MODELS, own, evidence.min_accuracy)
        answer = reference_test(
            said.log_odds[places],
            said.at_resolution(evidence.log_odds(*ROLES))[:, places],
            evidence.members(*ROLES)[:, places],
            n,
            unseen=None if said.unseen is None else said.unseen[places],
            level=level,
            stated=self.stated,
            recipe=better_recipe(fit),
        )
        like = reference_like_target(answer.accuracy, answer.accuracies)
        return self.decide(answer.usage._replace(design=evidence.design), (fit, like))

    def decide(self, usage: Usage, checks: tuple[Check, ...]) -> Judgement:
        """What its numbers say."""
        recipe = next((better_recipe(check) for check in checks if check.name == SHADOW_MODELS), "")
        more = "Give more query records, or use a holdout (--holdout)."
        more = f"Improve the shadow models: {recipe}. {more}" if recipe else more
        return Judgement(self.name, self.title, of_use(self, usage, more), NEEDS, checks, usage)
