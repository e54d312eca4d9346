"""Leave-one-out models against refits by scikit-learn: `python -m experiments.crosscheck.leave_one_out`."""

from typing import Any

import jax
import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from experiments.crosscheck.record import Check, run
from jaxaudit import logistic_regression, naive_bayes
from jaxaudit.learners import LeavesOneOut

CATEGORIES, FEW = 5, 6
KEY = jax.random.key(1)


def largest(learner: LeavesOneOut, model: Any, inputs: np.ndarray, labels: np.ndarray, full: bool, what: str) -> float:
    """The largest difference of a log-probability, with and without each record."""
    records = np.arange(len(labels)) if full else np.arange(0, len(labels), len(labels) // FEW)
    ours = learner.leave_one_out(KEY, inputs, labels, records)
    given = inputs.astype(np.int64 if what == "categories" else np.float64)
    with_record = model.fit(given, labels).predict_log_proba(given[records])
    without = [
        model.fit(np.delete(given, r, axis=0), np.delete(labels, r)).predict_log_proba(given[[r]])[0] for r in records
    ]
    return float(max(np.abs(ours.with_record - with_record).max(), np.abs(ours.without_record - without).max()))


def check(full: bool = True) -> list[Check]:
    found = []
    sets = {"wine": load_wine, **({"breast cancer": load_breast_cancer} if full else {})}
    for name, loaded in sets.items():
        raw, target = loaded(return_X_y=True)
        labels, classes = target.astype(np.int32), int(target.max()) + 1
        scaled = ((raw - raw.min(axis=0)) / np.ptp(raw, axis=0)).astype(np.float32)
        ranks = np.searchsorted(np.linspace(0, 1, CATEGORIES + 1)[1:-1], scaled).astype(np.float32)
        columns = scaled.shape[1]
        kinds = (
            (
                "naive_bayes, categories",
                naive_bayes((CATEGORIES,) * columns, classes),
                CategoricalNB(alpha=1, min_categories=CATEGORIES),
                ranks,
                1e-10,
                "the tolerance that the learner states, float64",
            ),
            (
                "naive_bayes, numbers",
                naive_bayes((0,) * columns, classes),
                GaussianNB(var_smoothing=1e-9),
                scaled,
                # Terms of up to some thousand nats cancel.
                1e-8,
                "1e-10 of sums of terms of about 100 nats, in float64",
            ),
            (
                "logistic_regression",
                logistic_regression(columns, classes),
                LogisticRegression(C=1.0, solver="newton-cg", tol=1e-9, max_iter=1000),
                scaled,
                1e-5,
                "both stop near the optimum: ours at a gradient norm of 1e-7",
            ),
        )
        for kind, learner, model, inputs, tolerance, because in kinds:
            what = "categories" if kind.endswith("categories") else "numbers"
            count = len(labels) if full else len(range(0, len(labels), len(labels) // FEW))
            found.append(
                Check(
                    kind,
                    f"a refit of sklearn's {type(model).__name__} a record",
                    f"log-probability (nats) with and without each of {count} records of {name}",
                    largest(learner, model, inputs, labels, full, what),
                    tolerance,
                    because,
                )
            )
    return found


if __name__ == "__main__":
    run("leave_one_out", check, ("scikit-learn",))
