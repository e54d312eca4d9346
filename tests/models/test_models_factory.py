"""Factories of networks are called by what their parameters are named."""

from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.pure_modules import KEY, images

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, pure_module
from jaxaudit.models.factory import plan_call


class Net(nnx.Module):
    def __init__(self, in_features: int, num_classes: int = 7, *, width: int = 5, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(in_features, width, rngs=rngs)
        self.second = nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, inputs):
        return self.second(nnx.relu(self.first(inputs.reshape(len(inputs), -1))))


class Dense(linen.Module):
    n_classes: int
    width: int = 5

    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(self.n_classes)(linen.relu(linen.Dense(self.width)(inputs.reshape(len(inputs), -1))))


def documented(input_shape, classes, *, rngs):
    return Net(4, classes, rngs=rngs)


@wraps(documented)
def wrapped(*args, **kwargs):
    return documented(*args, **kwargs)


@pytest.mark.parametrize(
    "factory",
    [
        Net,
        partial(Net, width=5),
        partial(Net, 4),
        wrapped,
        lambda rngs: Net(4, 3, rngs=rngs),
        lambda shape, rngs, /: Net(shape[0] * shape[1], 3, rngs=rngs),
        lambda features_in, classes, rngs: Net(features_in, classes, rngs=rngs),
    ],
)
def test_nnx_factories_that_say_the_same(factory):
    net, same = pure_module(factory, (2, 2), 3), pure_module(documented, (2, 2), 3)
    assert net.seeded
    inputs = jnp.asarray(images(6, 2, 2))
    ours, theirs = (each.apply(*each.init(KEY), inputs, False)[0] for each in (net, same))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "factory", [Dense, Dense(3), lambda: Dense(3), lambda rngs: Dense(3), lambda num_classes: Dense(num_classes)]
)
def test_linen_factories_that_say_the_same(factory):
    net = pure_module(factory, (2, 2), 3)
    assert net.seeded
    inputs = jnp.asarray(images(6, 2, 2))
    params, state = net.init(KEY)
    expected = Dense(3).apply(Dense(3).init(KEY, jnp.zeros((1, 2, 2))), inputs)
    np.testing.assert_array_equal(net.apply(params, state, inputs, False)[0], expected)
    other = net.init(jax.random.key(5))[0]
    assert not np.array_equal(params["Dense_0"]["kernel"], other["Dense_0"]["kernel"])


def test_a_network_that_brings_its_own_seed_is_told_apart():
    net = pure_module(lambda: Net(4, 3, rngs=nnx.Rngs(1)), (4,), 3)
    assert not net.seeded
    first, other = (jax.tree.leaves(net.init(jax.random.key(seed))[0]) for seed in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def of_many(input_dim, in_channels, out_features, num_features, rngs): ...


def with_defaults(num_classes=10, num_features=64, out_features=9, hidden=32): ...


class Without(nnx.Module): ...


class Wide(linen.Module):
    classes: int
    num_features: int = 64


@pytest.mark.parametrize(
    ("factory", "shape", "text"),
    [
        (MLP, (4,), "f(input_shape=(4,), classes=3, rngs=...)"),
        (of_many, (8, 6, 2), "f(input_dim=96, in_channels=2, out_features=3, num_features=96, rngs=...)"),
        (with_defaults, (4,), "f(num_classes=3)"),
        (Wide, (4,), "f(classes=3)"),
        (Without, (4,), "f()"),
        (max, (4,), "f((4,), 3, rngs=...)"),
    ],
)
def test_calls(factory, shape, text):
    assert plan_call(factory, "f", shape, 3).text == text


class Hidden(linen.Module):
    classes: int
    num_features: int


@pytest.mark.parametrize(
    ("factory", "found"),
    [
        (lambda width, classes, *, rngs: None, r"\(width, classes, rngs\), of which width"),
        (lambda key: None, r"\(key\), of which key"),
        (Hidden, r"\(classes, num_features\), of which num_features"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is(factory, found):
    with pytest.raises(InputError, match=rf"{found}.*factory\(rngs\) and factory\(\).*num_classes.*in_features"):
        pure_module(factory, (4,), 3)
