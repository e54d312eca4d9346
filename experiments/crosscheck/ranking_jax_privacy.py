"""AUC and true positive rates against `jax_privacy.auditing`: `python -m experiments.crosscheck.ranking_jax_privacy`.

Needs `pip install jax-privacy`. Its attacker may toss a coin between two thresholds, so its curve is the concave hull
of ours. Where scores have few levels, the higher the more telling, the curve is its own hull and all must agree.
"""

from importlib import import_module

import jax
import numpy as np

from experiments.crosscheck.record import Check, run
from jaxaudit.kernels.ranking import auc
from jaxaudit.metrics.attack import attack_metrics

LEVELS, OTHERS = 6, 1000


def concave(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of members and others on levels 0, 1, ..: each level is more a member's than the one below."""
    cuts = np.sort(random.choice(np.arange(1, OTHERS), LEVELS - 1, replace=False))
    others = np.diff([0, *cuts, OTHERS])
    members = np.round(others * np.arange(1, LEVELS + 1) ** 2).astype(int)
    return np.repeat(np.arange(LEVELS), members) * 1.0, np.repeat(np.arange(LEVELS), others) * 1.0


def check(full: bool = True) -> list[Check]:
    # Not installed where types are checked.
    CanaryScoreAuditor = import_module("jax_privacy.auditing").CanaryScoreAuditor
    random = np.random.default_rng(8)
    areas, powers = [], []
    for _ in range(200 if full else 5):
        members, others = concave(random)
        theirs = CanaryScoreAuditor(members, others)
        scores, truth = np.concatenate([members, others]), np.arange(len(members) + len(others)) < len(members)
        areas.append(abs(auc(scores, truth) - float(theirs.attack_auroc())))
        # At the curve's corners, where the hull tosses no coin.
        limits = tuple(float((others >= level).mean()) for level in range(1, LEVELS))
        ours = attack_metrics(jax.random.key(1), scores, truth, false_positive_rates=limits, bootstrap=1)
        powers += [
            abs(rate.rate.value - float(theirs.tpr_at_given_fpr(rate.limit))) for rate in ours.true_positive_rates
        ]
    sizes = 100_000 if full else 1000
    members, others = random.normal(1, 1, sizes), random.normal(0, 1, sizes)
    hull = float(CanaryScoreAuditor(members, others).attack_auroc())
    scores, truth = np.concatenate([members, others]), np.repeat([True, False], sizes)
    return [
        Check(
            "kernels.ranking.auc",
            "CanaryScoreAuditor.attack_auroc",
            f"area on {len(areas)} curves that are their own hull",
            max(areas),
            1e-12,
            "float64",
        ),
        Check(
            "metrics.attack.attack_metrics",
            "CanaryScoreAuditor.tpr_at_given_fpr",
            f"true positive rate at every corner of these {len(areas)} curves",
            max(powers),
            1e-12,
            "float64",
        ),
        Check(
            "kernels.ranking.auc",
            "CanaryScoreAuditor.attack_auroc",
            f"area for {sizes:,} of N(1, 1) against as many of N(0, 1), where theirs is a hull, and so a little larger",
            abs(auc(scores, truth) - hull),
            0.5 / np.sqrt(sizes),
            "a hull gains less than the area's standard error",
        ),
    ]


if __name__ == "__main__":
    run("ranking_jax_privacy", check, ("jax-privacy",))
