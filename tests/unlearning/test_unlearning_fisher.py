"""Fisher forgetting: each variant against a loop over records, and the noise against what it says of itself."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from jaxaudit.unlearning import becker_code, forget_by_noise, golatkar, paper

KEY = jax.random.key(3)
RANDOM = np.random.default_rng(4)
INPUTS = jnp.asarray(RANDOM.normal(size=(17, 4)), jnp.float32)
LABELS = jnp.asarray(RANDOM.integers(0, 3, 17), jnp.int32)
FORGET = jnp.arange(17) < 5
PARAMS = {
    "hidden": {"kernel": jnp.asarray(RANDOM.normal(size=(4, 6)), jnp.float32), "bias": jnp.zeros(6)},
    "output": {"kernel": jnp.asarray(RANDOM.normal(size=(6, 3)), jnp.float32), "bias": jnp.zeros(3)},
}
VARIANTS = [paper, golatkar, becker_code]


def log_probs(params: Any, inputs: Any) -> Any:
    hidden = jnp.tanh(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return jax.nn.log_softmax(hidden @ params["output"]["kernel"] + params["output"]["bias"])


def gradients(label: int | None) -> list[tuple[float, dict[str, Any]]]:
    """For every remaining record: p(label) and the gradient of log p(label); None: its own label."""
    found = []
    for x, own in zip(INPUTS[5:], LABELS[5:], strict=True):
        y = own if label is None else label
        value, gradient = jax.value_and_grad(lambda p, x=x, y=y: log_probs(p, x[None])[0, y])(PARAMS)
        found.append((float(jnp.exp(value)), jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), gradient)))
    return found


def by_loop(variant: Any, alpha: float) -> Any:
    """The standard deviations, as the formulas are written."""

    def mean(parts: Any) -> Any:
        return jax.tree.map(lambda *leaves: sum(leaves) / 12, *parts)

    if variant is paper:
        fisher = mean([jax.tree.map(np.square, g) for _, g in gradients(None)])
        return jax.tree.map(lambda f: alpha**0.25 * np.maximum(f, 1e-8) ** -0.25, fisher)
    if variant is golatkar:
        each = [jax.tree.map(lambda g, p=p: p * g**2, g) for label in range(3) for p, g in gradients(label)]
        return jax.tree.map(lambda f: np.sqrt(alpha * np.minimum(1 / (f + 1e-8), 1000)), mean(each))
    total = jax.tree.map(lambda *leaves: sum((g + 1e-7) ** 2 for g in leaves), *[g for _, g in gradients(0)])
    stds = jax.tree.map(lambda f: np.minimum(np.sqrt(alpha / f), 1e-3), total)
    stds["output"]["bias"] = 10 * stds["output"]["bias"]
    return stds


@pytest.mark.parametrize("alpha", [3e-6, 0.2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_its_formula(variant, alpha):
    found = variant(log_probs, PARAMS, INPUTS, LABELS, ~FORGET, alpha)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(by_loop(variant, alpha)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_alpha_nothing_changes(variant):
    found = forget_by_noise(KEY, log_probs, PARAMS, INPUTS, LABELS, FORGET, noise=variant, alpha=0.0)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_noise_has_the_stated_standard_deviation(variant):
    """The sum of squares over all parameters and 200 keys, standardised, is chi-squared; error rate 1e-4 a variant.

    And no two parameters share their noise: the largest correlation of 51 series of 200 stays below 0.4 (five
    standard errors and more) for each pair.
    """
    stds = variant(log_probs, PARAMS, INPUTS, LABELS, ~FORGET, 1e-2)
    forget = partial(forget_by_noise, noise=variant, alpha=1e-2)
    keys = jax.random.split(KEY, 200)
    blurred = jax.vmap(lambda key: forget(key, log_probs, PARAMS, INPUTS, LABELS, FORGET))(keys)
    noise = jax.tree.map(lambda new, old, std: np.asarray((new - old) / std).reshape(200, -1), blurred, PARAMS, stds)
    standard = np.concatenate(jax.tree.leaves(noise), axis=1).astype(np.float64)
    low, high = chi2.ppf([5e-5, 1 - 5e-5], standard.size)
    assert low < (standard**2).sum() < high
    correlations = np.corrcoef(standard.T) - np.eye(standard.shape[1])
    assert np.abs(correlations).max() < 0.4


def test_it_is_vmapped_over_models_and_sets():
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), PARAMS)
    sets = jnp.stack([FORGET, jnp.arange(17) < 1])
    keys = jax.random.split(KEY, 2)

    def one(key: Any, params: Any, forget: Any) -> Any:
        return forget_by_noise(key, log_probs, params, INPUTS, LABELS, forget, noise=paper, alpha=1e-9)

    together = jax.jit(jax.vmap(one))(keys, models, sets)
    for index in range(2):
        alone = one(keys[index], jax.tree.map(lambda leaf, i=index: leaf[i], models), sets[index])
        for mine, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(mine[index], theirs, rtol=1e-4, atol=1e-6)


def test_a_parameter_without_information_gets_a_bounded_noise():
    dead = {**PARAMS, "output": {"kernel": jnp.zeros((6, 3)), "bias": jnp.array([40.0, -40.0, -40.0])}}
    for variant, most in ((paper, (1e-4 / 1e-8) ** 0.25), (golatkar, (1e-4 * 1e3) ** 0.5), (becker_code, 1e-2)):
        stds = variant(log_probs, dead, INPUTS, LABELS, ~FORGET, 1e-4)
        assert max(float(leaf.max()) for leaf in jax.tree.leaves(stds["hidden"])) <= most * 1.0001
