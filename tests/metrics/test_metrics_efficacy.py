"""Efficacy, its information and its bound: the definitions, the edges, and whole models."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gradient_twins import CLASSES, examples, gradients_by_loop, nnx_log_prob, of_label

from jaxaudit.errors import InputError
from jaxaudit.metrics import Efficacy, efficacy, efficacy_by_layer
from jaxaudit.models import MLP

X, Y = examples(6, 4)
LOG_PROB, PARAMS = nnx_log_prob(MLP((4,), CLASSES, hidden=(5,), rngs=nnx.Rngs(2)))

gradients = st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=6)


@settings(max_examples=30)
@given(gradients)
def test_efficacy_never_exceeds_the_bound(rows: list[list[float]]):
    """Lemma 1, for the rounding of float32 too; equal where all gradients are."""
    g = np.array(rows, np.float32)
    found = efficacy(np.square(g).sum(axis=1), float(np.square(g.mean(axis=0)).sum()))
    assert found.efficacy <= found.bound
    repeated = np.repeat(g[:1], 7, axis=0)
    same = efficacy(np.square(repeated).sum(axis=1), float(np.square(repeated.mean(axis=0)).sum()))
    assert same.efficacy <= same.bound
    np.testing.assert_allclose(same.efficacy, same.bound, rtol=1e-5)


def test_no_information_and_the_smallest():
    assert efficacy(np.zeros(2), 0.0) == Efficacy(np.inf, 0.0, np.inf)
    assert efficacy(np.array([5.0, 5.0]), 0.0) == Efficacy(0.2, 5.0, np.inf)
    tiny = efficacy(np.array([1e-310]), 0.0)
    assert tiny.efficacy == np.inf
    assert tiny.information == 1e-310


@pytest.mark.parametrize(
    ("norms", "of_mean", "message"),
    [
        ([], 0.0, "`examples` must be at least 1; got 0"),
        ([1.0, np.nan, np.inf], np.nan, "`squared_norms` .* got nan, as 2 of 3 numbers"),
        ([1.0, -1.0], 0.0, "`squared_norms` must be at least 0; got -1"),
        ([1.0], -1.0, "`mean_gradient_squared_norm` must be at least 0; got -1"),
        ([1.0, 1.0], 1.1, "the mean gradient's squared norm 1.1 is above the mean squared norm 1, which"),
    ],
)
def test_numbers_that_no_gradients_have(norms: list[float], of_mean: float, message: str):
    with pytest.raises(InputError, match=message):
        efficacy(np.array(norms), of_mean)


def test_a_model_is_measured_whole_by_layer_and_by_example():
    found = efficacy_by_layer(LOG_PROB, PARAMS, X, Y, chunk=4)
    each = [
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)])
        for g in gradients_by_loop(LOG_PROB, PARAMS, X, Y)
    ]
    norms = np.square(each).sum(axis=1)
    np.testing.assert_allclose(found.per_example, norms, rtol=1e-5)
    np.testing.assert_allclose(found.whole.information, norms.mean(), rtol=1e-5)
    np.testing.assert_allclose(found.whole.bound, 1 / np.square(np.mean(each, axis=0)).sum(), rtol=1e-5)
    assert found.whole.efficacy == 1 / found.whole.information
    assert list(found.layers) == ["layers/0", "layers/1"]
    assert set(found.paths) == {f"layers/{layer}/{leaf}" for layer in (0, 1) for leaf in ("kernel", "bias")}
    assert set(found.paths.values()) == {"contracted"}
    np.testing.assert_allclose(sum(layer.information for layer in found.layers.values()), norms.mean(), rtol=1e-5)
    assert all(layer.efficacy <= layer.bound for layer in found.layers.values())


def linear(params: Any, x: Any, y: Any, dtype: Any = jnp.float32) -> Any:
    """The log-probability of a linear layer that computes in this precision."""
    return of_label(x.astype(dtype) @ params.astype(dtype), y)


def test_a_model_of_short_floats_is_measured_and_said_to_be_one():
    """Of equal records the mean gradient is no longer than they are but for rounding, here that of 16 bits."""
    params = jnp.asarray(np.random.default_rng(3).normal(size=(4, 3)), jnp.bfloat16)
    x, y = np.repeat(X[:1], 40, axis=0), np.repeat(Y[:1], 40)
    exact = efficacy_by_layer(linear, params.astype(jnp.float32), x, y)
    assert not exact.short
    for of_parameters in (jnp.float32, jnp.bfloat16):
        found = efficacy_by_layer(partial(linear, dtype=jnp.bfloat16), params.astype(of_parameters), x, y)
        assert found.short
        assert found.whole.efficacy <= found.whole.bound
        np.testing.assert_allclose(*(msgspec.structs.astuple(of.whole) for of in (found, exact)), rtol=0.1)


def test_products_are_computed_in_full_float32():
    """Some devices would round them to fewer bits, and then no gradient could be told from another to 1e-5."""
    seen = set()

    def log_prob(params: Any, x: Any, y: Any) -> Any:
        seen.add(jax.config.values["jax_default_matmul_precision"])
        return of_label(x @ params, y)

    efficacy_by_layer(log_prob, jnp.ones((4, 3)), X, Y)
    assert seen == {"highest"}


class Normed(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, use_running_average=False, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.norm(self.dense(x), use_running_average=False)


@pytest.mark.parametrize(
    ("log_prob", "params", "x", "y", "message"),
    [
        (*nnx_log_prob(Normed(nnx.Rngs(1))), X, Y, "changes with the others in its batch.* training mode"),
        (LOG_PROB, PARAMS, X[:0], Y[:0], "`examples` must be at least 1; got 0"),
        (LOG_PROB, PARAMS, X, Y[:2], "`inputs` must be at least 2 and at most 2; got 6"),
        (lambda p, x, y: x @ p, jnp.ones((4, 3)), X, Y, r"maps 6 examples to shape \(6, 3\); it must return one"),
        (lambda p, x, y: (x @ p, y), jnp.ones(4), X, Y, "maps 6 examples to no array"),
        (linear, jnp.full((4, 3), jnp.nan), X, Y, "`squared_norms` .* got nan, as 6 of 6 numbers"),
    ],
)
def test_what_has_no_efficacy_says_why(log_prob: Any, params: Any, x: Any, y: Any, message: str):
    with pytest.raises(InputError, match=message):
        efficacy_by_layer(log_prob, params, x, y)


def test_a_perfect_fit_tells_nothing():
    """Probability 1 in float32, so a gradient of 0: infinite, not an error."""
    found = efficacy_by_layer(
        linear, 1e3 * jnp.eye(4, 3), np.eye(4, dtype=np.float32)[[0, 1, 2, 0, 1, 2]], np.arange(6) % 3
    )
    assert found.whole == Efficacy(np.inf, 0.0, np.inf)
