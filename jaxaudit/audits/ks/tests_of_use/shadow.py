"""The shadow test as a test of `ks`: see `jaxaudit.metrics.shadow`."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from jaxaudit.audits.finding import Confidence, no_confidence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs
from jaxaudit.audits.ks.models import LEAST, Rows, shadow_rows
from jaxaudit.audits.ks.tests_of_use.test import (
    Judgement,
    KSTest,
    TrainingSizes,
    helped,
    judgement_of_use,
    limited,
    of_holdout,
)
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.checks import (
    CALIBRATION_LIKE_QUERY,
    CALIBRATION_LIKE_TARGET,
    SHADOW_MODELS,
    TARGET_OUTPUTS,
    Check,
    better_recipe,
    calibration_like_target,
)
from jaxaudit.metrics.shadow import SHARE, accuracies_on_unused, shadow_test
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, without_fraction
from jaxaudit.shadow_models import OF_QUERY, Pool

NEEDS = frozenset({CALIBRATION_LIKE_QUERY, CALIBRATION_LIKE_TARGET, SHADOW_MODELS, TARGET_OUTPUTS})
RANKED = Confidence(
    "weak", "It is a rank among shadow models, and nobody knows whether the target is trained like them."
)


@dataclass(frozen=True, kw_only=True)
class ShadowTest(KSTest):
    """Are the target's outputs like those of models that used none, half or all of the query set?

    Each shadow model is also trained on a random share of the calibration set. Where the target's outputs on that set
    are known, and it used none of it, the test compares the two sets; else it judges the query set alone.

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
    name = "shadow"
    title = "shadow test"
    source = "Shokri et al. 2017; Carlini et al. 2022; Fieller 1954"
    errors = (
        "If the target's network, training and other data are like those of the shadow models: a target that used none "
        "of the query set is called not forgotten in at most 5%, one that used more than the stated share forgotten in "
        "at most 5%. If they are not, it is wrong far more often."
    )
    assumes = (
        "Shadow test: all numbers assume that the target's network and training are those of the shadow models, that "
        "its other data are like the calibration set, and that it used no calibration record whose outputs are "
        "compared. Training on other records of the query set's provider looks like use of the query set, and the used "
        "fraction may be overstated. Only a holdout excludes that."
    )
    compares_calibration = True
    of_classes = True
    least = MappingProxyType({"never": LEAST, "half": 0, "fully": LEAST})

    def training_sizes(self, sizes: Sets[int]) -> TrainingSizes:
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
        super().refuse(sets)
        if min(self.never, self.fully) < LEAST or self.half < 0:
            raise InputError(
                f"the shadow test needs at least {LEAST} shadow models trained without the query set and as many "
                f"trained on all of it, for a p-value of 0.05; got {self.never} and {self.fully}."
            )

    def refuse_targets(self, targets: int) -> None:
        least = least_models(targets)
        if self.never < least:
            # p-values are adjusted for all targets.
            raise InputError(
                f"no target could be called not forgotten: {self.never} shadow models without the query set give "
                f"p-values of at least {1 / (1 + self.never):.2g}, and {targets / (1 + self.never):.2g} adjusted for "
                f"{targets} targets. Train at least {least} of them (`never`)."
            )

    def kinds(self) -> tuple[str, ...]:
        return OF_QUERY

    def draw(self, key: OneKey, pool: Pool) -> Rows:
        query = np.arange(pool.query.start, pool.query.stop)
        shares = (
            (query[:0], 0, self.never),
            (query, max(1, len(query) // 2), self.half),
            (query, len(query), self.fully),
        )
        return {
            kind: shadow_rows(key, pool, kind, records, count, models)
            for kind, (records, count, models) in zip(self.kinds(), shares, strict=True)
        }

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        n, kinds, in_calibration = evidence.queries, self.kinds(), evidence.in_calibration
        fit = evidence.fit(SHADOW_MODELS, *kinds)
        recipe = better_recipe(fit)
        compares = evidence.pool.compares_calibration
        records = np.r_[:n, np.flatnonzero(in_calibration)]
        unseen = outputs.unseen[records] if compares else None
        compared = (
            outputs.log_odds[records],
            outputs.at_resolution(evidence.log_odds(*kinds))[:, records],
            evidence.members(*kinds)[:, records],
            n,
        )
        usage = shadow_test(*compared, unseen=unseen, stated=self.stated, recipe=recipe)
        checks = (fit,)
        if compares:
            checks = (fit, calibration_like_target(*accuracies_on_unused(*compared, unseen)))
        # Of the calibration set, or else the holdout, never both: models were trained on part of the former alone.
        known_unused = outputs.unseen if outputs.unseen.any() else of_holdout(evidence)
        usage, trust, lacks = limited(usage, outputs, evidence, kinds, known_unused)
        if usage.doubts:
            # The correction for a calibration set that was used is missing from the fraction.
            usage, trust = without_fraction(usage, ()), no_confidence("; ".join(usage.doubts))
        models, targets = evidence.count(kinds[0]), evidence.targets
        least = least_models(targets)
        if models < least:
            # No rank among these models, which used none of the query set, gives a p-value of 0.05.
            helps = f"Add shadow models: at least {least} without the query set for {targets} targets"
            reason = (
                f"{models} shadow models without the query set give p-values of at least {targets / (1 + models):.2g}, "
                f"adjusted for {targets} targets: no use could be detected"
            )
            lacks = ((helps, reason), *lacks)
        more = f"Improve the shadow models: {recipe}. {_more(evidence)}" if recipe else _more(evidence)
        return judgement_of_use(
            self,
            usage,
            checks,
            (RANKED if trust.word == "none" else trust, NEEDS),
            (trust, NEEDS),
            more=helped(lacks, more),
            lacks=lacks,
        )


TEST = ShadowTest


def _more(evidence: Evidence) -> str:
    """What would change an inconclusive verdict, apart from what is lacking."""
    if evidence.pool.compares_calibration:
        return "Give more query records, or use a holdout."
    return (
        "Give the target's outputs on the calibration set, too, if it used none of that. Or use a holdout: that test "
        "does not depend on how the target was trained."
    )


def least_models(targets: int) -> int:
    """The fewest models without the query set that allow a p-value of 0.05, adjusted for this many targets.

    >>> least_models(1), least_models(3)
    (19, 59)
    """
    return max(LEAST, round(targets / ALPHA) - 1)
