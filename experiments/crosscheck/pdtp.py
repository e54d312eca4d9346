"""PDTP in 100 bins against IBM's Adversarial Robustness Toolbox: `python -m experiments.crosscheck.pdtp`.

Needs `pip install "adversarial-robustness-toolbox<2"`. Its PDTP of a record is the largest ratio of probabilities over
*all* records given, in both directions; that is our `dtp` over these inputs, whose logarithm it is. Its `num_iter=1`
is a single pair of models. Both are scikit-learn's here, refitted once by the toolbox and once by us.

The toolbox turns its inputs into float32, so ours are too: an optimiser that stops early ends elsewhere in float64. And
the definitions differ in one place: a probability within a relative 1e-6 below the edge of a bin is in the next bin for
us, since float32 outputs do not know better, and in the one below for the toolbox. Records one of whose many
probabilities lies there are counted and left out.
"""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from experiments.crosscheck.record import Check, run
from jaxaudit.metrics.pdtp import dtp

FEW = 6


def by_toolbox(model: Any, inputs: np.ndarray, labels: np.ndarray, records: np.ndarray) -> np.ndarray:
    from art.estimators.classification.scikitlearn import ScikitlearnClassifier
    from art.metrics import PDTP

    audited, spare = ScikitlearnClassifier(clone(model)), ScikitlearnClassifier(clone(model))
    for one in (audited, spare):
        one.fit(inputs, np.eye(labels.max() + 1)[labels])
    return PDTP(audited, spare, inputs, labels, indexes=records, num_iter=1)[0]


def outputs(model: Any, inputs: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Log-probabilities of a refit."""
    fresh: Any = clone(model)
    with np.errstate(divide="ignore"):  # a probability of 0
        return np.log(fresh.fit(inputs, labels).predict_proba(asked).astype(np.float64))


def below_an_edge(log_probs: np.ndarray) -> np.ndarray:
    """Where a probability is within a relative 1e-6 below the edge of one of 100 bins; 1 is no edge."""
    places = 100 * np.exp(log_probs)
    return np.minimum(np.floor(places), 99) != np.minimum(np.floor(places * (1 + 1e-6)), 99)


def check(full: bool = True) -> list[Check]:
    found = []
    for name, loaded in (("iris", load_iris), ("wine", load_wine)):
        raw, labels = loaded(return_X_y=True)
        inputs = ((raw - raw.mean(axis=0)) / raw.std(axis=0)).astype(np.float32)
        records = np.arange(len(labels)) if full else np.arange(0, len(labels), len(labels) // FEW)
        for model in (GaussianNB(), LogisticRegression()):
            whole = outputs(model, inputs, labels, inputs)
            ours, shared = [], []
            for record in records:
                others = np.arange(len(labels)) != record
                without = outputs(model, inputs[others], labels[others], inputs)
                ours.append(dtp(whole, without).value)
                shared.append(not (below_an_edge(whole) | below_an_edge(without)).any())
            difference = np.abs(np.array(ours) - np.log(by_toolbox(model, inputs, labels, records)))
            found.append(
                Check(
                    "metrics.pdtp.dtp",
                    "log of art.metrics.PDTP(num_iter=1)",
                    f"nats, {type(model).__name__}, {sum(shared)} of {len(records)} records of {name} (others have a "
                    f"probability just below an edge), each over {len(labels)} inputs",
                    float(difference[shared].max()),
                    1e-10,
                    "float64; their bins' centres are rounded",
                )
            )
    return found


if __name__ == "__main__":
    run("pdtp", check, ("adversarial-robustness-toolbox", "scikit-learn"))
