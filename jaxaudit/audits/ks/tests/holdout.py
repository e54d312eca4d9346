"""The holdout test as a test of `ks`: see `jaxaudit.metrics.holdout`."""

from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.models import LEAST, Roles, shadow_rows
from jaxaudit.audits.ks.tests.test import Judgement, of_use
from jaxaudit.audits.pool import Pool
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import (
    HOLDOUT_LIKE_QUERY,
    HOLDOUT_MODELS,
    TARGET_OUTPUTS,
    Check,
    better_recipe,
    holdout_like_query,
    models_of_test,
)
from jaxaudit.metrics.exchangeability import alike
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.metrics.shadow import SHARE
from jaxaudit.metrics.usage import Usage
from jaxaudit.randomness import stream

ROLE = "mixed"
NEEDS = frozenset({HOLDOUT_LIKE_QUERY, HOLDOUT_MODELS, TARGET_OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class HoldoutTest:
    """Do the target's outputs differ between the query set and records of its provider that nobody trained on?

    Attributes:
        query_and_holdout: number of shadow models, at least 19 for a p-value of 0.05. Each is trained on as many
            records as the query set has, drawn from query set and holdout together.
    """

    query_and_holdout: int = 31
    name: ClassVar[str] = "holdout"
    title: ClassVar[str] = "holdout test"
    assumes: ClassVar[str] = (
        "Holdout test: p(unused) is exact if the provider sampled query set and holdout alike and trained on none of "
        "the holdout. The other numbers assume shadow models designed and trained like the target; where its other "
        "data differ from the calibration set, p(all used) is too small."
    )

    @property
    def references(self) -> int:
        return self.query_and_holdout

    def training_sizes(self, query: int, calibration: int) -> tuple[tuple[int, int], ...]:
        return ((self.query_and_holdout, round(SHARE * calibration) + query),)

    def lighter(self) -> "HoldoutTest":
        return replace(self, query_and_holdout=min(self.query_and_holdout, LEAST))

    def refuse(self, query: Examples, holdout: Examples | None) -> None:
        if holdout is None:
            raise InputError("the holdout test needs a holdout: records of the query set's provider (--holdout).")
        if self.query_and_holdout < LEAST:
            raise InputError(
                f"the holdout test needs at least {LEAST} shadow models for a p-value of 0.05; got "
                f"{self.query_and_holdout}."
            )

    def draw(self, key: Key[Array, ""], pool: Pool) -> Roles:
        both = np.r_[pool.query, pool.holdout]
        count = pool.query.stop - pool.query.start
        return {ROLE: shadow_rows(key, pool, ROLE, both, count, self.query_and_holdout)}

    def judge(
        self, key: Key[Array, ""], said: Said, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        n, members = evidence.queries, evidence.members(ROLE)
        fit = models_of_test(HOLDOUT_MODELS, evidence.trained[ROLE].own_accuracy, evidence.min_accuracy)
        checks = (evidence.once("dealt", lambda: _exchangeable(key, evidence)), fit)
        usage = holdout_test(
            stream(key, "holdout test"),
            said.log_odds[:n],
            said.log_odds[n:],
            said.at_resolution(evidence.trained[ROLE].log_odds),
            members,
            level=level,
            printed=said.printed,
            recipe=better_recipe(fit),
        )
        return self.decide(usage, checks, better_recipe(fit))

    def decide(self, usage: Usage, checks: tuple[Check, ...], recipe: str = "") -> Judgement:
        """What its numbers say; `recipe` is how to train better shadow models, if they fit badly."""
        more = (
            f"Improve the shadow models: {recipe}." if recipe else "Give more records: `jaxaudit power` says how many."
        )
        finding = of_use(self, usage, more)
        if finding.verdict != "not forgotten":
            return Judgement(self.name, self.title, finding, NEEDS, checks, usage)
        # Its p-value is exact whatever the models are.
        why = "The test is exact if the provider sampled query set and holdout alike."
        finding = msgspec.structs.replace(finding, confidence=Confidence("strong", why))
        return Judgement(self.name, self.title, finding, NEEDS - {HOLDOUT_MODELS}, checks, usage)


def _exchangeable(key: Key[Array, ""], evidence: Evidence) -> Check:
    """Whether there is evidence that query set and holdout were sampled differently."""
    pool, examples = evidence.pool, evidence.pool.examples
    both = np.r_[pool.query, pool.holdout]
    unseen = profile(cut(evidence.trained[ROLE].log_odds), evidence.members(ROLE)).outside
    found = alike(
        stream(key, "exchangeability"),
        examples.inputs[both],
        examples.labels[both],
        unseen,
        examples.record_hashes[both].view("S16"),
        evidence.queries,
    )
    return holdout_like_query(found)
