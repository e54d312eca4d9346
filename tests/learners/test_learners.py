"""A network as a learner: its gradient, its steps, and a whole fit against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support.references import batches_by_loop, softmax, softmax_regression_by_loop
from support.tiny_learners import (
    OPTIMIZERS,
    Dropped,
    compiled_fit,
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


def dense(params):
    """Kernel and bias of softmax regression."""
    layer = nnx.to_pure_dict(params)["layers"][0]
    return np.asarray(layer["kernel"]), np.asarray(layer["bias"])


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
