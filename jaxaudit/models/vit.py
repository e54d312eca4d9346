"""A small vision transformer."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.models.layers import dropout_layer

EPSILON = 1e-6
"""Epsilon of layer normalisation, as in Dosovitskiy et al.'s code."""


class ViT(nnx.Module):
    """A vision transformer of Dosovitskiy et al. (2021) for images `[h, w, channels]`, without a class token.

    The image is cut into square patches, with zero padding. A dense layer maps each patch to `width` numbers, to which
    a learned vector per position is added. `depth` blocks follow: x + attention(norm(x)), then
    x + dense(gelu(dense(norm(x)))), with four times `width` hidden units. The logits are a dense layer of the
    normalised mean over positions (Beyer et al. 2022).

    Args:
        input_shape, classes, rngs: as for `ResNet`.
        depth: number of blocks.
        width: numbers per position; a multiple of the heads.
        heads: number of attention heads.
        patch: side of a patch in pixels; by default an eighth of the image's larger side, at least 1.
        dropout: share of the numbers that is dropped after attention and after the second dense layer of a block.

    Raises:
        InputError: the width is no multiple of the heads.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        depth: int = 4,
        width: int = 64,
        heads: int = 4,
        patch: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        if width % heads:
            raise InputError(
                f"a ViT of width {width} cannot be split over {heads} heads; give a multiple of {heads}, such as "
                f"{-(-width // heads) * heads}."
            )
        height, wide, channels = input_shape
        self.patch = patch or max(1, -(-max(height, wide) // 8))
        places = -(-height // self.patch) * -(-wide // self.patch)
        self.embed = nnx.Linear(self.patch**2 * channels, width, rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), (places, width)))
        self.blocks = nnx.List([Encoder(width, heads, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        self.output = nnx.Linear(width, classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        tokens = self.embed(_patches(inputs, self.patch))
        tokens = tokens + self.places[...].astype(tokens.dtype)
        for block in self.blocks:
            tokens = block(tokens, self.drop)
        return self.output(self.norm(tokens).mean(axis=1))


class Encoder(nnx.Module):
    """A block of the transformer."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.first_norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        self.attend = nnx.Linear(width, 3 * width, rngs=rngs)
        self.merge = nnx.Linear(width, width, rngs=rngs)
        self.second_norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, rngs=rngs)
        self.output = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(
        self, tokens: Float[Array, "n places width"], drop: Callable[[Array], Array]
    ) -> Float[Array, "n places width"]:
        n, places, width = tokens.shape
        queries, keys, values = (
            projection.reshape(n, places, self.heads, width // self.heads)
            for projection in jnp.split(self.attend(self.first_norm(tokens)), 3, axis=2)
        )
        seen = jax.nn.dot_product_attention(queries, keys, values).reshape(n, places, width)
        tokens = tokens + drop(self.merge(seen))
        hidden = jax.nn.gelu(self.hidden(self.second_norm(tokens)), approximate=False)
        return tokens + drop(self.output(hidden))


def _patches(inputs: Float[Array, "n h w c"], side: int) -> Float[Array, "n places numbers"]:
    n, height, width, channels = inputs.shape
    down, across = -(-height // side), -(-width // side)
    fill = (down * side - height, across * side - width)
    padded = jnp.pad(inputs, ((0, 0), (0, fill[0]), (0, fill[1]), (0, 0)))
    cut = padded.reshape(n, down, side, across, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(n, down * across, side * side * channels)
