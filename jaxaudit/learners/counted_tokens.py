"""What a step of a language model needs of a record, and no more: tokens up to the last that counts, a few logits.

A minibatch of texts is a sum of pieces. Logits and attention of 64 texts at once are gigabytes, and no cache holds
them. So a language model's gradient is added up over pieces of a minibatch, a few records each, and logits are made
where a token counts alone, a block of positions at a time. On a CPU records of like length are one piece, cut off
behind them at one of three lengths (a branch a length), and models of a chunk take turns: a branch that models side by
side choose would be all branches for all. What a piece is depends on the model's own minibatch, so neighbours still
change no bit, and minibatches keep their order. Cutting off needs a network that is known to be causal
(`PureModule.causal`), and logits of some positions one whose output layer is known (`PureModule.head`); any other is
trained by whole records, in pieces, too. With dropout each piece has its own draws. A device takes models at once, and
pieces that are larger and uncut. Evaluation groups records by length on the host.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int, Shaped

SHARES, MULTIPLE, SHORTEST = (3 / 8, 5 / 8), 16, 48
"""Records are cut off at these shares of the length, rounded up to a multiple, if they are as long as the shortest.
Each further length is compiled separately."""


def on_one_cpu() -> bool:
    """Whether programs run on a CPU that is one device: arrays that fit into its caches are worth a loop."""
    return jax.default_backend() == "cpu" and len(jax.local_devices()) == 1


def lengths(length: int) -> tuple[int, ...]:
    """The lengths at which records of this length may be cut off, in ascending order.

    >>> lengths(640), lengths(32)
    ((240, 400, 640), (32,))
    """
    shorter = {MULTIPLE * math.ceil(share * length / MULTIPLE) for share in SHARES}
    return (*sorted(candidate for candidate in shorter if SHORTEST <= candidate < length), length)


def used_lengths(inputs: Any) -> Any:
    """The number of tokens of each record up to the last one that counts; `inputs` of NumPy or JAX."""
    library: Any = np if isinstance(inputs, np.ndarray) else jnp
    return library.max(library.where(inputs >= 0, library.arange(1, inputs.shape[1] + 1), 0), axis=1)


def following_tokens(inputs: Int[Array, "n length"]) -> Int[Array, "n length"]:
    """The token behind each position if that one counts, else a negative number."""
    # The last position has no next token; a roll in place of a slice copies no logits.
    return jnp.roll(inputs, -1, axis=1).at[:, -1].set(-1)


def log_likelihoods(logits: Float[Array, "*n tokens"], following: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """The log-likelihood (nats) of each of these tokens; no meaning where they are negative."""
    # A mask in place of an index: the gradient of an index scatters, one token after another.
    is_following = jnp.arange(logits.shape[-1]) == following[..., None]
    return jnp.sum(jnp.where(is_following, logits, 0), axis=-1) - jax.nn.logsumexp(logits, axis=-1)


def head_gradient(
    logits: Callable[[Any, Any], Any],
    params: Any,
    vectors: Float[Array, "n length width"],
    inputs: Int[Array, "n length"],
    shares: Float[Array, " n"],
    positions: int,
) -> tuple[Any, Float[Array, "n length width"]]:
    """The gradient of the sum of shares times records' mean negative log-likelihoods, by parameters and by vectors.

    Logits are made of the positions that count alone, of this many `positions` at a time, and never of all.

    Args:
        logits: `(params, vectors [k, width]) -> logits [k, tokens]`.
        params: the network's parameters.
        vectors: of each position.
        inputs: as `jaxaudit.data.sequences`.
        shares: of each record.
    """
    following, width = following_tokens(inputs), vectors.shape[-1]
    counts = following >= 0
    token_shares = jnp.where(counts, (-shares / jnp.maximum(jnp.sum(counts, axis=1), 1))[:, None], 0).ravel()
    order = jnp.argsort(~counts.ravel(), stable=True)
    filled = -len(order) % positions

    def in_order(flat: Shaped[Array, "places ..."]) -> Shaped[Array, "filled ..."]:
        return jnp.pad(flat[order], ((0, filled), *[(0, 0)] * (flat.ndim - 1)))

    ordered = in_order(vectors.reshape(-1, width)), in_order(following.ravel()), in_order(token_shares)

    def add(block: Array, sums: tuple[Any, Array]) -> tuple[Any, Array]:
        start = block * positions
        some, tokens, share = (jax.lax.dynamic_slice_in_dim(part, start, positions) for part in ordered)

        def loss(params: Any, some: Array) -> Array:
            return jnp.sum(share * log_likelihoods(logits(params, some), tokens))

        by_params, by_vectors = jax.grad(loss, (0, 1))(params, some)
        total, back = sums
        return jax.tree.map(jnp.add, total, by_params), jax.lax.dynamic_update_slice_in_dim(back, by_vectors, start, 0)

    sums = jax.tree.map(jnp.zeros_like, params), jnp.zeros_like(ordered[0])
    blocks = most_of_all((jnp.sum(counts) + positions - 1) // positions)
    total, back = jax.lax.fori_loop(0, blocks, add, sums)
    return total, back[jnp.argsort(order)].reshape(vectors.shape)


@custom_vmap
def most_of_all(number: Int[Array, ""]) -> Int[Array, ""]:
    """The number of turns of a loop, unchanged; under `vmap` over models, the largest number of any model.

    So all models take equally many turns. A turn beyond a model's own number must add zeros. Then the other models do
    not change a bit of that model's result.
    """
    return number


@most_of_all.def_vmap
def _(axis_size: int, in_batched: Any, numbers: Int[Array, " models"]) -> tuple[Int[Array, ""], bool]:
    return most_of_all(jnp.max(numbers)), False
