"""Two-sample Kolmogorov-Smirnov distance: exact, the same by every path, and NaN refused; its bootstrap."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from support.references import assert_within_a_rounding, f32, ks_by_definition, ks_by_scipy

from jaxaudit.errors import InputError
from jaxaudit.kernels import bootstrap_ks_paired, ks_distance
from jaxaudit.kernels.kolmogorov_smirnov import (
    bootstrap_by_sort,
    ks_distance_by_sort,
    ks_distance_on_host,
    uniform_indices,
    widest,
)

VALUES = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]),  # many ties
    st.floats(0, 1, width=32),
)


def of_shape(*shape: int):
    return hnp.arrays(np.float32, shape, elements=VALUES)


def test_the_bounded_search_finds_what_scipy_finds():
    for first, second in shapes_of_confidences(np.random.default_rng(1), 5_000, 7_001):
        first, second = first.astype(np.float32), second.astype(np.float32)
        assert ks_distance_on_host(first, second) == pytest.approx(ks_by_scipy(first, second), abs=1e-12)


@settings(deadline=None)
@given(of_shape(7), of_shape(12))
def test_device_path_is_the_definition(first, second):
    expected = ks_by_definition(first.tolist(), second.tolist())
    assert_within_a_rounding(jax.jit(ks_distance_by_sort)(first, second), float(expected))


@settings(deadline=None)
@given(of_shape(9), of_shape(9))
def test_public_distance_is_the_definition_and_symmetric(first, second):
    expected = float(np.float32(ks_by_definition(first.tolist(), second.tolist())))
    assert float(ks_distance(first, second)) == float(ks_distance(second, first)) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.0], [-0.0], Fraction(0)),
        ([0.0], [1.0], Fraction(1)),
        ([0.0], [1e-40], Fraction(1)),  # XLA's threads flush such numbers to zero
        ([1.0, 1.0, 1.0, 2.0], [1.0, 2.0, 2.0], Fraction(5, 12)),
        ([-np.inf, 0.0, 0.0, np.inf], [0.0, 0.0, 0.0], Fraction(1, 4)),
        ([0.1, 0.4, 0.7, 0.7], [0.2, 0.3, 0.5], Fraction(1, 2)),
    ],
)
def test_by_hand(first, second, expected):
    first, second = f32(first), f32(second)
    expected = float(np.float32(expected))
    assert float(ks_distance(first, second)) == expected
    assert_within_a_rounding(jax.jit(ks_distance_by_sort)(first, second), expected)


def shapes_of_confidences(random: np.random.Generator, n: int, m: int):
    normal = lambda loc, size: random.normal(loc, 1, size)  # noqa: E731
    yield normal(0, n), normal(0.1, m)
    yield random.beta(5, 1, n), random.beta(4, 1, m)
    yield 1 / (1 + np.exp(-3 * normal(3, n))), 1 / (1 + np.exp(-3 * normal(3, m)))  # saturated
    yield random.integers(0, 5, n), random.integers(0, 5, m)
    yield random.standard_cauchy(n), random.standard_cauchy(m) * 1.1


def test_samples_too_alike_to_bound_have_no_gap():
    first = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    assert float(ks_distance(first, np.flip(first))) == 0.0


def test_no_overflow_at_a_million_and_a_half():
    n, m = 1_600_000, 1_599_999
    first = np.arange(n, dtype=np.float32)
    second = np.arange(m, dtype=np.float32) + np.float32(n // 4)
    assert ks_distance_on_host(first, second) == 0.25
    places = np.arange(1, n + n // 4 + 1)
    below = np.minimum(places, n), np.clip(places - n // 4, 0, m)
    found = jax.jit(partial(widest, sizes=(n, m), dtype=jnp.float32))(*below, np.ones(len(places), bool))
    assert_within_a_rounding(found, 0.25)


def test_every_transformation_gives_the_same_number():
    """Also over either argument alone, and over one within the other."""
    random = np.random.default_rng(2)
    first, second = f32(random.normal(size=(2, 3, 7))), f32(random.normal(size=(2, 3, 12)).round(1))
    one = second[0, 0]
    by_hand = np.vectorize(ks_distance_on_host, signature="(n),(m)->()")
    eager = f32(by_hand(first, second))
    twice, of_one = jax.vmap(jax.vmap(ks_distance)), jax.vmap(ks_distance, in_axes=(0, None))

    @jax.jit
    def all_ways(first: Any, second: Any) -> Any:
        many = first[0]
        grid = jax.vmap(of_one, in_axes=(None, 0))(many, second[0])
        mapped = jax.lax.map(lambda pair: ks_distance(*pair), (many, second[0]))
        turned = jax.vmap(ks_distance, in_axes=(None, 0))(one, many)
        device = jax.vmap(jax.vmap(ks_distance_by_sort))(first, second)
        return ks_distance(many[0], second[0, 0]), twice(first, second), mapped, of_one(many, one), turned, grid, device

    single, together, mapped, first_alone, second_alone, grid, device = all_ways(first, second)
    assert single == ks_distance(first[0, 0], second[0, 0]) == eager[0, 0]
    np.testing.assert_array_equal(together, eager)
    np.testing.assert_array_equal(twice(first, second), eager)
    np.testing.assert_array_equal(mapped, eager[0])
    for alone in (first_alone, second_alone):
        np.testing.assert_array_equal(alone, f32(by_hand(first[0], one)))
    np.testing.assert_array_equal(grid, f32(by_hand(first[0][None], second[0][:, None])))
    assert_within_a_rounding(device, eager)


def test_nan_is_refused_with_its_count_or_stays_nan_while_tracing():
    first, second = f32([0.1, np.nan, np.nan]), f32([0.5, 0.6])
    with pytest.raises(InputError, match=r"`values` .* as 2 of 5 numbers: did training diverge"):
        ks_distance(first, second)
    with pytest.raises(InputError, match="as 2 of 5 numbers"):
        ks_distance(second, first)

    @jax.jit
    def traced(first: Any, second: Any) -> Any:
        rows = jax.vmap(ks_distance, in_axes=(0, None))(jnp.stack([first, f32([0, 1, 2])]), second)
        return [ks_distance(second, first), ks_distance_by_sort(first, second), rows[0]], rows[1]

    spoilt, other = traced(first, second)
    assert np.isnan(spoilt).all()
    assert other == ks_distance(f32([0, 1, 2]), second)


def test_empty_samples_are_refused():
    some, none = f32([1.0]), f32([])
    with pytest.raises(InputError, match="`size_of_first` must be at least 1; got 0"):
        ks_distance(none, some)
    with pytest.raises(InputError, match="`size_of_second` must be at least 1; got 0"):
        jax.jit(ks_distance)(some, none)


def test_other_precisions_are_compared_exactly():
    first, second = jnp.asarray([0.5, 0.75, 1.0], jnp.bfloat16), jnp.asarray([0.75], jnp.float16)
    assert float(ks_distance(first, second)) == float(np.float32(1 / 3))
    assert ks_distance(first, second).dtype == jnp.float32
    first, second = 1 + np.arange(4) * 1e-12, 1 + np.arange(4) * 1e-12 + 2.5e-12
    assert float(ks_distance(first, second)) == 0.0  # float32 cannot tell them apart
    with jax.enable_x64(True):
        distance = ks_distance(first, second)
        device = jax.jit(ks_distance_by_sort)(first, second)
    assert (distance.dtype, float(distance), float(device)) == (np.float64, 0.75, 0.75)


@pytest.mark.parametrize("below", [1, 3, 60_000, 2**20 + 7, 2**31 - 1])
def test_uniform_indices_are_the_whole_part_of_a_64_bit_fraction(below):
    key = jax.random.key(5)
    high, low = np.asarray(jax.random.bits(key, (2, 50), jnp.uint32)).tolist()
    expected = [((h << 32) + lo) * below >> 64 for h, lo in zip(high, low, strict=True)]
    np.testing.assert_array_equal(uniform_indices(key, 50, below), expected)


@pytest.mark.outer
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process can be bound to one core on Linux only")
def test_ten_million_values_on_one_core_do_not_hang():
    program = """
