"""A causal language model trained by Optax, as a learner: its number of a record is a mean log-likelihood.

A gradient is added up over pieces of a minibatch, because logits and attention of 64 texts at once are gigabytes. On a
CPU, records of like length are one piece, cut off behind them at one of three lengths, and models of a chunk take
turns: models side by side would compute every branch of lengths for all. A piece depends on the model's own minibatch
alone, so neighbours change no bit. Cutting off needs a causal network (`PureModule.causal`), logits of single positions
an output layer that is known (`PureModule.head`); any other network is trained by whole records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_batching import custom_vmap, sequential_vmap
from jaxtyping import Array, Float, Int, Shaped

from jaxaudit.learners.learner import Labels, TrainState, Weights
from jaxaudit.learners.network import FLOAT32, NetworkLearner, NetworkParams, cast, convolves, refuse_recipe
from jaxaudit.models.bridge import ModuleFactory, pure_module
from jaxaudit.models.module import TokenVectors, WithState

TokenRows = Int[Array, "n length"]
"""Records as tokens, as `jaxaudit.data.sequences` has them."""

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


def following_tokens(inputs: TokenRows) -> TokenRows:
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
    vectors: TokenVectors,
    inputs: TokenRows,
    shares: Float[Array, " n"],
    positions: int,
) -> tuple[Any, TokenVectors]:
    """The gradient of the sum of shares times records' mean negative log-likelihoods, by parameters and by vectors.
    `logits(params, vectors [k, width]) -> [k, tokens]` is called with so many `positions` that count at a time.
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
    """The number of turns of a loop, unchanged; under `vmap` over models, the largest number of any model. A turn
    beyond a model's own number must add zeros, so that the other models do not change a bit of its result.
    """
    return number


@most_of_all.def_vmap
def _(axis_size: int, in_batched: Any, numbers: Int[Array, " models"]) -> tuple[Int[Array, ""], bool]:
    return most_of_all(jnp.max(numbers)), False


AT_ONCE, CPU_EVALUATED = 8, 128
"""Most records, and on a CPU tokens, whose logits are in memory at a time in evaluation, for each model."""
CPU_TOKENS, DEVICE_TOKENS = 1024, 8192
"""About so many tokens of a minibatch are in memory at a time: on a CPU what its caches hold."""
CPU_POSITIONS, DEVICE_POSITIONS = 128, 4096
"""So many logits are in memory at a time in training."""


def mean_log_likelihood(logits: Float[Array, "n length tokens"], inputs: TokenRows) -> Float[Array, " n"]:
    """The mean log-likelihood (nats) of each record's tokens that count, given those before them; at most 0. `logits`
    at a position are of the next token; `inputs` as in `jaxaudit.data.sequences`, whose first token does not count.

    >>> float(mean_log_likelihood(jnp.zeros((1, 3, 4)), jnp.array([[-4, 1, 3]]))[0])
    -1.3862...
    """
    following = following_tokens(inputs)
    counts = following >= 0
    token_log_probs = jnp.where(counts, log_likelihoods(logits, following), 0)
    return jnp.minimum(jnp.sum(token_log_probs, axis=1) / jnp.maximum(jnp.sum(counts, axis=1), 1), 0)


