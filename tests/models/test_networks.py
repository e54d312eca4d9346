"""The networks in common use: their sizes, their outputs by definition, and that records do not touch one another."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.network_twins import NUMPY, resnet, vit, wide_resnet
from support.pure_modules import KEY, compiled, images, plain

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, MedicalCNN, ResNet, ViT, WideResNet, pure_module

NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "resnet-8": (partial(ResNet, width=4), resnet, (8, 6, 3)),
    "resnet-14": (partial(ResNet, depth=14, width=4), resnet, (9, 7, 1)),
    "wrn-10-1": (partial(WideResNet, depth=10, widen=1), wide_resnet, (8, 6, 3)),
    "wrn-16-1": (partial(WideResNet, widen=1), wide_resnet, (7, 5, 1)),
    "vit": (partial(ViT, depth=2, width=8, heads=2, patch=2), partial(vit, patch=2, heads=2), (8, 6, 3)),
}


def moved(tree: Any) -> Any:
    """Every leaf with normal numbers added, so that no scale is 1 and no bias 0."""
    random = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.3 * random.normal(size=leaf.shape), leaf.dtype), tree)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_by_their_definition(name: str):
    factory, twin, shape = NETWORKS[name]
    net = compiled(factory, shape)
    params, state = net.init(KEY)
    params, inputs = moved(params), jnp.asarray(images(5, *shape))
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), plain(params))
    expected = twin(NUMPY, wide, np.asarray(inputs, np.float64))
    # Sums of float32 products through a dozen layers.
    close = {"rtol": 0, "atol": 1e-5 * float(np.abs(expected).max())}
    for training in (True, False):
        np.testing.assert_allclose(net.apply(params, state, inputs, training)[0], expected, **close)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_record_touches_another(name: str):
    factory, _, shape = NETWORKS[name]
    net = compiled(factory, shape)
    assert not net.batch_coupled
    params, state = net.init(KEY)
    inputs = images(4, *shape)
    other: Any = np.concatenate([inputs[:1], 1e3 * inputs[1:]])
    found, same = (net.apply(params, state, each, True)[0][0] for each in (inputs, other))
    np.testing.assert_array_equal(found, same)


# He et al. (2016), table 6: ResNet-20 has 0.27 million parameters; Zagoruyko & Komodakis (2016), table 4: WRN-40-1 has
# 0.6, WRN-16-4 2.8, WRN-16-8 11.0, WRN-28-10 36.5.
@pytest.mark.parametrize(
    ("factory", "millions"),
    [
        (partial(ResNet, depth=20), 0.27),
        (partial(ResNet, depth=56), 0.85),
        (partial(WideResNet, depth=40, widen=1), 0.6),
        (partial(WideResNet, depth=16, widen=4), 2.8),
        (partial(WideResNet, depth=16, widen=8), 11.0),
        (partial(WideResNet, depth=28, widen=10), 36.5),
    ],
)
def test_sizes_are_the_papers(factory: Any, millions: float):
    params, _ = jax.eval_shape(pure_module(factory, (32, 32, 3), 10).init, KEY)
    found = sum(leaf.size for leaf in jax.tree.leaves(params)) / 1e6
    # He's shortcuts have no weights, and the tables are rounded.
    assert found == pytest.approx(millions, rel=0.03, abs=0.05)


@pytest.mark.parametrize("factory", [ResNet, WideResNet])
def test_batch_normalisation_is_there_for_who_asks(factory: Any):
    net = pure_module(partial(factory, norm="batch"), (8, 8, 3), 3)
    assert net.batch_coupled


def test_patches_that_do_not_fit_are_filled_up_with_zeros():
    factory = partial(ViT, depth=1, width=8, heads=2, patch=3)
    params, state = compiled(factory, (7, 4, 2)).init(KEY)
    inputs = images(3, 7, 4, 2)
    filled: Any = np.pad(inputs, ((0, 0), (0, 2), (0, 2), (0, 0)))
    found = compiled(factory, (7, 4, 2)).apply(params, state, inputs, False)[0]
    np.testing.assert_allclose(found, compiled(factory, (9, 6, 2)).apply(params, state, filled, False)[0], rtol=1e-6)


DROPPING: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (partial(MLP, hidden=(8, 8)), (6,)),
    "liu-cnn": (LiuCNN, (6, 6, 1)),
    "medical-cnn": (partial(MedicalCNN, crop=(8, 8)), (8, 8, 1)),
    "resnet": (partial(ResNet, width=4), (8, 8, 1)),
    "wrn": (partial(WideResNet, depth=10, widen=1), (8, 8, 1)),
    "vit": (partial(ViT, depth=1, width=8), (8, 8, 1)),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_leaves_weights_and_evaluation_as_they_are(name: str):
    factory, shape = DROPPING[name]
    plain_net, net = pure_module(factory, shape, 3), pure_module(partial(factory, dropout=0.5), shape, 3)
    assert net.draws
    (params, state), (same, kept) = plain_net.init(KEY), net.init(KEY)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    inputs = jnp.asarray(images(4, *shape))
    expected = plain_net.apply(params, state, inputs, False)[0]
    np.testing.assert_array_equal(net.apply(same, kept, inputs, False)[0], expected)
    first, after = net.apply(same, kept, inputs, True)
    assert not np.array_equal(first, net.apply(same, after, inputs, True)[0])
    np.testing.assert_array_equal(first, net.apply(same, kept, inputs, True)[0])


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
