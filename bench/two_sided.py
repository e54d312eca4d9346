"""Networks written once for JAX and PyTorch: layers of either library, called by the same forward pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from flax import nnx
from torch import nn

from bench.training import Job
from jaxaudit.learners.batch_order import init_key
from jaxaudit.models.layers import max_pool_2x2

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
TORCH = Operations(
    torch.relu,
    lambda maps: nn.functional.max_pool2d(maps, 2),
    lambda maps: maps.mean((2, 3)),
    # Pixels before channels, as in JAX, so that the layer behind has the same weights.
    lambda inputs: (inputs.permute(0, 2, 3, 1) if inputs.ndim == 4 else inputs).flatten(1),
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


class TorchNetwork(nn.Module):
    """The network in PyTorch; images have their channels first."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_torch_layer(layer) for layer in net.layers])
        self.pass_through = net.forward

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.pass_through(list(self.layers), TORCH, inputs)


def _flax_layer(layer: Conv | Norm | Dense, rngs: nnx.Rngs) -> nnx.Module:
    if isinstance(layer, Norm):
        return nnx.GroupNorm(layer.channels, GROUPS, epsilon=EPSILON, rngs=rngs)
    if isinstance(layer, Dense):
        return nnx.Linear(*layer, rngs=rngs)
    return nnx.Conv(layer.channels_in, layer.channels_out, (3, 3), layer.stride, padding=1, rngs=rngs)


def _torch_layer(layer: Conv | Norm | Dense) -> nn.Module:
    if isinstance(layer, Norm):
        return nn.GroupNorm(GROUPS, layer.channels, EPSILON)
    if isinstance(layer, Dense):
        return nn.Linear(*layer)
    return nn.Conv2d(layer.channels_in, layer.channels_out, 3, layer.stride, padding=1)


def copy_initial(job: Job, model: int, net: TorchNetwork) -> None:
    """Gives a PyTorch network the weights with which `fit_many` starts this model."""
    params = nnx.to_pure_dict(job.learner.init(init_key(job.keys[model])).params)["layers"]
    for index, layer in enumerate(net.layers):
        layer.load_state_dict({name: torch.from_numpy(array) for name, array in _torch_weights(params[index]).items()})


def _torch_weights(leaves: dict[str, Any]) -> dict[str, np.ndarray]:
    own = {name: np.array(leaf) for name, leaf in leaves.items()}
    if "scale" in own:
        return {"weight": own["scale"], "bias": own["bias"]}
    kernel = own["kernel"]
    return {"weight": kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T, "bias": own["bias"]}
