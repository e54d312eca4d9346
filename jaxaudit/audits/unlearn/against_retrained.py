"""Compares a method's models with retrained ones: the rank of each score, the unlearning challenge's score, U-LiRA.

Models of one seed share initial weights before and after forgetting. So the challenge's score and U-LiRA compare a
method's models of one half of the seeds with retrained models of the other half: all methods with the same ones, and
retrained and original models in the same way. F of a perfect method is about 0.2 and an epsilon depends on the number
of models, so a number without these two rows cannot be read. Attacks are those of the published code, with every
threshold that makes a difference in place of a grid.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.audits.unlearn.evaluate import median
from jaxaudit.audits.unlearn.result import (
    COMPARED,
    LEAST_SEEDS,
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
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.forgetting_quality import forget_quality, mia_auc, privleak
from jaxaudit.metrics.over_models import least_p_value
from jaxaudit.randomness import stream


def threshold_of(sets: int, of_texts: bool) -> float:
    """The threshold of the audit's p-values, corrected for the scores that methods are compared by and for the sets."""
    return ALPHA / (len(OF_TEXTS if of_texts else COMPARED) * sets)


def protocol_of(
    forgotten_records: int,
    sets: int,
    training_records: int,
    test_records: int,
    attack_nonmembers: int,
    seeds: int,
    level: float,
    of_texts: bool = False,
) -> Protocol:
    """The `Protocol` for one set to forget, with the threshold of its tests, corrected for several scores and sets."""
    threshold = threshold_of(sets, of_texts)
    return Protocol(
        training_records=training_records,
        forgotten_records=forgotten_records,
        test_records=test_records,
        attack_nonmembers=attack_nonmembers,
        seeds=seeds,
        level=level,
        p_value_threshold=threshold,
        enough_seeds=least_p_value(seeds) <= threshold,
        members_share=training_records / (training_records + attack_nonmembers) if attack_nonmembers else None,
        seeds_to_compare=LEAST_SEEDS,
    )


class MethodOutputs(NamedTuple):
    """What a method's models say of records, for one set to forget: log-odds, of texts the mean log-likelihood, which
    alone have columns in `on_test`; no columns in `truth_ratios` without other answers.
    """

    log_odds: Float[np.ndarray, "seeds forgotten"]
    on_test: Float[np.ndarray, "seeds tested"]
    truth_ratios: Float[np.ndarray, "seeds asked"]


class Distinguishability(NamedTuple):
    """How well a method's models can be distinguished from retrained models, for one set to forget."""

    challenge: ChallengeScore
    u_lira: ULira
    tofu: Tofu | None = None


def distinguishability(
    key: Key[Array, ""],
    outputs: Mapping[str, Sequence[MethodOutputs]],
    scores: Mapping[str, Sequence[MethodScores]],
    level: float,
) -> dict[str, tuple[Distinguishability, ...]]:
    """Compares a method's models of the first half of the seeds with retrained models of the other half, by set;
    untrained models are not compared, and none if there are too few seeds. `retraining` shows the best possible value,
    `original` the value without forgetting.
    """
    half = len(outputs[RETRAINING][0].log_odds) // 2
    if 2 * half < LEAST_SEEDS:
        return dict.fromkeys(outputs, ())

    def answers(name: str, index: int, seeds: slice) -> Answers:
        of_set = scores[name][index]
        odds = outputs[name][index].log_odds
        none = np.full(len(odds), np.nan)
        accuracies = (of_set.remaining_accuracy, of_set.test_accuracy)
        return Answers(
            odds[seeds], *((none if accuracy is None else _values(accuracy))[seeds] for accuracy in accuracies)
        )

    def of_set(name: str, index: int) -> Distinguishability:
        method_answers, retrained_answers = (
            answers(name, index, slice(half)),
            answers(RETRAINING, index, slice(half, None)),
        )
        return Distinguishability(
            *challenge_and_u_lira(key, name, index, method_answers, retrained_answers, level),
            _tofu(outputs[name][index], outputs[RETRAINING][index], half),
        )

    return {
        name: () if name == UNTRAINED else tuple(of_set(name, index) for index in range(len(outputs[name])))
        for name in outputs
    }


def challenge_and_u_lira(
    key: Key[Array, ""], name: str, index: int, method: Answers, retrained: Answers, level: float
) -> tuple[ChallengeScore, ULira]:
    """The unlearning challenge's score and U-LiRA of a method's models, against retrained models. Method and set, by
    `name` and `index`, have bootstraps of their own.
    """
    challenge, lira = (stream(key, purpose, name, index) for purpose in ("challenge", "u-lira"))
    return (
        challenge_score(challenge, method, retrained, level=level),
        u_lira(lira, method.log_odds, retrained.log_odds, level=level),
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
    index: int,
    protocol: Protocol,
    scores: Mapping[str, Sequence[MethodScores]],
    layers: Mapping[str, Mapping[str, Float[np.ndarray, "sets seeds"]]],
    distinguished: Mapping[str, tuple[Distinguishability, ...]],
) -> tuple[MethodResult, ...]:
    """Every method compared with retrained models, for the set of this index, without conclusions. `layers` is the
    information of each layer about each set's records, for each seed; `distinguished` is empty if unmeasured.
    """

    def places(name: str) -> dict[Score, Place]:
        places: dict[Score, Place] = {}
        for measure in dict.fromkeys((*COMPARED, *OF_TEXTS)):
            method_scores, retrained_scores = (getattr(scores[of][index], measure) for of in (name, RETRAINING))
            if method_scores is not None and retrained_scores is not None:
                places[measure] = place(_values(method_scores), _values(retrained_scores), protocol.p_value_threshold)
        return places

    def one(name: str) -> MethodResult:
        distinguished_set = distinguished[name][index] if distinguished[name] else None
        return MethodResult(
            name,
            scores[name][index],
            {} if name == RETRAINING else places(name),
            finding=None,
            challenge=distinguished_set and distinguished_set.challenge,
            u_lira=distinguished_set and distinguished_set.u_lira.accuracy,
            layers={layer: median(values[index]) for layer, values in layers[name].items()},
            tofu=distinguished_set and distinguished_set.tofu,
        )

    return tuple(map(one, scores))


def _values(spread: ScoreSpread | None) -> Float[np.ndarray, " seeds"]:
    """The score of each seed; empty if it was not measured."""
    return np.array([] if spread is None else spread.values, np.float64)
