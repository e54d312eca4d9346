"""How well an attack ranks and calls, against scikit-learn: `python -m experiments.crosscheck.ranking`."""

import jax
import numpy as np
from sklearn import metrics

from experiments.crosscheck.record import Check, run
from jaxaudit.kernels.ranking import auc, roc
from jaxaudit.metrics.attack import attack_metrics

ROUNDING, BECAUSE = 1e-12, "float64"
LIMITS = (0.1, 0.01, 0.001)
CALLS = {
    "accuracy": metrics.accuracy_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "f1": metrics.f1_score,
}


def attacks(full: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores and truths: few and many, without ties and with."""
    random = np.random.default_rng(2)
    found = []
    for n in (20, 3000, *([200_000] if full else [])):
        truth = random.random(n) < 0.4
        scores = random.normal(size=n) + truth
        found += [(scores, truth), (np.round(scores), truth), (np.where(scores > 1, 1.0, -1.0), truth)]
    return found


def check(full: bool = True) -> list[Check]:
    areas, curves, powers, calls = [], [], [], []
    for scores, truth in attacks(full):
        areas.append(abs(auc(scores, truth) - metrics.roc_auc_score(truth, scores)))
        false, true, thresholds = metrics.roc_curve(truth, scores, drop_intermediate=False)
        ours = roc(scores, truth)
        curves += [
            np.abs(ours.false_positive_rates - false).max(),
            np.abs(ours.true_positive_rates - true).max(),
            np.abs(ours.thresholds[1:] - thresholds[1:]).max(),
        ]
        answer = attack_metrics(jax.random.key(1), scores, truth, false_positive_rates=LIMITS, bootstrap=1)
        powers += [
            abs(rate.rate.value - true[false <= rate.limit + 1e-12].max()) for rate in answer.true_positive_rates
        ]
        calls += [abs(getattr(answer, name).value - call(truth, scores > 0)) for name, call in CALLS.items()]
    return [
        Check(f"{ours}", f"sklearn.metrics.{theirs}", what, float(max(differences)), ROUNDING, BECAUSE)
        for ours, theirs, what, differences in (
            ("kernels.ranking.auc", "roc_auc_score", "area, with ties and without", areas),
            ("kernels.ranking.roc", "roc_curve", "both rates and the threshold at every point", curves),
            (
                "metrics.attack.attack_metrics",
                "roc_curve",
                "true positive rate at 10%, 1% and 0.1% false positives: the best point of their curve",
                powers,
            ),
            (
                "metrics.attack.attack_metrics",
                "accuracy_score, precision_score, recall_score, f1_score",
                "rates of what is called a member at a score above 0",
                calls,
            ),
        )
    ]


if __name__ == "__main__":
    run("ranking", check, ("scikit-learn",))
