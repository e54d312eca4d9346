"""The networks of papers and those in common use: their layers, sizes and outputs, in training and in evaluation."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.network_twins import NUMPY, convolve, resnet, vit, wide_resnet
from support.pure_modules import KEY, compiled, images, plain

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, ResNet, ViT, WideResNet, pure_module
from jaxaudit.models.networks import max_pool_2x2


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape, nnx.to_pure_dict(tree))


def count(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def random_like(seed: int, tree: Any) -> Any:
    """Every leaf replaced by normal numbers, so that scales can be negative and biases are not 0."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), tree)


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
    params, state = net.init(KEY)
    params = random_like(1, params)
    state = jax.tree.map(lambda leaf: jnp.abs(leaf) + 0.1, random_like(2, state))
    inputs = images(5, 6, 7, 2)
    p, s = plain(params), plain(state)
    raw = convolve(inputs, p["conv"], 1, 3)
    maps = NUMPY.relu(normalize(raw, p["norm"], s["norm"]["mean"], s["norm"]["var"]))
    flat = windows(maps).max(axis=(2, 4)).reshape(5, -1)
    hidden = NUMPY.relu(NUMPY.dense(flat, p["hidden"]))
    expected = NUMPY.dense(hidden, p["output"])
    logits, _ = net.apply(params, state, inputs, False)
    # Sums of up to 1,024 float32 products of logits in the hundreds.
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * float(jnp.abs(expected).max()))
    moved = plain(net.apply(params, state, inputs, True)[1])["norm"]["mean"]
    np.testing.assert_allclose(moved, 0.9 * s["norm"]["mean"] + 0.1 * raw.mean(axis=(0, 1, 2)), rtol=0, atol=1e-4)


def test_mlp_is_dense_layers_with_its_activation_between():
    def factory(input_shape, classes, *, rngs):
        return MLP(input_shape, classes, rngs=rngs, hidden=(6, 5), activation=jnp.tanh)

    net = compiled(factory, (2, 3), 4)
    params, state = net.init(KEY)
    params = random_like(5, params)
    inputs = images(7, 2, 3)
    values, layers = inputs.reshape(7, 6), plain(params)["layers"]
    for i in range(2):
        values = np.tanh(NUMPY.dense(values, layers[i]))
    np.testing.assert_allclose(
        net.apply(params, state, inputs, True)[0], NUMPY.dense(values, layers[2]), rtol=1e-4, atol=1e-5
    )


def test_max_pool_is_flaxs_with_its_gradient():
    inputs = jax.random.normal(KEY, (2, 5, 6, 3))  # no ties
    weights = jax.random.normal(jax.random.key(4), (2, 2, 3, 3))
    pools = max_pool_2x2, lambda x: linen.max_pool(x, (2, 2), strides=(2, 2))
    for found in (
        [jax.jit(pool)(inputs) for pool in pools],
        [jax.jit(jax.grad(lambda x, pool=pool: jnp.sum(weights * pool(x))))(inputs) for pool in pools],
    ):
        np.testing.assert_array_equal(*found)
    tied = jax.grad(lambda x: max_pool_2x2(x).sum())(jnp.ones((1, 2, 2, 1)))
    assert np.array_equal(tied, np.full((1, 2, 2, 1), 0.25))


def filled_vit(ops: Any, params: Any, inputs: Any) -> Any:
    """Patches that do not fit are filled up with zeros."""
    return vit(ops, params, np.pad(inputs, ((0, 0), (0, 1), (0, 1), (0, 0))), patch=2, heads=2)


NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "resnet-8": (partial(ResNet, depth=8, width=4), resnet, (9, 7, 1)),
    "wrn-10-1": (partial(WideResNet, depth=10, widen=1), wide_resnet, (7, 5, 1)),
    "vit": (partial(ViT, depth=2, width=8, heads=2, patch=2), filled_vit, (7, 5, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_by_their_definition_and_no_record_touches_another(name: str):
    factory, twin, shape = NETWORKS[name]
    net, random = compiled(factory, shape), np.random.default_rng(2)
    assert not net.batch_coupled
    params, state = net.init(KEY)
    # No scale is 1 and no bias 0.
    params = jax.tree.map(lambda leaf: leaf + 0.3 * random.normal(size=leaf.shape).astype(leaf.dtype), params)
    inputs = images(5, *shape)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), plain(params))
    expected = twin(NUMPY, wide, inputs.astype(np.float64))
    # Sums of float32 products through a dozen layers.
    close = {"rtol": 0, "atol": 1e-5 * float(np.abs(expected).max())}
    among_others: Any = np.concatenate([inputs[:1], 1e3 * inputs[1:]])
    for training in (True, False):
        found = net.apply(params, state, inputs, training)[0]
        np.testing.assert_allclose(found, expected, **close)
        np.testing.assert_array_equal(net.apply(params, state, among_others, training)[0][0], found[0])


# He et al. (2016), table 6: ResNet-20 has 0.27 million parameters; Zagoruyko & Komodakis (2016), table 4: WRN-16-4
# has 2.8, WRN-28-10 36.5.
@pytest.mark.parametrize(
    ("factory", "millions"),
    [
        (partial(ResNet, depth=20), 0.27),
        (partial(WideResNet, depth=16, widen=4), 2.8),
        (partial(WideResNet, depth=28, widen=10), 36.5),
    ],
)
def test_sizes_are_the_papers(factory: Any, millions: float):
    made = nnx.eval_shape(lambda: factory((32, 32, 3), 10, rngs=nnx.Rngs(KEY)))
    found = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(made, nnx.Param))) / 1e6
    # He's shortcuts have no weights, and the tables are rounded.
    assert found == pytest.approx(millions, rel=0.03, abs=0.05)


DROPPING: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (partial(MLP, hidden=(8, 8)), (6,)),
    "liu-cnn": (LiuCNN, (6, 6, 1)),
    "resnet": (partial(ResNet, depth=8, width=4), (8, 8, 1)),
    "wrn": (partial(WideResNet, depth=10, widen=1), (8, 8, 1)),
    "vit": (partial(ViT, depth=1, width=8, patch=4), (8, 8, 1)),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_leaves_weights_and_evaluation_as_they_are(name: str):
    factory, shape = DROPPING[name]
    undropped, net = pure_module(factory, shape, 3), pure_module(partial(factory, dropout=0.5), shape, 3)
    assert net.draws

    @jax.jit
    def both(inputs: Any) -> Any:
        starts = undropped.init(KEY), net.init(KEY)
        shown = [each.apply(*start, inputs, False)[0] for each, start in zip((undropped, net), starts, strict=True)]
        first, after = net.apply(*starts[1], inputs, True)
        return [start[0] for start in starts], shown, first, net.apply(starts[1][0], after, inputs, True)[0]

    params, shown, first, second = both(images(4, *shape))
    for ours, theirs in zip(*map(jax.tree.leaves, params), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(*shown)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, shown[0])


@pytest.mark.parametrize(
    ("factory", "shape", "said"),
    [
        (partial(ResNet, depth=9), (8, 8, 1), "9"),
        (partial(WideResNet, depth=8), (8, 8, 1), "8"),
        (partial(ViT, width=10), (8, 8, 1), "10 .*4 heads.* 12"),
        (partial(ResNet, norm="layer"), (8, 8, 1), "'layer'"),
        (ResNet, (12,), r"\(12,\)"),
        (ViT, (12,), r"\(12,\)"),
    ],
)
def test_networks_that_cannot_be(factory: Any, shape: tuple[int, ...], said: str):
    with pytest.raises(InputError, match=said):
        pure_module(factory, shape, 3)
