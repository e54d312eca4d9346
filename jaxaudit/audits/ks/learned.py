"""Designs of shadow models that did not learn: they say nothing of any target, and are left out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import Trained
from jaxaudit.metrics.checks import MIN_REACH

LARGE, FAR = 100.0, 3.0
"""Inputs beyond the first, or with a mean of more than so many standard deviations, are hard to learn from."""


def without_unlearned(evidence: Evidence, roles: Sequence[str]) -> Evidence:
    """The evidence without the designs, beside the first, whose models hardly do better than guessing.

    A design has learned if its models' median accuracy on their own training records, as a share of the way from the
    commonest class to 1, is at least 0.1. What was left out is said in `Evidence.left_out`.

    Args:
        evidence: the models.
        roles: of the models of the tests of use, which take turns among the designs.
    """
    labels = evidence.pool.examples.labels
    guess = float(np.bincount(labels).max() / len(labels))
    places = evidence.design_of(*roles) if roles else np.zeros(0, int)
    accuracy = np.concatenate([np.zeros(0), *(evidence.trained[role].own_accuracy for role in roles)])
    said, unlearned = [], set()
    for place in sorted(set(places.tolist()) - {0}):
        reached = float(np.median(accuracy[places == place]))
        if guess < 1 and (reached - guess) / (1 - guess) < MIN_REACH:
            unlearned.add(place)
            said.append(f"{evidence.design_names[place]} (training accuracy {reached:.0%}, guessing {guess:.0%})")
    if not said:
        return evidence
    words = f"Designs of shadow models that did not learn were left out: {', '.join(said)}{_cause(evidence)}."
    keep = {role: ~np.isin(evidence.designs[role], list(unlearned)) for role in roles if role in evidence.designs}
    return replace(
        evidence,
        trained={**evidence.trained, **{role: _only(evidence.trained[role], kept) for role, kept in keep.items()}},
        roles={
            **evidence.roles,
            **{role: [evidence.roles[role][place] for place in np.flatnonzero(kept)] for role, kept in keep.items()},
        },
        designs={**evidence.designs, **{role: evidence.designs[role][kept] for role, kept in keep.items()}},
        left_out=(words,),
    )


def _only(trained: Trained, kept: Bool[np.ndarray, " models"]) -> Trained:
    rows: Int[np.ndarray, " rows"] = np.flatnonzero(kept)
    return Trained(
        *(each[rows] for each in trained[:4]),
        signals=type(trained.signals)(*(each[rows] for each in trained.signals)),
        on_calibration=None if trained.on_calibration is None else trained.on_calibration[rows],
        correct=None if trained.correct is None else trained.correct[rows],
    )


def _cause(evidence: Evidence) -> str:
    """What to do, where the inputs are such as nothing learns from."""
    inputs = evidence.pool.examples.inputs
    deviation = float(inputs.std())
    hard = float(np.abs(inputs).max(initial=0)) > LARGE or abs(float(inputs.mean())) > FAR * deviation
    return (
        "; centre and scale the inputs, in all sets alike, such as to mean 0 and standard deviation 1" if hard else ""
    )
