"""Judges targets by models that are there: the half of the `ks` audit that trains nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.evidence import Evidence, Said, of_rho
from jaxaudit.audits.ks.models import CALIBRATION, QUERY
from jaxaudit.audits.ks.result import KSAudit, Resembles, conclude
from jaxaudit.audits.ks.several import adjusted
from jaxaudit.audits.ks.tests import Judgement, KSTest
from jaxaudit.audits.ks.tests.holdout import ROLE
from jaxaudit.audits.ks.tests.memory import reduced_words
from jaxaudit.audits.ks.tests.shadow import ROLES, WITHOUT
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor
from jaxaudit.metrics.resemblance import LEAST, resemblance

WITHOUT_QUERY = {CALIBRATION: "calibration models", WITHOUT: "shadow models without query records"}
"""Roles of models that know the calibration set only: the first there is shows whether it is like the query set."""
SHARED = (preflight.SHADOW_ACCURACY, preflight.CALIBRATION_LIKE_QUERY)
"""Checks of several tests that need models."""


def judge_targets(
    key: Key[Array, ""], evidence: Evidence, heard: Sequence[Said], tests: Sequence[KSTest], *, level: float = 0.95
) -> KSAudit:
    """What the tests conclude of each target, from outputs of models that were trained before.

    The models may be anybody's. Those of rho need not be among them: then `RhoTest` and `EMATest` cannot be made, the
    targets have no rho, and whether the calibration set is like the query set is measured on the shadow models that
    were trained without the query set. A check that a verdict rests on and that no model allows is a warning.

    Args:
        key: random key of the audit; every test uses the stream of its name.
        evidence: outputs and training sets of the models.
        heard: outputs of each target.
        tests: the tests to make, at least one, the deciding one first.
        level: confidence level of the intervals that are shown; no verdict depends on it.

    Returns:
        One result per target, in their order. `models_per_batch` and `shadow_log_odds` are left to who trained.

    Raises:
        InputError: a test needs models that are not there.
    """
    evidence = replace(evidence, targets=len(heard))
    common = _common_checks(evidence)
    judged = adjusted(
        [
            tuple(
                test.judge(key, said, evidence, (*common, *said.checks), level)._replace(
                    source=getattr(test, "source", "")
                )
                for test in tests
            )
            for said in heard
        ],
    )
    limitations = evidence.limitations
    if evidence.reduced:
        why = reduced_words(evidence)
        limitations = (f"{why[:1].upper()}{why[1:]}.", *limitations)
    alike = [resembling(evidence, said) for said in heard]
    query, calibration, controls = of_rho(evidence.trained, lambda each: each.confidences, evidence.queries)
    return KSAudit(
        targets=tuple(
            replace(
                conclude(
                    said.name,
                    said.truth,
                    said.compared.confidences,
                    judgements,
                    (*common, *_not_measured(judgements, common), *said.checks),
                    limitations,
                ),
                resembles=design,
            )
            for said, judgements, design in zip(heard, judged, alike, strict=True)
        ),
        noise_floor=noise_floor(query),
        query_confidences=query,
        calibration_confidences=calibration,
        control_confidences=controls,
        labels=evidence.query.labels,
        level=level,
    )


def resembling(evidence: Evidence, said: Said) -> Resembles | None:
    """The design of shadow models that a target is most like, on records that it did not use: holdout, or reference."""
    roles = (ROLE,) if evidence.has(ROLE) else ROLES
    places = np.zeros(len(said.log_odds), bool)
    if roles == (ROLE,):
        places[evidence.queries : evidence.dealt.stop] = True
    elif said.unseen is not None:
        places = said.unseen
    places = places[: evidence.trained[roles[0]].log_odds.shape[1]] if roles[0] in evidence.trained else places
    if not places.any() or len(evidence.design_names) < 2 or not all(role in evidence.trained for role in roles):
        return None
    designs = evidence.design_of(*roles)
    if len(places) < evidence.trained[roles[0]].log_odds.shape[1] or np.bincount(designs).min() < LEAST:
        return None
    found = resemblance(
        said.log_odds[: len(places)][places],
        said.at_resolution(evidence.log_odds(*roles))[:, places],
        evidence.members(*roles)[:, : len(places)][:, places],
        designs,
    )
    return Resembles(evidence.design_names[found.design], found.recognised)


def _common_checks(evidence: Evidence) -> tuple[Check, ...]:
    """The checks that are the same for every target and test, of those that the models allow."""
    trained, query = evidence.trained, evidence.query
    own = [trained[role].own_accuracy for role in (QUERY, CALIBRATION) if evidence.has(role)]
    known = next((role for role in WITHOUT_QUERY if evidence.has(role)), None)
    checks = [preflight.shadow_accuracy(np.concatenate(own), evidence.min_accuracy)] if own else []
    if known is not None:
        accuracy = trained[known].query_accuracy
        checks.append(preflight.calibration_reach(accuracy, query.labels, whose=WITHOUT_QUERY[known]))
    others = evidence.calibration_labels
    if len(others):
        checks.append(preflight.class_coverage(query.labels, others, query.class_names))
    return tuple(checks)


def _not_measured(judgements: Sequence[Judgement], common: Sequence[Check]) -> tuple[Check, ...]:
    """The shared checks that a verdict rests on and that were not made."""
    needed = {name for judgement in judgements for name in judgement.rests_on}
    made = {check.name for check in common}
    return tuple(preflight.not_measured(name) for name in SHARED if name in needed - made)
