"""Networks of the papers and other common ones, for tables, images and texts, and the layers that they share."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError, check_among, check_ranges
from jaxaudit.models.module import TokenVectors

Maps = Float[Array, "n h w c"]
"""Images, or the maps of a layer."""
Logits = Float[Array, "n classes"]

# PyTorch's default: new = 0.9 old + 0.1 batch. Flax's default (0.99) is too slow for the few steps of a small set.
BATCH_NORM_MOMENTUM = 0.9
NORMS = ("group", "batch")
GROUPS = 8
"""The largest number of groups; fewer if the channels cannot be divided into as many."""
EPSILON = 1e-5
"""PyTorch's default epsilon of normalisation layers."""


def make_norm(name: str, channels: int, rngs: nnx.Rngs) -> Any:
    """The normalisation of maps with this many channels: `group` or `batch`."""
    check_among(NORMS, norm=name)
    if name == "group":
        return nnx.GroupNorm(channels, num_groups=math.gcd(channels, GROUPS), epsilon=EPSILON, rngs=rngs)
    return nnx.BatchNorm(channels, momentum=BATCH_NORM_MOMENTUM, epsilon=EPSILON, rngs=rngs)


def dropout_layer(share: float, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    """`nnx.Dropout` of this share of the units; for a share of 0 the identity, which has no random state. Make it after
    the layers with weights, so that their initial weights are the same as without dropout.
    """
    return nnx.Dropout(share, rngs=rngs) if share else _unchanged


def _unchanged(inputs: Array) -> Array:
    return inputs


@jax.custom_jvp
def max_pool_2x2(inputs: Maps) -> Float[Array, "n h2 w2 c"]:
    """The largest of every 2x2 window, stride 2; an odd last row or column is dropped. Entries that tie share the
    gradient. On a CPU, XLA's gradient of `reduce_window` takes tens of times as long, that of a maximum of strided
    slices, which XLA pads out again, four times (two cores, jax 0.10.2).
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


class MLP(nnx.Module):
    """Dense layers with a nonlinearity between them; the input is flattened, the output is logits.

    The default widths are the network N-512-256-128-classes of Becker & Liebig (2022); Long et al. (2017) use
    `hidden=(64,), activation=jax.numpy.tanh`. `dropout` is the share of each hidden layer's units that is dropped.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        hidden: Sequence[int] = (512, 256, 128),
        activation: Callable[[Array], Array] = jax.nn.relu,
        dropout: float = 0.0,
    ) -> None:
        widths = (prod(input_shape), *hidden, classes)
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.activation = activation
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Float[Array, "n ..."]) -> Logits:
        hidden = inputs.reshape(inputs.shape[0], -1)
        for layer in self.layers[:-1]:
            hidden = self.drop(self.activation(layer(hidden)))
        return self.layers[-1](hidden)


CHANNELS = (8, 16)


class SmallCNN(nnx.Module):
    """Two blocks (3 x 3 convolution, batch normalisation, ReLU, 2 x 2 maximum) of 8 and 16 channels; a dense layer."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        height, width, channels = input_shape
        widths = (channels, *CHANNELS)
        self.convs = nnx.List([nnx.Conv(a, b, (3, 3), padding=1, rngs=rngs) for a, b in pairwise(widths)])
        self.norms = nnx.List([make_norm("batch", b, rngs) for b in CHANNELS])
        self.output = nnx.Linear((height // 4) * (width // 4) * CHANNELS[-1], classes, rngs=rngs)

    def __call__(self, inputs: Maps) -> Logits:
        maps = inputs
        for conv, norm in zip(self.convs, self.norms, strict=True):
            maps = max_pool_2x2(jax.nn.relu(norm(conv(maps))))
        return self.output(maps.reshape(maps.shape[0], -1))


class LiuCNN(nnx.Module):
    """Convolution 32@7x7 (stride 1, padding 3), batch normalisation, ReLU, max-pool 2; dense 1024, ReLU; dense.

    Liu & Tsaftaris (2020), section 4.1, for images `[h, w, channels]` (28x28x1 there, 6.4M parameters). The paper gives
    no order within the block. `dropout` is the share of the dense layer's units that is dropped.
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

    def __call__(self, inputs: Maps) -> Logits:
        maps = max_pool_2x2(jax.nn.relu(self.norm(self.conv(inputs))))
        return self.output(self.drop(jax.nn.relu(self.hidden(maps.reshape(maps.shape[0], -1)))))


STAGES = 3


