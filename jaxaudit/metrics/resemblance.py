"""What a target's outputs on records that it did not use show.

Does it behave like the shadow models, which of their designs does it resemble most, and do known non-members look used?
(Then use of the query set may make no difference, and stay hidden.) The outputs are compared with shadow models'
outputs on records that *they* did not use. None of this shows how much the target remembers of records that it used.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import MODELS_LIKE_TARGET, Check
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.scores import MembershipScores, cut
from jaxaudit.metrics.usage import STATED_FRACTION

LEAST = 2
"""The least number of models of a design to estimate a variance."""
APART = 0.01
"""The level of `behaves_like`, over all its comparisons."""
ROUNDING = 1e-3
"""An accuracy must exceed the bound of `reference_used` by more than this to count."""
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
    for model, (outputs, row) in enumerate(zip(shadows, ~membership, strict=True)):
        rest = np.arange(len(shadows)) != model
        design_likelihoods = _likelihoods(
            outputs[row], shadows[rest][:, row], ~membership[rest][:, row], designs[rest], len(counts)
        )
        right += int(design_likelihoods.argmax() == designs[model])
    return Resemblance(int(likelihoods.argmax()), likelihoods, right / len(shadows))


def _likelihoods(
    outputs: Float[np.ndarray, " n"],
    shadows: Float[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, "models n"],
    designs: Int[np.ndarray, " models"],
    count: int,
) -> Float[np.ndarray, " designs"]:
    """Mean log-likelihood per record under each design, over records unseen by at least two of the design's models."""
    likelihoods = np.full(count, -np.inf)
    for design in range(count):
        design_outputs, design_unseen = shadows[designs == design], unseen[designs == design]
        times = design_unseen.sum(axis=0)
        several = times >= LEAST
        if not several.any():
            continue
        design_outputs, design_unseen, times = design_outputs[:, several], design_unseen[:, several], times[several]
        mean = (design_outputs * design_unseen).sum(axis=0) / times
        variance = (((design_outputs - mean) ** 2 * design_unseen).sum(axis=0) / (times - 1)).mean() + 1e-9
        # Add the variance of the mean itself, which is large for few models.
        spread = variance * (1 + 1 / times)
        likelihoods[design] = float(-0.5 * ((outputs[several] - mean) ** 2 / spread + np.log(spread)).mean())
    return likelihoods


def behaves_like(
    target: Float[np.ndarray, " asked"],
    shadows: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    unseen: Bool[np.ndarray, " asked"],
) -> tuple[str, ...]:
    """How a target's outputs on records that it did not use differ from those of shadow models; empty if they do not.

    Each model is described by four numbers (`behaviour`) on the records that it did not use. Each of the target's
    numbers is compared with those of the shadow models by a t-test for one more model, at level 1% / 4 (Bonferroni).
    Every difference is a phrase with both numbers.

    Args:
        target: the target's log-odds of each record's own class, nats. Records beyond the shadow models' are ignored.
        shadows: the same of the shadow models.
        membership: the records that each shadow model was trained on.
        unseen: marks the records that the target is known not to have used.

    >>> random = np.random.default_rng(1)
    >>> shadows, none = random.normal(size=(20, 300)), np.zeros((20, 300), bool)
    >>> everything = np.ones(300, bool)
    >>> behaves_like(random.normal(size=300), shadows, none, everything)
    ()
    >>> len(behaves_like(3 + random.normal(size=300), shadows, none, everything)) > 0
    True
    """
    count = shadows.shape[1]
    own_behaviour = behaviour(target[:count][unseen[:count]])
    shadow_behaviour = np.stack(
        [behaviour(row[~used]) for row, used in zip(shadows, membership, strict=True) if not used.all()]
    )
    p_values = _of_one_more(own_behaviour, shadow_behaviour)
    described = zip(
        NAMES, p_values, own_behaviour, shadow_behaviour.min(axis=0), shadow_behaviour.max(axis=0), strict=True
    )
    return tuple(
        f"{name} {own_value:.2f} (shadow models {low:.2f} to {high:.2f})"
        for name, p_value, own_value, low, high in described
        if p_value * len(NAMES) <= APART
    )


