"""The two hypotheses of Becker & Liebig (2022), each as a number with an interval over seeds."""

from typing import Any

import numpy as np
from scipy.stats import rankdata

from jaxaudit.audits.unlearn.result import UnlearnAudit

REPLICATES, LEVEL = 2000, 0.95
FORGETS = ("retraining", "amnesiac", "fisher")


def hypotheses(random: np.random.Generator, audit: UnlearnAudit) -> dict[str, Any]:
    """H1 and H2 for every method; intervals are percentiles of a bootstrap of whole seeds.

    H1, "forgetting always reduces the efficacy for the target data": the share of seeds and sets in which it did, and
    Spearman's correlation of the efficacy afterwards with the number of records forgotten.
    H2, "a lower efficacy always implies a less successful attack": Spearman's correlation of efficacy and mean attack
    probability over seeds and sets, and the mean over sets of the correlation within one. H2 asks for a positive one.
    """
    seeds = audit.result.protocol.seeds
    counts = np.repeat(audit.forget.sum(axis=1)[:, None], seeds, axis=1)
    answer: dict[str, Any] = {}
    for name in FORGETS:
        efficacy, attack = audit.scores(name, "efficacy"), audit.scores(name, "attack")
        lower, weaker = efficacy < audit.scores("original", "efficacy"), attack < audit.scores("original", "attack")
        answer[name] = {
            "efficacy_falls": interval(random, seeds, lambda s, lower=lower: float(lower[:, s].mean())),
            "efficacy_against_count": interval(random, seeds, lambda s, e=efficacy: spearman(e[:, s], counts[:, s])),
            "efficacy_against_attack": interval(
                random, seeds, lambda s, e=efficacy, a=attack: spearman(e[:, s], a[:, s])
            ),
            "within_a_set": interval(
                random,
                seeds,
                lambda s, e=efficacy, a=attack: float(
                    np.mean([spearman(*each) for each in zip(e[:, s], a[:, s], strict=True)])
                ),
            ),
            "attack_falls": interval(random, seeds, lambda s, weaker=weaker: float(weaker[:, s].mean())),
        }
    return answer


def interval(random: np.random.Generator, seeds: int, statistic: Any) -> dict[str, float]:
    """A statistic of the seeds, and its bootstrap interval."""
    draws = [statistic(random.integers(0, seeds, seeds)) for _ in range(REPLICATES)]
    low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": statistic(np.arange(seeds)), "low": float(low), "high": float(high)}


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation; infinities are ranked like others, and a constant has none: 0."""
    ranks = rankdata(one.ravel()), rankdata(other.ravel())
    if np.ptp(ranks[0]) == 0 or np.ptp(ranks[1]) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])
