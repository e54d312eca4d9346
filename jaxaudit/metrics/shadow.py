"""Was the query set used? A comparison with shadow models, without a holdout; and whether a target behaves like them.

Shadow models are trained on calibration data with none, a part and all of the query set, and are assumed to have the
target's network, recipe and source of other data. Other data, network or length of training move a target's outputs on
all records that it did not use: its outputs on the calibration set, if it used none of it, show by how much. They say
nothing of how much it remembers: a model made worse on all records may still hold what it learned (Lynch et al. 2024,
arXiv 2402.16835). Training on *other* records of the query set's provider looks like use. Prefer a holdout.
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.errors import check_ranges
from jaxaudit.metrics.arrays import (
    AnyMembers,
    AnyNumbers,
    AnyScores,
    Mask,
    Members,
    ModelMask,
    Numbers,
    PerModel,
    Scores,
)
from jaxaudit.metrics.checks import MODELS_LIKE_TARGET, UNDAMAGED, Check
from jaxaudit.metrics.scores import MembershipScores, Profile, check_outputs, cut, profile, profiles_of_others
from jaxaudit.metrics.usage import ALPHA, STATED_FRACTION, Effect, Usage, conclude, limits_of

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
    """A doubt if the calibration set looks used, by the used share of its outputs (`linear_share`) or by its accuracy;
    without use, either raises it in at most 2.5% of targets like the shadow models.
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


SHARE = 2 / 3
LEAST_LOG_DENSITY = -25.0
"""Log-densities of single records are cut here, so that no single record fails the check of `mixture_likeness`."""
MIXTURES = np.linspace(0, 1, 21)
LEAST_RECORDS = 50
"""The least number of calibration records that the target is known not to have used; with fewer, the scatter is too
uncertain."""


Records = Mask


def linear_share(outputs: Numbers, shadows: Profile, records: Records) -> float:
    """The used share of the records selected by `records`, not cut to [0, 1]; 0 if shadow models remember none of them.

    sum w (x - out) / sum w gap, with out, in and v a record's means and variance, gap = in - out and w = gap / v: on
    average 0 for models that were not trained on the records, and 1 for those trained on all.

    >>> flat = np.ones(4)
    >>> shadows = Profile(0 * flat, 2 * flat, flat, flat, flat)
    >>> linear_share(np.array([2.0, 2.0, 0.0, 0.0]), shadows, np.ones(4, bool))
    0.5
    """
    gap = np.maximum(shadows.inside - shadows.outside, 0)[records]
    weight = gap / shadows.variance[records]
    reach = float(weight @ gap)
    return float(weight @ (outputs - shadows.outside)[records]) / reach if reach > 0 else 0.0


def own_scatter(outputs: Numbers, shadows: Profile, records: Records) -> float:
    """The root mean square distance of outputs from the mean of models without the record, in standard deviations.

    >>> flat = np.ones(4)
    >>> own_scatter(np.array([3.0, -3.0, 3.0, -3.0]), Profile(0 * flat, flat, flat, flat, flat), np.ones(4, bool))
    3.0
    """
    return float(np.sqrt(np.mean((outputs - shadows.outside)[records] ** 2 / shadows.variance[records])))


def used_shares(
    target: Numbers,
    shadows: Scores,
    membership: Members,
    queried: int,
    unseen: Records | None = None,
) -> tuple[Float[np.ndarray, "3 models"], tuple[float, float, float]]:
    """Used shares of the query set and of the calibration set, which follows after `queried`, and the scatter
    (`own_scatter`): of each shadow model, computed with the other models, and of the target.

    Those of the calibration set are over records that a model was not trained on; 0, and 1 for the scatter, without it.
    """
    index = np.arange(len(target))
    query, calibration = index < queried, index >= queried
    unseen = calibration if unseen is None else calibration & unseen

    def of(outputs: np.ndarray, other_profile: Profile, kept: np.ndarray) -> tuple[float, float, float]:
        share = linear_share(outputs, other_profile, query)
        if not kept.any():
            return share, 0.0, 1.0
        return share, linear_share(outputs, other_profile, kept), own_scatter(outputs, other_profile, kept)

    profiles = profiles_of_others(shadows, membership)
    rows = [
        of(model, other_profile, calibration & ~member)
        for model, other_profile, member in zip(shadows, profiles, membership, strict=True)
    ]
    return np.array(rows).T, of(target, profile(shadows, membership), unseen)


