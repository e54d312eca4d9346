"""What a model-step costs at least, counted from the network: FLOPs of products, and bytes of memory.

- A product of a layer is counted two FLOPs a multiplication: 2 * batch * inputs * outputs for a dense layer, 2 * batch
  * pixels out * 9 * channels in * channels out for a convolution. A step has three: the outputs, the gradient of the
  weights, and the gradient of the inputs, which the first layer does not need. Everything else is counted as nothing.
- Parameters and Adam's two moments are read and written once in float32: 24 bytes a parameter. Gradients are not
  counted, as they need not be in memory.
- The minibatch and each layer's output are written once and read once, by four bytes a number, or two in bfloat16.

The least that a step could do is below what any program does, so shares of this floor are never flattered.
"""

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench.device.networks import JAX, Conv, Dense, Network, Norm

BYTES_A_PARAMETER = 24


class Count(NamedTuple):
    """FLOPs and bytes."""

    flops: float
    bytes: float


def of_step(net: Network, shape: tuple[int, ...], batch: int, bytes_a_number: int = 4) -> Count:
    """Of one step of one model."""
    parameters = flops = numbers = 0

    def counted(layer: Conv | Norm | Dense, inputs: Any) -> Any:
        nonlocal parameters, flops, numbers
        if isinstance(layer, Norm):
            out, weights, work = inputs.shape, 0, 0
            parameters += 2 * layer.channels
        elif isinstance(layer, Dense):
            out, weights = (*inputs.shape[:-1], layer.size_out), layer.size_in * layer.size_out
            work = 2 * batch * weights
        else:
            pixels = tuple(-(-side // layer.stride) for side in inputs.shape[1:3])
            out, weights = (batch, *pixels, layer.channels_out), 9 * layer.channels_in * layer.channels_out
            work = 2 * batch * prod(pixels) * weights
        first = layer is net.layers[0]
        parameters += weights + (out[-1] if weights else 0)
        flops += work * (2 if first else 3)
        numbers += prod(out)
        return jnp.zeros(out)

    def walk(inputs: Any) -> Any:
        layers = [lambda inputs, layer=layer: counted(layer, inputs) for layer in net.layers]
        return net.forward(layers, JAX, inputs)

    jax.eval_shape(walk, jax.ShapeDtypeStruct((batch, *shape), jnp.float32))
    numbers += batch * prod(shape)
    return Count(flops, BYTES_A_PARAMETER * parameters + 2 * bytes_a_number * numbers)


def of_ks(first: int, second: int) -> Count:
    """Of a distance by a sort of both samples: by radix, four passes of eight bits after one that counts.

    Each pass reads and writes a key of four bytes and two that say whose it is; a last one reads both.
    """
    return Count(0, (first + second) * (4 + 4 * 2 * 6 + 6))


def of_bootstrap(first: int, second: int, replicates: int) -> Count:
    """Of replicates after the one sort: each draw's index and each record's count is written and read once."""
    return Count(0, of_ks(first, second).bytes + replicates * (first + second) * 16)