class ResNet(nnx.Module):
    """A residual network of He et al. (2016), section 4.2, for images `[h, w, channels]` such as CIFAR's.

    A 3x3 convolution, then three stages of n blocks with `width`, twice and four times as many channels, of which the
    second and third halve height and width; the mean over the image; a dense layer. A block is two 3x3 convolutions,
    each with normalisation, and a shortcut: where the shape changes, a 1x1 convolution with normalisation.

    Args:
        depth: number of layers, 6 n + 2: 8, 14, 20, ...
        width: channels of the first stage.
        norm: `group` or `batch`. The default is group normalisation (Wu & He 2018): records of a batch do not affect
            one another, so a left-out record has no effect and many models train fast together.
        dropout: share of the last features that is dropped.
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
        blocks, (_, _, channels) = _blocks(depth, 2), input_shape
        self.stem = nnx.Conv(channels, width, (3, 3), use_bias=False, rngs=rngs)
        self.norm = make_norm(norm, width, rngs)
        shapes = _shapes(width, [width << stage for stage in range(STAGES)], blocks)
        self.blocks = nnx.List([ResidualBlock(*shape, norm=norm, rngs=rngs) for shape in shapes])
        self.output = nnx.Linear(width << (STAGES - 1), classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Maps) -> Logits:
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

    def __call__(self, inputs: Maps) -> Float[Array, "n height width out"]:
        maps = jax.nn.relu(self.first_norm(self.first(inputs)))
        if self.shortcut is not None and self.shortcut_norm is not None:
            inputs = self.shortcut_norm(self.shortcut(inputs))
        return jax.nn.relu(inputs + self.second_norm(self.second(maps)))


class WideResNet(nnx.Module):
    """A wide residual network, WRN-`depth`-`widen` of Zagoruyko & Komodakis (2016).

    A 3x3 convolution to 16 channels, three stages of n blocks with 16, 32 and 64 times `widen` channels, normalisation
    and ReLU, the mean over the image, a dense layer. A block normalises before each of its two convolutions.

    Args:
        depth: number of layers, 6 n + 4: 10, 16, 22, 28, ...
        norm: as for `ResNet`.
        dropout: share of the maps between a block's convolutions that is dropped.
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
        blocks, widths = _blocks(depth, 4), [16 * widen << stage for stage in range(STAGES)]
        _, _, channels = input_shape
        self.stem = nnx.Conv(channels, 16, (3, 3), use_bias=False, rngs=rngs)
        shapes = _shapes(16, widths, blocks)
        self.blocks = nnx.List([WideBlock(*shape, norm=norm, rngs=rngs) for shape in shapes])
        self.norm = make_norm(norm, widths[-1], rngs)
        self.output = nnx.Linear(widths[-1], classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Maps) -> Logits:
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

    def __call__(self, inputs: Maps, drop: Callable[[Array], Array]) -> Float[Array, "n height width out"]:
        active = jax.nn.relu(self.first_norm(inputs))
        maps = jax.nn.relu(self.second_norm(self.first(active)))
        return (inputs if self.shortcut is None else self.shortcut(active)) + self.second(drop(maps))


def _blocks(depth: int, apart: int) -> int:
    """The blocks of a stage, in a network of this depth with so many layers `apart` from the blocks."""
    if depth < 6 + apart or (depth - apart) % 6:
        raise InputError(
            f"there is no such ResNet of depth {depth}; give {6 + apart}, {12 + apart}, ..., which is 6 n + {apart}."
        )
    return (depth - apart) // 6


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


VIT_EPSILON = 1e-6
"""Epsilon of layer normalisation, as in Dosovitskiy et al.'s code."""


def _check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise InputError(
            f"a width of {width} cannot be split over {heads} heads; give a multiple of {heads}, such as "
            f"{-(-width // heads) * heads}."
        )