@dataclass(frozen=True)
class LanguageModelLearner(NetworkLearner):
    """A `SteppedLearner` of records of tokens; made by `language_model`.

    Training minimises the mean over a minibatch's records of each one's mean negative log-likelihood. Only activations
    and logits of a piece of it are in memory at a time, unless `pieces` is False.
    """

    kind = "a language model"
    pieces: bool = True

    def in_one_piece(self) -> "LanguageModelLearner":
        # What is counted is the same on every device: on a CPU pieces are smallest.
        one_piece = bool(self.net.arguments) and self.batch_size <= _records(CPU_TOKENS, self.net.arguments[1][0])
        return self if one_piece else replace(self, pieces=False)

    def _outputs(self, params: Any, state: Any, inputs: TokenRows, training: bool) -> WithState:
        return self.net.apply(params, state, jnp.where(inputs < 0, ~inputs, inputs), training)

    def _losses(
        self, logits: Float[Array, "batch length tokens"], inputs: Int[Array, "batch length"], labels: Any
    ) -> Float[Array, " batch"]:
        return -mean_log_likelihood(logits, inputs)

    def gradient(
        self, state: TrainState, inputs: Int[Array, "batch length"], labels: Labels, weights: Weights
    ) -> WithState:
        """The gradient of the weighted mean loss, and the module's state after the batch."""
        in_turn = on_one_cpu()
        records = _records(CPU_TOKENS if in_turn else DEVICE_TOKENS, inputs.shape[1])
        if self.batch_coupled or not self.pieces or len(inputs) <= records:
            return super().gradient(state, inputs, labels, weights)
        shares = weights / jnp.maximum(jnp.sum(weights), 1.0)

        def of(shared: Any, params: Any, state: Any, inputs: Array, shares: Array) -> WithState:
            return self.having(shared)._by_pieces(records, in_turn, params, state, inputs, shares)

        # A branch that models side by side choose each for itself would be every branch for all.
        return (sequential_vmap(of) if in_turn else of)(self.shared, state.params, state.state, inputs, shares)

    def _by_pieces(
        self, records: int, in_turn: bool, params: Any, state: Any, inputs: Int[Array, "batch length"], shares: Weights
    ) -> WithState:
        """The gradient of the sum of shares times losses, so many records at a time, and the module's state."""
        whole = inputs.shape[1]
        ends = lengths(whole) if in_turn and self.net.causal else (whole,)
        if in_turn:
            used = used_lengths(inputs)
            # Records that do not count come last, and pieces of them alone are left out, unless that moves draws.
            order = jnp.argsort(-(used if self.net.draws else jnp.where(shares > 0, used, 0)), stable=True)
            inputs, shares = inputs[order], shares[order]
        filled = -len(inputs) % records
        inputs = jnp.pad(inputs, ((0, filled), (0, 0)), constant_values=-1)
        shares = jnp.pad(shares, (0, filled))

        def adding(end: int) -> Callable[..., WithState]:
            def add(total: Any, state: Any, some: Array, share: Array) -> WithState:
                gradient, state = self._of_piece(params, state, some[:, :end], share)
                return jax.tree.map(jnp.add, total, gradient), state

            return add

        branches = [adding(end) for end in ends]
        if in_turn and not self.net.draws:
            branches.append(lambda total, state, some, share: (total, state))

        def piece(number: Array, sums: WithState) -> WithState:
            some, share = (jax.lax.dynamic_slice_in_dim(array, number * records, records) for array in (inputs, shares))
            branch = jnp.searchsorted(jnp.array(ends[:-1], jnp.int32), jnp.max(used_lengths(some)))
            if len(branches) > len(ends):
                branch = jnp.where(jnp.any(share > 0), branch, len(ends))
            return jax.lax.switch(branch, branches, *sums, some, share)

        sums = jax.tree.map(jnp.zeros_like, params), state
        return jax.lax.fori_loop(0, len(inputs) // records, piece, sums)

    def _of_piece(self, params: Any, state: Any, inputs: TokenRows, shares: Weights) -> WithState:
        head = self.net.head
        if head is None:

            def loss(params: Any) -> tuple[Float[Array, ""], Any]:
                logits, new_state = self._logits(params, state, inputs)
                return jnp.sum(shares * self._losses(logits, inputs, None)), new_state

            return jax.grad(loss, has_aux=True)(params)

        def logits(params: Any, vectors: Array) -> Array:
            if self.precision != FLOAT32:
                params, vectors = cast((params, vectors), jnp.bfloat16)
            return head.logits(params, state, vectors).astype(jnp.float32)

        without = replace(self, net=self.net._replace(apply=head.vectors))
        vectors, pull, new_state = jax.vjp(lambda params: without._logits(params, state, inputs), params, has_aux=True)
        positions = CPU_POSITIONS if on_one_cpu() else DEVICE_POSITIONS
        of_head, of_vectors = head_gradient(logits, params, vectors, inputs, shares, positions)
        return jax.tree.map(jnp.add, of_head, *pull(of_vectors)), new_state

    def record_ends(self, inputs: Int[np.ndarray, "n length"]) -> Int[np.ndarray, " n"] | None:
        """Where each record may be cut off without changing its number; None if nowhere."""
        if not self.net.causal:
            return None
        ends = np.array(lengths(inputs.shape[1]))
        return ends[np.searchsorted(ends, used_lengths(inputs))]

    def log_probs(self, params: NetworkParams, inputs: TokenRows) -> Float[Array, "n 1"]:
        """The mean log-likelihood of each record, in nats."""

        def one(record: Int[Array, " length"]) -> Float[Array, " 1"]:
            logits, _ = self._outputs(params.params, params.state, record[None], False)
            return mean_log_likelihood(logits, record[None])

        at_once = min(AT_ONCE, max(1, CPU_EVALUATED // inputs.shape[1])) if on_one_cpu() else AT_ONCE
        # A gradient, as unlearning takes it, keeps no record's logits and activations for the way back.
        return jax.lax.map(jax.checkpoint(one), inputs, batch_size=at_once)


def _records(tokens: int, length: int) -> int:
    """The records of this length that have about so many tokens; at least 1."""
    return max(1, round(tokens / length))


def language_model(
    factory: ModuleFactory,
    length: int,
    vocabulary: int,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
    precision: str = FLOAT32,
) -> LanguageModelLearner:
    """The learner that trains `factory((length,), vocabulary, rngs=...)` on records of tokens with `optimizer`.

    `fit_many` trains it on the inputs of `sequences` and labels of 0. `log_probs` has one column, a record's mean
    log-likelihood (nats).

    Args:
        factory: an NNX module class or a function that builds one, such as `jaxaudit.models.GPT`, mapping tokens
            `[n, length]` to logits `[n, length, vocabulary]`, at each position of the next token.
        length, vocabulary: `inputs.shape[1]`, and the number of tokens, `Tokenizer.vocabulary`.
        optimizer, epochs, batch_size, precision: as for `network`.

    >>> from functools import partial
    >>> from jaxaudit.models import GPT
    >>> small = partial(GPT, depth=1, width=16)
    >>> learner = language_model(small, 16, 257, optimizer=optax.adamw(1e-3), epochs=1, batch_size=2)
    >>> texts = np.full((2, 16), 97)
    >>> params = jax.jit(learner.fit)(jax.random.key(1), texts, np.zeros(2, int), np.ones(2))
    >>> jax.jit(learner.log_probs)(params, texts).shape
    (2, 1)
    """
    refuse_recipe(epochs, batch_size, precision)
    net = pure_module(factory, (length,), vocabulary, of_tokens=True)
    return LanguageModelLearner(
        net, optimizer, epochs, batch_size, convolves=convolves(net, (length,), jnp.int32), precision=precision
    )