import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, jax.numpy as jnp
from jaxaudit.kernels import ks_distance
values = jnp.arange(10_000_000) / 1e7
print(float(jax.jit(lambda x: ks_distance(jnp.sqrt(x), x))(values)))
"""
    # The widest gap of sqrt(x) and x as distribution functions of u**2 and u: u - u**2 at 1/2.
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert abs(float(run.stdout) - 0.25) < 1e-4


KEY = jax.random.key(7)
RECORDS, FEW = 30, 17
"""Of samples, and replicates, that tests share: each other number is another program."""


def on_host(key, first, second, replicates):
    return bootstrap_ks_paired(key, first, second[None], replicates)[:, 0]


def on_device(key, first, second, replicates):
    """The accelerator's lowering, run here."""
    return _compiled(key, jnp.asarray(first), jnp.asarray(second)[None], replicates=replicates)[:, 0]


_compiled: Any = jax.jit(bootstrap_by_sort, static_argnames="replicates")
BOTH_PATHS = pytest.mark.parametrize("bootstrap", [on_host, on_device])


@BOTH_PATHS
def test_replicates_follow_the_exact_distribution(bootstrap):
    """Chi-square against all possible draws; a right program fails for 1 key in 10,000 (this key passes)."""
    first, second, replicates = [0.1, 0.4, 0.4, 0.9], [0.3, 0.2, 0.5, 0.9], 4000
    draws = list(itertools.product(range(4), repeat=4))
    counts = Counter(
        float(np.float32(ks_by_definition([first[i] for i in draw], [second[i] for i in draw]))) for draw in draws
    )
    found = np.asarray(bootstrap(KEY, f32(first), f32(second), replicates))
    values = sorted(counts)
    nearest = np.argmin(np.abs(found[:, None] - np.asarray(values)), axis=1)
    np.testing.assert_allclose(found, np.asarray(values)[nearest], rtol=1e-6)
    expected = [counts[value] / len(draws) * replicates for value in values]
    assert stats.chisquare(np.bincount(nearest, minlength=len(values)), expected).pvalue > 1e-4


