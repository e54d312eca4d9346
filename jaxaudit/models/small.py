"""A network that is trained in a second, for what many of them say together."""

from itertools import pairwise

import jax
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.models.layers import make_norm, max_pool_2x2

CHANNELS = (8, 16)


class SmallCNN(nnx.Module):
    """Two blocks, of 8 and 16 channels, and a dense layer; a block halves the image.

    Each block is a convolution of 3 x 3 pixels, batch normalisation, ReLU and the maximum of 2 x 2. Images
    `[h, w, channels]` have at least 4 pixels a side.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        height, width, channels = input_shape
        widths = (channels, *CHANNELS)
        self.convs = nnx.List([nnx.Conv(a, b, (3, 3), padding=1, rngs=rngs) for a, b in pairwise(widths)])
        self.norms = nnx.List([make_norm("batch", b, rngs) for b in CHANNELS])
        self.output = nnx.Linear((height // 4) * (width // 4) * CHANNELS[-1], classes, rngs=rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        maps = inputs
        for conv, norm in zip(self.convs, self.norms, strict=True):
            maps = max_pool_2x2(jax.nn.relu(norm(conv(maps))))
        return self.output(maps.reshape(maps.shape[0], -1))
