"""The bridge from any NNX or Linen module to two pure functions, and how the factories of such modules are called."""

import pickle
from functools import partial, wraps
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.pure_modules import KEY, images, is_key, words

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, PureModule, ResNet, WideResNet, pure_module


class WithDropout(nnx.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], classes, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, inputs):
        return self.drop(self.dense(inputs))


class WithCounter(nnx.Module):
    """A user's module that keeps something of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(input_shape[0], classes, rngs=rngs)
        self.seen = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, inputs):
        self.seen[...] = self.seen[...] + 1
        return self.dense(inputs)


@pytest.mark.parametrize(
    ("factory", "shape", "coupled"),
    [
        (MLP, (3,), False),
        (WithDropout, (3,), False),
        (WithCounter, (3,), True),
        (LiuCNN, (4, 4, 1), True),
        *((partial(factory, norm="batch"), (8, 8, 3), True) for factory in (ResNet, WideResNet)),
    ],
)
def test_batch_coupling_is_seen_in_the_state(factory, shape, coupled):
    assert pure_module(factory, shape, 2).batch_coupled is coupled


@pytest.mark.parametrize(("factory", "shape"), [(WithDropout, (4,)), (WithCounter, (4,)), (LiuCNN, (4, 4, 1))])
def test_init_and_apply_are_pure_under_jit_and_vmap(factory, shape):
    net = pure_module(factory, shape, 3)
    keys, inputs = jax.random.split(KEY, 3), images(3, 5, *shape)

    def run(key, x):
        params, state = net.init(key)
        first, moved = net.apply(params, state, x, True)
        second, _ = net.apply(params, moved, x, True)
        shown, kept = net.apply(params, state, x, False)
        # The state changes in training only, and in the open.
        assert jax.tree.structure(moved) == jax.tree.structure(kept) == jax.tree.structure(state)
        assert all(was is same for was, same in zip(jax.tree.leaves(state), jax.tree.leaves(kept), strict=True))
        return (first, second, shown), (jax.tree.map(as_words, state), jax.tree.map(as_words, moved))

    batched, (before, after) = jax.jit(jax.vmap(run))(keys, inputs)
    alone = jax.jit(run)
    for m in range(3):
        for ours, theirs in zip(alone(keys[m], inputs[m])[0], batched, strict=True):
            np.testing.assert_allclose(ours, theirs[m], rtol=0, atol=1e-5)
    assert any(not np.array_equal(*each) for each in zip(*map(jax.tree.leaves, (before, after)), strict=True))
    assert np.allclose(batched[0], batched[1], atol=1e-2) is (factory is not WithDropout)


def as_words(leaf):
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


class TwoOutputs(WithDropout):
    def __call__(self, inputs):
        return super().__call__(inputs), inputs


def fixed(width: int, classes: int):
    return lambda input_shape, num_classes, *, rngs: nnx.Linear(width, classes, rngs=rngs)


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


class Always(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dropout(0.5, deterministic=False)(linen.Dense(3)(inputs))


class AlwaysNNX(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.dense, self.rngs = nnx.Linear(4, classes, rngs=rngs), rngs.fork()

    def __call__(self, inputs):
        return self.dense(inputs) + jax.random.normal(self.rngs(), (3,))


class Mask(linen.Module):
    @linen.compact
    def __call__(self, inputs, mask):
        return linen.Dense(3)(inputs)


@pytest.mark.parametrize(
    ("factory", "shape", "message"),
    [
        (lambda input_shape: None, (4,), r"returned a NoneType, not a flax\.nnx\.Module"),
        (LiuCNN, (784,), r"LiuCNN could not build a network: .*called as LiuCNN\(input_shape=\(784,\), classes=3"),
        (LiuCNN, (1, 2, 1), "LiuCNN could not build a network: ValueError: pooling by 2 leaves nothing of .* 1x2 pixe"),
        (lambda input_shape, classes, *, rngs: 3, (4,), r"a int, not a flax\.nnx\.Module, flax"),
        (fixed(7, 3), (4,), r"does not accept records of shape \(4,\): TypeError: dot_general"),
        (fixed(4, 7), (4,), r"maps 2 records to outputs of shape \(2, 7\)"),
        (TwoOutputs, (4,), r"TwoOutputs maps 2 records to a tuple; it must return logits of shape \(2, 3\)"),
        (Always, (4,), "Always draws random numbers in evaluation, so"),
        (AlwaysNNX, (4,), "AlwaysNNX draws random numbers in evaluation, so"),
        (Mask, (4,), "train, training"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_fit_is_refused_in_one_line(factory, shape, message):
    with pytest.raises(InputError, match=message) as caught:
        pure_module(factory, shape, 3)
    assert "\n" not in str(caught.value)


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
        partial(Net, 4),
        wrapped,
        lambda rngs: Net(4, 3, rngs=rngs),
        lambda shape, rngs: Net(shape[0] * shape[1], 3, rngs=rngs),
        lambda features_in, classes, rngs: Net(features_in, classes, rngs=rngs),
        # What has a default keeps it.
        lambda input_dim, num_features=5, *, rngs: Net(input_dim, 3, width=num_features, rngs=rngs),
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


class Hidden(linen.Module):
    classes: int
    num_features: int


@pytest.mark.parametrize(
    ("factory", "found"),
    [
        (lambda width, classes, *, rngs: None, r"\(width, classes, rngs\), of which width"),
        (lambda key: None, r"\(key\), of which key"),
        (lambda classes, /: None, r"\(classes\), of which classes"),
        (Hidden, r"\(classes, num_features\), of which num_features"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is(factory, found):
    with pytest.raises(InputError, match=rf"{found}.*factory\(rngs\) and factory\(\).*num_classes.*in_features"):
        pure_module(factory, (4,), 3)