def unlike_models(target: Float[np.ndarray, " n"], models: Float[np.ndarray, "models n"]) -> float:
    """The p-value of "the target was trained like these models", by the scores of records that none of them used.

    A model is described by the mean of its scores, the log of their standard deviation, and the log of their distance
    from the mean scores of all other models. The target's numbers are compared with those of the models by a t-test for
    one more model each; the p-value is three times the smallest one. It is at most 1, and that of three models or more.

    >>> random = np.random.default_rng(1)
    >>> models = random.normal(size=(6, 300))
    >>> unlike_models(random.normal(size=300), models) > 0.05, unlike_models(3 * random.normal(size=300), models) < 0.05
    (True, True)
    """

    def described(scores: Float[np.ndarray, " n"], models: Float[np.ndarray, "models n"]) -> list[float]:
        # The mean of few models has an error of its own.
        distance = np.std(scores - models.mean(axis=0)) / np.sqrt(1 + 1 / len(models))
        return [float(scores.mean()), float(np.log(scores.std() + 1e-9)), float(np.log(distance + 1e-9))]

    of_models = np.array([described(scores, np.delete(models, place, 0)) for place, scores in enumerate(models)])
    p_values = _of_one_more(np.array(described(target, models)), of_models)
    return float(min(1.0, len(p_values) * p_values.min()))


def models_like_target(p_value: float | None) -> Check:
    """There is no evidence that the target was trained in another way than models of known truth.

    A failure is a warning: p (not used) does not need these models. It takes away what they say of a share, and a
    `forgotten` by them.

    `p_value` is that of `unlike_models` on records that no model used; None if there are too few models, or no records.
    """
    if p_value is None:
        message = (
            "whether the target was trained like the models of known truth was not measured: that needs a holdout and "
            "three of these models; without, what they say of a share rests on a statement"
        )
        return Check(MODELS_LIKE_TARGET, False, None, ALPHA, False, message)
    passed = p_value > ALPHA
    message = (
        f"on the holdout, the target differs from models of known truth no more than they do from one another "
        f"(p = {p_value:.2g}, above {ALPHA:g}); some of another recipe are missed"
        if passed
        else f"on the holdout, the target differs from models of known truth more than they do from one another "
        f"(p = {p_value:.2g} if all had one recipe), so they give no share and no `forgotten`"
    )
    return Check(MODELS_LIKE_TARGET, passed, p_value, ALPHA, False, message)


def _of_one_more(
    own_numbers: Float[np.ndarray, " numbers"], numbers: Float[np.ndarray, "models numbers"]
) -> Float[np.ndarray, " numbers"]:
    """The p-value of each number of one more model, two-sided, by Student's t."""
    models = len(numbers)
    error = numbers.std(axis=0, ddof=1) * np.sqrt(1 + 1 / models) + 1e-3
    return 2 * special.stdtr(models - 1, -np.abs(own_numbers - numbers.mean(axis=0)) / error)


def behaviour(log_odds: Float[np.ndarray, " n"]) -> Float[np.ndarray, " 4"]:
    """The share of log-odds above 0, their median, interquartile range, and mean confidence minus that share.

    The confidence is the larger of the own class's probability and the other classes' total probability.
    """
    odds = cut(log_odds)
    accuracy = float((odds > 0).mean())
    low, middle, high = np.quantile(odds, (0.25, 0.5, 0.75))
    return np.array([accuracy, middle, high - low, float(special.expit(np.abs(odds)).mean()) - accuracy])


