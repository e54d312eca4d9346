"""`fit_many` is as many separate fits, whatever the rows, their keys and the width."""

import tracemalloc
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx
from support.circles import first_of
from support.network_twins import NUMPY
from support.references import batches_by_loop, softmax, softmax_regression_by_loop
from support.tiny_learners import (
    CLASSES,
    OPTIMIZERS,
    Dropped,
    NearestCentroid,
    Normed,
    compiled_fit,
    flat,
    flat_rows,
    learner,
    records,
    small_mlp,
    softmax_regression,
)

from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.ensemble.concurrency import plan_groups
from jaxaudit.errors import InputError
from jaxaudit.membership import AllBut, everyone, leave_one_out_masks, only

EXAMPLES = 41
INPUTS, LABELS = records(EXAMPLES, 4)
# Products of another shape are summed in another order: gradients of order 1, 10 behind a batch normalisation, differ
# by 1e-7 of that. Each of 22 steps moves by at most 0.05 / EPSILON = 5 times as much: 1e-4 if all errors add up.
CLOSE = {"rtol": 0, "atol": 1e-4}


def drawn(seed: int, size: int) -> np.ndarray:
    return only(np.random.default_rng(seed).permutation(EXAMPLES)[:size], EXAMPLES)


# In turn: own walks of 8 and 7 steps, which share a group, of 3, and of none; pool walks, one of them twice.
WITHOUT_8 = leave_one_out_masks(np.array([8]), EXAMPLES)
EMPTY = only(np.array([], int), EXAMPLES)
ROWS = np.concatenate(
    [
        *(drawn(1, 30), everyone(EXAMPLES), drawn(2, 9), leave_one_out_masks(np.array([3]), EXAMPLES), WITHOUT_8),
        *(drawn(3, 27), EMPTY, WITHOUT_8, drawn(5, 29)),
    ]
)
KEYS = jax.random.split(jax.random.key(1), len(ROWS))
ONE_KEY = jnp.stack([KEYS[0]] * len(ROWS))
MODULES = pytest.mark.parametrize("module", first_of([small_mlp, Normed, Dropped]))


def alone(one: Any, key: Any, row: np.ndarray) -> np.ndarray:
    return flat(compiled_fit(one)(key, INPUTS, LABELS, row.astype(np.float32)))


def separate(one: Any, keys: Any) -> np.ndarray:
    return np.stack([alone(one, key, row) for key, row in zip(keys, ROWS, strict=True)])


def together(one: Any, keys: Any, **options: Any) -> np.ndarray:
    return flat_rows(fit_many(keys, ROWS, INPUTS, LABELS, one, **options), len(ROWS))


@lru_cache
def all_rows(module: Any) -> np.ndarray:
    """Every row's model, two at a time, each with its own key."""
    return together(learner(module), KEYS, execution=Execution(2))


@MODULES
def test_equal_to_separate_fits_and_an_empty_row_keeps_the_initial_parameters(module):
    one = learner(module)
    np.testing.assert_allclose(all_rows(module), separate(one, KEYS), **CLOSE)
    # Which records and which key are seen: rows 4 and 7 differ by their key alone.
    assert np.abs(all_rows(module)[4] - all_rows(module)[7]).max() > 1e-2
    start = jax.jit(one.init)(jax.random.fold_in(KEYS[6], 0))
    np.testing.assert_allclose(all_rows(module)[6], flat(one.finish(start)), rtol=1e-6, atol=1e-7)


def test_a_learner_without_steps_is_vmapped():
    centroids = fit_many(KEYS, ROWS, INPUTS, LABELS, NearestCentroid(), execution=Execution(2))
    for row, ours in zip(ROWS, centroids, strict=True):
        chosen = [INPUTS[row & (label == LABELS)] for label in range(CLASSES)]
        expected = [each.sum(axis=0) / max(len(each), 1) for each in chosen]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("module", "width"), [(small_mlp, 50), (Normed, 2)])
def test_equal_to_separate_fits_where_all_share_one_key(module, width):
    ours = together(learner(module), ONE_KEY, execution=Execution(width))
    np.testing.assert_allclose(ours, separate(learner(module), ONE_KEY), **CLOSE)
    # The same row and key, the same parameters; without record 3, or without 8, is a difference.
    assert np.array_equal(ours[4], ours[7])
    assert np.abs(ours[3] - ours[4]).max() > 1e-3


