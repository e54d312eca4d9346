"""Minibatches of texts in pieces: the numbers of a slow twin with all logits and all attention, in a bounded memory."""

import importlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support.sequences import likelihoods, small_learner

import jaxaudit as ja
from jaxaudit.ensemble import log_probs_many
from jaxaudit.learners import LanguageModelLearner, stop_early
from jaxaudit.learners.batch_order import epoch_bits, init_key, own_batches
from jaxaudit.learners.counted_tokens import lengths, on_one_cpu, used_lengths
from jaxaudit.learners.network import NetworkLearner
from jaxaudit.models import GPT

KEY = jax.random.key(5)
LENGTH, WORDS, BATCH = 96, 11, 24
NET = partial(GPT, depth=1, width=8, heads=2)
# In pieces: more tokens than a piece has, so that the forms differ.
LEARNER = small_learner(LENGTH, WORDS, NET, batch_size=BATCH, epochs=1, optimizer=optax.sgd(0.1))
ROUNDING = {"rtol": 0, "atol": 2e-6}


def texts(records: int = BATCH) -> np.ndarray:
    """Records of many lengths: context, tokens that count with some between that do not, and what fills up."""
    random = np.random.default_rng(7)
    inputs = random.integers(0, WORDS, (records, LENGTH)).astype(np.int32)
    for row, end in zip(inputs, random.integers(6, LENGTH + 1, records), strict=True):
        row[: random.integers(1, 5)] = -1
        row[end // 2 : end // 2 + 2] = -3
        row[end:] = -WORDS
    inputs[0, 1:] = random.integers(0, WORDS, LENGTH - 1)
    return inputs


INPUTS, LABELS = texts(), jnp.zeros(BATCH, jnp.int32)
WEIGHTS = jnp.asarray(np.arange(BATCH) % 5 > 0, jnp.float32)


def of_one(function: Any, learner: Any, state: Any, inputs: Any = INPUTS, weights: Any = WEIGHTS) -> Any:
    return jax.jit(partial(function, learner))(state, jnp.asarray(inputs), LABELS[: len(inputs)], weights)


def close(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, other, **ROUNDING)


@pytest.mark.parametrize("tied", [False, True])
def test_a_gradient_by_pieces_is_that_of_each_token_in_turn(tied: bool):
    learner = small_learner(LENGTH, WORDS, partial(NET, tied=tied), batch_size=BATCH)
    state = learner.init(KEY)

    @jax.jit
    def slow(params: Any) -> Any:
        losses = []
        for record, weight in zip(INPUTS, np.asarray(WEIGHTS), strict=True):
            if weight:
                tokens = jnp.where(jnp.asarray(record) < 0, ~jnp.asarray(record), jnp.asarray(record))
                logits = learner.net.apply(params, state.state, tokens[None], True)[0][0]
                losses.append(-jnp.mean(likelihoods(logits, record)))
        return jnp.mean(jnp.stack(losses))

    close(of_one(LanguageModelLearner.gradient, learner, state)[0], jax.grad(slow)(state.params))


class Foreign(nnx.Module):
    """A module of someone else, whose parameters know the length of a record, and that looks both ways."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.gpt = GPT(input_shape, classes, depth=1, width=8, heads=2, rngs=rngs)
        self.mixed = nnx.Linear(input_shape[0], input_shape[0], rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        vectors = self.gpt.vectors(tokens)
        return self.gpt.logits(vectors + self.mixed(vectors.swapaxes(1, 2)).swapaxes(1, 2))


class OwnCall(GPT):
    """A GPT whose logits are not those of its vectors alone."""

    def __call__(self, tokens: Any) -> Any:
        return super().__call__(tokens) * 2 + 1.0 * tokens[..., None]


@pytest.mark.parametrize("factory", [Foreign, partial(OwnCall, depth=1, width=8), partial(NET, dropout=0.0)])
def test_any_module_of_tokens_trains_by_pieces(factory: Any):
    learner = small_learner(LENGTH, WORDS, factory, batch_size=BATCH)
    ours = isinstance(factory, partial) and factory.func is GPT
    assert (learner.net.causal, learner.net.head is not None) == (ours, ours)
    state = learner.init(KEY)
    found, wanted = (of_one(each.gradient, learner, state)[0] for each in (LanguageModelLearner, NetworkLearner))
    close(found, wanted)
    params = jax.tree.map(lambda leaf: leaf[None], learner.finish(state))
    one_by_one = jax.jit(jax.vmap(learner.log_probs, in_axes=(0, None)))(params, INPUTS)
    np.testing.assert_allclose(log_probs_many(learner, params, INPUTS), one_by_one, **ROUNDING)


def test_bfloat16_and_a_device_that_takes_models_at_once_do_the_same(monkeypatch: pytest.MonkeyPatch):
    state = LEARNER.init(KEY)
    short = small_learner(LENGTH, WORDS, NET, batch_size=BATCH, precision="bfloat16")
    lower = [of_one(each.gradient, short, state)[0] for each in (LanguageModelLearner, NetworkLearner)]
    for mine, other in zip(*map(jax.tree.leaves, lower), strict=True):
        assert np.linalg.norm(mine - other) < 0.03 * np.linalg.norm(other)
    states = jax.vmap(LEARNER.init)(jax.random.split(KEY, 3))
    weights = jnp.asarray(np.random.default_rng(1).integers(0, 2, (3, BATCH)), jnp.float32)

    def gradients() -> Any:
        def of(state: Any, weight: Any) -> Any:
            return LEARNER.gradient(state, jnp.asarray(INPUTS), LABELS, weight)[0]

        return jax.jit(jax.vmap(of))(states, weights)

    in_turn = gradients()
    module = importlib.import_module("jaxaudit.learners.language_model")
    for name, value in (("on_one_cpu", lambda: False), ("DEVICE_TOKENS", 300), ("DEVICE_POSITIONS", 100)):
        monkeypatch.setattr(module, name, value)
    close(gradients(), in_turn)


def test_dropout_draws_in_each_piece_and_repeats():
    learner = small_learner(LENGTH, WORDS, partial(NET, dropout=0.5), batch_size=BATCH)
    state = learner.init(KEY)
    # Twice the same records: their masks differ, or the gradient were that of one half.
    twice = np.concatenate([INPUTS[:12], INPUTS[:12]])
    gradient = partial(of_one, LanguageModelLearner.gradient, learner, state)
    both, half = (gradient(some, jnp.ones(len(some))) for some in (twice, INPUTS[:12]))
    again = gradient(twice, jnp.ones(24))
    for mine, same, other in zip(*map(jax.tree.leaves, (both[0], again[0], half[0])), strict=True):
        np.testing.assert_array_equal(mine, same)
        assert not np.allclose(mine, other, rtol=1e-3, atol=1e-6)
    counts = [jax.tree.leaves(nnx.filter_state(each, nnx.RngCount)) for each in (state.state, both[1])]
    assert all(new > old for old, new in zip(*counts, strict=True))


def test_a_model_by_pieces_is_of_its_row_alone():
    """Bit for bit, whatever is trained beside it, and by a plain loop up to rounding."""
    inputs, labels = texts(40), np.zeros(40, np.int32)
    learner = small_learner(LENGTH, WORDS, NET, batch_size=BATCH, epochs=2, optimizer=optax.sgd(0.1))
    keys, rows = jax.random.split(KEY, 4), np.random.default_rng(1).random((4, 40)) < 0.8
    run = partial(ja.fit_many, inputs=inputs, labels=labels, learner=learner, members_only=True)
    together = run(keys, rows, execution=ja.Execution(2)).params
    others = np.random.default_rng(2).random((4, 40)) < 0.5
    others[1] = rows[1]
    beside = run(keys, others, execution=ja.Execution(2)).params
    for mine, other in zip(jax.tree.leaves(together), jax.tree.leaves(beside), strict=True):
        np.testing.assert_array_equal(mine[1], other[1])
    slow = small_learner(LENGTH, WORDS, NET, batch_size=BATCH)
    state = learner.init(init_key(keys[1]))
    members = np.flatnonzero(rows[1])
    for epoch in range(2):
        bits = np.asarray(epoch_bits(keys[1], epoch, len(members)))
        for chosen, weight in zip(*own_batches(bits, members, BATCH), strict=True):
            gradient, module = jax.jit(partial(NetworkLearner.gradient, slow))(
                state, jnp.asarray(inputs[chosen]), LABELS, jnp.asarray(weight)
            )
            state = learner.update(state, gradient, module)
    for mine, other in zip(jax.tree.leaves(together), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(mine[1], other, rtol=0, atol=1e-5)


def test_evaluation_cuts_records_off_and_changes_none():
    params = jax.vmap(LEARNER.finish)(jax.vmap(LEARNER.init)(jax.random.split(KEY, 3)))
    whole = jax.jit(jax.vmap(LEARNER.log_probs, in_axes=(0, None)))(params, INPUTS)
    found = log_probs_many(LEARNER, params, INPUTS)
    assert found.shape == whole.shape
    np.testing.assert_allclose(found, whole, **ROUNDING)
    # A record's number is of the record alone: bit for bit in any company.
    some = np.array([5, 0, 17, 5])
    np.testing.assert_array_equal(log_probs_many(LEARNER, params, INPUTS[some]), found[:, some])
    stopping = stop_early(LEARNER, 1)
    np.testing.assert_array_equal(log_probs_many(stopping, params, INPUTS), found)
    assert set(LEARNER.record_ends(INPUTS)) == set(lengths(LENGTH))
    assert (LEARNER.record_ends(INPUTS) >= used_lengths(INPUTS)).all()


def test_a_step_s_memory_is_that_of_a_piece():
    """Twice the records take no more memory but their own, and the whole form takes many times as much."""

    def temporary(function: Any, records: int) -> int:
        state = LEARNER.init(KEY)
        given = jnp.asarray(texts(records)), jnp.zeros(records, jnp.int32), jnp.ones(records)
        program = jax.jit(partial(function, LEARNER)).lower(state, *given).compile()
        analysis: Any = program.memory_analysis()
        return analysis.temp_size_in_bytes

    assert on_one_cpu()
    by_pieces = [temporary(LanguageModelLearner.gradient, records) for records in (64, 128)]
    assert by_pieces[1] - by_pieces[0] < 4 * 64 * LENGTH * 4
    assert 4 * by_pieces[1] < temporary(NetworkLearner.gradient, 128)


def test_a_gradient_of_log_likelihoods_keeps_no_record_s_logits():
    """Unlearning descends on them: as much memory for four times the records, and the gradient of the slow form."""
    params = LEARNER.finish(LEARNER.init(KEY))
    state = params.state

    def loss(params: Any, inputs: Any) -> Any:
        return -jnp.mean(LEARNER.log_probs(params, inputs))

    def temporary(records: int) -> int:
        program = jax.jit(jax.grad(loss, allow_int=True)).lower(params, jnp.asarray(texts(records))).compile()
        analysis: Any = program.memory_analysis()
        return analysis.temp_size_in_bytes

    assert temporary(96) - temporary(24) < 4 * 72 * LENGTH * 4

    def slow(params: Any) -> Any:
        logits = LEARNER.net.apply(params, state, jnp.where(INPUTS < 0, ~INPUTS, INPUTS), False)[0]
        return -jnp.mean(jnp.stack([jnp.mean(likelihoods(*pair)) for pair in zip(logits, INPUTS, strict=True)]))

    close(jax.grad(loss, allow_int=True)(params, jnp.asarray(INPUTS)).params, jax.grad(slow)(params.params))
