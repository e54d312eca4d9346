"""Does a target behave like shadow models, and like which of their designs? Arrays in, numbers out.

Both are asked of records that it did not use. They tell whether a target is trained like the shadow models, as far as
such records can: not how much it remembers of those that it used.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import cut

LEAST = 2
"""Models of a design without which a variance means nothing."""


APART = 0.01
"""The level at which a target is said to behave otherwise, over all that is compared."""
NAMES = (
    "share of records above even odds",
    "median log-odds",
    "spread of the log-odds",
    "confidence beyond that share",
)


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


def behaves_like(
    target: Float[np.ndarray, " asked"],
    shadows: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, " asked"],
) -> tuple[str, ...]:
    """How a target behaves otherwise than shadow models on records that it did not use; empty where it does not.

    Compared are the share of records whose log-odds are above 0, the median and the interquartile range of the
    log-odds, and the mean confidence less that share, of the target on the records that it did not use and of each
    shadow model on those that it did not: a t-test of one more model among theirs, each at 1% divided by their number.

    Args:
        target: its log-odds (nats); of more records than the shadow models', the further ones are left out.
        shadows: those of the shadow models.
        membership: which of these records each was trained on.
        unseen: which of the target's records it is known not to have used.

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
    """The share above 0, median, interquartile range, and mean confidence less that share.

    The confidence is that of the own class where it is the larger of the two, and of the others together where not.
    """
    odds = cut(log_odds)
    accuracy = float((odds > 0).mean())
    low, middle, high = np.quantile(odds, (0.25, 0.5, 0.75))
    return np.array([accuracy, middle, high - low, float(special.expit(np.abs(odds)).mean()) - accuracy])
