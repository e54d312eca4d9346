"""Fisher forgetting: each variant against a loop over records, and the noise against what it says of itself."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import chi2
from support.forgetters import FORGET, INPUTS, KEY, PARAMS, asked, assert_close, cross_entropy, gradient_of, log_probs

from jaxaudit.unlearning import becker_code, forget_by_noise, golatkar, paper

REMAINING = np.flatnonzero(~FORGET)
VARIANTS = [paper, golatkar, becker_code]


@cache
def deviations(variant: Any) -> Any:
    return jax.jit(lambda params, alpha: variant(log_probs, params, *asked(~FORGET), alpha))


@cache
def blurred(variant: Any) -> Any:
    """By many keys, of one model."""

    def one(key: Any, alpha: Any) -> Any:
        return forget_by_noise(key, log_probs, PARAMS, *asked(), noise=variant, alpha=alpha)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def by_loop(variant: Any, alpha: float) -> Any:
    """The standard deviations, as the formulas are written."""

    def squares(label: int | None, added: float = 0.0) -> list[Any]:
        gradients = [gradient_of(cross_entropy, PARAMS, int(record), label) for record in REMAINING]
        return [jax.tree.map(lambda g: (added - np.float64(g)) ** 2, each) for each in gradients]

    def total(parts: Any) -> Any:
        return jax.tree.map(lambda *leaves: sum(leaves), *parts)

    if variant is paper:
        mean = jax.tree.map(lambda f: f / 12, total(squares(None)))
        return jax.tree.map(lambda f: alpha**0.25 * np.maximum(f, 1e-8) ** -0.25, mean)
    if variant is golatkar:
        shares = np.exp(np.asarray(log_probs(PARAMS, INPUTS)))[REMAINING]
        weighed = [
            jax.tree.map(lambda f, p=p: p * f / 12, square)
            for label in range(3)
            for p, square in zip(shares[:, label], squares(label), strict=True)
        ]
        return jax.tree.map(lambda f: np.sqrt(alpha * np.minimum(1 / (f + 1e-8), 1000)), total(weighed))
    stds = jax.tree.map(lambda f: np.minimum(np.sqrt(alpha / f), 1e-3), total(squares(0, 1e-7)))
    stds["output"]["bias"] = 10 * stds["output"]["bias"]
    return stds


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_its_formula(variant):
    for alpha in (3e-6, 0.2):
        assert_close(deviations(variant)(PARAMS, alpha), by_loop(variant, alpha))
    dead = {
        **PARAMS,
        "output": {"kernel": np.zeros((6, 3), np.float32), "bias": np.array([40.0, -40.0, -40.0], np.float32)},
    }
    most = {paper: (1e-4 / 1e-8) ** 0.25, golatkar: (1e-4 * 1e3) ** 0.5, becker_code: 1e-2}[variant]
    without_information = deviations(variant)(dead, 1e-4)["hidden"]
    assert max(float(leaf.max()) for leaf in jax.tree.leaves(without_information)) <= most * 1.0001


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_noise_has_the_stated_standard_deviation(variant):
    """The sum of squares over all parameters and 200 keys, standardised, is chi-squared; error rate 1e-4 a variant.

    And no two parameters share their noise: the largest correlation of 51 series of 200 stays below 0.4 (five
    standard errors and more) for each pair. With alpha 0 nothing changes.
    """
    keys = jax.random.split(KEY, 200)
    found, stds = blurred(variant)(keys, 1e-2), deviations(variant)(PARAMS, 1e-2)
    noise = jax.tree.map(lambda new, old, std: np.asarray((new - old) / std).reshape(200, -1), found, PARAMS, stds)
    standard = np.concatenate(jax.tree.leaves(noise), axis=1).astype(np.float64)
    low, high = chi2.ppf([5e-5, 1 - 5e-5], standard.size)
    assert low < (standard**2).sum() < high
    correlations = np.corrcoef(standard.T) - np.eye(standard.shape[1])
    assert np.abs(correlations).max() < 0.4
    for mine, theirs in zip(jax.tree.leaves(blurred(variant)(keys, 0.0)), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_array_equal(mine, np.broadcast_to(theirs, mine.shape))
