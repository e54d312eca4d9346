"""Linen modules as they are, beside NNX modules that do the same."""

import pickle
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from support.pure_modules import KEY, images, words

from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.models import MLP, PureModule, pure_module


class Plain(linen.Module):
    classes: int = 3

    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(self.classes)(linen.relu(linen.Dense(5)(inputs.reshape(len(inputs), -1))))


class Noisy(linen.Module):
    """Batch normalisation and dropout, told in the two usual ways whether they are in training."""

    classes: int

    @linen.compact
    def __call__(self, inputs, *, training, deterministic=True):
        hidden = linen.BatchNorm(use_running_average=not training, momentum=0.9)(linen.Dense(40)(inputs))
        return linen.Dense(self.classes)(linen.Dropout(0.5, deterministic=deterministic)(hidden))


def test_collections_and_keys_are_state():
    net = pure_module(Noisy, (4,), 3)
    assert (net.batch_coupled, net.draws) == (True, True)
    params, state = jax.jit(net.init)(KEY)
    inputs = jnp.asarray(images(50, 4))
    apply = jax.jit(net.apply, static_argnums=3)
    first, moved = apply(params, state, inputs, True)
    again, _ = apply(params, state, inputs, True)
    second, _ = apply(params, moved, inputs, True)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, second, atol=1e-2)
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    dense = params["Dense_0"]
    hidden = inputs @ dense["kernel"] + dense["bias"]
    mean = moved.collections["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(mean, 0.1 * hidden.mean(axis=0), rtol=1e-4, atol=1e-5)
    shown, kept = apply(params, moved, inputs, False)
    whole: Any = Noisy(3).apply({"params": params, **moved.collections}, inputs, training=False)
    np.testing.assert_allclose(shown, whole, rtol=1e-5, atol=1e-5)
    assert jax.tree.all(jax.tree.map(np.array_equal, kept.collections, moved.collections))


class Twin(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.first, self.second = nnx.Linear(4, 5, rngs=rngs), nnx.Linear(5, classes, rngs=rngs)

    def __call__(self, inputs):
        return self.second(nnx.relu(self.first(inputs)))


def test_a_linen_module_trains_as_an_nnx_module_does():
    """From the same weights, without batch normalisation: the same learner, the same steps."""
    inputs, labels = jnp.asarray(images(20, 4)), jnp.arange(20) % 3
    recipe = {"optimizer": optax.sgd(0.1), "epochs": 1, "batch_size": 5}
    ours, theirs = network(Plain, (4,), 3, **recipe), network(Twin, (4,), 3, **recipe)
    linen_state, nnx_state = (jax.jit(each.init)(KEY) for each in (ours, theirs))
    steps = [jax.jit(each.step) for each in (ours, theirs)]
    params = linen_state.params
    for name, layer in (("first", "Dense_1"), ("second", "Dense_0")):
        for leaf in ("kernel", "bias"):
            nnx_state.params[name][leaf].set_value(params[layer][leaf])
    for start in range(0, 20, 5):
        batch = inputs[start : start + 5], labels[start : start + 5], jnp.ones(5)
        linen_state, nnx_state = steps[0](linen_state, *batch), steps[1](nnx_state, *batch)
    np.testing.assert_allclose(
        ours.log_probs(ours.finish(linen_state), inputs),
        theirs.log_probs(theirs.finish(nnx_state), inputs),
        rtol=1e-5,
        atol=1e-6,
    )


class Always(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dropout(0.5, deterministic=False)(linen.Dense(3)(inputs))


class AlwaysNNX(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.dense, self.rngs = nnx.Linear(4, classes, rngs=rngs), rngs.fork()

    def __call__(self, inputs):
        return self.dense(inputs) + jax.random.normal(self.rngs(), (3,))


class DrawsForNothing(AlwaysNNX):
    def __call__(self, inputs):
        self.rngs()
        return self.dense(inputs)


class Mask(linen.Module):
    @linen.compact
    def __call__(self, inputs, mask):
        return linen.Dense(3)(inputs)


class Fixed(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return inputs @ jnp.ones((7, 3))


@pytest.mark.parametrize(
    ("factory", "shape", "message"),
    [
        (Always, (4,), "Always draws random numbers in evaluation, so"),
        (AlwaysNNX, (4,), "AlwaysNNX draws random numbers in evaluation, so"),
        (Mask, (4,), "train, training"),
        (Plain(7), (4,), r"Plain maps 2 records to outputs of shape \(2, 7\)"),
        (Fixed, (4,), r"Fixed does not accept records of shape \(4,\): TypeError: "),
    ],
)
def test_a_module_that_does_not_fit_is_refused_in_one_line(factory, shape, message):
    with pytest.raises(InputError, match=message) as caught:
        pure_module(factory, shape, 3)
    assert "\n" not in str(caught.value)


def test_random_numbers_that_do_not_reach_the_outputs_do_no_harm():
    assert pure_module(DrawsForNothing, (4,), 3).draws


@pytest.mark.parametrize(
    "factory", [lambda input_shape, classes, rngs: MLP(input_shape, classes, rngs=rngs, hidden=(3,)), Noisy]
)
def test_of_a_network_only_its_factory_travels(factory: Any):
    """To a worker, which makes the same functions of it."""
    net, inputs = pure_module(factory, (4,), 3), jnp.asarray(images(5, 4))
    sent: PureModule = pickle.loads(cloudpickle.dumps(net))
    (params, state), theirs = jax.jit(net.init)(KEY), jax.jit(sent.init)(KEY)
    ours = jax.tree.leaves((params, state))
    assert all((words(a) == words(b)).all() for a, b in zip(ours, jax.tree.leaves(theirs), strict=True))
    outputs = net.apply(params, state, inputs, False)[0]
    np.testing.assert_array_equal(outputs, sent.apply(params, state, inputs, False)[0])
    assert sent[2:5] == net[2:5]
