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
from support.sequences import SMALL, TEXTS, gpt, likelihoods, small_learner

import jaxaudit as ja
from jaxaudit.ensemble import log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import LanguageModelLearner, NetworkLearner, NetworkParams, SteppedLearner
from jaxaudit.learners.language_model import lengths, on_one_cpu, used_lengths
from jaxaudit.learners.learner import epoch_bits, init_key, own_batches
from jaxaudit.models import GPT, MLP

WIDE, WORDS, BATCH = 80, 11, 24
NET = partial(GPT, depth=1, width=8, heads=2)
ROUNDING = {"rtol": 0, "atol": 2e-6}


@lru_cache
def learner_of(factory: Any = NET, **recipe: Any) -> Any:
    """Of records with more tokens in a minibatch than a piece has, so that the forms differ."""
    recipe = {"batch_size": BATCH, "epochs": 1, "optimizer": optax.sgd(0.1), **recipe}
    return small_learner(WIDE, WORDS, factory, **recipe)


LEARNER = learner_of()


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


LONG, NOUGHTS = texts(), np.zeros(BATCH, np.int32)
WEIGHTS = np.float32(np.arange(BATCH) % 5 > 0)


@lru_cache
def started(learner: Any, seed: int = 5) -> Any:
    return jax.jit(learner.init)(jax.random.key(seed))


@lru_cache
def _compiled(function: Any, learner: Any) -> Any:
    return jax.jit(partial(function, learner))


def of_one(function: Any, learner: Any, state: Any, inputs: Any = LONG, weights: Any = WEIGHTS) -> Any:
    return _compiled(function, learner)(state, inputs, NOUGHTS, weights)


def close(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, other, **ROUNDING)


@lru_cache
def slope(learner: Any) -> Any:
    """The slow form: the gradient of one record's mean negative log-likelihood, `(params, state, record)`."""

    def loss(params: Any, state: Any, record: Any) -> Any:
        tokens, following = jnp.where(record < 0, ~record, record), record[1:]
        said = jax.nn.log_softmax(learner.net.apply(params, state, tokens[None], True)[0][0])
        return -jnp.mean(said[jnp.arange(len(following)), following], where=following >= 0)

    return jax.jit(jax.grad(loss))


def mean_slope(learner: Any, params: Any, state: Any, records: Any) -> Any:
    slopes = [slope(learner)(params, state, record) for record in records]
    return jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *slopes)


@pytest.mark.parametrize("tied", [False, True])
def test_outputs_are_those_of_the_definition(tied: bool):
    tokenizer = ja.word_tokenizer([TEXTS], 20)
    inputs = ja.sequences([TEXTS], tokenizer)[0].inputs
    factory = partial(SMALL, tied=tied, positions=inputs.shape[1] + 3)
    learner = small_learner(inputs.shape[1], tokenizer.vocabulary, factory)
    shapes, state = jax.eval_shape(learner.net.init, KEY)
    assert ("output" in nnx.to_pure_dict(shapes)) is not tied
    random = np.random.default_rng(2)
    params = jax.tree.map(lambda leaf: (0.3 * random.normal(size=leaf.shape)).astype(leaf.dtype), shapes)
    tokens = np.where(inputs < 0, ~inputs, inputs)
    expected = gpt(jax.tree.map(np.float64, plain(params)), tokens, heads=2)
    close = {"rtol": 0, "atol": 1e-5 * float(np.abs(expected).max())}

    @jax.jit
    def both(params: Any) -> Any:
        shown = learner.net.apply(params, state, jnp.asarray(tokens), True)[0]
        return shown, learner.log_probs(NetworkParams(params, state), jnp.asarray(inputs))

    shown, found = both(params)
    np.testing.assert_allclose(shown, expected, **close)
    means = [np.mean(likelihoods(said, record)) for said, record in zip(expected, inputs, strict=True)]
    np.testing.assert_allclose(found[:, 0], means, **close)