@pytest.mark.parametrize(("module", "width"), [(Normed, 1), (Dropped, 2)])
def test_neighbours_change_no_bit(module, width):
    """Whatever is asked for besides: other rows, more of them, in another order."""
    one, words = learner(module), np.asarray(jax.random.key_data(KEYS))
    whole = together(one, KEYS, execution=Execution(width))
    for chosen in ([4], [8, 0, 2, 5, 6], [*range(9), 0, 1]):
        keys = jax.random.wrap_key_data(jnp.asarray(words[chosen]))
        some = fit_many(keys, ROWS[chosen], INPUTS, LABELS, one, execution=Execution(width))
        assert np.array_equal(flat_rows(some, len(chosen)), whole[chosen])


def test_records_that_a_row_does_not_hold_change_no_bit_where_members_only_are_walked():
    one, more = learner(small_mlp), records(60, 4)
    fit = partial(fit_many, learner=one, execution=Execution(2), members_only=True)
    here = fit(KEYS, ROWS, INPUTS, LABELS)
    longer = np.concatenate([ROWS, np.zeros((len(ROWS), 60), bool)], axis=1)
    there = fit(KEYS, longer, np.concatenate([INPUTS, more[0]]), np.concatenate([LABELS, more[1]]))
    assert np.array_equal(flat_rows(here, 9), flat_rows(there, 9))
    # Without it, rows of nearly all records would walk the pool, and see another order in a larger one.
    assert not np.array_equal(flat_rows(here, 9)[3], all_rows(small_mlp)[3])


def test_records_that_are_no_members_are_never_read_in_an_own_walk():
    for row, key in zip(ROWS[[0, 5]], KEYS, strict=False):
        poisoned = np.where(row[:, None], INPUTS, np.nan).astype(np.float32)
        ours = fit_many(key[None], row[None], poisoned, LABELS, learner(Normed), execution=Execution(1))
        np.testing.assert_allclose(flat_rows(ours, 1)[0], alone(learner(Normed), key, row), **CLOSE)


def test_nan_is_refused_where_a_walk_meets_it_with_weight_zero_or_not():
    poisoned = np.where(ROWS[3][:, None], INPUTS, np.nan).astype(np.float32)
    with pytest.raises(InputError, match="have NaN"):
        fit_many(KEYS[:1], ROWS[3:4], poisoned, LABELS, learner(small_mlp), execution=Execution(1))


def regression(params: Any, model: int) -> np.ndarray:
    layer = nnx.to_pure_dict(params.params)["layers"][0]
    return np.append(layer["kernel"][model], layer["bias"][model])


def test_leave_one_out_is_a_plain_loop_less_one_record():
    one = learner(softmax_regression, batch_size=1)
    rows = np.concatenate([leave_one_out_masks(np.array([3, 8, 40]), EXAMPLES), everyone(EXAMPLES)])
    params = fit_many(ONE_KEY[:4], rows, INPUTS, LABELS, one, execution=Execution(4))
    ours = np.stack([regression(params, model) for model in range(4)])
    layer = nnx.to_pure_dict(jax.jit(one.init)(jax.random.fold_in(ONE_KEY[0], 0)).params)["layers"][0]

    def by_loop(row: np.ndarray, skip_empty: bool) -> np.ndarray:
        batches = batches_by_loop(ONE_KEY[0], row, one.epochs, one.batch_size)
        start = layer["kernel"], layer["bias"]
        return np.append(*softmax_regression_by_loop(batches, *start, INPUTS, LABELS, OPTIMIZERS["adam"], skip_empty))

    theirs = np.stack([by_loop(row, skip_empty=True) for row in rows])
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    assert np.abs(ours[:3] - ours[3]).max(axis=1).min() > 1e-3
    # A step along the gradient of an empty minibatch, 0, would have moved the model by its moments.
    assert np.abs(ours[0] - by_loop(rows[0], skip_empty=False)).max() > 1e-3


