"""The networks of `bench.device.networks` in PyTorch, with the weights that they have in JAX."""

from typing import Any

import numpy as np
import torch
from flax import nnx
from torch import nn

from bench.device.networks import EPSILON, GROUPS, Conv, Dense, Network, Norm, Operations
from bench.training import Job
from jaxaudit.learners.learner import init_key

TORCH = Operations(
    torch.relu,
    lambda maps: nn.functional.max_pool2d(maps, 2),
    lambda maps: maps.mean((2, 3)),
    # Pixels before channels, as in JAX, so that the layer behind has the same weights.
    lambda inputs: (inputs.permute(0, 2, 3, 1) if inputs.ndim == 4 else inputs).flatten(1),
)


class TorchNetwork(nn.Module):
    """The network in PyTorch; images have their channels first."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_torch_layer(layer) for layer in net.layers])
        self.pass_through = net.forward

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.pass_through(list(self.layers), TORCH, inputs)


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
    arrays = {name: np.array(leaf) for name, leaf in leaves.items()}
    if "scale" in arrays:
        return {"weight": arrays["scale"], "bias": arrays["bias"]}
    kernel = arrays["kernel"]
    return {"weight": kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T, "bias": arrays["bias"]}