def test_many_side_by_side_are_a_plain_loop_each():
    """Of minibatches that are one piece."""
    learner = learner_of(batch_size=2)
    assert isinstance(learner_of(batch_size=2), SteppedLearner)
    assert not learner.convolves
    inputs, keys = LONG[:6], jax.random.split(jax.random.key(5), 3)
    rows = np.array([[1, 1, 1, 0, 1, 0], [0, 1, 0, 1, 1, 1], [1, 0, 1, 1, 0, 1]], bool)
    found = ja.fit_many(keys, rows, inputs, NOUGHTS[:6], learner, execution=ja.Execution(models_per_batch=3))
    for model, row in enumerate(rows):
        members = np.flatnonzero(row)
        params, state = jax.jit(learner.net.init)(init_key(keys[model]))
        params = jax.tree.map(np.asarray, params)
        batches, real = own_batches(np.asarray(epoch_bits(keys[model], 0, len(members))), members, 2)
        for batch, counts in zip(batches, real, strict=True):
            step = mean_slope(learner, params, state, inputs[batch[counts > 0]])
            params = jax.tree.map(lambda leaf, slope: leaf - np.float32(0.1) * slope, params, step)
        for ours, theirs in zip(*map(jax.tree.leaves, (found.params, params)), strict=True):
            np.testing.assert_allclose(ours[model], theirs, atol=1e-5)


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
        small_learner(WIDE, WORDS, factory)


def test_recipes_that_cannot_be_are_refused():
    for wrong in ({"epochs": 0}, {"batch_size": 0}, {"precision": "float8"}):
        with pytest.raises(InputError):
            small_learner(WIDE, WORDS, NET, **wrong)
    assert LEARNER.net.seeded


@pytest.mark.parametrize("tied", [False, True])
def test_a_gradient_by_pieces_is_that_of_each_token_in_turn(tied: bool):
    learner = learner_of(partial(NET, tied=tied)) if tied else LEARNER
    state = started(learner)
    wanted = mean_slope(learner, state.params, state.state, LONG[WEIGHTS > 0])
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
        learner = learner_of(factory)
        assert (learner.net.causal, learner.net.head is not None) == (ours, ours)
    state = started(learner)
    wanted = mean_slope(learner, state.params, state.state, LONG[WEIGHTS > 0])
    close(of_one(LanguageModelLearner.gradient, learner, state)[0], wanted)
    params = jax.tree.map(lambda leaf: leaf[None], learner.finish(state))
    one_by_one = jax.jit(jax.vmap(learner.log_probs, in_axes=(0, None)))(params, LONG)
    np.testing.assert_allclose(log_probs_many(learner, params, LONG), one_by_one, **ROUNDING)


def test_a_model_by_pieces_is_of_its_row_alone_also_on_a_device_that_takes_models_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """Bit for bit, whatever is trained beside it; in turn or at once, the gradients are the same."""
    states = jax.jit(jax.vmap(LEARNER.init))(jax.random.split(KEY, 3))
    random = np.random.default_rng(1)
    weights = np.float32(random.integers(0, 2, (3, BATCH)))
    others = np.where(np.arange(3)[:, None] == 1, weights, np.float32(random.random((3, BATCH)) < 0.2))

    def gradients() -> tuple[Any, Any]:
        def of(state: Any, weight: Any) -> Any:
            return LEARNER.gradient(state, jnp.asarray(LONG), jnp.asarray(NOUGHTS), weight)[0]

        compiled = jax.jit(jax.vmap(of))
        together, beside = compiled(states, weights), compiled(states, others)
        for mine, other in zip(jax.tree.leaves(together), jax.tree.leaves(beside), strict=True):
            np.testing.assert_array_equal(mine[1], other[1])
        return together

    in_turn = gradients()
    module = importlib.import_module("jaxaudit.learners.language_model")
    for name, value in (("on_one_cpu", lambda: False), ("DEVICE_TOKENS", 300), ("DEVICE_POSITIONS", 100)):
        monkeypatch.setattr(module, name, value)
    close(gradients(), in_turn)


