"""Kolmogorov-Smirnov distances against `scipy.stats.ks_2samp`: `python -m experiments.crosscheck.ks`."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.crosscheck.record import Check, run
from jaxaudit.kernels import ks_distance

ROUNDING = 2.0**-24
BECAUSE = "one rounding of a number up to 1 to float32"


def pairs(full: bool) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Samples of float32, by what is hard about them."""
    random = np.random.default_rng(3)
    single = np.float32
    big, small = np.finfo(single).max, np.finfo(single).tiny
    odd = np.array([0.0, -0.0, big, -big, small, -small, small / 8, 1.0, np.inf, -np.inf, np.nextafter(1, 0)], single)

    def confidences(n: int, scale: float) -> np.ndarray:
        return (1 / (1 + np.exp(-random.normal(3, scale, n)))).astype(single)

    found = {
        "continuous, equal sizes": [(confidences(n, 1), confidences(n, 2)) for n in (1, 10, 1000)],
        "unequal sizes": [(confidences(n, 1), confidences(m, 2)) for n, m in ((1, 7), (3, 5000), (777, 1000))],
        "ties": [tuple(np.round(confidences(n, s), 1) for n, s in ((500, 1), (650, 2))), (np.ones(9), np.ones(4))],
        "all alike or apart": [(np.zeros(5), np.ones(8)), (np.arange(6), np.arange(6))],
        "confidences saturated near 1": [(confidences(3000, 9), confidences(2000, 12))],
        "zeros of both signs, subnormal, largest and infinite numbers": [
            (random.choice(odd, n), random.choice(odd, m)) for n, m in ((40, 40), (11, 300))
        ],
    }
    if full:
        found["a million values"] = [(confidences(1_000_000, 1), confidences(1_000_000, 1.01))]
    return {name: [(np.asarray(a, single), np.asarray(b, single)) for a, b in some] for name, some in found.items()}


def check(full: bool = True) -> list[Check]:
    def difference(first: np.ndarray, second: np.ndarray) -> float:
        with np.errstate(divide="ignore"):  # in its p-value, of one value against one
            theirs: Any = stats.ks_2samp(first.astype(np.float64), second.astype(np.float64), method="asymp")
        return abs(float(ks_distance(first, second)) - float(theirs.statistic))

    return [
        Check(
            "kernels.ks_distance",
            "scipy.stats.ks_2samp",
            f"distance: {name}",
            max(difference(*pair) for pair in some),
            ROUNDING,
            BECAUSE,
        )
        for name, some in pairs(full).items()
    ]


if __name__ == "__main__":
    run("ks", check, ("scipy",))
