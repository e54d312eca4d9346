"""A network as a learner: its gradient, its steps, and a whole fit against plain loops."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import batches_by_loop, softmax, softmax_regression_by_loop
from support.tiny_learners import (
    CLASSES,
    OPTIMIZERS,
    Dropped,
    Normed,
    compiled_fit,
    flat,
    learner,
    records,
    softmax_regression,
)

from jaxaudit.errors import InputError
from jaxaudit.learners import network

KEY = jax.random.key(8)
INPUTS, LABELS = records(23, 4)

# float32 keeps a gradient of order 1 to about 1e-6; a dozen steps of at most 0.05 / EPSILON times that.
CLOSE = {"rtol": 0, "atol": 1e-4}


def weights_of(*members: int, of: int = 8) -> np.ndarray:
    weights = np.zeros(of, np.float32)
    weights[list(members)] = 1
    return weights


def dense(params):
    """Kernel and bias of softmax regression."""
    layer = nnx.to_pure_dict(params)["layers"][0]
    return np.asarray(layer["kernel"]), np.asarray(layer["bias"])


@cache
def regression():
    """A start of softmax regression, and its gradient."""
    one = learner(softmax_regression)
    return jax.jit(one.init)(KEY), jax.jit(one.gradient)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 7), unique=True))
def test_the_gradient_is_that_of_the_weighted_mean_loss(members):
    x, y = INPUTS[:8], LABELS[:8]
    start, gradient_of = regression()
    gradient, _ = gradient_of(start, x, y, weights_of(*members))
    kernel, bias = dense(start.params)
    error = softmax(x.astype(np.float64) @ kernel + bias) - np.eye(CLASSES)[y]
    expected = x[members].T @ error[members] / max(len(members), 1), error[members].sum(axis=0) / max(len(members), 1)
    for ours, theirs in zip(dense(gradient), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("module", [softmax_regression, Normed, Dropped])
def test_a_step_is_update_of_gradient(module):
    one, x, y = learner(module), jnp.asarray(INPUTS[:8]), jnp.asarray(LABELS[:8])

    @jax.jit
    def both(key, weights):
        state = one.init(key)
        parts = one.update(state, *one.gradient(state, x, y, weights))
        return one.step(state, x, y, weights), parts, state

    step, parts, before = both(KEY, weights_of(0, 1, 2, 3, 4))
    assert jax.tree.structure(step) == jax.tree.structure(parts) == jax.tree.structure(before)
    np.testing.assert_array_equal(flat(step), flat(parts))
    assert np.abs(flat(step) - flat(before)).max() > 1e-3
    assert not np.array_equal(flat(step.state), flat(before.state)) or module is softmax_regression


def fitted(one, key, member):
    return compiled_fit(one)(key, INPUTS, LABELS, member.astype(np.float32))


@pytest.mark.parametrize(
    ("members", "optimizer"), [*((members, "adam") for members in (23, 21, 20, 9, 1, 0)), (22, "sgd")]
)
def test_fit_is_a_plain_loop_over_the_members(members, optimizer):
    one = learner(softmax_regression, optimizer=optimizer)
    member = np.zeros(23, bool)
    member[np.random.default_rng(members).permutation(23)[:members]] = True
    start = dense(jax.jit(one.init)(jax.random.fold_in(KEY, 0)).params)
    batches = batches_by_loop(KEY, member, epochs=2, batch_size=4)
    expected = softmax_regression_by_loop(batches, *start, INPUTS, LABELS, OPTIMIZERS[optimizer])
    for ours, theirs in zip(dense(fitted(one, KEY, member).params), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_an_own_walk_never_reads_a_record_that_is_no_member():
    member = np.arange(23) % 2 == 0
    poisoned = np.where(member[:, None], INPUTS, np.nan).astype(np.float32)
    weights = member.astype(np.float32)
    one = learner(Normed)
    params = compiled_fit(one)(KEY, poisoned, LABELS, weights)
    assert np.array_equal(flat(params), flat(fitted(one, KEY, member)))


def test_log_probs_are_those_of_evaluation():
    one = learner(Dropped)
    params = fitted(one, KEY, np.ones(23, bool))
    first, again = (jax.jit(one.log_probs)(params, INPUTS) for _ in range(2))
    assert np.array_equal(first, again)
    np.testing.assert_allclose(np.exp(first).sum(axis=1), 1, rtol=1e-5)
    logits, _ = one.net.apply(params.params, params.state, jnp.asarray(INPUTS), False)
    np.testing.assert_allclose(np.exp(first), softmax(np.asarray(logits, np.float64)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("epochs", "batch_size"), [(0, 8), (3, 0), (-1, 8)])
def test_epochs_and_batch_size_start_at_one(epochs, batch_size):
    with pytest.raises(InputError, match=r"^`(epochs|batch_size)` must be at least 1; got (0|-1)"):
        network(softmax_regression, (4,), 3, optimizer=optax.sgd(0.1), epochs=epochs, batch_size=batch_size)