def bound_of_one_more(values: Float[np.ndarray, " models"], alpha: float) -> float:
    """The upper prediction limit (Student's t): one more model of the same kind exceeds it with probability `alpha`.

    `values` has one number per model, of at least two models; `alpha` is at most 0.5.

    >>> round(bound_of_one_more(np.array([-1.0, 0.0, 1.0]), 0.05), 2)
    3.37
    """
    error = float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / len(values))
    return float(values.mean() - special.stdtrit(len(values) - 1, alpha) * error)


def holdout_used(
    membership_result: MembershipScores,
    membership: Bool[np.ndarray, "models n"],
    size: int,
    stated: float,
) -> tuple[str, ...]:
    """Returns a doubt if the target's scores on the holdout look like those of a model trained on it.

    Each score is compared with the scores of shadow models that did not use the record, so that an easy or hard holdout
    causes no doubt. The doubt is raised if all of these hold:

    - use is visible: models that used the records exceed the bound (`bound_of_one_more`) on average;
    - the target's mean exceeds the bound. A target like the shadow models, without use, does so with probability at
      most 5%;
    - the target's mean is at least the fraction `stated`, which `forgotten` must rule out (at most `STATED_FRACTION`),
      of the way from models that did not use the records to models that did.

    The scores are of `size` query records, then of the holdout.
    """
    scores, unused = membership_result.shadows, ~membership
    times_unused = unused.sum(axis=0) - unused
    without = ((scores * unused).sum(axis=0) - scores * unused) / np.maximum(times_unused, 1)
    above, has_others = scores - without, times_unused > 0
    unseen = _means(above, unused & has_others)
    effect = float(_means(above, membership & has_others).mean() - unseen.mean())
    held = (np.arange(len(membership_result.target)) >= size) & unused.any(axis=0)
    above_others = membership_result.target - (scores * unused).sum(axis=0) / np.maximum(unused.sum(axis=0), 1)
    distance = float(above_others[held].mean() - unseen.mean())
    chance = bound_of_one_more(unseen, ALPHA) - float(unseen.mean())
    if effect <= chance or distance <= chance or distance < min(stated, STATED_FRACTION) * effect:
        return ()
    return (
        f"on the holdout, the target's outputs are {distance / effect:.0%} of the way from those of models that did "
        "not use the records to those of models that did: it may have been trained on the holdout or on similar "
        "records, or simply by another recipe, and use of the query set might then not be detected",
    )


def _means(values: Float[np.ndarray, "models n"], which: Bool[np.ndarray, "models n"]) -> Float[np.ndarray, " some"]:
    """The mean of each model's selected values, for models with at least one."""
    counts = which.sum(axis=1)
    return ((values * which).sum(axis=1) / np.maximum(counts, 1))[counts > 0]


def reference_used(
    share: float,
    shares: Float[np.ndarray, " models"],
    accuracy: float,
    accuracies: Float[np.ndarray, " models"],
) -> tuple[str, ...]:
    """Returns a doubt if the reference looks used by the target, by its outputs' used share or by its accuracy.

    For a target that is trained like the shadow models and did not use the reference, each of the two raises a false
    alarm with probability at most 2.5%. A target whose outputs scatter more raises it more often: the bound is
    not widened, since use also makes outputs scatter.

    Args:
        share, accuracy: of the target on the reference; the share is that of `linear_share`.
        shares, accuracies: the same for each shadow model, on reference records that it was not trained on.
    """
    most_used = bound_of_one_more(shares, ALPHA / 2)
    # If all shadow models have the same accuracy, the bound equals it, and one record more would exceed it.
    most_known = bound_of_one_more(accuracies, ALPHA / 2) + ROUNDING
    seen = []
    if share > most_used:
        seen.append(f"{share:.0%} of the reference looks used (at most {max(most_used, 0):.0%} by chance)")
    if accuracy > most_known:
        seen.append(f"its accuracy on the reference is {accuracy:.1%} (at most {most_known:.1%} by chance)")
    if not seen:
        return ()
    return (
        f"{' and '.join(seen)}: the target may have been trained on the reference or on similar records, or simply by "
        "another recipe, and use of the query set might then not be detected",
    )
