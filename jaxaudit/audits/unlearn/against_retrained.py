"""Compares a method's models with retrained ones: the rank of each score, the unlearning challenge's score, U-LiRA.

Models of one seed share initial weights before and after forgetting. So the challenge's score and U-LiRA compare a
method's models of one half of the seeds with retrained models of the other half: all methods with the same ones, and
retrained and original models in the same way. F of a perfect method is about 0.2 and an epsilon depends on the number
of models, so a number without these two rows cannot be read. Attacks are those of the published code, with every
threshold that makes a difference in place of a grid.
"""

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.audits.unlearn.evaluate import median
from jaxaudit.audits.unlearn.result import (
    COMPARED,
    LEAST_SEEDS,
    LEVEL,
    OF_TEXTS,
    RETRAINING,
    UNTRAINED,
    MethodResult,
    MethodScores,
    Protocol,
    Score,
    ScoreSpread,
    Tofu,
)
from jaxaudit.json_types import number
from jaxaudit.metrics import Answers, ChallengeScore, Place, ULira, challenge_score, place, u_lira
from jaxaudit.metrics.forgetting_quality import forget_quality, mia_auc, privleak
from jaxaudit.metrics.over_models import least_p_value
from jaxaudit.metrics.usage import ALPHA
from jaxaudit.randomness import stream


def threshold_of(of_texts: bool) -> float:
    """The threshold of the audit's p-values, corrected for the scores that methods are compared by."""
    return ALPHA / len(OF_TEXTS if of_texts else COMPARED)


def protocol_of(
    forgotten_records: int,
    training_records: int,
    test_records: int,
    attack_nonmembers: int,
    seeds: int,
    of_texts: bool = False,
) -> Protocol:
    threshold = threshold_of(of_texts)
    return Protocol(
        training_records=training_records,
        forgotten_records=forgotten_records,
        test_records=test_records,
        attack_nonmembers=attack_nonmembers,
        seeds=seeds,
        level=LEVEL,
        p_value_threshold=threshold,
        enough_seeds=least_p_value(seeds) <= threshold,
        members_share=training_records / (training_records + attack_nonmembers) if attack_nonmembers else None,
    )


class MethodOutputs(NamedTuple):
    """What a method's models say of records: log-odds, of texts the mean log-likelihood, which alone have columns in
    `on_test`; no columns in `truth_ratios` without other answers.
    """

    log_odds: Float[np.ndarray, "seeds forgotten"]
    on_test: Float[np.ndarray, "seeds tested"]
    truth_ratios: Float[np.ndarray, "seeds asked"]


class Distinguishability(NamedTuple):
    """How well a method's models can be distinguished from retrained models."""

    challenge: ChallengeScore
    u_lira: ULira
    tofu: Tofu | None = None


def distinguishability(
    key: Key[Array, ""],
    outputs: Mapping[str, MethodOutputs],
    scores: Mapping[str, MethodScores],
) -> dict[str, Distinguishability]:
    """Compares a method's models of the first half of the seeds with retrained models of the other half; untrained
    models are not compared, and none if there are too few seeds. `retraining` shows the best possible value, `original`
    the value without forgetting.
    """
    half = len(outputs[RETRAINING].log_odds) // 2
    if 2 * half < LEAST_SEEDS:
        return {}

    def answers(name: str, seeds: slice) -> Answers:
        odds = outputs[name].log_odds
        none = np.full(len(odds), np.nan)
        accuracies = (scores[name].remaining_accuracy, scores[name].test_accuracy)
        return Answers(
            odds[seeds], *((none if accuracy is None else _values(accuracy))[seeds] for accuracy in accuracies)
        )

    retrained = answers(RETRAINING, slice(half, None))
    return {
        name: Distinguishability(
            *challenge_and_u_lira(key, name, answers(name, slice(half)), retrained),
            _tofu(outputs[name], outputs[RETRAINING], half),
        )
        for name in outputs
        if name != UNTRAINED
    }


def challenge_and_u_lira(
    key: Key[Array, ""], name: str, method: Answers, retrained: Answers
) -> tuple[ChallengeScore, ULira]:
    """The challenge's score and U-LiRA of a method's models, against retrained ones; each `name` has bootstraps of its
    own.
    """
    challenge, lira = (stream(key, purpose, name, 0) for purpose in ("challenge", "u-lira"))
    return (
        challenge_score(challenge, method, retrained),
        u_lira(lira, method.log_odds, retrained.log_odds),
    )


def _tofu(method_outputs: MethodOutputs, retrained_outputs: MethodOutputs, half: int) -> Tofu | None:
    """The numbers of the models of the first half of the seeds, each with each retrained model of the other half."""
    if not method_outputs.on_test.shape[1]:
        return None
    areas, retrained = (
        [mia_auc(-forgotten, -test) for forgotten, test in zip(side.log_odds, side.on_test, strict=True)]
        for side in (method_outputs, retrained_outputs)
    )
    leaks = [privleak(*pair) for pair in product(areas[:half], retrained[half:])]
    question_count = method_outputs.truth_ratios.shape[1]
    pairs = product(method_outputs.truth_ratios[:half], retrained_outputs.truth_ratios[half:])
    quality = float(np.median([forget_quality(*pair) for pair in pairs])) if question_count else np.nan
    return Tofu(number(quality), number(np.median(leaks)))


def compare_with_retrained(
    protocol: Protocol,
    scores: Mapping[str, MethodScores],
    layers: Mapping[str, Mapping[str, Float[np.ndarray, " seeds"]]],
    distinguished: Mapping[str, Distinguishability],
) -> tuple[MethodResult, ...]:
    """Every method compared with retrained models, without conclusions; `layers` is the information of each layer about
    the records to forget, for each seed.
    """

    def places(name: str) -> dict[Score, Place]:
        places: dict[Score, Place] = {}
        for measure in dict.fromkeys((*COMPARED, *OF_TEXTS)):
            method_scores, retrained_scores = (getattr(scores[of], measure) for of in (name, RETRAINING))
            if method_scores is not None and retrained_scores is not None:
                places[measure] = place(_values(method_scores), _values(retrained_scores), protocol.p_value_threshold)
        return places

    def one(name: str) -> MethodResult:
        comparison = distinguished.get(name)
        return MethodResult(
            name,
            scores[name],
            {} if name == RETRAINING else places(name),
            finding=None,
            challenge=comparison and comparison.challenge,
            u_lira=comparison and comparison.u_lira.accuracy,
            layers={layer: median(values) for layer, values in layers[name].items()},
            tofu=comparison and comparison.tofu,
        )

    return tuple(map(one, scores))


def _values(spread: ScoreSpread) -> Float[np.ndarray, " seeds"]:
    """The score of each seed."""
    return np.array(spread.values, np.float64)
