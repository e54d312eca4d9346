"""The benchmark network of Liu & Tsaftaris (2020)."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.models.dropout import dropout_layer
from jaxaudit.models.pooling import max_pool_2x2

# PyTorch's default, which the authors used: new = 0.9 old + 0.1 batch. Flax's own default (0.99) lags behind in the
# few hundred steps of a small set.
BATCH_NORM_MOMENTUM = 0.9


class LiuCNN(nnx.Module):
    """Convolution 32@7x7 (stride 1, padding 3), batch normalisation, ReLU, max-pool 2; dense 1024, ReLU; dense.

    Liu & Tsaftaris (2020), section 4.1, for images `[h, w, channels]` (28x28x1 there, 6.4M parameters). The paper
    does not give the order within the block; convolution, normalisation, ReLU, pooling is used. `dropout` is the share
    of the dense layer's units that is dropped.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs, dropout: float = 0.0) -> None:
        height, width, channels = input_shape
        if height < 2 or width < 2:
            raise ValueError(f"pooling by 2 leaves nothing of images of {height}x{width} pixels")
        self.conv = nnx.Conv(channels, 32, (7, 7), padding=3, rngs=rngs)
        self.norm = nnx.BatchNorm(32, momentum=BATCH_NORM_MOMENTUM, rngs=rngs)
        self.hidden = nnx.Linear((height // 2) * (width // 2) * 32, 1024, rngs=rngs)
        self.output = nnx.Linear(1024, classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        maps = max_pool_2x2(jax.nn.relu(self.norm(self.conv(inputs))))
        return self.output(self.drop(jax.nn.relu(self.hidden(maps.reshape(maps.shape[0], -1)))))
