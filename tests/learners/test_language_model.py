"""Language models by their definition: outputs, causality, training, and many side by side."""

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
from jaxaudit.data.texts import Texts
from jaxaudit.ensemble import log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner, stop_early
from jaxaudit.learners.batch_order import epoch_bits, init_key, own_batches
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


def test_a_later_token_changes_no_earlier_prediction_and_padding_none():
    learner = learner_of(positions=64)
    params, state = learner.net.init(KEY)
    params = moved(params)
    apply = jax.jit(learner.net.apply, static_argnums=3)
    tokens = np.where(INPUTS < 0, ~INPUTS, INPUTS)
    before = np.asarray(apply(params, state, tokens, False)[0])
    for at in (1, 7, LENGTH - 1):
        changed = tokens.copy()
        changed[:, at] = (changed[:, at] + 5) % TOKENIZER.vocabulary
        after = np.asarray(apply(params, state, changed, False)[0])
        np.testing.assert_array_equal(after[:, :at], before[:, :at])
        assert (np.abs(after[:, at:] - before[:, at:]).max(axis=(1, 2)) > 1e-3).all()
    kept = learner.finish(learner.init(KEY)._replace(params=params))
    longer = np.pad(INPUTS, ((0, 0), (0, 32)), constant_values=~TOKENIZER.end)
    more, less = (jax.jit(learner.log_probs)(kept, each) for each in (longer, INPUTS))
    np.testing.assert_allclose(more, less, rtol=1e-5)


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


def test_training_remembers_and_stops_early_on_the_loss_of_tokens():
    learner = small_learner(LENGTH, TOKENIZER.vocabulary, epochs=40)
    row = np.repeat(ROWS[:1], 2, axis=0)
    keys = jax.random.split(KEY, 2)

    def said(one: Any, params: Any, rows: Any) -> Any:
        return log_probs_many(one, params, INPUTS)[:, :, 0]

    found = ja.fit_many(keys, row, INPUTS, LABELS, learner, summarize=partial(said, learner))
    assert (found <= 0).all()
    assert found[:, ROWS[0]].mean() > found[:, ~ROWS[0]].mean() + 1
    early = stop_early(learner, 3, 0.3)
    stopped = ja.fit_many(keys, row, INPUTS, LABELS, early, summarize=partial(said, early))
    assert stopped[:, ROWS[0]].mean() < found[:, ROWS[0]].mean()
    state = early.init(KEY)
    losses = early.losses(state, jnp.asarray(INPUTS), jnp.asarray(LABELS))
    np.testing.assert_allclose(losses, -learner.log_probs(learner.finish(learner.init(KEY)), jnp.asarray(INPUTS))[:, 0])


def test_mixed_precision_trains_alike():
    keys = jax.random.split(KEY, 2)
    found = [
        ja.fit_many(keys, ROWS[:2], INPUTS, LABELS, one, summarize=lambda p, _, one=one: log_probs_many(one, p, INPUTS))
        for one in (learner_of(), small_learner(LENGTH, TOKENIZER.vocabulary, precision="bfloat16"))
    ]
    assert not np.array_equal(*found)
    np.testing.assert_allclose(*found, atol=0.1)


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


def test_shadow_models_of_texts_judge_targets_of_known_truth():
    random = np.random.default_rng(3)
    sets = []
    for name in ("query", "holdout", "calibration"):
        answers = tuple("".join(random.choice(list("abcdefgh"[:few]), 10)) for few in random.integers(1, 9, 40))
        prompts = tuple("".join(random.choice(list("abcdefgh"), 4)) for _ in answers)
        sets.append(Texts("prompt", prompts, answers, (b"",) * len(answers), name))
    query, holdout, calibration = ja.sequences(sets)
    factory = partial(GPT, depth=1, width=16)
    learner = small_learner(16, 257, factory, optimizer=optax.adam(0.02), epochs=30, batch_size=20)
    parts = ja.Part(query, 1.0), ja.Part(calibration, 1.0)
    targets = [ja.SimulatedTarget("used", parts), ja.SimulatedTarget("unused", parts[1:])]
    tests, execution = [ja.HoldoutTest(mixed=20)], ja.Execution(11)
    words = {"tests": tests, "holdout": holdout, "execution": execution}
    shadows = ja.train_shadows(KEY, query, calibration, learner, targets, **words)
    assert np.isfinite(shadows.log_odds).all()
    assert (shadows.confidences <= 1).all()
    assert np.isnan(shadows.own_accuracy).all()
    # log-odds of a likelihood: log(p / (1 - p)), with p that of a token.
    p = shadows.confidences.astype(np.float64)
    np.testing.assert_allclose(shadows.log_odds, np.log(p / (1 - p)), atol=0.01)
    found = ja.judge(KEY, shadows, targets, tests=tests).result.targets
    p_values = [each.usage[0].p_never for each in found]
    assert p_values[0] < 0.01 < p_values[1]
    assert found[0].verdict == "not forgotten"
