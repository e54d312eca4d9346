"""The probability that a target is called `forgotten` by known members, before there is a target.

A target that never used the query set is called `forgotten` (`jaxaudit.metrics.members`) if it is told from one that
used the stated share of it, which takes a memory: how much higher it scores records that it did use. Here the memory is
measured on models of known membership: each one's own training records stand for known members, and the others for a
holdout. Nobody knows how much a target remembers; `remembering` gives the same for one that remembers less.

A normal approximation, as in `jaxaudit.metrics.power`. Arrays in, numbers out.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped
from msgspec.structs import replace
from scipy import special

from jaxaudit.json_types import StrictStruct
from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.power import Separation, as_of_own_data, pooled_variance, separation_of
from jaxaudit.metrics.scores import cut, evenly_spaced
from jaxaudit.metrics.usage import STATED_FRACTION

STEPS, FARTHEST = 4_000, 8.0
"""Of the integral over the difference of query set and holdout, in its standard errors."""


class Memory(StrictStruct, frozen=True):
    """How far the score of the members test separates records in training from others.

    Attributes:
        alone: without shadow models, as where known members are given and nothing is trained.
        helped: with what shadow models say of each record's difficulty; the same as `alone` where they say nothing.
        units: how many records, or groups that were dealt whole, there are for each record: 1 without groups.
    """

    alone: Separation
    helped: Separation
    units: float = 1.0


def memory_of_models(
    key: Key[Array, ""] | None,
    log_odds: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
    labels: Int[np.ndarray, " n"],
    inputs: Shaped[np.ndarray, "n ..."] | None = None,
    designs: Int[np.ndarray, " models"] | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    stretch: float = 1.0,
    helped: bool = True,
) -> Memory:
    """Measured on models that were each trained on a random choice of the records.

    Beside shadow models, a model is moved away from them before it is scored, as in `separation`. Of very many models
    and records some models are measured, evenly spaced.

    Args:
        key: random key, as for `difficulty`.
        log_odds: each model's log-odds of each record's own class (`log_odds`).
        membership: which records each was trained on; at least two on either side.
        labels: the classes of the records; `inputs`: the records, None where they are not at hand.
        designs: the design of each model; None: all the same.
        groups: the group of each record, where whole groups were dealt.
        stretch: as `separation` found it.
        helped: whether the members test will have shadow models that say something of the known members.

    >>> import jax
    >>> random = np.random.default_rng(1)
    >>> membership = random.random((20, 400)) < 0.5
    >>> odds = random.normal(size=400) + 0.1 * random.normal(size=(20, 400)) + 0.1 * membership
    >>> found = memory_of_models(jax.random.key(1), odds, membership, np.zeros(400, int))
    >>> round(memory_in_errors(found.alone, 200, 200)), round(memory_in_errors(found.helped, 200, 200))
    (1, 9)
    """
    odds, rows = cut(log_odds), np.asarray(membership)
    designs = np.zeros(len(odds), int) if designs is None else designs
    known = difficulty(key, labels, inputs, groups=groups)
    places, moved = evenly_spaced(odds).tolist(), odds
    if helped and stretch > 1:
        moved, _ = as_of_own_data(odds, rows, designs, stretch)

    def of(place: int) -> tuple[np.ndarray, np.ndarray]:
        alone = residual_scores(odds[place], known)
        if not helped:
            return alone, alone
        others = np.arange(len(odds)) != place
        told = difficulty(key, labels, None, odds[others], rows[others])
        return alone, residual_scores(moved[place], np.concatenate([known, told], axis=1))

    found = np.stack([of(place) for place in places], axis=1)
    units = 1.0 if groups is None else len(np.unique(groups)) / len(groups)
    alone, beside = (separation_of(each, rows[places], groups) for each in found)
    return Memory(alone, beside, units)


def remembering(measured: Separation, factor: float) -> Separation:
    """The same of a target that remembers so many times as much; the variance of its members' scores lies between.

    >>> remembering(Separation(0.5, 0.02, 0.04, 0.01, 31), 0.5)
    Separation(difference=0.25, inside=0.03, outside=0.04, between=0.0025, models=31, stretch=1.0)
    """
    return replace(
        measured,
        difference=factor * measured.difference,
        inside=measured.outside + factor * (measured.inside - measured.outside),
        between=factor**2 * measured.between,
    )


def memory_in_errors(measured: Separation, holdout: int, members: int) -> float:
    """The mean difference between so many known members and a holdout, in its standard errors; infinite without spread.

    >>> round(memory_in_errors(Separation(0.5, 0.04, 0.04, 0.0, 31), 100, 100), 1)
    17.7
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(measured.difference, np.sqrt(measured.inside / members + measured.outside / holdout)))


def forgotten_probability(
    measured: Separation,
    query: int,
    holdout: int,
    members: int,
    stated: float = STATED_FRACTION,
    alpha: float = ALPHA,
    units: float = 1.0,
) -> float:
    """The probability that a target that never used the query set is called `forgotten`, by known members.

    With a the difference of mean scores between query set and holdout, and b that between members and holdout, it takes

        a at most its critical value (p_never > alpha), b above its own (p_memory <= alpha), and
        stated b - a > t sqrt(outside / n + stated^2 inside / k + (1 - stated)^2 outside / m)

    for n query, m holdout and k member records: the upper limit is then at most the stated share (Fieller 1954). Here a
    and b are normal with means 0 and the measured difference, variances outside / n + outside / m and
    inside / k + outside / m + between, and covariance outside / m. The permutation tests' critical values are those of
    pooled variances. It is 1 - alpha at most. All other checks of the audit are taken to pass.

    Args:
        measured: how far the score of the members test separates records in training from others.
        query, holdout, members: numbers of records.
        stated: the largest upper limit of `forgotten`.
        alpha: the level of all tests.
        units: as `Memory.units`; the degrees of freedom are those of the smallest set.

    >>> known = Separation(0.5, 0.2, 0.2, 0.0, 31)
    >>> [round(forgotten_probability(known, n, n, n), 2) for n in (50, 200, 800)]
    [0.45, 0.92, 0.95]
    """
    of_query, of_holdout = (max(measured.outside / size, 1e-18) for size in (query, holdout))
    of_members = max(measured.inside / members, 1e-18)
    freedom = max(1, round(units * min(query, holdout, members)) - 1)
    quantile, normal = float(special.stdtrit(freedom, 1 - alpha)), float(-special.ndtri(alpha))
    required = quantile * np.sqrt(of_query + stated**2 * of_members + (1 - stated) ** 2 * of_holdout)
    pooled = pooled_variance(measured, members, holdout, measured.inside, measured.difference)
    least = max(quantile * np.sqrt(of_members + of_holdout), normal * np.sqrt(pooled))
    # Over a, from far below to its critical value: the probability of b above what it then has to be.
    edges = np.linspace(-FARTHEST, normal, STEPS + 1)
    middle, error = (edges[1:] + edges[:-1]) / 2, np.sqrt(of_query + of_holdout)
    part = of_holdout / (of_query + of_holdout)
    rest = np.sqrt(of_members + of_holdout * (1 - part) + measured.between)
    wanted = np.maximum(least, (middle * error + required) / stated)
    chance = special.ndtr((measured.difference + part * middle * error - wanted) / rest)
    return float((np.diff(special.ndtr(edges)) * chance).sum())
