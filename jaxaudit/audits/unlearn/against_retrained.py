"""Compares a method's models with retrained ones: the rank of each score, the unlearning challenge's score, U-LiRA."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.audits.unlearn.evaluate import median
from jaxaudit.audits.unlearn.result import (
    COMPARED,
    LEAST_SEEDS,
    RETRAINING,
    UNTRAINED,
    Challenge,
    JudgedPlace,
    Method,
    Protocol,
    Score,
    Scores,
    Spread,
)
from jaxaudit.json_types import number
from jaxaudit.metrics import Answers, ChallengeScore, ULira, challenge_score, u_lira
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.retrained_band import place
from jaxaudit.randomness import stream


def protocol_of(
    forgotten_records: int,
    sets: int,
    training_records: int,
    test_records: int,
    attack_nonmembers: int,
    seeds: int,
    level: float,
) -> Protocol:
    """The protocol for one of this many sets to forget; see `Protocol`."""
    threshold = ALPHA / (len(COMPARED) * sets)
    return Protocol(
        training_records=training_records,
        forgotten_records=forgotten_records,
        test_records=test_records,
        attack_nonmembers=attack_nonmembers,
        seeds=seeds,
        level=level,
        p_value_threshold=threshold,
        enough_seeds=2.0 ** (1 - seeds) <= threshold,
        members_share=training_records / (training_records + attack_nonmembers) if attack_nonmembers else None,
        seeds_to_compare=LEAST_SEEDS,
    )


class Distinguishability(NamedTuple):
    """How well a method's models can be distinguished from retrained models, for one set to forget."""

    challenge: ChallengeScore
    u_lira: ULira


def distinguishability(
    key: Key[Array, ""],
    log_odds: Mapping[str, Sequence[Float[np.ndarray, "seeds _"]]],
    scores: Mapping[str, Sequence[Scores]],
    level: float,
) -> dict[str, tuple[Distinguishability, ...]]:
    """Compares a method's models of the first half of the seeds with retrained models of the other half, by set.

    So no two compared models share a seed, and all methods are compared with the same retrained models. `retraining`
    shows the best possible value, `original` the value without forgetting. Untrained models are not compared, and no
    models are if there are too few seeds.

    Args:
        key: random key of the bootstraps.
        log_odds: of the records to forget, by name of the method, for each set.
        scores: the same for accuracies.
        level: confidence level of the intervals.
    """
    half = len(log_odds[RETRAINING][0]) // 2
    if 2 * half < LEAST_SEEDS:
        return dict.fromkeys(log_odds, ())

    def answers(name: str, index: int, seeds: slice) -> Answers:
        of_set = scores[name][index]
        accuracies = (_values(each)[seeds] for each in (of_set.remaining_accuracy, of_set.test_accuracy))
        return Answers(log_odds[name][index][seeds], *accuracies)

    def of_set(name: str, index: int) -> Distinguishability:
        mine, theirs = answers(name, index, slice(half)), answers(RETRAINING, index, slice(half, None))
        challenge, lira = (stream(key, purpose, name, index) for purpose in ("challenge", "u-lira"))
        return Distinguishability(
            challenge_score(challenge, mine, theirs, level=level),
            u_lira(lira, mine.log_odds, theirs.log_odds, level=level),
        )

    return {
        name: () if name == UNTRAINED else tuple(of_set(name, index) for index in range(len(log_odds[name])))
        for name in log_odds
    }


def compared(
    index: int,
    protocol: Protocol,
    scores: Mapping[str, Sequence[Scores]],
    layers: Mapping[str, Mapping[str, Float[np.ndarray, "sets seeds"]]],
    distinguished: Mapping[str, tuple[Distinguishability, ...]],
) -> tuple[Method, ...]:
    """Every method compared with retrained models, for one set to forget, without conclusions."""

    def places(name: str) -> dict[Score, JudgedPlace]:
        found: dict[Score, JudgedPlace] = {}
        for each in COMPARED:
            mine, theirs = (getattr(scores[of][index], each) for of in (name, RETRAINING))
            if mine is not None and theirs is not None:
                found[each] = _place(_values(mine), _values(theirs), protocol)
        return found

    def one(name: str) -> Method:
        found = distinguished[name][index] if distinguished[name] else None
        return Method(
            name,
            scores[name][index],
            {} if name == RETRAINING else places(name),
            None,
            None,
            found and _challenge(found.challenge),
            found and found.u_lira.accuracy,
            {layer: median(values[index]) for layer, values in layers[name].items()},
        )

    return tuple(map(one, scores))


def _place(mine: Float[np.ndarray, " seeds"], theirs: Float[np.ndarray, " seeds"], protocol: Protocol) -> JudgedPlace:
    found = place(mine, theirs)
    verdict = "not distinguishable" if protocol.enough_seeds else "too few seeds"
    if found.p_value <= protocol.p_value_threshold:
        verdict = "above" if found.direction > 0 else "below"
    return JudgedPlace(verdict, found.p_value, found.low, found.high, found.below, found.above)


def _challenge(found: ChallengeScore) -> Challenge:
    return Challenge(
        tuple(found.epsilon.tolist()),
        found.quality,
        number(found.remaining_ratio),
        number(found.test_ratio),
        found.score if np.isfinite(found.score.value) else None,
    )


def _values(spread: Spread | None) -> Float[np.ndarray, " seeds"]:
    """The score of each seed; empty if it was not measured."""
    return np.array([] if spread is None else spread.values, np.float64)
