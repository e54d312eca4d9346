"""Bootstrap of Kolmogorov-Smirnov distances: equal to resampling by hand, and distributed as it must be."""

import itertools
import os
from collections import Counter
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from support.references import assert_within_a_rounding, f32, ks_by_scipy, ks_gap_by_definition

from jaxaudit.errors import InputError
from jaxaudit.kernels import bootstrap_ks, bootstrap_ks_paired, ks_distance
from jaxaudit.kernels.ks_bootstrap import _distance_of_counts, bootstrap_by_sort, distance_of_draws, runs_of
from jaxaudit.kernels.ks_device import sorted_union

KEY = jax.random.key(7)
RECORDS, FEW = 30, 17
"""Of samples, and replicates, that tests share: each other number is another program."""
VALUES = st.one_of(st.floats(width=32, allow_nan=False), st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0]))
SAMPLES = hnp.arrays(np.float32, st.integers(1, 30), elements=VALUES)


def on_host(key, first, second, replicates, paired):
    return bootstrap_ks(key, first, second, replicates, paired=paired)


def on_device(key, first, second, replicates, paired):
    """The accelerator's lowering, run here."""
    return _compiled(key, jnp.asarray(first), jnp.asarray(second)[None], replicates=replicates, paired=paired)[:, 0]


_compiled: Any = jax.jit(bootstrap_by_sort, static_argnames=("replicates", "paired"))


BOTH_PATHS = pytest.mark.parametrize("bootstrap", [on_host, on_device])


@given(SAMPLES, SAMPLES, st.integers(0, 2**32))
def test_replicate_is_the_distance_of_the_drawn_records(first, second, seed):
    random = np.random.default_rng(seed)
    first_draw = random.integers(0, first.size, first.size)
    second_draw = random.integers(0, second.size, second.size)
    expected = ks_gap_by_definition(first[first_draw].tolist(), second[second_draw].tolist())[0]
    assert distance_of_draws(runs_of(first, second), first_draw, second_draw) == float(expected)


@pytest.mark.parametrize("digits", [1, 6])
def test_device_replicate_is_the_distance_of_the_drawn_records(digits):
    random = np.random.default_rng(0)
    first = random.normal(size=70).round(digits).astype("f4")
    second = random.normal(0.2, size=91).round(digits).astype("f4")
    union = sorted_union(jnp.asarray(first), jnp.asarray(second))
    distance = jax.jit(partial(_distance_of_counts, dtype=jnp.float32))
    for _ in range(30):
        first_draw, second_draw = random.integers(0, 70, 70), random.integers(0, 91, 91)
        counts = [np.bincount(draw, minlength=draw.size) for draw in (first_draw, second_draw)]
        expected = ks_by_scipy(first[first_draw], second[second_draw])
        assert_within_a_rounding(distance(*map(jnp.int32, counts), union), expected)


def exact_distribution(first, second, paired) -> dict[float, Fraction]:
    """Every possible draw, enumerated: the bootstrap distribution without chance."""
    draws = [itertools.product(range(len(sample)), repeat=len(sample)) for sample in (first, second)]
    pairs = [(draw, draw) for draw in draws[0]] if paired else list(itertools.product(*draws))
    distances = Counter(
        float(np.float32(ks_gap_by_definition([first[i] for i in a], [second[i] for i in b])[0])) for a, b in pairs
    )
    return {distance: Fraction(count, len(pairs)) for distance, count in distances.items()}


@BOTH_PATHS
@pytest.mark.parametrize(
    ("first", "second", "paired"),
    [
        ([0.1, 0.4, 0.4], [0.2, 0.4], False),
        ([0.1, 0.4, 0.4, 0.9], [0.3, 0.2, 0.5, 0.9], True),
    ],
)
def test_replicates_follow_the_exact_distribution(bootstrap, first, second, paired):
    """Chi-square against all possible draws; a right program fails for 1 key in 10,000 (this key passes)."""
    probabilities = exact_distribution(first, second, paired)
    replicates = 4000
    found = np.asarray(bootstrap(KEY, f32(first), f32(second), replicates, paired))
    values = sorted(probabilities)
    nearest = np.argmin(np.abs(found[:, None] - np.asarray(values)), axis=1)
    np.testing.assert_allclose(found, np.asarray(values)[nearest], rtol=1e-6)
    expected = [float(probabilities[value]) * replicates for value in values]
    assert stats.chisquare(np.bincount(nearest, minlength=len(values)), expected).pvalue > 1e-4


@BOTH_PATHS
def test_spread_is_that_of_fresh_samples(bootstrap):
    """Where the distance is far from 0 its bootstrap spread estimates its sampling spread, within 15%."""
    random = np.random.default_rng(3)
    fresh = [ks_distance(*f32([random.normal(0, 1, 300), random.normal(1, 1, 300)])) for _ in range(600)]
    first, second = f32([random.normal(0, 1, 300), random.normal(1, 1, 300)])
    replicates = bootstrap(KEY, first, second, 600, False)
    assert 0.85 < np.std(replicates) / np.std(fresh) < 1.15


