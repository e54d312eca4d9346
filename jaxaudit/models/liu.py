"""The networks of Liu & Tsaftaris (2020): the benchmark network, and the cardiac one with its random crops."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.models.layers import BATCH_NORM_MOMENTUM, dropout_layer, max_pool_2x2


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


class RandomCrop(nnx.Module):
    """Cuts a window out of every image: at random in training, the central one in evaluation.

    Images smaller than the window are padded with zeros up to its size, evenly on both sides.
    """

    def __init__(self, size: tuple[int, int], *, rngs: nnx.Rngs) -> None:
        self.size = size
        self.rngs = rngs.fork()
        self.deterministic = False

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n height width c"]:
        height, width = self.size
        missing = [max(0, height - inputs.shape[1]), max(0, width - inputs.shape[2])]
        images = jnp.pad(inputs, ((0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)))
        spare = images.shape[1] - height, images.shape[2] - width
        if self.deterministic:
            top, left = spare[0] // 2, spare[1] // 2
            return images[:, top : top + height, left : left + width]
        corners = jax.random.randint(self.rngs(), (len(images), 2), 0, jnp.array(spare) + 1)

        def window(image: Array, corner: Array) -> Array:
            return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (height, width, image.shape[2]))

        return jax.vmap(window)(images, corners)


class MedicalCNN(nnx.Module):
    """Four convolution blocks (32@7 stride 1 padding 3; 64, 128, 128 @4 stride 2 padding 1) and one dense layer.

    Liu & Tsaftaris (2020), section 4.2; each block is convolution, batch normalisation, ReLU. Inputs of any size are
    cropped to `crop` (128x128 in the paper): at random in training, centrally in evaluation. `dropout` is the share of
    the dense layer's inputs that is dropped.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        crop: tuple[int, int] = (128, 128),
        dropout: float = 0.0,
    ) -> None:
        self.crop = RandomCrop(crop, rngs=rngs)
        channels = (input_shape[-1], 32, 64, 128, 128)
        shapes = ((7, 1, 3), (4, 2, 1), (4, 2, 1), (4, 2, 1))
        self.convs = nnx.List(
            [
                nnx.Conv(a, b, (kernel, kernel), strides=stride, padding=padding, rngs=rngs)
                for a, b, (kernel, stride, padding) in zip(channels, channels[1:], shapes, strict=False)
            ]
        )
        self.norms = nnx.List([nnx.BatchNorm(b, momentum=BATCH_NORM_MOMENTUM, rngs=rngs) for b in channels[1:]])
        self.output = nnx.Linear((crop[0] // 8) * (crop[1] // 8) * channels[-1], classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        maps = self.crop(inputs)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            maps = jax.nn.relu(norm(conv(maps)))
        return self.output(self.drop(maps.reshape(maps.shape[0], -1)))
