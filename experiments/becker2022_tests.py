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
    before, counts = audit["original"].scores, np.repeat(audit.forgotten[:, None], audit.seeds, axis=1)
    answer: dict[str, Any] = {}
    for name in FORGETS:
        after = audit[name].scores
        lower = after.efficacy < before.efficacy
        answer[name] = {
            "efficacy_falls": interval(random, audit.seeds, lambda s, lower=lower: float(lower[:, s].mean())),
            "efficacy_against_count": interval(
                random, audit.seeds, lambda s, a=after: spearman(a.efficacy[:, s], counts[:, s])
            ),
            "efficacy_against_attack": interval(
                random, audit.seeds, lambda s, a=after: spearman(a.efficacy[:, s], a.attack[:, s])
            ),
            "within_a_set": interval(
                random,
                audit.seeds,
                lambda s, a=after: float(
                    np.mean([spearman(e, p) for e, p in zip(a.efficacy[:, s], a.attack[:, s], strict=True)])
                ),
            ),
            "attack_falls": interval(
                random, audit.seeds, lambda s, a=after: float((a.attack < before.attack)[:, s].mean())
            ),
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
