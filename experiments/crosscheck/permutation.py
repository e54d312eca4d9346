"""The permutation test against `scipy.stats.permutation_test`: `python -m experiments.crosscheck.permutation`."""

from typing import Any

import jax
import numpy as np
from scipy import stats

from experiments.crosscheck.record import Check, run
from jaxaudit.metrics.permutation import permutation_test


def difference(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
    return first.mean(axis=axis) - second.mean(axis=axis)


def check(full: bool = True) -> list[Check]:
    permutations, pairs = (200_000, 12) if full else (4000, 3)
    random = np.random.default_rng(6)
    p_values, differences = [], []
    for pair in range(pairs):
        shift, n, m = 0.3 * pair, 4 + pair % 3, 7
        first, second = random.normal(shift, 1, n), random.normal(0, 1, m)
        if pair % 2:
            first, second = np.round(first), np.round(second)
        ours = permutation_test(jax.random.key(pair), first, second, permutations=permutations)
        differences.append(abs(ours.difference - (first.mean() - second.mean())))
        for mine, side in ((ours.p_larger, "greater"), (ours.p_smaller, "less")):
            everything: dict[str, Any] = {"vectorized": True, "n_resamples": np.inf, "alternative": side}
            exact: Any = stats.permutation_test((first, second), difference, **everything)
            p_values.append(abs(mine - exact.pvalue))
    name = "metrics.permutation.permutation_test"
    return [
        Check(
            name,
            "scipy.stats.permutation_test, all permutations",
            f"p-value of {permutations:,} random permutations, both sides, {pairs} pairs of samples, with ties",
            max(p_values),
            5 * 0.5 / np.sqrt(permutations),
            "five standard deviations of a share of so many",
        ),
        Check(name, "NumPy", "difference of means", max(differences), 1e-12, "float64"),
    ]


if __name__ == "__main__":
    run("permutation", check, ("scipy",))
