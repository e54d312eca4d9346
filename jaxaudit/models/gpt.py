"""A small causal language model: each token is predicted from those before it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError
from jaxaudit.models.layers import EPSILON, dropout_layer


class GPT(nnx.Module):
    """A decoder-only transformer as GPT-2 (Radford et al. 2019), for tokens `[n, length]`.

    The vector of each token plus a learned vector per position pass through `depth` blocks: x + attention(norm(x)),
    each position seeing itself and those before it, then x + dense(gelu(dense(norm(x)))), with four times `width`
    hidden units. The logits of position t, a dense layer of its normalised vector, are of token t + 1. What the blocks
    give is named `block 1`, `block 2` and so on (`hidden_states`).

    Args:
        input_shape: the length of a record, in tokens.
        classes: the number of tokens that there are.
        rngs: random numbers for the initial weights.
        depth: number of blocks.
        width: numbers per position; a multiple of the heads.
        heads: number of attention heads.
        positions: the most tokens of a record; by default the length.
        tied: whether the vectors of tokens are also the kernel of the output, as in GPT-2. A kernel of its own learns
            faster where records are few.
        dropout: share of the numbers that is dropped after attention and after the second dense layer of a block.

    Raises:
        InputError: the width is no multiple of the heads, or there are fewer positions than tokens in a record.
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
        if width % heads:
            raise InputError(
                f"a GPT of width {width} cannot be split over {heads} heads; give a multiple of {heads}, such as "
                f"{-(-width // heads) * heads}."
            )
        if positions < input_shape[0]:
            raise InputError(
                f"records have {input_shape[0]} tokens and the model has {positions} positions; give more `positions`."
            )
        small = nnx.initializers.normal(0.02)
        self.tokens = nnx.Param(small(rngs.params(), (classes, width)))
        self.positions = nnx.Param(small(rngs.params(), (positions, width)))
        self.blocks = nnx.List([Decoder(width, heads, rngs=rngs) for _ in range(depth)])
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


class Decoder(nnx.Module):
    """A block of the transformer."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.first_norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        # A bias of keys changes no output, and Adam would follow the rounding of its gradient.
        self.attend = nnx.Linear(width, 3 * width, use_bias=False, rngs=rngs)
        self.merge = nnx.Linear(width, width, rngs=rngs)
        self.second_norm = nnx.LayerNorm(width, epsilon=EPSILON, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, rngs=rngs)
        self.output = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(
        self, vectors: Float[Array, "n length width"], drop: Callable[[Array], Array]
    ) -> Float[Array, "n length width"]:
        n, length, width = vectors.shape
        parts = self.attend(self.first_norm(vectors)).reshape(n, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
        alike = jnp.einsum("nqhd,nkhd->nhqk", queries, keys) * (width // self.heads) ** -0.5
        before = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(before, alike, jnp.finfo(alike.dtype).min), axis=-1)
        seen = jnp.einsum("nhqk,nkhd->nqhd", weights, values).reshape(n, length, width)
        vectors = vectors + drop(self.merge(seen))
        return vectors + drop(self.output(jax.nn.gelu(self.hidden(self.second_norm(vectors)))))
