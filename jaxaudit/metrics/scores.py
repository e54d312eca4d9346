"""How much a model's output on a record looks like that of a model trained on the record.

Carlini et al. (2022), "Membership inference attacks from first principles", compare the log-odds that a model gives a
record's own class with those of shadow models with and without the record in training (`Profile`). Here a logistic
regression over shadow models and records makes it a probability. A score without a unit is first brought to one scale
(`RankScale`), which depends on no membership and no set. Log-likelihoods keep their nats, which RMIA compares.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int
from scipy import special

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.metrics.arrays import AnyIntegers, AnyMembers, AnyNumbers, AnyScores, Indices, Members, Numbers, Scores

PRIOR_MODELS = 4.0
"""Variances are shrunk as if the mean variance of all records had been observed in this many more models."""


class Profile(NamedTuple):
    """Statistics of each record's log-odds, over models trained without the record ("outside") and with it ("inside").

    Attributes:
        outside, inside: mean log-odds. The gap between both is shrunk towards the mean gap of all records (empirical
            Bayes), so it is defined even for a record that no model, or every model, was trained on.
        outside_variance, inside_variance: variances, shrunk towards the mean variance of all records.
        variance: the variance pooled over both kinds of models, shrunk in the same way.
    """

    outside: Numbers
    inside: Numbers
    outside_variance: Numbers
    inside_variance: Numbers
    variance: Numbers


def profile(models: Scores, membership: Members) -> Profile:
    """The profile of each record over these models of known membership."""
    centre = models.mean(axis=0)
    return _profile(_sums(models, membership, centre), centre)


def profiles_without(
    models: Scores,
    membership: Members,
    exclusions: Iterable[Int[np.ndarray, "excluded n"]],
) -> Iterator[Profile]:
    """For each array of `exclusions`, the profile without some models: one model's index per record, or -1 for none."""
    centre = models.mean(axis=0)
    whole = _sums(models, membership, centre)
    for exclusion in exclusions:
        sums = whole
        for excluded_models in exclusion:
            index = np.maximum(excluded_models, 0)[None]
            row, log_odds = (np.take_along_axis(table, index, axis=0)[0] for table in (membership, models))
            sums = sums - _terms_of_model(
                log_odds - centre, row & (excluded_models >= 0), ~row & (excluded_models >= 0)
            )
        yield _profile(sums, centre)


def profiles_of_others(
    models: Scores,
    membership: Members,
    places: Indices | None = None,
) -> Iterator[Profile]:
    """For each model, or each model whose index is in `places`, the profile of all other models."""
    # Centred numbers keep their precision when one model's squares are subtracted from the sum.
    centre = models.mean(axis=0)
    sums = _sums(models, membership, centre)
    for index in range(len(models)) if places is None else places:
        yield _profile(sums - _terms_of_model(models[index] - centre, membership[index], ~membership[index]), centre)


Sums = Float[np.ndarray, "3 2 n"]
"""Count, sum and sum of squares of log-odds minus a centre, over models with and without each record."""


def _sums(models: np.ndarray, membership: np.ndarray, centre: np.ndarray) -> Sums:
    sums = np.zeros((3, 2, len(centre)))
    for model, row in zip(models, membership, strict=True):
        sums += _terms_of_model(model - centre, row, ~row)
    return sums