def shadow_test(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
    queried: int | None = None,
    *,
    unseen: Mask | None = None,
    share: float = SHARE,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> Usage:
    """Was the query set used by the target, how much of it, and what is the minimum detectable fraction?

    The statistic is a model's used share of the query set (`linear_share`), computed with the other shadow models. If
    calibration records follow the `queried` query records, it is that share minus the used share of the calibration
    records that the model was not trained on.

    - `p_never`: the rank of the target's distance from the mean among shadow models that used none of the query set.
    - `p_fully`: the same among shadow models that used all of the query set.
    - `fraction`, `upper` and `detectable`: see `Effect`; models of partial use show the effect of partial use.

    A target with other data than the shadow models deviates more than they do, so its distance is divided first:

    - By the query set alone: shadow models share calibration data. If each was trained on a random `share` of the
      calibration set, the variance between models is too small by a factor of up to (1 + share) / (1 - share) (as in
      the delete-d jackknife). `inconclusive` if no mixture of shadow models reproduces the target's outputs
      (`mixture_likeness`).
    - By both sets, by the scatter: the root mean square deviation of the target's outputs on the calibration set,
      divided by the median of the shadow models', at least 1. The verdict is never `forgotten` if the calibration set
      looks used (`calibration_used`): use of both sets shows no difference.

    Args:
        target, shadows: log-odds of each record's own class (`log_odds`), of the target and of the shadow models.
        membership: of the shadow models: none, a part or all of the query set, a random share of the calibration set.
        queried: the number of query records, which come first; None: all are.
        unseen: which records the target is known not to have used; None: all of the calibration set.
        stated, recipe: as for `holdout_test`.
    """
    target, shadows, membership = cut(target), cut(shadows), np.asarray(membership)
    check_ranges("[0, 1)", share=share)
    queried = len(target) if queried is None else queried
    never, fully = check_shadows(target, shadows, membership, queried)
    of_models, (own_query, own_calibration, own_spread) = used_shares(target, shadows, membership, queried, unseen)
    query_shares, calibration_shares, scatters = of_models
    statistic, own_statistic = query_shares - calibration_shares, own_query - own_calibration
    without, within = statistic[never], statistic[fully]
    doubts: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    if queried == len(target):
        stretch = float(np.sqrt((1 + share) / (1 - share)))
        noise = float(np.var(without, ddof=1))
        # The variance of one more model's distance from the mean, which deviates by `stretch` times as much.
        variance = noise * (stretch**2 + 1 / len(without))
        critical = float(np.sqrt(variance)) * float(-special.stdtrit(len(without) - 1, ALPHA))
        widths = [np.sqrt((stretch**2 + 1 / len(models)) / (1 + 1 / len(models))) for models in (without, within)]
        p_of_likeness = mixture_likeness(target, shadows, membership, stretch=stretch)
        if p_of_likeness <= ALPHA:
            invalid = (
                f"the target does not resemble the shadow models (p = {p_of_likeness:.3g}): its other data, network or "
                "training differ from theirs, and this cannot be distinguished from use of the query set",
                *((recipe,) if recipe else ()),
            )
    else:
        refuse_few(len(target) - queried if unseen is None else int(unseen[queried:].sum()))
        scatter = max(1.0, own_spread / float(np.median(scatters[never])))
        base = without - without.mean()
        noise = float(np.var(base, ddof=1))
        variance = scatter**2 * noise
        critical = scatter * float(np.sort(base)[-int(np.floor(ALPHA * (1 + never.sum()) + 1e-9))])
        widths = [scatter, scatter]
        accuracies = accuracies_on_unused(target, shadows, membership, queried, unseen)
        doubts = calibration_used(own_calibration, calibration_shares, *accuracies)
    centre, some = float(without.mean()), ~never & ~fully
    partly = (float(membership[some, :queried].mean()), float(statistic[some].mean() - centre)) if some.any() else None
    effect = Effect(
        difference=own_statistic - centre,
        variance=variance,
        full=within - centre,
        noise=noise,
        critical=critical,
        partly=partly,
    )
    return conclude(
        "shadow",
        _rank(without, own_statistic, widths[0], larger=True),
        _rank(within, own_statistic, widths[1], larger=False),
        limits_of(effect),
        doubts,
        invalid,
        stated=stated,
        recipe=recipe,
    )


def accuracies_on_unused(
    target: AnyNumbers,
    shadows: AnyScores,
    membership: AnyMembers,
    queried: int,
    unseen: Mask | None = None,
) -> tuple[float, PerModel]:
    """The accuracy of the target and of each shadow model on calibration records that it was not trained on."""
    of_calibration = np.arange(len(target)) >= queried
    kept = of_calibration if unseen is None else of_calibration & unseen
    accuracies = [(odds[of_calibration & ~used] > 0).mean() for odds, used in zip(shadows, membership, strict=True)]
    return float((target[kept] > 0).mean()), np.array(accuracies)


def refuse_few(records: int) -> None:
    """Refuses (`InputError`) fewer than 50 calibration records that the target is known not to have used."""
    check_ranges(
        f"[{LEAST_RECORDS}, inf)",
        "use more of them, or leave the target's outputs on them out",
        calibration_records_not_used=records,
    )


def mixture_likeness(
    target: Numbers,
    shadows: Scores,
    membership: Members,
    *,
    stretch: float = 1.0,
) -> float:
    """The p-value of "some mixture of shadow models reproduces the target's outputs", which the shadow test assumes."""
    likelihoods = []
    for model, members, other_profile in zip(shadows, membership, profiles_of_others(shadows, membership), strict=True):
        centre = np.where(members, other_profile.inside, other_profile.outside)
        likelihoods.append(mixture_log_likelihood(centre + stretch * (model - centre), other_profile, stretch))
    own_likelihood = mixture_log_likelihood(target, profile(shadows, membership), stretch)
    return float((1 + (np.array(likelihoods) <= own_likelihood).sum()) / (1 + len(likelihoods)))


def mixture_log_likelihood(outputs: Numbers, shadows: Profile, stretch: float = 1.0) -> float:
    """The mean log-likelihood (nats per record) of log-odds under the best mixture of used and unused records.

    With s the squared stretch, a share f has log[(1 - f) N(outside, s v_out) + f N(inside, s v_in)].
    """
    parts = []
    for mean, variance in ((shadows.outside, shadows.outside_variance), (shadows.inside, shadows.inside_variance)):
        deviation = np.sqrt(stretch**2 * variance)
        parts.append(-(((outputs - mean) / deviation) ** 2) / 2 - np.log(np.sqrt(2 * np.pi)) - np.log(deviation))
    with np.errstate(divide="ignore"):
        mixtures = np.logaddexp(np.log(1 - MIXTURES)[:, None] + parts[0], np.log(MIXTURES)[:, None] + parts[1])
    return float(np.maximum(mixtures, LEAST_LOG_DENSITY).mean(axis=1).max())


def _rank(of_shadows: PerModel, own_statistic: float, width: float, *, larger: bool) -> float:
    """The one-sided p-value of the target's statistic among those of `of_shadows`, its distance divided by `width`."""
    sign = 1 if larger else -1
    distance = sign * (own_statistic - of_shadows.mean()) / width
    return float((1 + (sign * (of_shadows - of_shadows.mean()) >= distance - 1e-12).sum()) / (1 + len(of_shadows)))


def check_shadows(
    target: np.ndarray, shadows: np.ndarray, membership: np.ndarray, queried: int
) -> tuple[ModelMask, ModelMask]:
    """Which shadow models were trained on none, and which on all, of the first `queried` records; refuses too few."""
    check_outputs(target, shadows, membership)
    used = membership[:, :queried].sum(axis=1)
    never, fully = used == 0, used == queried
    least = int(np.ceil(1 / ALPHA - 1e-9)) - 1
    enough = f"a p-value of {ALPHA:g} needs so many shadow models of each kind; train more"
    check_ranges(f"[{least}, inf)", enough, models_of_no_use=never.sum(), models_of_full_use=fully.sum())
    return never, fully
