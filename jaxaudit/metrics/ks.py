"""rho, the ratio of two Kolmogorov-Smirnov distances: has a model forgotten a query dataset?

Liu & Tsaftaris (2020), "Have you forgotten? A method to assess if machine learning models have forgotten data".
"""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels import bootstrap_ks_paired, ks_distance
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.usage import ALPHA, LEVEL, Verdict

BOOTSTRAP_REPLICATES = 200

Confidences = Float[Array | np.ndarray, "replicates n"]


class Rho(StrictStruct, frozen=True):
    """rho over replicates; below 1 means that the target resembles a model trained on the query set.

    Attributes:
        values, median: rho of every replicate, NaN if the calibration model's distance is 0; and its median.
        low, high: the interval for rho's mean over shadow seeds and query records; NaN if not available.
        distances: KS(query model, target), the numerator, of every replicate.
        calibration_distances: KS(query model, calibration model), the denominator, of every replicate.
        error: the standard error of rho's mean; NaN if not available.
    """

    values: tuple[NumberOrNaN, ...]
    median: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN
    distances: tuple[NumberOrNaN, ...]
    calibration_distances: tuple[NumberOrNaN, ...]
    error: NumberOrNaN


_distances = jax.jit(jax.vmap(ks_distance))


def rho(
    key: OneKey,
    query: Confidences,
    calibration: Confidences,
    target: Float[Array | np.ndarray, "rows n"],
    *,
    bootstrap: int = BOOTSTRAP_REPLICATES,
) -> Rho:
    """rho = KS(query, target) / KS(query, calibration), eq. 4, per replicate; smaller means that more is remembered.

    Row `k` of each array holds the confidences (probability of the ground-truth class) of replicate `k`'s model on the
    same `n` query records, in the same order: of models trained on the query set, of models trained on the calibration
    set, and of the audited model. A target of a single row is used in every replicate.

    The interval is for the mean of rho, by Student's t over replicates, cut at 0. Its variance adds the bootstrap
    variance over query records (one draw of records for all models) to that over training seeds:

        mean(rho_k) -+ t(95%, K - 1) * sqrt(var(rho_k) / K + mean_k var_bootstrap(rho_k))

    NaN with one replicate, and if a calibration model's distance is 0, or above 0 in fewer than two bootstrap draws.

    >>> import jax, numpy as np
    >>> query = np.array([[0.9, 0.8, 0.9, 1.0], [0.8, 0.9, 1.0, 0.9]], np.float32)
    >>> calibration = np.array([[0.2, 0.8, 0.3, 0.9], [0.1, 0.2, 0.8, 0.9]], np.float32)
    >>> [float(rho(jax.random.key(1), query, calibration, target).median) for target in (query, calibration)]
    [0.0, 1.0]
    """
    query, calibration, target = (np.asarray(c, np.float32) for c in (query, calibration, target))
    _check(query, calibration, target)
    target = np.broadcast_to(target, query.shape)
    to_target = np.asarray(_distances(query, target), np.float64)
    to_calibration = np.asarray(_distances(query, calibration), np.float64)
    values = _ratio(to_target, to_calibration)
    error = _error(key, query, calibration, target, values, bootstrap)
    interval = _interval(values, error, LEVEL)
    rows = (tuple(row.tolist()) for row in (values, to_target, to_calibration))
    of_replicates, distances, calibration_distances = rows
    return Rho(of_replicates, float(np.median(values)), *interval, distances, calibration_distances, error)


def _check(query: np.ndarray, calibration: np.ndarray, target: np.ndarray) -> None:
    check_shapes(query.shape, calibration_confidences=calibration)
    check_shapes((1 if len(target) == 1 else len(query), query.shape[1]), target_confidences=target)
    check_ranges("(-inf, inf)", query_confidences=query, calibration_confidences=calibration, target_confidences=target)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)


def _error(
    key: OneKey,
    query: np.ndarray,
    calibration: np.ndarray,
    target: np.ndarray,
    values: np.ndarray,
    bootstrap: int,
) -> float:
    replicates = len(values)
    if replicates < 2 or np.isnan(values).any():
        return float("nan")
    of_records = []
    for k, one_key in enumerate(jax.random.split(key, replicates)):
        both_distances = jnp.stack([target[k], calibration[k]])
        draws = np.asarray(bootstrap_ks_paired(one_key, query[k], both_distances, bootstrap), np.float64)
        ratios = _ratio(draws[:, 0], draws[:, 1])
        ratios = ratios[~np.isnan(ratios)]
        if len(ratios) < 2:
            return float("nan")
        of_records.append(np.var(ratios, ddof=1))
    return float(np.sqrt(np.var(values, ddof=1) / replicates + np.mean(of_records)))


def _interval(values: Float[np.ndarray, " replicates"], error: float, level: float) -> tuple[float, float]:
    if np.isnan(error):
        return float("nan"), float("nan")
    reach = float(special.stdtrit(len(values) - 1, (1 + level) / 2) * error)
    middle = float(np.mean(values))
    return max(0.0, middle - reach), middle + reach


def deciding(ratio: Rho, targets: int = 1) -> tuple[float, float]:
    """The interval that decides the verdict: at 95%, or 1 - 0.05 / targets for several targets (Bonferroni)."""
    return _interval(np.array(ratio.values), ratio.error, 1 - ALPHA / targets)


def verdict(ratio: Rho, targets: int = 1) -> Verdict:
    """`forgotten` if the whole deciding interval is at or above 1, `not forgotten` if it is below 1.

    `inconclusive` if it contains values on both sides of 1, or if there is no interval.

    >>> found = Rho((0.8, 0.9), 0.85, 0.84, 0.86, (0.0, 0.0), (1.0, 1.0), 0.005)
    >>> verdict(found), verdict(found, targets=10)
    ('not forgotten', 'inconclusive')
    """
    low, high = deciding(ratio, targets)
    if low >= 1:
        return "forgotten"
    if high < 1:
        return "not forgotten"
    return "inconclusive"


def paper_rule(median: float) -> Verdict:
    """Algorithm 1's one-number rule: `forgotten` if rho >= 1, else `not forgotten`; no verdict if rho is NaN."""
    if np.isnan(median):
        return "inconclusive"
    return "forgotten" if median >= 1 else "not forgotten"


def noise_floor(query: Confidences) -> Float[np.ndarray, " pairs"]:
    """KS distances between query models that differ only in their seed, for all pairs.

    This method cannot distinguish a target from the query models if its distance from them is no larger.

    >>> noise_floor(np.array([[0.1, 0.9], [0.2, 0.9], [0.1, 0.9]], np.float32))
    array([0.5, 0. , 0.5])
    """
    rows = np.asarray(query, np.float32)
    pairs = np.array(list(combinations(range(len(rows)), 2)), int).reshape(-1, 2)
    if not len(pairs):
        return np.zeros(0)
    return np.asarray(_distances(rows[pairs[:, 0]], rows[pairs[:, 1]]), np.float64)
