"""Language models by their definition, many side by side; minibatches of texts in pieces, in a bounded memory."""

import importlib
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support.pure_modules import KEY, plain
from support.sequences import SMALL, TEXTS, gpt, likelihoods, small_learner, trained_plainly

import jaxaudit as ja
from jaxaudit.ensemble import log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import LanguageModelLearner, NetworkLearner, SteppedLearner
from jaxaudit.learners.language_model import lengths, on_one_cpu, used_lengths
from jaxaudit.learners.learner import epoch_bits, init_key, own_batches
from jaxaudit.models import GPT, MLP

TOKENIZER = ja.word_tokenizer([TEXTS], 20)
(SMALL_SET,) = ja.sequences([TEXTS], TOKENIZER)
INPUTS, LABELS = SMALL_SET.inputs, SMALL_SET.labels
LENGTH = INPUTS.shape[1]
ROWS = np.array([[1, 1, 1, 0, 1, 0], [0, 1, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0]], bool)


@lru_cache
def learner_of(**options: Any) -> Any:
    factory = partial(SMALL, **options) if options else SMALL
    return small_learner(LENGTH, TOKENIZER.vocabulary, factory)


def moved(params: Any) -> Any:
    """No scale is 1 and no bias 0."""
    random = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: leaf + 0.3 * random.normal(size=leaf.shape).astype(leaf.dtype), params)


@pytest.mark.parametrize("tied", [False, True])
def test_outputs_are_those_of_the_definition(tied: bool):
    learner = learner_of(tied=tied, positions=LENGTH + 3)
    params, state = learner.net.init(KEY)
    assert ("output" in nnx.to_pure_dict(params)) is not tied
    params = moved(params)
    tokens = np.where(INPUTS < 0, ~INPUTS, INPUTS)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), plain(params))
    expected = gpt(wide, tokens, heads=2)
    close = {"rtol": 0, "atol": 1e-5 * float(np.abs(expected).max())}
    apply = jax.jit(learner.net.apply, static_argnums=3)
    np.testing.assert_allclose(apply(params, state, tokens, True)[0], expected, **close)
    found = jax.jit(learner.log_probs)(learner.finish(learner.init(KEY)._replace(params=params)), INPUTS)
    means = [np.mean(likelihoods(said, record)) for said, record in zip(expected, INPUTS, strict=True)]
    np.testing.assert_allclose(found[:, 0], means, **close)


def test_many_side_by_side_are_a_plain_loop_each():
    learner = learner_of()
    assert isinstance(learner_of(), SteppedLearner)
    assert not learner.convolves
    keys = jax.random.split(jax.random.key(5), len(ROWS))

    def kept(params: Any, rows: Any) -> Any:
        return jax.tree.map(np.asarray, params), log_probs_many(learner, params, INPUTS)

    call = (keys, ROWS, INPUTS, LABELS, learner)
    params, said = ja.fit_many(*call, execution=ja.Execution(models_per_batch=3), summarize=kept)
    assert said.shape == (3, len(INPUTS), 1)
    for model, row in enumerate(ROWS):
        members = np.flatnonzero(row)
        batches = []
        for epoch in range(learner.epochs):
            bits = np.asarray(epoch_bits(keys[model], epoch, len(members)))
            chosen, real = own_batches(bits, members, learner.batch_size)
            batches += [each[counts > 0] for each, counts in zip(chosen, real, strict=True)]
        start, state = learner.net.init(init_key(keys[model]))
        expected = trained_plainly(learner.net, start, state, INPUTS, batches, learner.optimizer)
        for ours, theirs in zip(*map(jax.tree.leaves, (params.params, expected)), strict=True):
            np.testing.assert_allclose(ours[model], theirs, atol=1e-5)
        # Training by one traced program, and alone.
        alone = jax.jit(learner.fit)(keys[model], INPUTS, LABELS, row.astype(np.float32))
        np.testing.assert_allclose(jax.jit(learner.log_probs)(alone, INPUTS), said[model], atol=1e-5)


@pytest.mark.parametrize(
    "factory",
    [
        pytest.param(partial(GPT, width=10), id="width that the heads do not divide"),
        pytest.param(partial(GPT, positions=8), id="records longer than its positions"),
        pytest.param(MLP, id="outputs without tokens"),
    ],
)
def test_what_is_no_model_of_tokens_is_refused(factory: Any):
    with pytest.raises(InputError):
        small_learner(LENGTH, TOKENIZER.vocabulary, factory)


def test_recipes_that_cannot_be_are_refused():
    for wrong in ({"epochs": 0}, {"batch_size": 0}, {"precision": "float8"}):
        with pytest.raises(InputError):
            small_learner(LENGTH, TOKENIZER.vocabulary, **wrong)
    assert small_learner(LENGTH, TOKENIZER.vocabulary, optimizer=optax.sgd(0.1)).net.seeded