@BOTH_PATHS
def test_first_replicates_do_not_depend_on_how_many(bootstrap):
    first, second = np.random.default_rng(4).normal(size=(2, RECORDS)).astype("f4")
    long = bootstrap(KEY, first, second, 50)
    np.testing.assert_array_equal(bootstrap(KEY, first, second, FEW), long[:FEW])
    assert (np.asarray(bootstrap(jax.random.key(8), first, second, 50)) != np.asarray(long)).any()


def test_result_does_not_depend_on_the_number_of_cores(monkeypatch):
    first, second = np.random.default_rng(5).normal(size=(2, RECORDS)).astype("f4")
    several = on_host(KEY, first, second, 50)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(on_host(KEY, first, second, 50), several)


@BOTH_PATHS
def test_columns_share_their_draws(bootstrap):
    random = np.random.default_rng(6)
    reference, others = random.normal(size=RECORDS).astype("f4"), random.normal(0.5, 1, (3, RECORDS)).astype("f4")
    of_all = _compiled if bootstrap is on_device else bootstrap_ks_paired
    table = of_all(KEY, jnp.asarray(reference), jnp.asarray(others), replicates=FEW)
    assert table.shape == (FEW, 3)
    for column, other in enumerate(others):
        np.testing.assert_array_equal(table[:, column], bootstrap(KEY, reference, other, FEW))


def test_jit_and_vmap_equal_single_calls():
    first, second = np.random.default_rng(8).normal(size=(2, 3, RECORDS)).astype("f4")
    keys = jax.random.split(KEY, 3)
    run = partial(on_host, replicates=FEW)
    single = np.stack([run(key, a, b) for key, a, b in zip(keys, first, second, strict=True)])
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(keys, first, second), single)
    one_first = np.stack([run(key, first[0], b) for key, b in zip(keys, second, strict=True)])
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(0, None, 0))(keys, first[0], second), one_first)


@pytest.mark.parametrize(
    ("second", "replicates", "said"),
    [
        ([1, 2], 10, r"`other_samples` has shape \(1, 2\) but must have \(1, 3\)"),
        ([1, 2, 3], 0, "`replicates` must be at least 1; got 0"),
        ([], 10, "`size_of_second` must be at least 1; got 0"),
        ([np.nan, 1, 2], 10, "as 1 of 6 numbers"),
    ],
)
def test_bad_input_of_the_bootstrap_is_refused(second, replicates, said, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=said):
        on_host(KEY, f32([1, 2, 3]), f32(second), replicates)


def test_nan_stays_nan_while_tracing():
    spoilt, fine = np.resize(f32([0.1, np.nan]), RECORDS), np.resize(f32([0.1, 0.2]), RECORDS)
    run = jax.jit(partial(on_host, replicates=FEW))
    assert np.isnan(run(KEY, fine, spoilt)).all()
    assert np.isnan(on_device(KEY, spoilt, fine, FEW)).all()
    both = jax.vmap(run, in_axes=(None, 0, None))(KEY, np.stack([spoilt, fine]), fine)
    assert np.isnan(both[0]).all()
    assert not np.isnan(both[1]).any()


def test_chunks_do_not_change_the_result(monkeypatch):
    first, second = np.random.default_rng(9).normal(size=(2, RECORDS)).astype("f4")
    whole = on_device(KEY, first, second, FEW)
    monkeypatch.setattr("jaxaudit.kernels.kolmogorov_smirnov._CHUNK_VALUES", 4 * 2 * RECORDS)
    _compiled.clear_cache()
    np.testing.assert_array_equal(on_device(KEY, first, second, FEW), whole)
    _compiled.clear_cache()
