"""Which records are called members, how many would be by chance, and which are surely given away."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from jaxaudit.audits.record_attack.finding import SURELY
from jaxaudit.audits.record_attack.result import NAMED_AT
from jaxaudit.metrics.attack_rates import AttackRates, called_at
from jaxaudit.metrics.vulnerability import Vulnerability


def rate_named_at(rates: AttackRates) -> float:
    """The false positive rate at which records count as named; NaN if none can be told or thresholds hold at none."""
    told = sorted(rate.stated for rate in rates.rates if rate.resolvable and rate.holds and rate.stated >= NAMED_AT)
    return told[0] if told else float("nan")


def called_by_shadows(
    scores: Float[np.ndarray, "models n"], membership: Bool[np.ndarray, "models n"], named_at: float
) -> tuple[Bool[np.ndarray, "models n"], Bool[np.ndarray, "models n"]]:
    """Which records are called members of each shadow model, and of which anything is said."""
    if not np.isfinite(named_at):
        return np.zeros(scores.shape, bool), np.zeros(scores.shape, bool)
    return called_at(scores, membership, [named_at])[0], ~np.isnan(scores)


def surely_named(seen: Vulnerability, models: int) -> int:
    """The records that half or more of their models name, and whose outputs differ by more than chance explains.

    Calls of one record rest on the same shadow models, so they are not independent; outputs of different models are. So
    the rank-sum test of outputs decides (Mann & Whitney 1947, normal approximation, too large far out in the tail), by
    Bonferroni over all records.
    """
    pairs = seen.inside * seen.outside
    known = np.isfinite(seen.named) & (pairs > 0)
    if not known.any():
        return 0
    distance = (seen.separation[known] - 0.5) * np.sqrt(pairs[known] * 12 / (models + 1))
    sure = stats.norm.sf(distance) * np.count_nonzero(known) < SURELY
    return int((sure & (seen.named[known] >= 0.5)).sum())


def by_chance(
    scores: Float[np.ndarray, "models n"], truth: Bool[np.ndarray, "models n"], limits: Sequence[float]
) -> list[Float[np.ndarray, " judged"]]:
    """The realised false positive rate at each stated one, of each shadow model that some record could be called by."""
    outside = ~truth & ~np.isnan(scores)
    kept = outside.any(axis=1)
    return [
        (called & outside)[kept].sum(axis=1) / outside[kept].sum(axis=1) for called in called_at(scores, truth, limits)
    ]


def expected(rates: Float[np.ndarray, " models"], records: int, level: float) -> tuple[float, float]:
    """How many of these records a model that used none would have called, on average, and at most."""
    mean = float(rates.mean())
    if len(rates) < 2:
        return mean * records, float(records)
    spread = rates.std(ddof=1) * np.sqrt(1 + 1 / len(rates))
    most = mean + float(stats.t.ppf(level, len(rates) - 1)) * max(spread, np.sqrt(mean * (1 - mean) / records))
    return mean * records, float(most * records)
