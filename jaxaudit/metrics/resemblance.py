"""Does a target behave like the shadow models, and which of their designs does it resemble most?

Both are judged by outputs on records that the target did not use. They show whether the target is trained like the
shadow models, but not how much it remembers of records that it used.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import cut

LEAST = 2
"""The least number of models of a design to estimate a variance."""
APART = 0.01
"""The level of `behaves_like`, over all its comparisons."""
NAMES = (
    "share of records above even odds",
    "median log-odds",
    "spread of the log-odds",
    "confidence beyond that share",
)


class Resemblance(NamedTuple):
    """The design, by its index, that a target's outputs resemble most.

    Attributes:
        likelihoods: mean log-likelihood (nats) of the target's log-odds per record, under each design.
        recognised: the share of shadow models whose design is identified correctly by the other models in the same way;
            by chance 1 / the number of designs.
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

    For each record and design, the log-odds of models that were not trained on the record are assumed to be normal,
    with a mean per record and one variance per design. The result changes no test of use. Log-odds are in nats, and
    `designs` has the index of each model's design.

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
    for model, (own, row) in enumerate(zip(shadows, ~membership, strict=True)):
        rest = np.arange(len(shadows)) != model
        known = _likelihoods(own[row], shadows[rest][:, row], ~membership[rest][:, row], designs[rest], len(counts))
        right += int(known.argmax() == designs[model])
    return Resemblance(int(likelihoods.argmax()), likelihoods, right / len(shadows))


def _likelihoods(
    outputs: Float[np.ndarray, " n"],
    shadows: Float[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, "models n"],
    designs: Int[np.ndarray, " models"],
    count: int,
) -> Float[np.ndarray, " designs"]:
    """Mean log-likelihood per record under each design, over records unseen by at least two of the design's models."""
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
        # Add the variance of the mean itself, which is large for few models.
        spread = variance * (1 + 1 / times)
        found[design] = float(-0.5 * ((outputs[several] - mean) ** 2 / spread + np.log(spread)).mean())
    return found


def behaves_like(
    target: Float[np.ndarray, " asked"],
    shadows: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, " asked"],
) -> tuple[str, ...]:
    """Describes how a target's outputs on unused records differ from those of shadow models; empty if they do not.

    Each model is described by four numbers (`behaviour`) on the records that it did not use. Each of the target's
    numbers is compared with those of the shadow models by a t-test for one more model, at level 1% / 4 (Bonferroni).
    The target's records beyond the number of the shadow models' are ignored; `unseen` are those that it is known not to
    have used.

    >>> random = np.random.default_rng(1)
    >>> shadows, none = random.normal(size=(20, 300)), np.zeros((20, 300), bool)
    >>> everything = np.ones(300, bool)
    >>> behaves_like(random.normal(size=300), shadows, none, everything)
    ()
    >>> len(behaves_like(3 + random.normal(size=300), shadows, none, everything)) > 0
    True
    """
    count = shadows.shape[1]
    own = behaviour(target[:count][unseen[:count]])
    theirs = np.stack([behaviour(row[~used]) for row, used in zip(shadows, membership, strict=True) if not used.all()])
    models = len(theirs)
    error = theirs.std(axis=0, ddof=1) * np.sqrt(1 + 1 / models) + 1e-3
    p_values = 2 * special.stdtr(models - 1, -np.abs(own - theirs.mean(axis=0)) / error)
    return tuple(
        f"{name} {mine:.2f} (shadow models {low:.2f} to {high:.2f})"
        for name, p_value, mine, low, high in zip(
            NAMES, p_values, own, theirs.min(axis=0), theirs.max(axis=0), strict=True
        )
        if p_value * len(NAMES) <= APART
    )


def behaviour(log_odds: Float[np.ndarray, " n"]) -> Float[np.ndarray, " 4"]:
    """The share of log-odds above 0, their median, interquartile range, and mean confidence minus that share.

    The confidence is the larger of the own class's probability and the other classes' total probability.
    """
    odds = cut(log_odds)
    accuracy = float((odds > 0).mean())
    low, middle, high = np.quantile(odds, (0.25, 0.5, 0.75))
    return np.array([accuracy, middle, high - low, float(special.expit(np.abs(odds)).mean()) - accuracy])