def test_host_and_device_agree_in_distribution():
    """Kolmogorov-Smirnov test of the two paths at 1 in 10,000, for one fixed key."""
    random = np.random.default_rng(1)
    first, second = random.beta(5, 1, 300).astype("f4"), random.beta(4, 1, 211).astype("f4")
    host, device = (np.asarray(path(KEY, first, second, 1000, False)) for path in (on_host, on_device))
    result: Any = stats.ks_2samp(host, device)
    assert result.pvalue > 1e-4


@BOTH_PATHS
def test_paired_draws_serve_both_samples(bootstrap):
    values = np.random.default_rng(2).normal(size=RECORDS).astype("f4")
    np.testing.assert_array_equal(bootstrap(KEY, values, values, FEW, True), np.zeros(FEW))
    assert np.min(bootstrap(KEY, values, values, FEW, False)) > 0


@BOTH_PATHS
def test_first_replicates_do_not_depend_on_how_many(bootstrap):
    random = np.random.default_rng(4)
    first, second = random.normal(size=(2, RECORDS)).astype("f4")
    long = bootstrap(KEY, first, second, 50, False)
    np.testing.assert_array_equal(bootstrap(KEY, first, second, FEW, False), long[:FEW])
    assert (np.asarray(bootstrap(jax.random.key(8), first, second, 50, False)) != np.asarray(long)).any()


def test_result_does_not_depend_on_the_number_of_cores(monkeypatch):
    first, second = np.random.default_rng(5).normal(size=(2, 40)).astype("f4")
    several = bootstrap_ks(KEY, first, second, 100, paired=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(bootstrap_ks(KEY, first, second, 100, paired=False), several)


@pytest.mark.parametrize("device", [False, True])
def test_columns_share_their_draws(device):
    random = np.random.default_rng(6)
    reference, others = random.normal(size=RECORDS).astype("f4"), random.normal(0.5, 1, (3, RECORDS)).astype("f4")
    if device:
        table = _compiled(KEY, jnp.asarray(reference), jnp.asarray(others), replicates=FEW, paired=True)
        bootstrap = on_device
    else:
        table, bootstrap = bootstrap_ks_paired(KEY, reference, others, FEW), on_host
    assert table.shape == (FEW, 3)
    for column, other in enumerate(others):
        np.testing.assert_array_equal(table[:, column], bootstrap(KEY, reference, other, FEW, True))


def test_jit_and_vmap_equal_single_calls():
    random = np.random.default_rng(8)
    first, second = random.normal(size=(2, 3, 25)).astype("f4")
    keys = jax.random.split(KEY, 3)
    run = partial(bootstrap_ks, replicates=19, paired=False)
    single = np.stack([run(key, a, b) for key, a, b in zip(keys, first, second, strict=True)])
    np.testing.assert_array_equal(jax.vmap(run)(keys, first, second), single)
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(keys, first, second), single)
    one_first = np.stack([run(key, first[0], b) for key, b in zip(keys, second, strict=True)])
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(0, None, 0))(keys, first[0], second), one_first)


def test_bad_input_is_refused():
    three, two = f32([1, 2, 3]), f32([1, 2])
    with pytest.raises(InputError, match=r"one has 3 values and the other 2: .*paired=False"):
        bootstrap_ks(KEY, three, two, 10, paired=True)
    with pytest.raises(InputError, match="one has 3 values and the other 2"):
        bootstrap_ks_paired(KEY, three, two[None], 10)
    with pytest.raises(InputError, match="0 bootstrap replicates"):
        bootstrap_ks(KEY, three, two, 0, paired=False)
    with pytest.raises(InputError, match="the second sample is empty"):
        bootstrap_ks(KEY, three, f32([]), 10, paired=False)
    with pytest.raises(InputError, match="1 of 5 values are NaN"):
        bootstrap_ks(KEY, three, f32([np.nan, 1]), 10, paired=False)


def test_nan_stays_nan_while_tracing():
    spoilt, fine = f32([0.1, np.nan]), f32([0.1, 0.2])
    run = jax.jit(partial(bootstrap_ks, replicates=5, paired=False))
    assert np.isnan(run(KEY, spoilt, fine)).all()
    assert np.isnan(run(KEY, fine, spoilt)).all()
    device = on_device(KEY, np.resize(spoilt, RECORDS), np.resize(fine, RECORDS), FEW, False)
    assert np.isnan(device).all()
    both = jax.vmap(run, in_axes=(None, 0, None))(KEY, np.stack([spoilt, fine]), fine)
    assert np.isnan(both[0]).all()
    assert not np.isnan(both[1]).any()


def test_chunks_do_not_change_the_result(monkeypatch):
    first, second = np.random.default_rng(9).normal(size=(2, RECORDS)).astype("f4")
    whole = on_device(KEY, first, second, FEW, False)
    monkeypatch.setattr("jaxaudit.kernels.ks_bootstrap._CHUNK_VALUES", 4 * 2 * RECORDS)
    _compiled.clear_cache()
    np.testing.assert_array_equal(on_device(KEY, first, second, FEW, False), whole)
    _compiled.clear_cache()