def _terms_of_model(apart: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> Sums:
    """The terms that one model adds to the sums."""
    sides = np.stack([inside, outside]).astype(np.float64)
    return np.stack([sides, sides * apart, sides * apart**2])


def _profile(sums: Sums, centre: np.ndarray) -> Profile:
    """The profile from `_sums` of log-odds minus `centre`."""
    counts, totals, squares = sums
    inside, outside = means = totals / np.maximum(counts, 1)
    squares, freedom = np.maximum(squares - counts * means**2, 0), np.maximum(counts - 1, 0)
    mean_variance = squares.sum(axis=0).sum() / max(freedom.sum(), 1) + 1e-9

    def shrunk(squares: np.ndarray, freedom: np.ndarray) -> np.ndarray:
        prior = squares.sum() / freedom.sum() + 1e-9 if freedom.any() else mean_variance
        return (squares + PRIOR_MODELS * prior) / (freedom + PRIOR_MODELS)

    variance = shrunk(squares.sum(axis=0), freedom.sum(axis=0))
    inside_variance, outside_variance = map(shrunk, squares, freedom)
    is_profiled = (counts > 0).all(axis=0)
    error = variance * (1 / np.maximum(counts, 1)).sum(axis=0)
    gap = inside - outside
    typical = float(gap[is_profiled].mean()) if is_profiled.any() else 0.0
    spread = max(float(gap[is_profiled].var() - error[is_profiled].mean()), 0.0) if is_profiled.any() else 0.0
    gap = typical + np.where(is_profiled, (gap - typical) * spread / (spread + error), 0.0)
    base = centre + (counts[1] * outside + counts[0] * (inside - gap)) / counts.sum(axis=0)
    return Profile(base, base + gap, outside_variance, inside_variance, variance)


MOST_STEP = 0.25
"""The largest step between scores of a target, as a share of the deviation of a record's scores over shadow models."""


@dataclass(frozen=True, eq=False)
class RankScale:
    """The scale of a bank of scores: the log-odds of a score's rank among all `known_scores` (ascending).

    `spread` is the standard deviation of a record's score over models (median); `step` is that of neighbouring scores.

    >>> scale = RankScale(np.float32([-3.0, -2.0, -1.0]), 1.0, 0.0)
    >>> scale(np.array([-3.0, -2.0, -1.0, -0.5])).round(2)
    array([-1.1 ,  0.  ,  1.1 ,  1.95])
    """

    known_scores: Float32[np.ndarray, " n"]
    spread: float
    step: float

    def __call__(self, scores: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """The log-odds of the share of known scores that are smaller; equal ones count half."""
        # In ascending order each search begins where the last one ended: far faster for many scores.
        order = np.argsort(scores, axis=None)
        ascending = scores.ravel()[order].astype(np.float32)
        twice = np.searchsorted(self.known_scores, ascending, "left") + np.searchsorted(
            self.known_scores, ascending, "right"
        )
        log_odds_of_ranks = np.empty(scores.size)
        log_odds_of_ranks[order] = special.logit((twice + 1) / (2 * len(self.known_scores) + 2))
        return log_odds_of_ranks.reshape(scores.shape)

    def refuse_coarse(self, step: float, name: str) -> None:
        """Refuses (`InputError`) scores in the file `name` whose `step` of rounding decides how they compare."""
        if step > self.step and step > MOST_STEP * self.spread:
            raise InputError(
                f"{name}: its scores are rounded to about {step:.1g}, while the scores of a record differ by "
                f"{self.spread:.1g} between shadow models; save them with as many digits as those of the bank."
            )


def rank_scale(scores: Float[np.ndarray, "models views n"], step: float = 0.0) -> RankScale:
    """The scale of the scores; no model loses its place on a record, as ranks record by record would have it."""
    return RankScale(np.sort(scores, axis=None).astype(np.float32), float(np.median(scores.std(axis=0))), step)


LIMIT = 20.0
"""Log-odds are cut here, in nats: float32 probabilities cannot resolve more."""
RIDGE = 1.0
STEPS = 25
TOLERANCE = 1e-10
"""The regression stops when a step would reduce its loss by less than this share."""
EVIDENCE_LIMIT = 8.0
PAIRS = 1 << 19
"""Weights are fitted to about this many pairs of a model and a record, or to all if there are fewer."""
TAIL = 4
"""Degrees of freedom of the heavy-tailed evidence."""


class MembershipScores(NamedTuple):
    """Probabilities, at a prior of 0.5, that a model was trained on a record: the target, by all shadow models; and
    each shadow model, by the other ones.
    """

    target: Numbers
    shadows: Scores


def log_odds(
    log_probs: Float[Array | np.ndarray, "*models n classes"], labels: AnyIntegers
) -> Float[np.ndarray, "*models n"]:
    """The log-odds (nats) of each record's own class: log p_y - log(1 - p_y); larger means more confident and correct.

    They are nearly normal over models, unlike the probability (Carlini et al. 2022, section VI-B). 1 - p_y is computed
    as the sum of the other classes' probabilities, so no precision is lost for p_y near 1. A probability of exactly 1
    gives infinity; of exactly 0, minus infinity.

    >>> log_odds(np.log([[0.2, 0.5, 0.3], [0.8, 0.1, 0.1]]), np.array([1, 0])).round(3)
    array([0.   , 1.386])
    """
    log_probs, labels = np.asarray(log_probs), np.asarray(labels)
    own_class = np.arange(log_probs.shape[-1]) == labels[:, None]
    inside = np.take_along_axis(log_probs, np.broadcast_to(labels[:, None], (*log_probs.shape[:-1], 1)), axis=-1)
    return inside[..., 0] - _log_sum_exp(np.where(own_class, -np.inf, log_probs))


def _log_sum_exp(values: np.ndarray) -> np.ndarray:
    """The log of the sum of exponentials over the last axis: bitwise equal to SciPy's, in a third of the time."""
    top = values.max(axis=-1, keepdims=True)
    # If the maximum is infinite, subtracting it would give NaN; the sum is right without.
    top = np.where(np.isfinite(top), top, 0)
    largest = values == top
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rest = np.exp(values - top)
        count = largest.sum(axis=-1).astype(values.dtype)
        rest[largest] = 0
        total = rest.sum(axis=-1)
        summed = np.where(count > 0, np.log1p(total / count) + np.log(count), np.log(total))
    return summed + top[..., 0]


def membership_scores(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
) -> MembershipScores:
    """Membership scores of a target and of its shadow models; larger means more likely trained on the record.

    For every shadow model and record, the evidence of membership is computed from the `Profile` of the *other* shadow
    models. A logistic regression on known membership gives the weights of the kinds of evidence. The target's evidence,
    from the profile of all shadow models, gets the same weights. `target` and `shadows` are `log_odds` of each record's
    own class; beyond 20 nats they count as 20.

    Guarantees: permuting the records permutes the scores, so scores of exchangeable records are exchangeable. Permuting
    the shadow models changes nothing, unless models times records exceed `PAIRS`: then weights are fitted to some of
    the models, evenly spaced. Memory: 16 bytes per model and record, plus 100 MB.

    >>> random = np.random.default_rng(1)
    >>> membership = random.random((20, 50)) < 0.5
    >>> shadows = random.normal(size=(20, 50)) + 3 * membership
    >>> scores = membership_scores(shadows[0], shadows[1:], membership[1:])
    >>> bool(scores.target[membership[0]].mean() > 0.8), bool(scores.target[~membership[0]].mean() < 0.2)
    (True, True)
    """
    target, shadows = cut(target), cut(shadows)
    membership = np.asarray(membership)
    check_models(target, shadows, membership)
    among, weights = _scores_and_weights(shadows, membership)
    evidence = membership_evidence(target, profile(shadows, membership))
    return MembershipScores(special.expit(evidence @ weights), among)


def scores_among(
    models: AnyScores,
    membership: AnyMembers,
) -> Scores:
    """The scores of models of known or assumed membership, each computed with the other models."""
    models, membership = cut(models), np.asarray(membership)
    check_models(models[0], models, membership)
    return _scores_and_weights(models, membership)[0]


def _scores_and_weights(models: np.ndarray, membership: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each model's scores, computed with the other models, and the weights, fitted to the models of `evenly_spaced`."""
    some = evenly_spaced(models)
    other_models = np.setdiff1d(np.arange(len(models)), some)
    evidence = np.stack(list(_evidence_of_others(models, membership, some)))
    weights = fit_weights(evidence, membership[some])
    scores = np.empty(models.shape)
    scores[some] = special.expit(evidence @ weights)
    for model, model_evidence in zip(other_models, _evidence_of_others(models, membership, other_models), strict=True):
        scores[model] = special.expit(model_evidence @ weights)
    return scores, weights


def fit_weights(
    evidence: Float[np.ndarray, "*records kinds"],
    membership: Bool[np.ndarray, "*records"],
) -> Float[np.ndarray, " kinds"]:
    """The weights of the kinds of evidence, by a logistic regression; the constant is not penalised."""
    evidence, truth = evidence.reshape(-1, evidence.shape[-1]), membership.ravel()
    penalty = np.full(evidence.shape[1], RIDGE)
    penalty[0] = 1e-6
    weights = np.zeros(evidence.shape[1])

    def loss(weights: np.ndarray, line: np.ndarray) -> float:
        # log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), several times as fast as logaddexp.
        softplus = np.maximum(line, 0).sum() + np.log1p(np.exp(-np.abs(line))).sum()
        return float(softplus - line[truth].sum() + (penalty * weights**2).sum() / 2)

    line = evidence @ weights
    value = loss(weights, line)
    for _ in range(STEPS):
        probability = special.expit(line)
        gradient = evidence.T @ (probability - truth) + penalty * weights
        curvature = evidence.T @ (evidence * (probability * (1 - probability))[:, None]) + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step < TOLERANCE * (1 + abs(value)):
            break
        length, along = 1.0, evidence @ step
        while (lower := loss(weights - length * step, line - length * along)) > value and length > 1e-4:
            length /= 2
        weights, line, value = weights - length * step, line - length * along, lower
    return weights


def evenly_spaced(models: Scores) -> Indices:
    """Evenly spaced indices of as many models as make up `PAIRS` pairs of a model and a record; at least one."""
    count = min(len(models), max(1, PAIRS // models.shape[1]))
    return np.unique(np.linspace(0, len(models) - 1, count).round().astype(int))


def evidence_among(
    models: AnyScores, membership: AnyMembers
) -> tuple[Float[np.ndarray, "models n kinds"], Float[np.ndarray, " kinds"]]:
    """The evidence from which `scores_among` computes scores, and the weights of its kinds."""
    models, membership = cut(models), np.asarray(membership)
    check_models(models[0], models, membership)
    evidence = np.stack(list(_evidence_of_others(models, membership, np.arange(len(models)))))
    return evidence, fit_weights(evidence, membership)


def cut(log_odds: Float[Array | np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Log-odds cut to [-`LIMIT`, `LIMIT`], infinite ones included.

    >>> cut(np.array([-np.inf, 3.0]))
    array([-20.,   3.])
    """
    return np.clip(np.asarray(log_odds, np.float64), -LIMIT, LIMIT)


def _evidence_of_others(models: np.ndarray, membership: np.ndarray, indices: np.ndarray) -> Iterator[np.ndarray]:
    """The evidence of the models with these indices, each computed with all other models."""
    profiles = profiles_of_others(models, membership, indices)
    return (
        membership_evidence(models[index], other_profile)
        for index, other_profile in zip(indices, profiles, strict=True)
    )


def check_outputs(target: np.ndarray, shadows: np.ndarray, membership: np.ndarray) -> None:
    """Refuses (`InputError`) outputs whose shapes disagree, or that are NaN."""
    check_shapes(shadows.shape, membership=membership)
    check_shapes(shadows.shape[1:], target=target)
    check_ranges("[-inf, inf]", target=target, shadows=shadows)


def check_models(target: np.ndarray, shadows: np.ndarray, membership: np.ndarray) -> None:
    """Refuses too few shadow models, models of the same records, NaN, and shapes that disagree."""
    check_outputs(target, shadows, membership)
    check_ranges("[4, inf)", "train more, preferably 32", finished_models=len(shadows))
    if membership.all() or not membership.any():
        raise InputError(
            "every record is in the training sets of all shadow models or of none; train each on a random half."
        )


def membership_evidence(outputs: np.ndarray, shadows: Profile) -> np.ndarray:
    """Kinds of evidence, [n, kinds]: likelihood ratios by a normal and by a heavy-tailed distribution."""
    outside, inside, outside_variance, inside_variance, variance = shadows
    deviation = np.sqrt(variance)
    normal = (inside - outside) * (outputs - (inside + outside) / 2) / variance
    within, without = (
        -(TAIL + 1) / 2 * np.log1p((outputs - mean) ** 2 / variance / TAIL)
        for mean, variance in ((inside, inside_variance), (outside, outside_variance))
    )
    tailed = within - without - np.log(inside_variance / outside_variance) / 2
    normal, tailed = (np.clip(ratio, -EVIDENCE_LIMIT, EVIDENCE_LIMIT) for ratio in (normal, tailed))
    reach = np.clip((inside - outside) / deviation, -EVIDENCE_LIMIT, EVIDENCE_LIMIT)
    kinds = (
        np.ones_like(outputs),
        normal,
        special.expit(normal),
        special.expit(normal) * reach,
        tailed,
        special.expit(tailed),
        np.clip((outputs - outside) / deviation, -EVIDENCE_LIMIT, EVIDENCE_LIMIT),
        reach,
        *(np.tanh(part / 3) for part in (outputs, outside, inside)),
    )
    return np.stack(kinds, axis=-1)
