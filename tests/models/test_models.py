"""Networks of papers and in common use: layers, sizes, outputs; and the bridge from a Flax module to pure functions."""

import math
import pickle
from functools import partial, wraps
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.network_twins import NUMPY, convolve, resnet, vit, wide_resnet
from support.pure_modules import KEY, compiled, images, is_key, plain, words

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, PureModule, ResNet, ViT, WideResNet, pure_module
from jaxaudit.models.networks import max_pool_2x2


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape, nnx.to_pure_dict(tree))


def count(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def random_like(seed: int, shapes: Any, scale: float = 1.0) -> Any:
    """Normal numbers, so that scales can be negative and biases are not 0."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: random.normal(scale=scale, size=leaf.shape).astype(leaf.dtype), shapes)


def normalize(maps: Any, layer: Any, mean: Any, var: Any) -> Any:
    return (maps - mean) / np.sqrt(var + 1e-5) * layer["scale"] + layer["bias"]


def windows(maps: Any) -> Any:
    n, h, w, c = maps.shape
    return maps[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)


def test_layers_are_the_papers():
    params, state = jax.eval_shape(pure_module(LiuCNN, (28, 28, 1), 10).init, KEY)
    assert shapes(params) == {
        "conv": {"kernel": (7, 7, 1, 32), "bias": (32,)},
        "norm": {"scale": (32,), "bias": (32,)},
        "hidden": {"kernel": (14 * 14 * 32, 1024), "bias": (1024,)},
        "output": {"kernel": (1024, 10), "bias": (10,)},
    }
    assert count(params) == 6_435_466
    assert shapes(state) == {"norm": {"mean": (32,), "var": (32,)}}
    params, state = jax.eval_shape(pure_module(MLP, (28, 28, 1), 10).init, KEY)
    kernels = [shapes(params)["layers"][i]["kernel"] for i in range(4)]
    assert kernels == [(784, 512), (512, 256), (256, 128), (128, 10)]
    assert count(params) == 567_434
    assert not jax.tree.leaves(state)


def test_liu_cnn_is_convolution_norm_relu_pool_and_two_dense_layers():
    net = compiled(LiuCNN, (6, 7, 2))
    shapes = jax.eval_shape(net.init, KEY)
    params, state = random_like(1, shapes[0]), jax.tree.map(lambda leaf: abs(leaf) + 0.1, random_like(2, shapes[1]))
    inputs = images(5, 6, 7, 2)
    p, s = plain(params), plain(state)
    raw = convolve(inputs, p["conv"], 1, 3)
    maps = NUMPY.relu(normalize(raw, p["norm"], s["norm"]["mean"], s["norm"]["var"]))
    flat = windows(maps).max(axis=(2, 4)).reshape(5, -1)
    hidden = NUMPY.relu(NUMPY.dense(flat, p["hidden"]))
    expected = NUMPY.dense(hidden, p["output"])
    logits, _ = net.apply(params, state, inputs, False)
    # Sums of up to 1,024 float32 products of logits in the hundreds.
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))
    moved = plain(net.apply(params, state, inputs, True)[1])["norm"]["mean"]
    np.testing.assert_allclose(moved, 0.9 * s["norm"]["mean"] + 0.1 * raw.mean(axis=(0, 1, 2)), rtol=0, atol=1e-4)


def test_dropout_of_liu_cnn_is_of_training():
    net, dropped = (pure_module(partial(LiuCNN, dropout=share), (4, 4, 1), 3) for share in (0.0, 0.5))

    @jax.jit
    def both(inputs: Any) -> Any:
        start, (params, state) = net.init(KEY), dropped.init(KEY)
        first, after = dropped.apply(params, state, inputs, True)
        draws = first, dropped.apply(params, after, inputs, True)[0]
        return draws, (net.apply(*start, inputs, False)[0], dropped.apply(params, state, inputs, False)[0])

    draws, shown = both(images(4, 4, 4, 1))
    assert not np.array_equal(*draws)
    np.testing.assert_array_equal(*shown)


def test_max_pool_is_flaxs_with_its_gradient():
    random = np.random.default_rng(3)
    inputs, weights = (random.normal(size=shape).astype(np.float32) for shape in ((2, 5, 6, 3), (2, 2, 3, 3)))

    @jax.jit
    def both(inputs: Any) -> Any:
        flaxs = partial(linen.max_pool, window_shape=(2, 2), strides=(2, 2))
        pulls = [jax.vjp(pool, inputs) for pool in (max_pool_2x2, flaxs)]
        found = [(pooled, *pull(weights)) for pooled, pull in pulls]
        return found, jax.grad(lambda x: max_pool_2x2(x).sum())(jnp.ones((1, 2, 2, 1)))

    found, tied = both(inputs)
    for ours, theirs in zip(*found, strict=True):  # no ties
        np.testing.assert_array_equal(ours, theirs)
    assert np.array_equal(tied, np.full((1, 2, 2, 1), 0.25))


def mlp(ops: Any, params: Any, inputs: Any) -> Any:
    values = inputs.reshape(len(inputs), -1)
    for number in range(2):
        values = np.tanh(ops.dense(values, params["layers"][number]))
    return ops.dense(values, params["layers"][2])


def filled_vit(ops: Any, params: Any, inputs: Any) -> Any:
    """Patches that do not fit are filled up with zeros."""
    return vit(ops, params, np.pad(inputs, ((0, 0), (0, 1), (0, 1), (0, 0))), patch=2, heads=2)


NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "mlp": (partial(MLP, hidden=(6, 5), activation=jnp.tanh), mlp, (2, 3)),
    "resnet-8": (partial(ResNet, depth=8, width=4), resnet, (9, 7, 1)),
    "wrn-10-1": (partial(WideResNet, depth=10, widen=1), wide_resnet, (7, 5, 1)),
    "vit": (partial(ViT, depth=2, width=8, heads=2, patch=2), filled_vit, (7, 5, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_by_their_definition_of_each_record_alone_and_dropout_is_of_training(name: str):
    factory, twin, shape = NETWORKS[name]
    net, dropped = pure_module(factory, shape, 3), pure_module(partial(factory, dropout=0.5), shape, 3)
    assert (net.batch_coupled, net.draws, dropped.draws) == (False, False, True)
    params, inputs = random_like(2, jax.eval_shape(net.init, KEY)[0], 0.5), images(5, *shape)
    expected = twin(NUMPY, jax.tree.map(np.float64, plain(params)), inputs.astype(np.float64))
    # Sums of float32 products through a dozen layers.
    close = {"rtol": 0, "atol": 1e-5 * float(np.abs(expected).max())}

    @jax.jit
    def outputs(params: Any, inputs: Any) -> Any:
        (weights, state), start = net.init(KEY), dropped.init(KEY)
        first, after = dropped.apply(params, start[1], inputs, True)
        draws = first, dropped.apply(params, after, inputs, True)[0]
        shown = dropped.apply(params, start[1], inputs, False)[0]
        return (net.apply(params, state, inputs, True)[0], shown), draws, (weights, start[0])

    found, draws, weights = outputs(params, inputs)
    among_others = outputs(params, np.concatenate([inputs[:1], 1e3 * inputs[1:]]))[0]
    for mine, other in zip(found, among_others, strict=True):
        np.testing.assert_allclose(mine, expected, **close)
        np.testing.assert_array_equal(mine[0], other[0])
    assert not np.array_equal(*draws)
    assert not np.allclose(draws[0], expected, **close)
    for mine, other in zip(*map(jax.tree.leaves, weights), strict=True):
        np.testing.assert_array_equal(mine, other)


# He et al. (2016), table 6: ResNet-20 has 0.27 million parameters; Zagoruyko & Komodakis (2016), table 4: WRN-16-4
# has 2.8.
@pytest.mark.parametrize(
    ("factory", "millions"), [(partial(ResNet, depth=20), 0.27), (partial(WideResNet, depth=16, widen=4), 2.8)]
)
def test_sizes_are_the_papers(factory: Any, millions: float):
    made = nnx.eval_shape(lambda: factory((32, 32, 3), 10, rngs=nnx.Rngs(KEY)))
    found = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(made, nnx.Param))) / 1e6
    # He's shortcuts have no weights, and the tables are rounded.
    assert found == pytest.approx(millions, rel=0.03, abs=0.05)


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


@pytest.mark.parametrize("factory", [partial(ResNet, depth=8), partial(WideResNet, depth=10, widen=1)])
def test_batch_normalisation_couples_records(factory: Any):
    assert pure_module(partial(factory, norm="batch"), (4, 4, 1), 2).batch_coupled


@pytest.mark.parametrize("factory", [WithDropout, WithCounter])
def test_init_and_apply_are_pure_under_jit_and_vmap(factory):
    net = pure_module(factory, (4,), 3)
    assert net.batch_coupled is (factory is WithCounter)
    keys, inputs = jax.random.split(KEY, 3), images(3, 5, 4)

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
    inputs, apply = images(50, 4), jax.jit(net.apply, static_argnums=3)
    first, moved = apply(params, state, inputs, True)
    again, _ = apply(params, state, inputs, True)
    second, _ = apply(params, moved, inputs, True)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, second, atol=1e-2)
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    hidden = NUMPY.dense(inputs, jax.tree.map(np.asarray, params["Dense_0"]))
    mean = moved.collections["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(mean, 0.1 * hidden.mean(axis=0), rtol=1e-4, atol=1e-5)
    shown, kept = apply(params, moved, inputs, False)
    whole = jax.jit(partial(Noisy(3).apply, training=False))({"params": params, **moved.collections}, inputs)
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
        (partial(ResNet, depth=9), (8, 8, 1), "9"),
        (partial(WideResNet, depth=8), (8, 8, 1), "8"),
        (partial(ViT, width=10), (8, 8, 1), "10 .*4 heads.* 12"),
        (partial(ResNet, norm="layer"), (8, 8, 1), "'layer'"),
        (ResNet, (12,), r"\(12,\)"),
        (ViT, (12,), r"\(12,\)"),
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
    num_classes: int
    width: int = 5

    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(self.num_classes)(linen.relu(linen.Dense(self.width)(inputs.reshape(len(inputs), -1))))


def documented(input_shape, classes, *, rngs):
    return Net(4, classes, rngs=rngs)


@wraps(documented)
def wrapped(*args, **kwargs):
    return documented(*args, **kwargs)


@pytest.mark.parametrize(
    "factory",
    [
        partial(Net, 4),
        wrapped,
        lambda rngs: Net(4, 3, rngs=rngs),
        # What has a default keeps it.
        lambda input_shape, width=5, *, rngs: Net(math.prod(input_shape), 3, width=width, rngs=rngs),
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


@pytest.mark.parametrize(
    ("factory", "found"),
    [
        (lambda width, classes, *, rngs: None, r"\(width, classes, rngs\), of which width"),
        (lambda key: None, r"\(key\), of which key"),
        (lambda classes, /: None, r"\(classes\), of which classes"),
        (Net, r"\(in_features, num_classes, width, rngs\), of which in_features"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is(factory, found):
    with pytest.raises(InputError, match=rf"{found}.*factory\(input_shape, classes, rngs=...\).*num_classes"):
        pure_module(factory, (4,), 3)
