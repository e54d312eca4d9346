"""What a target's outputs on records that it did not use show; none of it says how much the target remembers.

Does the target behave like the shadow models, and do known non-members look used? If not, use may stay hidden. Is it
worse on records that nobody used? A model that was made worse on all records tells query set and holdout no longer
apart, and may still hold what it learned (Lynch et al. 2024, arXiv 2402.16835).
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.metrics.arrays import Members, Numbers, PerModel, Scores
from jaxaudit.metrics.checks import MODELS_LIKE_TARGET, UNDAMAGED, Check
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.scores import MembershipScores, cut
from jaxaudit.metrics.usage import STATED_FRACTION

APART = 0.01
"""The level of `behaves_like`, over all its comparisons."""
ROUNDING = 1e-3
"""An accuracy must exceed the bound of `calibration_used` by more than this to count."""
NAMES = (
    "share of records above even odds",
    "median log-odds",
    "spread of the log-odds",
    "confidence beyond that share",
)


def behaves_like(
    target: Float[np.ndarray, " asked"],
    shadows: Scores,
    membership: Members,
    unseen: Bool[np.ndarray, " asked"],
) -> tuple[str, ...]:
    """How a target differs from shadow models on `unseen` records: a phrase for each difference of `behaviour`.

    Log-odds are in nats. The level is 1% over all four numbers, by t-tests for one more model.

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


def unlike_models(target: Numbers, models: Scores) -> float:
    """The p-value of "the target was trained like these models", by the scores of records that none of them used.

    Three t-tests for one more model (Bonferroni): of the mean of its scores, the log of their standard deviation, and
    the log of their distance from the other models' mean scores. 1 with fewer than three models.

    >>> random = np.random.default_rng(1)
    >>> models = random.normal(size=(6, 300))
    >>> unlike_models(random.normal(size=300), models) > 0.05, unlike_models(3 * random.normal(size=300), models) < 0.05
    (True, True)
    """

    def described(scores: Numbers, models: Scores) -> list[float]:
        # The mean of few models has an error of its own.
        distance = np.std(scores - models.mean(axis=0)) / np.sqrt(1 + 1 / len(models))
        return [float(scores.mean()), float(np.log(scores.std() + 1e-9)), float(np.log(distance + 1e-9))]

    of_models = np.array([described(scores, np.delete(models, place, 0)) for place, scores in enumerate(models)])
    p_values = _of_one_more(np.array(described(target, models)), of_models)
    return float(min(1.0, len(p_values) * p_values.min()))


def models_like_target(p_value: float | None) -> Check:
    """There is no evidence that the target was trained in another way than models of known truth, by the p-value of
    `unlike_models`. A failure is a warning: `p_never` still stands.
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


def behaviour(log_odds: Numbers) -> Float[np.ndarray, " 4"]:
    """The share of log-odds above 0, their median, interquartile range, and mean confidence (of the own class, or of
    the others together, whichever is larger) minus that share.
    """
    odds = cut(log_odds)
    accuracy = float((odds > 0).mean())
    low, middle, high = np.quantile(odds, (0.25, 0.5, 0.75))
    return np.array([accuracy, middle, high - low, float(special.expit(np.abs(odds)).mean()) - accuracy])


def bound_of_one_more(values: PerModel, alpha: float) -> float:
    """The upper prediction limit (Student's t): one more model of the same kind exceeds it with probability `alpha`.

    >>> round(bound_of_one_more(np.array([-1.0, 0.0, 1.0]), 0.05), 2)
    3.37
    """
    error = float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / len(values))
    return float(values.mean() - special.stdtrit(len(values) - 1, alpha) * error)


def holdout_used(
    membership_result: MembershipScores,
    membership: Members,
    size: int,
    stated: float,
) -> tuple[str, ...]:
    """A doubt if the target's scores on the holdout are, record by record, like those of a model trained on it.

    The target's mean exceeds the bound of models without use (5% of such targets do), so does the mean of models of
    use, and the target is at least the fraction `stated` of the way between both.
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


def _means(values: Scores, which: Members) -> Float[np.ndarray, " some"]:
    """The mean of each model's selected values, for models with at least one."""
    counts = which.sum(axis=1)
    return ((values * which).sum(axis=1) / np.maximum(counts, 1))[counts > 0]


def calibration_used(
    share: float,
    shares: PerModel,
    accuracy: float,
    accuracies: PerModel,
) -> tuple[str, ...]:
    """A doubt if the calibration set looks used, by the used share of its outputs (`linear_share`) or by its accuracy.

    Without use, either raises the doubt in at most 2.5% of targets like the shadow models.
    """
    most_used = bound_of_one_more(shares, ALPHA / 2)
    # If all shadow models have the same accuracy, the bound equals it, and one record more would exceed it.
    most_known = bound_of_one_more(accuracies, ALPHA / 2) + ROUNDING
    seen = []
    if share > most_used:
        seen.append(f"{share:.0%} of the calibration set looks used (at most {max(most_used, 0):.0%} by chance)")
    if accuracy > most_known:
        seen.append(f"its accuracy on the calibration set is {accuracy:.1%} (at most {most_known:.1%} by chance)")
    if not seen:
        return ()
    return (
        f"{' and '.join(seen)}: the target may have been trained on the calibration set or on similar records, or "
        "simply by another recipe, and use of the query set might then not be detected",
    )


RELEARN = (
    "; so answers became worse on all records, which says nothing of what the weights hold: unlearn less, or train the "
    "model on half of the query set again, and test the other half. Retrained models (`unused`) show what few records "
    "do"
)


def undamaged_on_holdout(
    target: Float[np.ndarray, " holdout"],
    reference: Float[np.ndarray, " holdout"],
    used: Float[np.ndarray, " used"],
    share: float,
    *,
    of: str,
) -> Check | None:
    """The target is about as good as a reference on records that neither used; None if there is no memory to compare.

    Damage of at most `share` of the memory, which the scores of `used` show, fails in at most 5% of draws. Beside a
    `baseline` (`of`), which may be better for other reasons, a failure is a warning.
    """
    if min(len(target), len(used)) < 2 or not used.mean() > reference.mean():
        return None
    excess = (1 + share) * reference - target
    error = np.sqrt(excess.var(ddof=1) / len(excess) + share**2 * used.var(ddof=1) / len(used))
    t = (excess.mean() - share * used.mean()) / max(error, 1e-300)
    p_value = float(special.stdtr(min(len(excess), len(used)) - 1, -t))
    damage = float((reference.mean() - target.mean()) / (used.mean() - reference.mean()))
    message = (
        f"on the holdout, the target is worse than `{of}` by {max(damage, 0):.0%} of the memory that use leaves (p = "
        f"{p_value:.2g} if by {share:.0%}, which may be left of a set that is called forgotten)"
    )
    passed = p_value > ALPHA
    return Check(UNDAMAGED, passed, damage, share, of != "baseline", message + ("" if passed else RELEARN))