class GPT(nnx.Module):
    """A decoder-only transformer as GPT-2 (Radford et al. 2019), for tokens `[n, length]`.

    The vector of each token plus a learned vector per position pass through `depth` blocks: x + attention(norm(x)),
    each position seeing itself and those before it, then x + dense(gelu(dense(norm(x)))), with four times `width`
    hidden units. The logits of position t, a dense layer of its normalised vector, are of token t + 1. The outputs of
    the blocks are named `block 1`, `block 2` and so on (`hidden_states`).

    Args:
        input_shape, classes: the length of a record, in tokens, and the number of tokens that there are.
        width: numbers per position; a multiple of the heads.
        positions: the most tokens of a record; by default the length.
        tied: whether the vectors of tokens are also the kernel of the output, as in GPT-2. A kernel of its own learns
            faster where records are few.
        dropout: share of the numbers that is dropped after attention and after the second dense layer of a block.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        rngs: nnx.Rngs,
        depth: int = 2,
        width: int = 64,
        heads: int = 4,
        positions: int | None = None,
        tied: bool = False,
        dropout: float = 0.0,
    ) -> None:
        positions = positions or input_shape[0]
        _check_heads(width, heads)
        check_ranges(f"[{input_shape[0]}, inf)", positions=positions)
        small = nnx.initializers.normal(0.02)
        self.tokens = nnx.Param(small(rngs.params(), (classes, width)))
        self.positions = nnx.Param(small(rngs.params(), (positions, width)))
        self.blocks = nnx.List([Block(width, heads, causal=True, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        self.output = None if tied else nnx.Linear(width, classes, use_bias=False, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, tokens: Int[Array, "n length"]) -> Float[Array, "n length tokens"]:
        return self.logits(self.vectors(tokens))

    def vectors(self, tokens: Int[Array, "n length"]) -> TokenVectors:
        """The normalised vector of each position."""
        hidden = self.tokens[...][tokens] + self.positions[: tokens.shape[1]]
        for number, block in enumerate(self.blocks, 1):
            hidden = checkpoint_name(block(hidden, self.drop), f"block {number}")
        return self.norm(hidden)

    def logits(self, vectors: Float[Array, "*n width"]) -> Float[Array, "*n tokens"]:
        """The logits of the next token."""
        return vectors @ self.tokens[...].T if self.output is None else self.output(vectors)


class Block(nnx.Module):
    """A block of `GPT` or, if not `causal`, of `ViT`, with the details of their authors' code."""

    def __init__(self, width: int, heads: int, *, causal: bool, rngs: nnx.Rngs) -> None:
        self.heads, self.causal, epsilon = heads, causal, EPSILON if causal else VIT_EPSILON
        self.first_norm = nnx.LayerNorm(width, epsilon=epsilon, rngs=rngs)
        # A bias of keys changes no output, and Adam would follow the rounding of its gradient.
        self.attend = nnx.Linear(width, 3 * width, use_bias=not causal, rngs=rngs)
        self.merge = nnx.Linear(width, width, rngs=rngs)
        self.second_norm = nnx.LayerNorm(width, epsilon=epsilon, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, rngs=rngs)
        self.output = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, vectors: TokenVectors, drop: Callable[[Array], Array]) -> TokenVectors:
        n, length, width = vectors.shape
        parts = self.attend(self.first_norm(vectors)).reshape(n, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
        if self.causal:
            alike = jnp.einsum("nqhd,nkhd->nhqk", queries, keys) * (width // self.heads) ** -0.5
            before = jnp.tril(jnp.ones((length, length), bool))
            weights = jax.nn.softmax(jnp.where(before, alike, jnp.finfo(alike.dtype).min), axis=-1)
            seen = jnp.einsum("nhqk,nkhd->nqhd", weights, values)
        else:
            seen = jax.nn.dot_product_attention(queries, keys, values)
        vectors = vectors + drop(self.merge(seen.reshape(n, length, width)))
        hidden = jax.nn.gelu(self.hidden(self.second_norm(vectors)), approximate=self.causal)
        return vectors + drop(self.output(hidden))


class ViT(nnx.Module):
    """A vision transformer of Dosovitskiy et al. (2021) for images `[h, w, channels]`, without a class token.

    The image is cut into square patches, with zero padding. A dense layer maps each patch to `width` numbers, to which
    a learned vector per position is added. `depth` blocks as those of `GPT`, but of all positions, follow. The logits
    are a dense layer of the normalised mean over positions (Beyer et al. 2022).

    Args:
        width, dropout: as for `GPT`.
        patch: side of a patch in pixels; by default an eighth of the image's larger side, at least 1.
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
        _check_heads(width, heads)
        height, wide, channels = input_shape
        self.patch = patch or max(1, -(-max(height, wide) // 8))
        places = -(-height // self.patch) * -(-wide // self.patch)
        self.embed = nnx.Linear(self.patch**2 * channels, width, rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), (places, width)))
        self.blocks = nnx.List([Block(width, heads, causal=False, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=VIT_EPSILON, rngs=rngs)
        self.output = nnx.Linear(width, classes, rngs=rngs)
        self.drop = dropout_layer(dropout, rngs)

    def __call__(self, inputs: Maps) -> Logits:
        tokens = self.embed(_patches(inputs, self.patch))
        tokens = tokens + self.places[...].astype(tokens.dtype)
        for block in self.blocks:
            tokens = block(tokens, self.drop)
        return self.output(self.norm(tokens).mean(axis=1))


def _patches(inputs: Maps, side: int) -> Float[Array, "n places numbers"]:
    n, height, width, channels = inputs.shape
    down, across = -(-height // side), -(-width // side)
    fill = (down * side - height, across * side - width)
    padded = jnp.pad(inputs, ((0, 0), (0, fill[0]), (0, fill[1]), (0, 0)))
    cut = padded.reshape(n, down, side, across, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(n, down * across, side * side * channels)
