"""Leaves out designs of shadow models that did not learn, since their outputs carry no information on any target."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import LEAST
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.tests_of_use.shadow import least_models
from jaxaudit.metrics.checks import MIN_REACH
from jaxaudit.shadow_models import OF_QUERY, OF_REFERENCE

LARGE, FAR = 100.0, 3.0
"""Inputs with larger absolute values, or a mean of more standard deviations than this, are hard to learn from."""
NEVER, HALF, _ = (frozenset(kind) for kind in zip(OF_QUERY, OF_REFERENCE, strict=True))
"""Kinds of models among which the target is ranked, and kinds that a test can do without."""


def without_unlearned(evidence: Evidence, tests: Sequence[KSTest]) -> Evidence:
    """The evidence without shadow models of designs that did not learn; `Evidence.limitations` says what is left out.

    A design is a network together with its training recipe. A design has learned if the median training accuracy of a
    test's models of the design covers at least 10% of the way from the share of the commonest class to 1. The models of
    each test are judged separately, so adding a test never removes models from another test. Designs are left out from
    the worst upwards. A design that did not learn is kept if the test would have too few models without it. The first
    design is always kept: the test rho (a ratio of two Kolmogorov-Smirnov distances) and simulated targets use it.
    """
    titles: dict[tuple[str, ...], list[str]] = {}
    for test in tests:
        kinds_there = tuple(kind for kind in test.kinds(evidence.pool) if evidence.count(kind))
        titles.setdefault(kinds_there, []).append(test.title)
    for kinds, test_titles in titles.items():
        if kinds:
            evidence = _of_one_test(evidence, " and ".join(test_titles), kinds)
    return evidence


def _of_one_test(evidence: Evidence, title: str, kinds: Sequence[str]) -> Evidence:
    labels = evidence.pool.examples.labels
    guess = float(np.bincount(labels).max() / len(labels))
    indices, accuracy = evidence.design_of(*kinds), evidence.own_accuracy(*kinds)
    reached = {index: float(np.median(accuracy[indices == index])) for index in np.unique(indices).tolist()}
    unlearned = [index for index in reached if guess < 1 and (reached[index] - guess) / (1 - guess) < MIN_REACH]
    left_out: list[int] = []
    for index in sorted(unlearned, key=reached.__getitem__):
        if index and _enough_without(evidence, kinds, [*left_out, index]):
            left_out.append(index)
    kept = [index for index in unlearned if index and index not in left_out]
    names = evidence.models.design_names

    def reached_by(some: Sequence[int]) -> str:
        accuracy_words = {index: f"training accuracy {reached[index]:.0%}, guessing {guess:.0%}" for index in some}
        return ", ".join(f"{names[index]} ({words})" if names else words for index, words in accuracy_words.items())

    who, why, inputs = f"{title[:1].upper()}{title[1:]}", "", evidence.pool.examples.inputs
    if inputs.size and not evidence.pool.classless:
        far = abs(float(inputs.mean())) > FAR * float(inputs.std())
        if far or float(np.abs(inputs).max()) > LARGE:
            why = "; centre and scale the inputs, in all sets alike, such as to mean 0 and standard deviation 1"
    weaker = "It finds less, and its numbers are less certain"
    sentences = []
    if 0 in unlearned:
        which = "the first design of its shadow models" if len(reached) > 1 else "its shadow models"
        sentences.append(f"{who}: {which} did not learn: {reached_by([0])}. {weaker}{why}.")
    if left_out:
        sentences.append(
            f"{who}: designs of shadow models that did not learn were left out: {reached_by(left_out)}{why}."
        )
    if kept:
        sentences.append(
            f"{who}: designs of shadow models that did not learn were kept, because the test would have too few models "
            f"without them: {reached_by(kept)}. {weaker}. To have them left out, {evidence.advice.more_models}{why}."
        )
    evidence = replace(evidence, limitations=(*evidence.limitations, *sentences))
    if not left_out:
        return evidence
    of_test = np.isin(np.array(evidence.models.kinds), kinds)
    return evidence.among(~(of_test & np.isin(evidence.models.designs, left_out)))


def _enough_without(evidence: Evidence, kinds: Sequence[str], left_out: Sequence[int]) -> bool:
    """Whether a test keeps enough models of each kind without these designs."""
    for kind in set(kinds) - HALF:
        designs = evidence.design_of(kind)
        least = least_models(evidence.targets) if kind in NEVER else LEAST
        # One more than needed, so that error rates can be measured by leaving each model out.
        if (~np.isin(designs, left_out)).sum() < min(least + 1, len(designs)):
            return False
    return True
