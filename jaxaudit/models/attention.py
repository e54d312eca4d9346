"""Small transformers: a causal language model, each of whose tokens is predicted from those before it, and a ViT."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError, check_ranges
from jaxaudit.models.networks import EPSILON, dropout_layer

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

    def vectors(self, tokens: Int[Array, "n length"]) -> Float[Array, "n length width"]:
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

    def __call__(
        self, vectors: Float[Array, "n length width"], drop: Callable[[Array], Array]
    ) -> Float[Array, "n length width"]:
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

    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n classes"]:
        tokens = self.embed(_patches(inputs, self.patch))
        tokens = tokens + self.places[...].astype(tokens.dtype)
        for block in self.blocks:
            tokens = block(tokens, self.drop)
        return self.output(self.norm(tokens).mean(axis=1))


def _patches(inputs: Float[Array, "n h w c"], side: int) -> Float[Array, "n places numbers"]:
    n, height, width, channels = inputs.shape
    down, across = -(-height // side), -(-width // side)
    fill = (down * side - height, across * side - width)
    padded = jnp.pad(inputs, ((0, 0), (0, fill[0]), (0, fill[1]), (0, 0)))
    cut = padded.reshape(n, down, side, across, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(n, down * across, side * side * channels)
