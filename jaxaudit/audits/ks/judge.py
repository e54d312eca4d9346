"""From confidences to a verdict on one target, with the checks made on the very numbers that were compared."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.audits.ks.evidence import log_odds_of
from jaxaudit.audits.ks.models import Trained
from jaxaudit.audits.ks.result import TargetResult, Truth
from jaxaudit.data.outputs.outputs import Outputs, confidence_of, match_logits, match_precision
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Rho, Verdict, noise_floor, paper_rule, rho, verdict


class Compared(NamedTuple):
    """What is compared on the query set, all of it in one quantity and at the target's resolution.

    Confidences, or where the target's logits are known the log-odds of each record's own class: a distance between
    samples is the same of both, but for what rounding takes from confidences near 1.

    Attributes:
        query, calibration: of the shadow models, a row a replicate.
        controls: of the models trained on both sets.
        target: of the target, one row.
        confidences: the target's as probabilities, to be shown.
        printed: whether the target's file rounds probabilities.
    """

    query: Float[np.ndarray, "replicates n"]
    calibration: Float[np.ndarray, "replicates n"]
    controls: Float[np.ndarray, "controls n"]
    target: Float[np.ndarray, "1 n"]
    confidences: Float[np.ndarray, "1 n"]
    printed: bool = False


def compared_with(file: Outputs, labels: Int[np.ndarray, " n"], trained: Mapping[str, Trained]) -> Compared:
    """A file's target beside the shadow models."""
    own = confidence_of(file, labels)[None]
    models = [trained[role] for role in ("query", "calibration", "control")]
    if file.kind == "logits":
        query, calibration, controls = (match_logits(each.log_odds[:, : len(labels)], file) for each in models)
        return Compared(query, calibration, controls, match_logits(log_odds_of(file, labels)[None], file), own)
    query, calibration, controls = (match_precision(each.confidences, file) for each in models)
    own = match_precision(own, file)
    return Compared(query, calibration, controls, own, own, printed=True)


def judge(
    key: Key[Array, ""],
    name: str,
    truth: Truth | None,
    compared: Compared,
    labels: Int[np.ndarray, " n"],
    standing: tuple[Check, ...],
    level: float,
) -> TargetResult:
    """The answer for one target.

    Args:
        key: random key of the bootstrap.
        name: the target's name; `truth` what is known of it.
        compared: the confidences.
        labels: the query set's labels.
        standing: checks that do not depend on confidences.
        level: confidence level of rho's interval.
    """
    ratio = rho(key, compared.query, compared.calibration, compared.target, level=level)
    controls = tuple(
        rho(jax.random.fold_in(key, index), compared.query, compared.calibration, row[None], level=level)
        for index, row in enumerate(compared.controls)
    )
    apart = ratio.calibration_distances
    checks = (
        *standing,
        preflight.distances_apart(apart, noise_floor(compared.query)),
        preflight.query_size(len(labels), apart),
        preflight.tied_confidences(
            np.concatenate([compared.query, compared.calibration, compared.target]), printed=compared.printed
        ),
        preflight.positive_control(controls),
    )
    found, because = decide(ratio, checks)
    said = compared.confidences
    return TargetResult(name, truth, ratio, found, because, paper_rule(ratio.median), checks, controls, said)


def decide(ratio: Rho, checks: tuple[Check, ...]) -> tuple[Verdict, str]:
    """The verdict of the interval, unless a failed check takes it away, and why."""
    found = verdict(ratio)
    for check in checks:
        decides = check.decisive and (check.name != preflight.POSITIVE_CONTROL or found == "forgotten")
        if decides and not check.passed:
            return "inconclusive", f"{check.name}: {check.message}"
    if np.isnan(ratio.low):
        return found, (
            "rho has no interval: it needs more than one replicate, and calibration models that differ from the query "
            "models"
        )
    span = f"rho lies between {ratio.low:.2f} and {ratio.high:.2f}"
    if found == "forgotten":
        return found, f"{span}, at or above 1: the target is no nearer to the query models than one that never saw them"
    if found == "not forgotten":
        return found, (
            f"{span}, below 1: the target resembles models trained on the query set (training on other data much like "
            "it has the same effect, and rho cannot tell the two apart)"
        )
    return found, (
        f"{span}, which straddles 1: as expected of a target trained on data like the calibration set; more replicates "
        "or more query records narrow the interval"
    )
