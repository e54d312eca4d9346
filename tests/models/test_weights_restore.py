"""Weights into a module: which names fit, and what is said of those that do not."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import linen, nnx
from support.pure_modules import KEY, compiled
from support.pure_modules import images as host_images

from jaxaudit import load_weights
from jaxaudit.errors import InputError
from jaxaudit.models import PureModule, name_weights


def images(*shape: int) -> jax.Array:
    return jnp.asarray(host_images(*shape))


class Net(nnx.Module):
    """Layers in a list, batch normalisation, dropout."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(input_shape[0], 5, rngs=rngs), nnx.Linear(5, classes, rngs=rngs)])
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, inputs):
        return self.layers[1](self.drop(self.norm(self.layers[0](inputs))))


class LinenNet(linen.Module):
    classes: int

    @linen.compact
    def __call__(self, inputs, train: bool):
        hidden = linen.BatchNorm(use_running_average=not train)(linen.Dense(5)(inputs))
        return linen.Dense(self.classes)(linen.Dropout(0.5, deterministic=not train)(hidden))


@lru_cache
def trained(factory) -> tuple[PureModule, dict[str, np.ndarray], np.ndarray]:
    """A module, its weights after a step in training, and what it then answers."""
    net = compiled(factory, (4,))
    params, state = net.init(KEY)
    inputs = images(6, 4)
    _, state = net.apply(params, state, inputs, True)
    return net, name_weights(params, state), np.asarray(net.apply(params, state, inputs, False)[0])


def answer(factory, weights: dict[str, np.ndarray]) -> np.ndarray:
    net = trained(factory)[0]
    restored = load_weights(net, weights, "w.safetensors", "Net")
    return np.asarray(net.apply(restored.params, restored.state, images(6, 4), False)[0])


NAMES = [
    *("layers/0/kernel", "layers/0/bias", "layers/1/kernel", "layers/1/bias"),
    *("norm/scale", "norm/bias", "norm/mean", "norm/var"),
]
LINEN = [f"params/{name}" for name in ("Dense_0/kernel", "Dense_0/bias", "Dense_1/kernel", "Dense_1/bias")]
LINEN += ["params/BatchNorm_0/scale", "params/BatchNorm_0/bias"]
LINEN += ["batch_stats/BatchNorm_0/mean", "batch_stats/BatchNorm_0/var"]


@pytest.mark.parametrize(("factory", "names"), [(Net, NAMES), (LinenNet, LINEN)])
def test_common_spellings_of_the_same_tree_none_of_which_is_random(factory, names):
    _, weights, wanted = trained(factory)
    assert sorted(weights) == sorted(names)
    for spell in (
        lambda name: name,
        lambda name: name.replace("/", "."),
        lambda name: f"{name}/value",
        lambda name: f"{name}.raw_value".replace("/", "."),
        lambda name: f"params/{name}",
        lambda name: name.removeprefix("params/"),
        lambda name: f"module._orig_mod.{name}",
        lambda name: f"params.{name}.value".replace("/", "."),
    ):
        spelled = {spell(name): values for name, values in weights.items()}
        np.testing.assert_array_equal(answer(factory, spelled), wanted)


def without(weights: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    return {name: values for name, values in weights.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: without(w, "norm/mean", "norm/var"), "missing: norm/mean, norm/var"),
        (lambda w: without(w, "norm/mean"), r"w\.safetensors does not fit Net"),
        (lambda w: {"a": np.ones(3)}, "norm/mean, norm/var, layers/0/bias and 5 more"),
        (lambda w: {**w, "step": np.array(3)}, "step"),
        # No other spelling is guessed.
        (lambda w: {f"model/{name}": values for name, values in w.items()}, "does not fit Net"),
        (lambda w: {name.replace("kernel", "weight"): values for name, values in w.items()}, "does not fit Net"),
        (lambda w: {**w, "norm/var": np.ones(6)}, "does not fit Net: norm/var"),
        (lambda w: {**w, "norm/var": np.full(5, "x")}, "norm/var"),
        (lambda w: {**w, "norm/var": np.full(5, 1e300)}, "numbers too large for"),
        # Twice the same array.
        (lambda w: {**w, "norm.var": w["norm/var"]}, r"unexpected: norm\.var"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(InputError, match=message) as caught:
        answer(Net, change(trained(Net)[1]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_other_float_types_are_converted_and_said(dtype):
    net, weights, _ = trained(Net)
    other = {name: values.astype(dtype) for name, values in weights.items()}
    restored = load_weights(net, other, "w", "Net")
    assert restored.notes == (f"w: converted from {np.dtype(dtype)} to float32",)
    back = name_weights(restored.params, restored.state)
    assert all(np.array_equal(back[name], other[name].astype(np.float32)) for name in weights)
    assert jax.tree.structure((restored.params, restored.state)) == jax.tree.structure(net.init(KEY))
    assert load_weights(net, weights, "w", "Net").notes == ()
