"""Can a method's models be told from retrained ones? The unlearning challenge's score and U-LiRA, over models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.audits.unlearn.finding import LEAST_SEEDS
from jaxaudit.audits.unlearn.result import RETRAINING, UNTRAINED, Scores
from jaxaudit.metrics import Answers, ChallengeScore, ULira, challenge_score, u_lira
from jaxaudit.randomness import stream


class Told(NamedTuple):
    """How well a method's models are told from retrained ones, one of each number for each set to forget.

    Both are empty for untrained models, and where there are too few seeds.
    """

    challenge: tuple[ChallengeScore, ...] = ()
    u_lira: tuple[ULira, ...] = ()


def told(
    key: Key[Array, ""],
    log_odds: Mapping[str, Sequence[Float[np.ndarray, "seeds _"]]],
    scores: Mapping[str, Scores],
    level: float,
) -> dict[str, Told]:
    """Each method's models of the first half of the seeds against the retrained models of the other half.

    So no two models share a seed, all methods are compared with the same models at the same numbers, and `retraining`
    and `original` show what the best and what no forgetting score.

    Args:
        key: random key of the bootstraps.
        log_odds: of the records to forget, by the name of the method, for each set.
        scores: accuracies, by the name of the method.
        level: confidence level of the intervals.
    """
    half = len(log_odds[RETRAINING][0]) // 2
    if 2 * half < LEAST_SEEDS:
        return {name: Told() for name in log_odds}

    def answers(name: str, index: int, seeds: slice) -> Answers:
        of_method = scores[name]
        return Answers(
            log_odds[name][index][seeds],
            of_method.remaining_accuracy[index, seeds],
            of_method.test_accuracy[index, seeds],
        )

    def of_method(name: str) -> Told:
        found = []
        for index in range(len(log_odds[name])):
            mine, theirs = answers(name, index, slice(half)), answers(RETRAINING, index, slice(half, None))
            challenge, lira = (stream(key, purpose, name, index) for purpose in ("challenge", "u-lira"))
            found.append(
                (
                    challenge_score(challenge, mine, theirs, level=level),
                    u_lira(lira, mine.log_odds, theirs.log_odds, level=level),
                )
            )
        return Told(*map(tuple, zip(*found, strict=True)))

    return {name: Told() if name == UNTRAINED else of_method(name) for name in log_odds}