def test_bfloat16_by_pieces_is_that_of_whole_minibatches():
    state, short = started(LEARNER), learner_of(precision="bfloat16")
    lower = [of_one(each.gradient, short, state)[0] for each in (LanguageModelLearner, NetworkLearner)]
    for mine, other in zip(*map(jax.tree.leaves, lower), strict=True):
        assert np.linalg.norm(mine - other) < 0.03 * np.linalg.norm(other)


def test_dropout_draws_in_each_piece_and_repeats():
    learner = learner_of(partial(NET, dropout=0.5))
    state, same = started(learner), np.repeat(LONG[:1], BATCH, axis=0)
    gradient = partial(of_one, LanguageModelLearner.gradient, learner, state, same)
    # All records are one and the same, and a piece takes 13 of them: at the same places of both pieces.
    places = [np.float32(np.isin(np.arange(BATCH) - start, range(8))) for start in (0, 13)]
    (first, after), (again, _), (second, _) = (gradient(each) for each in (places[0], *places))
    for mine, repeated, other in zip(*map(jax.tree.leaves, (first, again, second)), strict=True):
        np.testing.assert_array_equal(mine, repeated)
        assert not np.allclose(mine, other, rtol=1e-3, atol=1e-6)
    counts = [jax.tree.leaves(nnx.filter_state(each, nnx.RngCount)) for each in (state.state, after)]
    assert all(new > old for old, new in zip(*counts, strict=True))


def test_evaluation_cuts_records_off_and_changes_none():
    params = jax.jit(jax.vmap(lambda key: LEARNER.finish(LEARNER.init(key))))(jax.random.split(KEY, 3))
    whole = jax.jit(jax.vmap(LEARNER.log_probs, in_axes=(0, None)))(params, LONG)
    found = log_probs_many(LEARNER, params, LONG)
    assert found.shape == whole.shape
    np.testing.assert_allclose(found, whole, **ROUNDING)
    # A record's number is of the record alone: bit for bit in any company.
    some = np.array([5, 0, 17, 5])
    np.testing.assert_array_equal(log_probs_many(LEARNER, params, LONG[some]), found[:, some])
    assert set(LEARNER.record_ends(LONG)) == set(lengths(WIDE))
    assert (LEARNER.record_ends(LONG) >= used_lengths(LONG)).all()


def compiled_for(function: Any, given: Any, records: int) -> tuple[Any, int]:
    """The program for so many records, and the bytes that it holds while it runs."""
    program = jax.jit(function).lower(given, texts(records)).compile()
    analysis: Any = program.memory_analysis()
    return program, analysis.temp_size_in_bytes


def test_a_step_s_memory_is_that_of_a_piece():
    """More records take no more memory but their own, and the whole form takes many times as much."""

    def step(function: Any, state: Any, inputs: Any) -> Any:
        return function(LEARNER, state, inputs, jnp.zeros(len(inputs), int), jnp.ones(len(inputs)))[0]

    assert on_one_cpu()
    few, many = (compiled_for(partial(step, LanguageModelLearner.gradient), started(LEARNER), n)[1] for n in (64, 128))
    assert many - few < 4 * 64 * WIDE * 4
    assert 4 * many < compiled_for(partial(step, NetworkLearner.gradient), started(LEARNER), 128)[1]


def test_a_gradient_of_log_likelihoods_keeps_no_record_s_logits():
    """Unlearning descends on them: as much memory for four times the records, and the gradient of the slow form."""
    params = LEARNER.finish(started(LEARNER))

    def loss(params: Any, inputs: Any) -> Any:
        return -jnp.mean(LEARNER.log_probs(params, inputs))

    (program, few), (_, many) = (compiled_for(jax.grad(loss, allow_int=True), params, n) for n in (BATCH, 4 * BATCH))
    assert many - few < 4 * 3 * BATCH * WIDE * 4
    close(program(params, LONG).params, mean_slope(LEARNER, params.params, params.state, LONG))
