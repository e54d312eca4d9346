"""The bootstrap of KS distances against a loop over SciPy: `python -m experiments.crosscheck.ks_bootstrap`.

The two draw different records, so their replicates are compared as distributions.
"""

from typing import Any

import jax
import numpy as np
from scipy import stats

from experiments.crosscheck.record import Check, run
from jaxaudit.kernels import bootstrap_ks

ALPHA = 1e-4
SIZES = {"300 of 300 records": (300, 300), "120 of 500 records": (120, 500)}


def by_loop(first: np.ndarray, second: np.ndarray, replicates: int, paired: bool) -> np.ndarray:
    """Draws with replacement, and measures, one replicate at a time."""
    random = np.random.default_rng(11)
    distances = []
    for _ in range(replicates):
        chosen = random.integers(0, len(first), len(first))
        others = chosen if paired else random.integers(0, len(second), len(second))
        result: Any = stats.ks_2samp(first[chosen], second[others], method="asymp")
        distances.append(result.statistic)
    return np.array(distances)


def check(full: bool = True) -> list[Check]:
    replicates = 20_000 if full else 400
    random = np.random.default_rng(5)
    found = []
    for name, (n, m) in SIZES.items():
        first, noise = random.normal(size=n), random.normal(0.4, 1, size=m)
        for paired in (False, True) if n == m else (False,):
            second = first + 0.5 * noise if paired else noise
            one, other = np.asarray(first, np.float32), np.asarray(second, np.float32)
            ours = bootstrap_ks(jax.random.key(7), one, other, replicates, paired=paired)
            # Distances take few values, which float32 and float64 round differently: made one again.
            here = np.round(np.asarray(ours, np.float64), 5)
            theirs = np.round(by_loop(first, second, replicates, paired), 5)
            result: Any = stats.ks_2samp(here, theirs, method="asymp")
            found.append(
                Check(
                    "kernels.bootstrap_ks",
                    "a loop over scipy.stats.ks_2samp",
                    f"distance between two lots of {replicates:,} replicates, {name}{', paired' if paired else ''}",
                    float(result.statistic),
                    float(np.sqrt(-np.log(ALPHA / 2) / replicates)),
                    f"chance is above it once in {1 / ALPHA:,.0f} times (Smirnov's bound)",
                )
            )
    return found


if __name__ == "__main__":
    run("ks_bootstrap", check, ("scipy",))
