"""Networks written once for JAX and PyTorch: layers of either library, called by the same forward pass.

PyTorch's are in `torch_networks`, so that JAX's are there without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
from flax import nnx

from jaxaudit.models.networks import max_pool_2x2

GROUPS, EPSILON = 8, 1e-5


class Conv(NamedTuple):
    """A 3x3 convolution, padded by one pixel."""

    channels_in: int
    channels_out: int
    stride: int = 1


class Norm(NamedTuple):
    """Group normalisation, eight groups."""

    channels: int


class Dense(NamedTuple):
    """A fully connected layer."""

    size_in: int
    size_out: int


class Operations(NamedTuple):
    """What stands between the layers, in one of the libraries."""

    relu: Callable[[Any], Any]
    halved: Callable[[Any], Any]
    pooled: Callable[[Any], Any]
    flat: Callable[[Any], Any]


JAX = Operations(
    jax.nn.relu, max_pool_2x2, lambda maps: maps.mean((1, 2)), lambda inputs: inputs.reshape(len(inputs), -1)
)


@dataclass(frozen=True)
class Network:
    """Layers in the order of use, and the forward pass through them."""

    layers: tuple[Conv | Norm | Dense, ...]
    forward: Callable[[Sequence[Any], Operations, Any], Any]


def mlp(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int) -> Network:
    """Dense layers with ReLU between them."""
    widths = (prod(shape), *hidden, classes)
    return Network(tuple(map(Dense, widths[:-1], widths[1:])), _plain)


def cnn(shape: tuple[int, ...], classes: int) -> Network:
    """Convolutions of 32 and 64 channels, each with ReLU and max pooling; dense layers of 128 and of the classes."""
    height, width, channels = shape
    convs = (Conv(channels, 32), Conv(32, 64))
    return Network((*convs, Dense(height // 4 * (width // 4) * 64, 128), Dense(128, classes)), _convolutional)


def resnet(shape: tuple[int, ...], classes: int) -> Network:
    """ResNet-8 with group normalisation: three residual blocks of 16, 32 and 64 channels, the last two of stride 2."""
    layers: list[Conv | Norm | Dense] = [Conv(shape[-1], 16), Norm(16)]
    for before, after in ((16, 16), (16, 32), (32, 64)):
        stride = after // before
        layers += [
            Conv(before, after, stride),
            Norm(after),
            Conv(after, after),
            Norm(after),
            Conv(before, after, stride),
        ]
    return Network((*layers, Dense(64, classes)), _residual)


def _plain(layers: Sequence[Any], ops: Operations, inputs: Any) -> Any:
    hidden = ops.flat(inputs)
    for layer in layers[:-1]:
        hidden = ops.relu(layer(hidden))
    return layers[-1](hidden)


def _convolutional(layers: Sequence[Any], ops: Operations, inputs: Any) -> Any:
    first, second, *dense = layers
    return _plain(dense, ops, ops.halved(ops.relu(second(ops.halved(ops.relu(first(inputs)))))))


def _residual(layers: Sequence[Any], ops: Operations, inputs: Any) -> Any:
    maps = ops.relu(layers[1](layers[0](inputs)))
    for start in range(2, len(layers) - 1, 5):
        first, first_norm, second, second_norm, shortcut = layers[start : start + 5]
        inner = second_norm(second(ops.relu(first_norm(first(maps)))))
        maps = ops.relu(inner + shortcut(maps))
    return layers[-1](ops.pooled(maps))


class FlaxNetwork(nnx.Module):
    """The network in Flax."""

    def __init__(self, net: Network, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([_flax_layer(layer, rngs) for layer in net.layers])
        self.forward = net.forward

    def __call__(self, inputs: Any) -> Any:
        return self.forward(list(self.layers), JAX, inputs)


def _flax_layer(layer: Conv | Norm | Dense, rngs: nnx.Rngs) -> nnx.Module:
    if isinstance(layer, Norm):
        return nnx.GroupNorm(layer.channels, GROUPS, epsilon=EPSILON, rngs=rngs)
    if isinstance(layer, Dense):
        return nnx.Linear(*layer, rngs=rngs)
    return nnx.Conv(layer.channels_in, layer.channels_out, (3, 3), layer.stride, padding=1, rngs=rngs)
