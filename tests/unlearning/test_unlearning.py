"""Retraining and amnesiac unlearning: the identities of Becker & Liebig (2022), section 2, on trained networks."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.circles import first_of
from support.tiny_learners import Convolved, Dropped, Normed, flat, flat_rows, learner, records, small_mlp

from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError
from jaxaudit.learners.batch_order import epoch_bits, init_key, pool_batches
from jaxaudit.unlearning import Recording, retrain, take_back, train_and_record

INPUTS, LABELS = records(23, 4)
SETS = np.zeros((4, 23), bool)
SETS[1, :1], SETS[2, 5:9], SETS[3] = True, True, True
"""Nothing, one record, four, everything."""
BOTH = np.ones((2, 23), bool)


@cache
def keys() -> jax.Array:
    return jax.random.split(jax.random.key(5), 2)


def test_a_recorded_training_is_the_plain_one_and_sums_are_those_of_stored_updates():
    chosen = learner(small_mlp, (4,), "averaging")
    recorded = train_and_record(keys(), SETS, INPUTS, LABELS, chosen, execution=Execution(2))
    plain = fit_many(keys(), BOTH, INPUTS, LABELS, chosen, execution=Execution(2))
    np.testing.assert_allclose(flat_rows(recorded.original, 2), flat_rows(plain, 2), atol=1e-5)
    for model, key in enumerate(keys()):
        params, updates, touched = stored(chosen, key)
        for index in range(len(SETS)):
            expected = take_back(params, updates, touched[:, index])
            found = jax.tree.map(lambda leaf, m=model, i=index: leaf[m, i], recorded.amnesiac.params)
            np.testing.assert_allclose(flat(found), flat(expected), atol=1e-5)


def stored(chosen: Any, key: Any) -> tuple[Any, Any, np.ndarray]:
    """One training with every update kept, and whether its minibatch held a record of each set."""
    step = jax.jit(chosen.step)
    state, updates, touched = chosen.init(init_key(key)), [], []
    for epoch in range(chosen.epochs):
        for batch, real in zip(*pool_batches(np.asarray(epoch_bits(key, epoch, 23)), chosen.batch_size), strict=True):
            before = state.params
            state = step(state, INPUTS[batch], LABELS[batch], real)
            updates.append(jax.tree.map(jnp.subtract, state.params, before))
            touched.append(SETS[:, batch[real > 0]].any(axis=1))
    return state.params, jax.tree.map(lambda *leaves: jnp.stack(leaves), *updates), np.array(touched)


@pytest.mark.parametrize(("module", "shape"), first_of([(Dropped, (4,)), (Convolved, (5, 5, 1))]))
def test_all_updates_taken_back_are_the_initial_weights_and_none_changes_nothing(module, shape):
    chosen, (inputs, labels) = learner(module, shape, "sgd"), records(23, *shape)
    recorded = train_and_record(keys(), SETS, inputs, labels, chosen, execution=Execution(2))
    start = flat_rows(jax.jit(jax.vmap(lambda key: chosen.init(init_key(key)).params))(keys()), 2)
    original = flat_rows(recorded.original.params, 2)
    nothing, everything = (
        flat_rows(jax.tree.map(lambda leaf, i=index: leaf[:, i], recorded.amnesiac.params), 2) for index in (0, 3)
    )
    np.testing.assert_array_equal(nothing, original)
    # Some roundings of the largest number: a sum over a dozen steps of float32.
    roundings = 40 * float(np.finfo(np.float32).eps) * max(np.abs(original).max(), np.abs(start).max())
    np.testing.assert_allclose(everything, start, atol=roundings)
    assert np.abs(everything - original).max() > 0.01


def test_the_order_in_which_sets_are_forgotten_does_not_matter():
    """Equation 3, for updates that no set shares with another; one that is shared is taken back once."""
    random = np.random.default_rng(2)
    params, updates = {"w": jnp.ones(3)}, {"w": jnp.asarray(random.normal(size=(6, 3)), jnp.float32)}
    first, second = np.array([1, 0, 1, 0, 0, 0], bool), np.array([0, 1, 0, 0, 0, 1], bool)
    one = take_back(take_back(params, updates, first), updates, second)
    other = take_back(take_back(params, updates, second), updates, first)
    together = take_back(params, updates, first | second)
    for found in (one, other):
        np.testing.assert_allclose(found["w"], together["w"], atol=1e-6)
    np.testing.assert_allclose(together["w"], 1 - updates["w"][first | second].sum(axis=0), atol=1e-6)


def test_a_recording_is_a_learner_like_any_other():
    chosen = Recording(learner(small_mlp, (4,), "sgd"), 1)
    marked = (LABELS << 1) | SETS[2]
    inputs = jnp.asarray(INPUTS)
    one = jax.jit(chosen.fit)(keys()[0], inputs, jnp.asarray(marked), jnp.ones(23))
    expected = train_and_record(keys()[:1], SETS[2:3], INPUTS, LABELS, chosen.learner)
    np.testing.assert_allclose(flat(one), flat(expected), atol=1e-5)
    np.testing.assert_array_equal(chosen.log_probs(one, inputs), chosen.learner.log_probs(one.original, inputs))


def test_retraining_with_nothing_removed_is_the_original():
    chosen = learner(Normed, (4,), "sgd")
    forget = np.zeros((4, 23), bool)
    forget[2, :2] = forget[3, 4:12] = True
    both = keys()[np.array([0, 1, 0, 0])]
    models = flat_rows(retrain(both, forget, INPUTS, LABELS, chosen, execution=Execution(4)), 4)
    originals = flat_rows(fit_many(keys(), BOTH, INPUTS, LABELS, chosen, execution=Execution(2)), 2)
    np.testing.assert_allclose(models[:2], originals, atol=1e-5)
    assert np.abs(models[2] - models[0]).max() > 1e-3
    twice = flat_rows(retrain(both[np.array([0, 0])], forget[:2], INPUTS, LABELS, chosen, execution=Execution(2)), 2)
    np.testing.assert_array_equal(twice[0], twice[1])


def test_a_retrained_model_has_never_seen_the_forgotten_records():
    chosen = learner(small_mlp, (4,), "sgd")
    forget = SETS[[2, 1]]
    changed = np.where(forget[0][:, None], 100 * INPUTS, INPUTS)
    one, other = (
        flat_rows(retrain(keys(), forget, x, LABELS, chosen, execution=Execution(2)), 2) for x in (INPUTS, changed)
    )
    np.testing.assert_array_equal(one[0], other[0])


def test_what_cannot_be_forgotten():
    mlp = learner(small_mlp, (4,), "sgd")
    with pytest.raises(InputError, match="row 1 forgets all 23 records"):
        retrain(keys(), SETS[[1, 3]], INPUTS, LABELS, mlp)
    with pytest.raises(InputError, match="running statistics"):
        train_and_record(keys(), SETS, INPUTS, LABELS, learner(Normed, (4,), "sgd"))
    with pytest.raises(InputError, match=r"30 sets to forget .* with labels up to 2: at most 29"):
        train_and_record(keys(), np.zeros((30, 23), bool), INPUTS, LABELS, mlp)
