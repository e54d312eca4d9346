"""Who trains together and in which order: groups, chunks, minibatches."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny_learners import Normed, learner, small_mlp

from jaxaudit.ensemble import batches, program
from jaxaudit.ensemble.batches import Tables
from jaxaudit.ensemble.concurrency import chunk_places, plan_groups
from jaxaudit.learners.stepped import epoch_bits, own_batches, pool_batches, takes_pool_order, traced_batches

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
    rows = [random.permutation(EXAMPLES) < size for size in draw(st.lists(sizes, min_size=1, max_size=5))]
    one_key = draw(st.booleans())
    words = np.zeros((len(rows), 2), np.uint32) if one_key else random.integers(0, 9, (len(rows), 2)).astype(np.uint32)
    return np.array(rows), words


@QUICK
@given(memberships(), st.integers(1, 40), st.booleans(), st.integers(1, 7))
def test_every_row_is_in_one_group_that_fits_it(drawn, batch_size, coupled, width):
    membership, words = drawn
    groups = plan_groups(words, membership, like(batch_size, coupled))
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(len(membership)))
    for group in groups:
        members = membership[group.rows].sum(axis=1)
        assert (takes_pool_order(members, EXAMPLES, coupled) == group.pool).all()
        assert group.shared == (group.pool and len(np.unique(words[group.rows], axis=0)) == 1)
        walked = np.full(len(members), EXAMPLES) if group.pool else members
        assert np.array_equal(group.steps_of_rows, -(-walked // batch_size))
        assert group.steps == max(group.steps_of_rows)
        # Longest first, so that the rows of a chunk are of like lengths.
        assert (np.diff(group.steps_of_rows) <= 0).all()
        assert all(chunk.steps == max(chunk.steps_of_rows) for chunk in group.chunks(width))
    assert not any(group.pool for group in plan_groups(words, membership, like(batch_size, coupled), members_only=True))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
def test_chunks_are_of_one_size_cover_all_and_repeat_only_the_last_place(count, width, devices):
    made = chunk_places(count, width, devices)
    assert {len(chunk) for chunk in made} == {max(devices, width // devices * devices)}
    together = np.concatenate(made)
    assert together.tolist() == [min(place, count - 1) for place in range(len(together))]
    # No chunk consists of copies alone.
    assert len(together) - count < len(made[0])


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


@QUICK
@given(memberships(), st.sampled_from([1, 7, 30, 40]), st.booleans())
def test_traced_batches_are_the_hosts(drawn, batch_size, coupled):
    membership, _ = drawn
    bits = np.asarray(epoch_bits(KEYS[0], 3, EXAMPLES))
    for row in membership:
        indices, weights = (np.asarray(part) for part in traced(bits, row, batch_size, coupled))
        members = np.flatnonzero(row)
        if takes_pool_order(len(members), EXAMPLES, coupled):
            chosen, real = pool_batches(bits, batch_size)
            real = real * row[chosen]
        else:
            chosen, real = own_batches(bits[: len(members)], members, batch_size)
        assert np.array_equal(indices[: len(chosen)], chosen)
        assert np.array_equal(weights[: len(chosen)], real)
        assert not weights[len(chosen) :].any()


traced: Any = jax.jit(traced_batches, static_argnums=(2, 3))


def test_one_program_draws_every_count_of_words():
    draw: Any = program._chunk_bits
    compiled = draw._cache_size
    program.chunk_bits(KEYS[:3], 2, 1500)
    before = compiled()
    for count in (1025, 1999, 2048):
        words = program.chunk_bits(KEYS[:3], 2, count)[:, :count]
        assert np.array_equal(words, jax.vmap(lambda key, count=count: epoch_bits(key, 2, count))(KEYS[:3]))
    assert compiled() == before
    assert np.array_equal(program.chunk_bits(KEYS[:3], 2, 40, shared=True)[:, :40], epoch_bits(KEYS[0], 2, 40)[None])