@pytest.mark.parametrize("module", [small_mlp, Normed])
def test_rows_without_a_matrix_are_the_same_rows(module):
    """A pool order, and an order of their own; `AllBut` and its matrix give the same bits."""
    left = np.array([3, 8, 40, 8])
    dense, lazy = (
        flat_rows(fit_many(ONE_KEY[:4], rows, INPUTS, LABELS, learner(module), execution=Execution(2)), 4)
        for rows in (leave_one_out_masks(left, EXAMPLES), AllBut(left, EXAMPLES))
    )
    np.testing.assert_array_equal(dense, lazy)


def test_a_hundred_thousand_models_of_all_records_but_one_are_planned_without_a_matrix():
    """The matrix would have 10 GB; the plan, its chunks and one of them take less than 100 MB."""
    count = 100_000
    rows, words = AllBut(np.arange(count), count), np.zeros((count, 2), np.uint32)
    tracemalloc.start()
    (group,) = plan_groups(words, rows, learner(small_mlp))
    chunks = group.chunks(32)
    cut = rows[chunks[-1].rows]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert len(chunks) == count // 32
    assert group.shared
    np.testing.assert_array_equal(np.argmin(cut, axis=1), chunks[-1].rows)


def test_then_makes_the_result_and_copies_are_dropped():
    seen = []

    def then(params, rows):
        flat_params = flat_rows(params, len(rows))
        seen.extend(rows)
        return {"first": flat_params[:, 0], "all": flat_params}

    result = fit_many(KEYS, ROWS, INPUTS, LABELS, learner(small_mlp), execution=Execution(2), summarize=then)
    assert len(seen) > len(ROWS)
    assert set(seen) == set(range(len(ROWS)))
    assert isinstance(result["all"], np.ndarray)
    assert result["first"].shape == (len(ROWS),)
    assert np.array_equal(result["all"], all_rows(small_mlp))


@pytest.mark.parametrize("one", [learner(), NearestCentroid()])
def test_progress_grows_to_the_total(one):
    """Copies that fill a chunk up count, too."""
    calls = []
    fit_many(KEYS, ROWS, INPUTS, LABELS, one, execution=Execution(2, lambda *call: calls.append(call)))
    done, totals = zip(*calls, strict=True)
    assert done[0] == 0
    assert len(set(totals)) == 1
    assert list(done) == sorted(done)
    assert done[-1] == totals[0] if isinstance(one, NearestCentroid) else done[-1] >= totals[0]


def test_log_probs_of_many_models_are_each_ones_own(monkeypatch):
    monkeypatch.setattr("jaxaudit.ensemble.train.BATCH", 15)  # three batches, the last one short
    one = learner(Dropped)
    params = fit_many(KEYS, ROWS, INPUTS, LABELS, one, execution=Execution(2))
    ours = log_probs_many(one, params, INPUTS)
    assert ours.shape == (len(ROWS), EXAMPLES, CLASSES)
    layers = jax.tree.map(np.asarray, nnx.to_pure_dict(params.params))
    for model, said in enumerate(ours):
        alone = jax.tree.map(lambda leaf, m=model: leaf[m], layers)
        logits = NUMPY.dense(np.tanh(NUMPY.dense(INPUTS, alone["dense"])), alone["output"])
        np.testing.assert_allclose(np.exp(said), softmax(logits), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "rows", "inputs", "width", "message"),
    [
        (KEYS[:2], ROWS[:2, :20], INPUTS, None, r"shape \(2, 20\), .* 41 inputs and 41 labels"),
        (KEYS[:2], ROWS[:2], INPUTS[:40], None, r"shape \(2, 41\), .* 40 inputs and 41 labels"),
        (KEYS[:3], ROWS[:2], INPUTS, None, r"keys of shape \(3,\), .*a key per model"),
        (KEYS[:0], ROWS[:0], INPUTS, None, "at least one"),
        (KEYS[:2], ROWS[:2], INPUTS, 0, "`models_per_batch` must be at least"),
    ],
)
def test_what_does_not_fit_together_is_refused(keys, rows, inputs, width, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside tests
    for one in (learner(small_mlp), NearestCentroid()):
        with pytest.raises(InputError, match=message) as caught:
            fit_many(keys, rows, inputs, LABELS, one, execution=Execution(width))
        assert "\n" not in str(caught.value)