KEY_OF_PIECES = jax.random.key(5)
WIDE, WORDS, BATCH = 96, 11, 24
NET = partial(GPT, depth=1, width=8, heads=2)
# In pieces: more tokens than a piece has, so that the forms differ.
LEARNER = small_learner(WIDE, WORDS, NET, batch_size=BATCH, epochs=1, optimizer=optax.sgd(0.1))
ROUNDING = {"rtol": 0, "atol": 2e-6}


def texts(records: int = BATCH) -> np.ndarray:
    """Records of many lengths: context, tokens that count with some between that do not, and what fills up."""
    random = np.random.default_rng(7)
    inputs = random.integers(0, WORDS, (records, WIDE)).astype(np.int32)
    for row, end in zip(inputs, random.integers(6, WIDE + 1, records), strict=True):
        row[: random.integers(1, 5)] = -1
        row[end // 2 : end // 2 + 2] = -3
        row[end:] = -WORDS
    inputs[0, 1:] = random.integers(0, WORDS, WIDE - 1)
    return inputs


LONG, NOUGHTS = texts(), jnp.zeros(BATCH, jnp.int32)
WEIGHTS = jnp.asarray(np.arange(BATCH) % 5 > 0, jnp.float32)


def of_one(function: Any, learner: Any, state: Any, inputs: Any = LONG, weights: Any = WEIGHTS) -> Any:
    return jax.jit(partial(function, learner))(state, jnp.asarray(inputs), NOUGHTS[: len(inputs)], weights)


def close(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, other, **ROUNDING)


@pytest.mark.parametrize("tied", [False, True])
def test_a_gradient_by_pieces_is_that_of_each_token_in_turn(tied: bool):
    learner = small_learner(WIDE, WORDS, partial(NET, tied=tied), batch_size=BATCH)
    state = learner.init(KEY_OF_PIECES)

    def loss(params: Any, record: Any) -> Any:
        tokens, following = jnp.where(record < 0, ~record, record), record[1:]
        said = jax.nn.log_softmax(learner.net.apply(params, state.state, tokens[None], True)[0][0])
        return -jnp.mean(said[jnp.arange(WIDE - 1), following], where=following >= 0)

    slow = jax.jit(jax.grad(loss))
    gradients = [slow(state.params, record) for record in LONG[np.asarray(WEIGHTS) > 0]]
    wanted = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *gradients)
    close(of_one(LanguageModelLearner.gradient, learner, state)[0], wanted)


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


def test_any_module_of_tokens_trains_by_pieces():
    for factory, ours in ((NET, True), (partial(OwnCall, depth=1, width=8), False), (Foreign, False)):
        learner = small_learner(WIDE, WORDS, factory, batch_size=BATCH)
        assert (learner.net.causal, learner.net.head is not None) == (ours, ours)
    state = learner.init(KEY_OF_PIECES)
    found, wanted = (of_one(each.gradient, learner, state)[0] for each in (LanguageModelLearner, NetworkLearner))
    close(found, wanted)
    params = jax.tree.map(lambda leaf: leaf[None], learner.finish(state))
    one_by_one = jax.jit(jax.vmap(learner.log_probs, in_axes=(0, None)))(params, LONG)
    np.testing.assert_allclose(log_probs_many(learner, params, LONG), one_by_one, **ROUNDING)


def test_bfloat16_and_a_device_that_takes_models_at_once_do_the_same(monkeypatch: pytest.MonkeyPatch):
    state = LEARNER.init(KEY_OF_PIECES)
    short = small_learner(WIDE, WORDS, NET, batch_size=BATCH, precision="bfloat16")
    lower = [of_one(each.gradient, short, state)[0] for each in (LanguageModelLearner, NetworkLearner)]
    for mine, other in zip(*map(jax.tree.leaves, lower), strict=True):
        assert np.linalg.norm(mine - other) < 0.03 * np.linalg.norm(other)
    states = jax.vmap(LEARNER.init)(jax.random.split(KEY_OF_PIECES, 3))
    weights = jnp.asarray(np.random.default_rng(1).integers(0, 2, (3, BATCH)), jnp.float32)

    def gradients() -> Any:
        def of(state: Any, weight: Any) -> Any:
            return LEARNER.gradient(state, jnp.asarray(LONG), NOUGHTS, weight)[0]

        return jax.jit(jax.vmap(of))(states, weights)

    in_turn = gradients()
    module = importlib.import_module("jaxaudit.learners.language_model")
    for name, value in (("on_one_cpu", lambda: False), ("DEVICE_TOKENS", 300), ("DEVICE_POSITIONS", 100)):
        monkeypatch.setattr(module, name, value)
    close(gradients(), in_turn)


