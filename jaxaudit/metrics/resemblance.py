"""Which of several designs of shadow models do a target's outputs resemble? Arrays in, numbers out."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import cut

LEAST = 2
"""Models of a design without which a variance means nothing."""


class Resemblance(NamedTuple):
    """The design that a target's outputs are most like.

    Attributes:
        design: its place among the designs.
        likelihoods: mean log-likelihood (nats) of the target's log-odds per record, under each design.
        recognised: the share of shadow models whose own design is named in the same way by the others; chance is one
            by the number of designs.
    """

    design: int
    likelihoods: Float[np.ndarray, " designs"]
    recognised: float


def resemblance(
    target: Float[np.ndarray, " n"],
    shadows: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    designs: Int[np.ndarray, " models"],
) -> Resemblance:
    """The design under which log-odds on records that the target did not use are most likely.

    Per record, log-odds of a design's models that were not trained on it are taken as normal, with the design's mean on
    the record and a variance that all its records share. It changes no test: which designs are compared is decided
    before the target is seen.

    Args:
        target: its log-odds (nats) on records that it was not trained on.
        shadows: the same of the shadow models.
        membership: which of these records each was trained on.
        designs: the place of each model's design.

    Raises:
        InputError: a design has fewer than two models.

    >>> random = np.random.default_rng(1)
    >>> designs, none = np.arange(8) % 2, np.zeros((8, 50), bool)
    >>> shadows = random.normal(size=(8, 50)) + 3 * designs[:, None]
    >>> found = resemblance(random.normal(size=50) + 3, shadows, none, designs)
    >>> found.design, found.recognised
    (1, 1.0)
    """
    counts = np.bincount(designs)
    if counts.min() < LEAST:
        raise InputError(f"a design has {counts.min()} shadow models; its spread is measured on {LEAST} or more.")
    shadows = cut(shadows)
    likelihoods = _likelihoods(cut(target), shadows, ~membership, designs, len(counts))
    right = 0
    for place, (own, row) in enumerate(zip(shadows, ~membership, strict=True)):
        rest = np.arange(len(shadows)) != place
        known = _likelihoods(own[row], shadows[rest][:, row], ~membership[rest][:, row], designs[rest], len(counts))
        right += int(known.argmax() == designs[place])
    return Resemblance(int(likelihoods.argmax()), likelihoods, right / len(shadows))


def _likelihoods(
    outputs: Float[np.ndarray, " n"],
    shadows: Float[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, "models n"],
    designs: Int[np.ndarray, " models"],
    count: int,
) -> Float[np.ndarray, " designs"]:
    """Mean log-likelihood per record under each design, over records that two of its models were not trained on."""
    found = np.full(count, -np.inf)
    for design in range(count):
        own, known = shadows[designs == design], unseen[designs == design]
        times = known.sum(axis=0)
        several = times >= LEAST
        if not several.any():
            continue
        own, known, times = own[:, several], known[:, several], times[several]
        mean = (own * known).sum(axis=0) / times
        variance = (((own - mean) ** 2 * known).sum(axis=0) / (times - 1)).mean() + 1e-9
        # A mean of few models is itself uncertain.
        spread = variance * (1 + 1 / times)
        found[design] = float(-0.5 * ((outputs[several] - mean) ** 2 / spread + np.log(spread)).mean())
    return found
