"""A network's training against plain loops, and who trains together in which order: chunks, minibatches."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import batches_by_loop, softmax, softmax_regression_by_loop
from support.tiny_learners import (
    OPTIMIZERS,
    Dropped,
    Normed,
    compiled_fit,
    learner,
    records,
    small_mlp,
    softmax_regression,
)

from jaxaudit.ensemble import batches
from jaxaudit.ensemble.batches import Tables
from jaxaudit.ensemble.concurrency import chunk_places, plan_groups

KEY = jax.random.key(8)
INPUTS, LABELS = records(23, 4)

# float32 keeps a gradient of order 1 to about 1e-6; a dozen steps of at most 0.05 / EPSILON times that.
CLOSE = {"rtol": 0, "atol": 1e-4}


def dense(params):
    """Kernel and bias of softmax regression."""
    layer = nnx.to_pure_dict(params)["layers"][0]
    return np.asarray(layer["kernel"]), np.asarray(layer["bias"])


@pytest.mark.parametrize("members", [23, 21, 20, 9, 0])
def test_fit_is_a_plain_loop_over_the_members(members):
    one = learner(softmax_regression)
    member = np.zeros(23, bool)
    member[np.random.default_rng(members).permutation(23)[:members]] = True
    start = dense(jax.jit(one.init)(jax.random.fold_in(KEY, 0)).params)
    batches = batches_by_loop(KEY, member, epochs=2, batch_size=4)
    expected = softmax_regression_by_loop(batches, *start, INPUTS, LABELS, OPTIMIZERS["adam"])
    found = compiled_fit(one)(KEY, INPUTS, LABELS, member.astype(np.float32))
    for ours, theirs in zip(dense(found.params), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_log_probs_are_those_of_evaluation():
    one = learner(Dropped)

    @jax.jit
    def both(inputs):
        params = one.finish(one.init(KEY))
        return one.log_probs(params, inputs), one.net.apply(params.params, params.state, inputs, False)[0]

    found, logits = both(INPUTS)
    np.testing.assert_allclose(np.exp(found), softmax(np.asarray(logits, np.float64)), rtol=1e-4, atol=1e-6)


EXAMPLES = 30
QUICK = settings(max_examples=25, deadline=None)


def like(batch_size: int, batch_coupled: bool) -> Any:
    """A learner with this batch size, coupled or not."""
    return replace(learner(Normed if batch_coupled else small_mlp), batch_size=batch_size)


@st.composite
def memberships(draw):
    """Rows of many kinds: empty, single, sparse, leave-some-out, everyone."""
    sizes = st.sampled_from([0, 1, 8, 15, 16, 26, 27, 29, 30])
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [random.permutation(EXAMPLES) < size for size in draw(st.lists(sizes, min_size=1, max_size=3))]
    one_key = draw(st.booleans())
    words = np.zeros((len(rows), 2), np.uint32) if one_key else random.integers(0, 9, (len(rows), 2)).astype(np.uint32)
    return np.array(rows), words


def tables_of(group: Any, membership: np.ndarray, keys: Any, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """One epoch of a group, `[models, steps, batch]`: the blocks put together."""
    tables = Tables(like(batch_size, False), group, keys[group.rows], membership[group.rows])
    blocks = list(tables.blocks(2, tables.draw(2)))
    assert len({block.weights.shape[0] for block in blocks}) <= 1
    for block in blocks:
        assert not block.weights[block.steps :].any()
    weights = np.concatenate([block.weights[: block.steps] for block in blocks])
    indices = np.concatenate([block.indices[: block.steps] for block in blocks])
    if group.shared:
        indices = np.repeat(indices[:, None], len(group.rows), axis=1)
    assert len(weights) == group.steps
    return np.moveaxis(indices, 1, 0), np.moveaxis(weights, 1, 0)


KEYS = jax.random.split(jax.random.key(2), 8)
SAME = jnp.stack([KEYS[0]] * 8)


@QUICK
@given(memberships(), st.integers(1, 40), st.booleans(), st.sampled_from([1, 64, 1 << 22]))
def test_an_epoch_visits_every_member_once_and_no_one_else(drawn, batch_size, coupled, entries):
    membership, words = drawn
    keys = KEYS[: len(membership)] if words.any() else SAME[: len(membership)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "TABLE_ENTRIES", entries)  # small tables: an epoch of many blocks
        for group in plan_groups(np.asarray(jax.random.key_data(keys)), membership, like(batch_size, coupled)):
            if group.steps == 0:
                assert not membership[group.rows].any()
                continue
            indices, weights = tables_of(group, membership, keys, batch_size)
            assert set(np.unique(weights).tolist()) <= {0.0, 1.0}
            for row, chosen, weight in zip(membership[group.rows], indices, weights, strict=True):
                visited = Counter(chosen[weight > 0].tolist())
                assert visited == Counter(np.flatnonzero(row).tolist())
                if not group.pool and row.any():
                    assert row[chosen].all()
            # Only a group that says so has a step without records.
            assert group.uneven or weights.any(axis=2).all()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
def test_chunks_are_of_one_size_cover_all_and_repeat_only_the_last_place(count, width, devices):
    made = chunk_places(count, width, devices)
    assert {len(chunk) for chunk in made} == {max(devices, width // devices * devices)}
    together = np.concatenate(made)
    assert together.tolist() == [min(place, count - 1) for place in range(len(together))]
    # No chunk consists of copies alone.
    assert len(together) - count < len(made[0])