def test_dropout_draws_in_each_piece_and_repeats():
    learner = small_learner(WIDE, WORDS, partial(NET, dropout=0.5), batch_size=BATCH)
    state = learner.init(KEY_OF_PIECES)
    # Twice the same records: their masks differ, or the gradient were that of one half.
    twice = np.concatenate([LONG[:12], LONG[:12]])
    gradient = partial(of_one, LanguageModelLearner.gradient, learner, state)
    both, half = (gradient(some, jnp.ones(len(some))) for some in (twice, LONG[:12]))
    again = gradient(twice, jnp.ones(24))
    for mine, same, other in zip(*map(jax.tree.leaves, (both[0], again[0], half[0])), strict=True):
        np.testing.assert_array_equal(mine, same)
        assert not np.allclose(mine, other, rtol=1e-3, atol=1e-6)
    counts = [jax.tree.leaves(nnx.filter_state(each, nnx.RngCount)) for each in (state.state, both[1])]
    assert all(new > old for old, new in zip(*counts, strict=True))


def test_a_model_by_pieces_is_of_its_row_alone():
    """Bit for bit, whatever is trained beside it."""
    inputs, labels = texts(40), np.zeros(40, np.int32)
    learner = small_learner(WIDE, WORDS, NET, batch_size=BATCH, epochs=2, optimizer=optax.sgd(0.1))
    keys, rows = jax.random.split(KEY_OF_PIECES, 4), np.random.default_rng(1).random((4, 40)) < 0.8
    run = partial(ja.fit_many, inputs=inputs, labels=labels, learner=learner, members_only=True)
    together = run(keys, rows, execution=ja.Execution(2)).params
    others = np.random.default_rng(2).random((4, 40)) < 0.5
    others[1] = rows[1]
    beside = run(keys, others, execution=ja.Execution(2)).params
    for mine, other in zip(jax.tree.leaves(together), jax.tree.leaves(beside), strict=True):
        np.testing.assert_array_equal(mine[1], other[1])


def test_evaluation_cuts_records_off_and_changes_none():
    params = jax.vmap(LEARNER.finish)(jax.vmap(LEARNER.init)(jax.random.split(KEY_OF_PIECES, 3)))
    whole = jax.jit(jax.vmap(LEARNER.log_probs, in_axes=(0, None)))(params, LONG)
    found = log_probs_many(LEARNER, params, LONG)
    assert found.shape == whole.shape
    np.testing.assert_allclose(found, whole, **ROUNDING)
    # A record's number is of the record alone: bit for bit in any company.
    some = np.array([5, 0, 17, 5])
    np.testing.assert_array_equal(log_probs_many(LEARNER, params, LONG[some]), found[:, some])
    assert set(LEARNER.record_ends(LONG)) == set(lengths(WIDE))
    assert (LEARNER.record_ends(LONG) >= used_lengths(LONG)).all()


def test_a_step_s_memory_is_that_of_a_piece():
    """Twice the records take no more memory but their own, and the whole form takes many times as much."""

    def temporary(function: Any, records: int) -> int:
        state = LEARNER.init(KEY_OF_PIECES)
        given = jnp.asarray(texts(records)), jnp.zeros(records, jnp.int32), jnp.ones(records)
        program = jax.jit(partial(function, LEARNER)).lower(state, *given).compile()
        analysis: Any = program.memory_analysis()
        return analysis.temp_size_in_bytes

    assert on_one_cpu()
    by_pieces = [temporary(LanguageModelLearner.gradient, records) for records in (64, 128)]
    assert by_pieces[1] - by_pieces[0] < 4 * 64 * WIDE * 4
    assert 4 * by_pieces[1] < temporary(NetworkLearner.gradient, 128)


def test_a_gradient_of_log_likelihoods_keeps_no_record_s_logits():
    """Unlearning descends on them: as much memory for four times the records, and the gradient of the slow form."""
    params = LEARNER.finish(LEARNER.init(KEY_OF_PIECES))
    state = params.state

    def loss(params: Any, inputs: Any) -> Any:
        return -jnp.mean(LEARNER.log_probs(params, inputs))

    def temporary(records: int) -> int:
        program = jax.jit(jax.grad(loss, allow_int=True)).lower(params, jnp.asarray(texts(records))).compile()
        analysis: Any = program.memory_analysis()
        return analysis.temp_size_in_bytes

    assert temporary(96) - temporary(24) < 4 * 72 * WIDE * 4

    def slow(params: Any) -> Any:
        logits = LEARNER.net.apply(params, state, jnp.where(LONG < 0, ~LONG, LONG), False)[0]
        return -jnp.mean(jnp.stack([jnp.mean(likelihoods(*pair)) for pair in zip(logits, LONG, strict=True)]))

    found = jax.jit(jax.grad(loss, allow_int=True))(params, jnp.asarray(LONG)).params
    close(found, jax.jit(jax.grad(slow))(params.params))
