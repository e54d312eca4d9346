"""The shadow test as a test of `ks`: see `jaxaudit.metrics.shadow`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import msgspec
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence
from jaxaudit.audits.ks.evidence import Advice, Evidence, TargetOutputs
from jaxaudit.audits.ks.models import LEAST, Rows, shadow_rows
from jaxaudit.audits.ks.tests_of_use.memory import Lack, helped, known_unused, limited
from jaxaudit.audits.ks.tests_of_use.test import Judgement, KSTest, judgement_of_use
from jaxaudit.data.examples import Examples
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import CALIBRATION_LIKE_QUERY, SHADOW_MODELS, TARGET_OUTPUTS, Check, better_recipe
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.shadow import SHARE, shadow_test
from jaxaudit.metrics.usage import STATED_FRACTION, Usage, refuse_stated
from jaxaudit.shadow_models import OF_QUERY, Pool

RANKED = Confidence(
    "weak", "It is a rank among shadow models, and nobody knows whether the target is trained like them."
)


@dataclass(frozen=True, kw_only=True)
class ShadowTest(KSTest):
    """Are the target's outputs like those of models that used none, half or all of the query set?

    Each shadow model is also trained on a random share of the calibration set.

    Attributes:
        never: number of shadow models trained on none of the query set; at least 19, for a p-value of 0.05.
        half: number trained on a random half of it.
        fully: number trained on all of it; at least 19.
        stated: `forgotten` requires an upper limit of the used fraction of at most this.
        targets: number of targets judged with these models; adjusted p-values need more models.
    """

    never: int = 39
    half: int = 19
    fully: int = 19
    stated: float = STATED_FRACTION
    targets: int = 1
    name: ClassVar[str] = "shadow"
    title: ClassVar[str] = "shadow test"
    source: ClassVar[str] = "Shokri et al. 2017; Carlini et al. 2022; Fieller 1954; Satterthwaite 1946"
    errors: ClassVar[str] = (
        "If the target's design, training and other data are like those of the shadow models: a target that used none "
        "of the query set is called not forgotten in at most 5%, one that used more than the stated share forgotten in "
        "at most 5%. If they are not, it is wrong far more often: jaxaudit's documentation has the measured rates (How "
        "often is it wrong?)."
    )
    assumes: ClassVar[str] = (
        "Shadow test: all numbers assume that the target's design and training are among those of the shadow models, "
        "and that its other data are like the calibration set. Training on other records just like the query set looks "
        "like use of it, and the used fraction may be overstated. Use a holdout where you can, or outputs on the "
        "calibration set."
    )
    of_models: ClassVar[str] = SHADOW_MODELS
    needs: ClassVar[frozenset[str]] = frozenset({CALIBRATION_LIKE_QUERY, SHADOW_MODELS, TARGET_OUTPUTS})
    with_reference: ClassVar[bool] = False
    of_classes: ClassVar[bool] = True
    ranks: ClassVar[bool] = True
    shares_models: ClassVar[bool] = True
    least: ClassVar[Mapping[str, int]] = MappingProxyType({"never": LEAST, "half": 0, "fully": LEAST})

    @property
    def references(self) -> int:
        return self.never

    def training_sizes(self, sizes: Sets[int]) -> tuple[tuple[int, int], ...]:
        query, rest = sizes[Role.QUERY], round(SHARE * sizes[Role.CALIBRATION])
        return (
            (self.never, rest),
            (self.half, rest + query // 2),
            (self.fully, rest + query),
        )

    def lighter(self) -> "KSTest":
        fewest = {"never": least_models(self.targets), "half": LEAST, "fully": LEAST}
        return replace(self, **{name: min(getattr(self, name), count) for name, count in fewest.items()})

    def refuse(self, sets: Sets[Examples]) -> None:
        refuse_stated(self.stated)
        if min(self.never, self.fully) < LEAST or self.half < 0:
            raise InputError(
                f"the shadow test needs at least {LEAST} shadow models trained without the query set and as many "
                f"trained on all of it, for a p-value of 0.05; got {self.never} and {self.fully}."
            )

    def kinds(self, pool: Pool) -> tuple[str, ...]:
        return OF_QUERY

    def draw(self, key: Key[Array, ""], pool: Pool) -> Rows:
        query = np.arange(pool.query.start, pool.query.stop)
        shares = (
            (query[:0], 0, self.never),
            (query, max(1, len(query) // 2), self.half),
            (query, len(query), self.fully),
        )
        return {
            kind: shadow_rows(key, pool, kind, records, count, models, with_reference=self.with_reference)
            for kind, (records, count, models) in zip(self.kinds(pool), shares, strict=True)
        }

    def judge(
        self, key: Key[Array, ""], outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...], level: float
    ) -> Judgement:
        n, fit = evidence.queries, evidence.fit(self.of_models, *self.kinds(evidence.pool))
        usage = shadow_test(
            outputs.log_odds[:n],
            outputs.at_resolution(evidence.log_odds(*OF_QUERY))[:, :n],
            evidence.members(*OF_QUERY)[:, :n],
            evidence.design_of(*OF_QUERY),
            share=SHARE,
            level=level,
            stated=self.stated,
            recipe=better_recipe(fit, evidence.advice.recipe),
        )
        usage = msgspec.structs.replace(usage, design=evidence.design)
        usage, trust, lacks = limited(usage, outputs, evidence, OF_QUERY, known_unused(outputs, evidence))
        return self._decide_by(evidence, usage, (fit,), trust, lacks)

    def _decide_by(
        self, evidence: Evidence, usage: Usage, checks: tuple[Check, ...], trust: Confidence, lacks: tuple[Lack, ...]
    ) -> Judgement:
        """The judgement that follows from these numbers; the p-value assumes a target like the shadow models, too."""
        advice, targets, models = evidence.advice, evidence.targets, evidence.count(self.kinds(evidence.pool)[0])
        least = least_models(targets)
        if models < least:
            # No rank among these models gives a p-value of 0.05.
            few = Lack(
                f"Add shadow models: at least {least} without the query set for {targets} targets; "
                f"{advice.more_models}",
                f"{models} shadow models without the query set give p-values of at least {targets / (1 + models):.2g}, "
                f"adjusted for {targets} targets: no use could be detected",
            )
            lacks = (few, *lacks)
        recipe = next((better_recipe(check, advice.recipe) for check in checks if check.name == self.of_models), "")
        more = f"Improve the shadow models: {recipe}. {self._more(advice)}" if recipe else self._more(advice)
        return judgement_of_use(
            self,
            usage,
            checks,
            needs=self.needs,
            of_p=self.needs,
            p_trust=RANKED if trust.word == "none" else trust,
            trust=trust,
            more=helped(lacks, more),
            lacks=lacks,
        )

    def _more(self, advice: Advice) -> str:
        """What would change an inconclusive verdict, apart from what is lacking."""
        return (
            f"Give the target's outputs on data that it did not use, too: {advice.unused}. Or {advice.holdout}: that "
            "test does not depend on how the target was trained."
        )


TEST = ShadowTest


def least_models(targets: int) -> int:
    """The fewest models without the query set that allow a p-value of 0.05, adjusted for this many targets.

    >>> least_models(1), least_models(3)
    (19, 59)
    """
    return max(LEAST, round(targets / ALPHA) - 1)
