"""Residual networks for small images: ResNet, wide ResNet."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Float

from jaxaudit.errors import InputError
from jaxaudit.models.layers import dropout_layer, make_norm

STAGES = 3


class ResNet(nnx.Module):
    """A residual network of He et al. (2016), section 4.2, for images `[h, w, channels]` such as CIFAR's.

    A 3x3 convolution, then three stages of n blocks with `width`, twice and four times as many channels, of which the
    second and third halve height and width; the mean over the image; a dense layer. `depth` is 6 n + 2. A block is two
    3x3 convolutions, each with normalisation, and a shortcut; where the shape changes, the shortcut is a 1x1
    convolution with normalisation.

    Args:
        input_shape: the shape of one image.
        classes: number of classes.
        rngs: random numbers for the initial weights.
        depth: number of layers: 8, 14, 20, ...
        width: channels of the first stage.
        norm: `group` or `batch`. The default is group normalisation (Wu & He 2018): records of a batch do not affect
            one another, so a left-out record has no effect and many models train fast together. Batch normalisation
            is more common in practice.
        dropout: share of the last features that is dropped.

    Raises:
        InputError: there is no network of this depth.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        depth: int = 8,
        width: int = 16,
        norm: str = "group",
        dropout: float = 0.0,
    ) -> None:
        if depth < 8 or (depth - 2) % 6:
            raise InputError(f"there is no ResNet of depth {depth}; give 8, 14, 20, ..., which is 6 n + 2.")
        blocks, (_, _, channels) = (depth - 2) // 6, input_shape
        self.stem = nnx.Conv(channels, width, (3, 3), use_bias=False, rngs=rngs)
        self.norm = make_norm(norm, width, rngs)
        shapes = _shapes(width, [width << stage for stage in range(STAGES)], blocks)
        self.blocks = nnx.List([ResidualBlock(*shape, norm=norm, rngs=rngs) for shape in shapes])
        self.output = nnx.Linear(width << (STAGES - 1), classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        maps = jax.nn.relu(self.norm(self.stem(inputs)))
        for block in self.blocks:
            maps = block(maps)
        return self.output(self.drop(maps.mean(axis=(1, 2))))


class ResidualBlock(nnx.Module):
    """relu(x + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, channels: int, out: int, stride: int, *, norm: str, rngs: nnx.Rngs) -> None:
        self.first = _convolution(channels, out, stride, rngs)
        self.first_norm = make_norm(norm, out, rngs)
        self.second = _convolution(out, out, 1, rngs)
        self.second_norm = make_norm(norm, out, rngs)
        changes = stride > 1 or channels != out
        self.shortcut = _convolution(channels, out, stride, rngs, side=1) if changes else None
        self.shortcut_norm = make_norm(norm, out, rngs) if changes else None

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n height width out"]:
        maps = jax.nn.relu(self.first_norm(self.first(inputs)))
        if self.shortcut is not None and self.shortcut_norm is not None:
            inputs = self.shortcut_norm(self.shortcut(inputs))
        return jax.nn.relu(inputs + self.second_norm(self.second(maps)))


class WideResNet(nnx.Module):
    """A wide residual network, WRN-`depth`-`widen` of Zagoruyko & Komodakis (2016).

    A 3x3 convolution to 16 channels, three stages of n blocks with 16, 32 and 64 times `widen` channels, normalisation
    and ReLU, the mean over the image, a dense layer. `depth` is 6 n + 4. A block normalises before each of its two
    convolutions, with dropout between them.

    Args:
        input_shape, classes, rngs, norm: as for `ResNet`.
        depth: number of layers: 10, 16, 22, 28, ...
        widen: factor of the channels.
        dropout: share of the maps between a block's convolutions that is dropped.

    Raises:
        InputError: there is no network of this depth.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        depth: int = 16,
        widen: int = 2,
        norm: str = "group",
        dropout: float = 0.0,
    ) -> None:
        if depth < 10 or (depth - 4) % 6:
            raise InputError(f"there is no wide ResNet of depth {depth}; give 10, 16, 22, ..., which is 6 n + 4.")
        blocks, widths = (depth - 4) // 6, [16 * widen << stage for stage in range(STAGES)]
        _, _, channels = input_shape
        self.stem = nnx.Conv(channels, 16, (3, 3), use_bias=False, rngs=rngs)
        shapes = _shapes(16, widths, blocks)
        self.blocks = nnx.List([WideBlock(*shape, norm=norm, rngs=rngs) for shape in shapes])
        self.norm = make_norm(norm, widths[-1], rngs)
        self.output = nnx.Linear(widths[-1], classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        maps = self.stem(inputs)
        for block in self.blocks:
            maps = block(maps, self.drop)
        return self.output(jax.nn.relu(self.norm(maps)).mean(axis=(1, 2)))


class WideBlock(nnx.Module):
    """x + conv(dropout(relu(norm(conv(a))))) with a = relu(norm(x)); conv(a) in place of x where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int, *, norm: str, rngs: nnx.Rngs) -> None:
        self.first_norm = make_norm(norm, channels, rngs)
        self.first = _convolution(channels, out, stride, rngs)
        self.second_norm = make_norm(norm, out, rngs)
        self.second = _convolution(out, out, 1, rngs)
        changes = stride > 1 or channels != out
        self.shortcut = _convolution(channels, out, stride, rngs, side=1) if changes else None

    def __call__(
        self, inputs: Float[Array, "n h w c"], drop: Callable[[Array], Array]
    ) -> Float[Array, "n height width out"]:
        active = jax.nn.relu(self.first_norm(inputs))
        maps = jax.nn.relu(self.second_norm(self.first(active)))
        return (inputs if self.shortcut is None else self.shortcut(active)) + self.second(drop(maps))


def _shapes(channels: int, widths: list[int], blocks: int) -> list[tuple[int, int, int]]:
    shapes = []
    for stage, width in enumerate(widths):
        for block in range(blocks):
            shapes.append((channels, width, 2 if stage and not block else 1))
            channels = width
    return shapes


def _convolution(channels: int, out: int, stride: int, rngs: nnx.Rngs, side: int = 3) -> nnx.Conv:
    # Padded evenly on every side, as in PyTorch; JAX's default differs for stride 2.
    return nnx.Conv(channels, out, (side, side), strides=stride, padding=side // 2, use_bias=False, rngs=rngs)
