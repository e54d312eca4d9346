"""rho, a ratio of two KS distances, as a test of `ks`: algorithm 1 of Liu & Tsaftaris (2020) over replicates.

A target is one model, and stands in every replicate against another pair of shadow models. The interval of rho is
Student's t over replicates, its variance the replicates' plus the paired bootstrap's over query records. The paper does
not have the *positive control*: a model trained on both sets must come out as `not forgotten` before any target is
called `forgotten`. On real digits it often does not (`experiments/results`), and then the paper's rule says `forgotten`
of targets that used everything.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Confidence, Finding, undecided
from jaxaudit.audits.finding import sentence as capital
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs, of_rho, own_log_odds
from jaxaudit.audits.ks.models import Rows, generators, share_row
from jaxaudit.audits.ks.result import RhoDetails
from jaxaudit.audits.ks.tests_of_use.test import (
    NOT_KNOWN,
    TONES,
    TRUSTED,
    Judgement,
    KSTest,
    Lack,
    TrainingSizes,
    helped,
    recipe_of,
)
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.outputs.outputs import match_logits, match_precision
from jaxaudit.errors import InputError
from jaxaudit.membership import only
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.arrays import Integers, OneKey
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Rho, deciding, noise_floor, paper_rule, rho, verdict
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import Kind, Pool, ShadowModels

LEAST_REPLICATES = 2
OWN = frozenset(
    {
        preflight.DISTANCES_APART,
        preflight.QUERY_SIZE,
        preflight.TIED_CONFIDENCES,
        preflight.POSITIVE_CONTROL,
    }
)


@dataclass(frozen=True, kw_only=True)
class RhoTest(KSTest):
    """Is the target nearer to models trained on the query set than models that were not trained on it?

    Attributes:
        replicates: pairs of a query and a calibration model, each with its own seed; at least 2 for an interval.
        controls: positive controls, trained on both sets. Their verdict must be `not forgotten` before any target is
            called `forgotten`; with 0 controls this check fails.
        subsample: share of the calibration set on which each replicate's calibration model is trained, drawn anew for
            each replicate, so that the interval includes the choice of records. The paper uses 1.
    """

    replicates: int = 5
    controls: int = 1
    subsample: float = 0.9
    name = "rho"
    title = "rho"
    source = "Liu & Tsaftaris 2020; Smirnov 1939; Efron 1979"
    errors = "No error rate of rho is known in advance; its interval is over replicates and records."
    assumes = (
        "rho: `forgotten` is not a proof. Use of a tenth of the query set can go undetected, and a target trained on "
        "data just like the calibration set has a rho around 1. Training on other data like the query set looks like "
        "use."
    )

    of_classes = True
    of_guess = True

    def training_sizes(self, sizes: Sets[int]) -> TrainingSizes:
        query, calibration = sizes[Role.QUERY], sizes[Role.CALIBRATION]
        return (
            (self.replicates, query),
            (self.replicates, round(self.subsample * calibration)),
            (self.controls, query + calibration),
        )

    def lighter(self) -> "KSTest":
        return replace(self, replicates=min(self.replicates, LEAST_REPLICATES))

    def refuse(self, sets: Sets[Examples]) -> None:
        if self.replicates < 1 or not 0 < self.subsample <= 1 or self.controls < 0:
            raise InputError(
                f"replicates must be at least 1 (got {self.replicates}), controls at least 0 (got {self.controls}), "
                f"subsample above 0 and at most 1 (got {self.subsample:g})."
            )

    def draw(self, key: OneKey, pool: Pool) -> Rows:
        calibrations = generators(key, Kind.CALIBRATION, self.replicates)
        query, both_sets = (
            only(np.r_[records], len(pool.examples)) for records in (pool.query, (pool.query, pool.calibration))
        )
        return {
            Kind.QUERY: np.repeat(query, self.replicates, axis=0),
            Kind.CALIBRATION: np.concatenate(
                [share_row(generator, pool, pool.calibration, self.subsample) for generator in calibrations]
            ),
            Kind.BOTH: np.repeat(both_sets, self.controls, axis=0),
        }

    def judge(self, key: OneKey, outputs: TargetOutputs, evidence: Evidence, common: tuple[Check, ...]) -> Judgement:
        if not (evidence.count(Kind.QUERY) and evidence.count(Kind.CALIBRATION)):
            raise InputError(
                "rho compares models trained on only the query set with models trained on only the calibration set, "
                "and there are none: leave out RhoTest()."
            )
        rho_key, labels = stream(key, "rho"), evidence.pool.examples.labels[evidence.pool.query]
        query, calibration, of_controls, target = samples_of_rho(outputs, labels, evidence.models)
        ratio = rho(rho_key, query, calibration, target)
        controls = tuple(
            rho(jax.random.fold_in(rho_key, index), query, calibration, row[None])
            for index, row in enumerate(of_controls)
        )
        apart = np.array(ratio.calibration_distances)
        everyone = np.concatenate([query, calibration, target])
        checks = (
            preflight.distances_apart(apart, noise_floor(query)),
            preflight.query_size(evidence.queries, apart),
            preflight.tied_confidences(everyone, printed=outputs.printed),
            preflight.positive_control(controls),
        )
        _, trust, lacks = recipe_of(outputs, evidence)
        return self.decide(ratio, controls, checks, common, trust, lacks=lacks, targets=evidence.targets)

    def decide(
        self,
        ratio: Rho,
        controls: tuple[Rho, ...],
        checks: tuple[Check, ...],
        common: tuple[Check, ...],
        trust: Confidence = TRUSTED,
        *,
        lacks: Sequence[Lack] = (),
        targets: int = 1,
    ) -> Judgement:
        """The judgement that follows from rho of the target and of the positive controls. Only rho's own `checks` and
        those that all tests share (`common`) affect it; unless `lacks`, which says why its models may not have the
        target's recipe, is empty, no target is called `forgotten`. `targets` sets the level of the interval.
        """
        rests_on = OWN | {check.name for check in common}
        # A failed positive control prevents `forgotten`, and no other verdict.
        missed = frozenset({preflight.POSITIVE_CONTROL} if verdict(ratio, targets) != "forgotten" else ())
        finding = self._find(ratio, targets)
        if finding.verdict == "forgotten" and lacks:
            why = "; ".join(filter(None, (NOT_KNOWN, *(reason for _, reason in lacks))))
            finding = self._open(f"rho is at or above 1, and {why}", helped(lacks, ""))
        elif finding.verdict == "forgotten" and trust != TRUSTED:
            finding = msgspec.structs.replace(finding, confidence=trust)
        return Judgement(
            self.name,
            self.title,
            finding,
            rests_on,
            weakened_by=missed,
            checks=checks,
            details=RhoDetails(ratio, controls, paper_rule(ratio.median)),
        )

    def _find(self, ratio: Rho, targets: int) -> Finding:
        """The finding that follows from the interval of rho."""
        found_verdict = verdict(ratio, targets)
        if math.isnan(ratio.low):
            reason = (
                "rho has no interval: it needs several replicates, and calibration models that differ from query models"
            )
            return self._open(reason, "Train more replicates.")
        low, high = deciding(ratio, targets)
        span = f"rho {low:.3g} to {high:.3g}"
        if found_verdict == "inconclusive":
            expected = "as expected of a target trained on data like the calibration set"
            reason = f"the interval of rho contains 1 ({span}), {expected}"
            return self._open(reason, "Give more query records, or train more replicates.")
        sentence = {
            "forgotten": f"The target does not resemble models trained on the query set ({span}, at or above 1).",
            "not forgotten": f"The target resembles models trained on the query set ({span}, below 1).",
        }[found_verdict]
        confidence = Confidence("fair", "Every check that the verdict rests on passed. No check covers everything.")
        return Finding(found_verdict, TONES[found_verdict], sentence, (span,), confidence, caveats=(self.assumes,))

    def _open(self, reason: str, more: str) -> Finding:
        sentence = f"rho does not determine whether the query set was used: {reason}."
        return undecided(sentence, (reason,), capital(reason), (self.assumes,), (more,))


TEST = RhoTest


def samples_of_rho(
    outputs: TargetOutputs, labels: Integers, models: ShadowModels
) -> tuple[Float[np.ndarray, "_ n"], ...]:
    """What rho compares on the query set, of query, calibration and control models and of the target, at the target's
    resolution: log-odds of each record's own class if the target's logits are known, else confidences, whose KS
    distances are the same but for rounding near 1.
    """
    file, n = outputs.file, len(labels)
    if file is not None and file.kind == "logits":
        odds = (*of_rho(models, models.log_odds[:, :n]), own_log_odds(file, labels)[None])
        return tuple(match_logits(rows, file) for rows in odds)
    confidences = of_rho(models, models.confidences[:, :n])
    if file is not None:
        confidences = (match_precision(rows, file) for rows in confidences)
    return (*confidences, outputs.confidences)
