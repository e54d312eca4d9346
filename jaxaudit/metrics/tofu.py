"""Forget quality (TOFU) and privleak (MUSE), as the framework open-unlearning computes them, and their own spread.

Maini, Feng et al. (2024), "TOFU: A Task of Fictitious Unlearning for LLMs", section 2.2.3. Shi et al. (2025), "MUSE:
Machine Unlearning Six-Way Evaluation for Language Models", section 3. The code is `src/evals/metrics` of
`locuslab/open-unlearning` (Dorna et al. 2025): `ks_test` and `privleak` in `privacy.py`, `mia_auc` in `mia/utils.py`.

Both compare an unlearned model with *one* retrained model. `between_retrained` tells what the two numbers are between
models that were all retrained, where there is nothing to find.
"""

import warnings
from itertools import combinations, permutations

import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.kernels.ranking import auc

SOURCE = "Maini, Feng et al. 2024; Shi et al. 2025; Dorna et al. 2025"
NOMINAL = 0.05
"""The level at which forget quality is read: above it, an unlearned model counts as one that was retrained."""
TINY = 1e-10
"""Added to a denominator by open-unlearning."""


class Retrained(StrictStruct, frozen=True):
    """What forget quality and privleak are worth: their values between models that were all retrained.

    Attributes:
        models: the number of retrained models.
        forget_quality: of a target and each of the retrained models; empty without a target.
        between: forget quality of each pair of retrained models, in which there is nothing to find; empty without truth
            ratios.
        share_below: the share of these pairs below `nominal`, the level at which forget quality is read: the realised
            level. None without truth ratios, or if one is NaN.
        privleak: of each ordered pair of retrained models, in percent; empty without areas.
    """

    models: int
    forget_quality: tuple[Number, ...]
    between: tuple[Number, ...]
    share_below: Number
    privleak: tuple[Number, ...]
    nominal: float


def truth_ratio(log_likelihoods: Float[Array | np.ndarray, "... answers"]) -> Float[np.ndarray, "..."]:
    """TOFU's truth ratio (equation 1): how likely wrong answers are, over how likely the right one is.

    exp(mean over wrong answers of l) / (exp(l of the right one) + 1e-10), l an answer's mean log-likelihood in nats:
    first that of a paraphrase of the right answer. Lower for records that were used; about 1 for a model that cannot
    tell.

    >>> truth_ratio(np.log([[0.5, 0.1, 0.4]])).round(6)
    array([0.4])
    """
    likelihoods = np.asarray(log_likelihoods, np.float64)
    return np.exp(likelihoods[..., 1:].mean(axis=-1)) / (np.exp(likelihoods[..., 0]) + TINY)


def forget_quality(truth_ratios: Float[Array | np.ndarray, " n"], retrained: Float[Array | np.ndarray, " m"]) -> float:
    """TOFU's forget quality: the p-value of a two-sample Kolmogorov-Smirnov test, larger for more similar models.

    The truth ratios are of the records of the forget set, under the unlearned model and a model retrained without them.
    The test is for two independent samples. These are the same records under two models, so they depend on one another,
    and one retrained model says nothing of the spread between seeds: the p-value is no error rate, and is 1 for a model
    and itself. `between_retrained` measures how it behaves where there is nothing to find. NaN if a truth ratio is NaN.

    Raises:
        InputError: there is no truth ratio of one of the models.

    >>> round(forget_quality(np.array([0.3, 0.4, 0.5, 0.6]), np.array([0.7, 0.8, 0.9, 1.0])), 6)
    0.028571
    """
    if not len(truth_ratios) or not len(retrained):
        raise InputError("there are no truth ratios of one of the models: give those of the forget set under each.")
    with warnings.catch_warnings():
        # Where rounding takes the exact p-value above 1, SciPy warns and takes the asymptotic one, as there.
        warnings.simplefilter("ignore", RuntimeWarning)
        _, p_value = np.asarray(scipy.stats.ks_2samp(np.asarray(truth_ratios), np.asarray(retrained)))
    return float(p_value)


def mia_auc(forget: Float[Array | np.ndarray, " n"], holdout: Float[Array | np.ndarray, " m"]) -> float:
    """The area under the ROC curve of a membership attack, as open-unlearning's `mia_*`: above 0.5 if it finds members.

    P(score of a holdout record > score of a forget record) + P(equal) / 2. Scores are losses: lower for members. The
    holdout are records that no model used.

    Raises:
        InputError: a score is NaN, or one of the sets is empty.

    >>> mia_auc(np.array([0.1, 0.5]), np.array([0.5, 0.9]))
    0.875
    """
    scores = np.concatenate([np.asarray(forget), np.asarray(holdout)])
    return auc(scores, np.arange(len(scores)) >= len(forget))


def privleak(area: float, retrained: float = 0.5) -> float:
    """MUSE's privleak in percent: near 0 for a model like the retrained one, below 0 if it shows the forget set more.

    ((1 - area) - (1 - retrained)) / (1 - retrained + 1e-10) * 100, for areas as `mia_auc` gives them; open-unlearning
    takes those of `mia_min_k`, and 0.5 where it has no retrained model.

    >>> round(privleak(0.9, retrained=0.5), 6)
    -80.0
    """
    other = 1 - retrained
    return ((1 - area) - other) / (other + TINY) * 100


def between_retrained(
    truth_ratios: Float[Array | np.ndarray, "models records"] | None = None,
    areas: Float[Array | np.ndarray, " others"] | None = None,
) -> Retrained:
    """What forget quality and privleak are between retrained models, all pairs: what the two numbers are worth.

    A p-value of a test at its level would lie below 0.05 for a twentieth of pairs. Pairs share models, so the share is
    no more certain than the number of *models* allows. `truth_ratios` has a row for each retrained model, of the same
    records, and `areas` the area of each model's membership attack (`mia_auc`).

    Raises:
        InputError: neither is given, or one of fewer than two models.

    >>> models = np.random.default_rng(0).normal(size=(4, 1)) * 0.01 + np.linspace(0.5, 1.5, 100)
    >>> found = between_retrained(models, areas=np.array([0.5, 0.6]))
    >>> found.share_below, np.round(found.privleak, 6)
    (0.0, array([ 25., -20.]))
    """
    for of_models in (truth_ratios, areas):
        if of_models is not None and len(of_models) < 2:
            raise InputError(f"there are numbers of {len(of_models)} retrained models: a spread takes two or more.")
    if truth_ratios is None and areas is None:
        raise InputError("neither `truth_ratios` nor `areas` is given: give those of the retrained models.")
    ratios, of_attacks = (() if of_models is None else of_models for of_models in (truth_ratios, areas))
    p_values = np.array([forget_quality(*pair) for pair in combinations(ratios, 2)])
    below = np.where(np.isnan(p_values), np.nan, p_values < NOMINAL)
    return Retrained(
        models=max(len(ratios), len(of_attacks)),
        forget_quality=(),
        between=tuple(map(number, p_values)),
        share_below=number(below.mean()) if below.size else None,
        privleak=tuple(number(privleak(*map(float, pair))) for pair in permutations(of_attacks, 2)),
        nominal=NOMINAL,
    )
