"""The networks in common use: their sizes, their outputs by definition, and that records do not touch one another."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from support.network_twins import NUMPY, resnet, vit, wide_resnet
from support.pure_modules import KEY, compiled, images, plain

from jaxaudit.errors import InputError
from jaxaudit.models import MLP, LiuCNN, MedicalCNN, ResNet, ViT, WideResNet, pure_module


def filled_vit(ops: Any, params: Any, inputs: Any) -> Any:
    """Patches that do not fit are filled up with zeros."""
    return vit(ops, params, np.pad(inputs, ((0, 0), (0, 1), (0, 1), (0, 0))), patch=2, heads=2)


NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "resnet-14": (partial(ResNet, depth=14, width=4), resnet, (9, 7, 1)),
    "wrn-16-1": (partial(WideResNet, widen=1), wide_resnet, (7, 5, 1)),
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


@pytest.mark.parametrize("factory", [ResNet, WideResNet])
def test_batch_normalisation_is_there_for_who_asks(factory: Any):
    net = pure_module(partial(factory, norm="batch"), (8, 8, 3), 3)
    assert net.batch_coupled


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
