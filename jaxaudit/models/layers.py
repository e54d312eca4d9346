"""Layers that several networks share: normalisation, dropout, and a max pooling with a fast gradient.

Measured on two CPU cores with jax 0.10.2: the gradient of `reduce_window` max pooling takes ten times as long as that
of a maximum of four strided slices, which XLA pads out again: written as a comparison with the maximum it takes a
quarter of that once more.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.errors import InputError

# PyTorch's default: new = 0.9 old + 0.1 batch. Flax's default (0.99) is too slow for the few steps of a small set.
BATCH_NORM_MOMENTUM = 0.9
NORMS = ("group", "batch")
GROUPS = 8
"""The largest number of groups; fewer if the channels cannot be divided into as many."""
EPSILON = 1e-5
"""PyTorch's default epsilon of normalisation layers."""


def make_norm(name: str, channels: int, rngs: nnx.Rngs) -> Any:
    """The normalisation of maps with this many channels.

    Raises:
        InputError: `name` is neither `group` nor `batch`.
    """
    if name == "group":
        return nnx.GroupNorm(channels, num_groups=math.gcd(channels, GROUPS), epsilon=EPSILON, rngs=rngs)
    if name == "batch":
        return nnx.BatchNorm(channels, momentum=BATCH_NORM_MOMENTUM, epsilon=EPSILON, rngs=rngs)
    raise InputError(f"there is no normalisation {name!r}; known ones are {', '.join(NORMS)}.")


def dropout_layer(share: float, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    """`nnx.Dropout` of this share of the units; for a share of 0 the identity, which has no random state.

    Make it after the layers with weights, so that their initial weights are the same as without dropout.
    """
    return nnx.Dropout(share, rngs=rngs) if share else _unchanged


def _unchanged(inputs: Array) -> Array:
    return inputs


@jax.custom_jvp
def max_pool_2x2(inputs: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """The largest of every 2x2 window, stride 2; an odd last row or column is dropped.

    On a CPU, XLA's gradient of `reduce_window` (select-and-scatter) takes tens of times as long, and that of a maximum
    of strided slices, which it pads out again, four times. Where several entries of a window tie, they share the
    gradient equally.

    >>> jax.grad(lambda x: max_pool_2x2(x).sum())(jnp.array([[1.0, 3.0], [3.0, 2.0]])[None, :, :, None])[0, :, :, 0]
    Array([[0. , 0.5],
           [0.5, 0. ]], dtype=float32)
    """
    h, w = inputs.shape[1] // 2 * 2, inputs.shape[2] // 2 * 2
    x = inputs[:, :h, :w]
    top = jnp.maximum(x[:, ::2, ::2], x[:, ::2, 1::2])
    return jnp.maximum(top, jnp.maximum(x[:, 1::2, ::2], x[:, 1::2, 1::2]))


@max_pool_2x2.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (inputs,), (tangent,) = primals, tangents
    n, h, w, c = inputs.shape

    def windows(array: Array) -> Array:
        return array[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)

    pooled = max_pool_2x2(inputs)
    largest = windows(inputs) == pooled[:, :, None, :, None]
    share = sum(largest[:, :, row, :, column].astype(pooled.dtype) for row in (0, 1) for column in (0, 1))
    return pooled, jnp.sum(jnp.where(largest, windows(tangent), 0), axis=(2, 4)) / share
