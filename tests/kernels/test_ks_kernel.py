"""Two-sample Kolmogorov-Smirnov distance: exact, the same by every path, and NaN refused."""

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.references import assert_within_a_rounding, f32, ks_by_scipy, ks_gap_by_definition

from jaxaudit.errors import InputError
from jaxaudit.kernels import kolmogorov_smirnov, ks_distance, ks_gap, ks_host
from jaxaudit.kernels.ks_device import ks_gap_by_sort, multiply, subtract, uniform_indices, widest
from jaxaudit.kernels.ks_host import _by_sorting, _by_splitting, ks_gap_rows, widest_gap
from jaxaudit.kernels.ordered_keys import device_keys, device_values, host_keys, host_values

VALUES = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]),  # many ties
    st.floats(0, 1, width=32),
)
SAMPLES = hnp.arrays(np.float32, st.integers(1, 40), elements=VALUES)


def of_shape(*shape: int):
    return hnp.arrays(np.float32, shape, elements=VALUES)


@given(SAMPLES | hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False)), SAMPLES)
def test_host_gap_is_the_definition_exactly(first, second):
    gap = widest_gap(first, second.astype(first.dtype))
    distance, at, sign = ks_gap_by_definition(first.tolist(), second.tolist())
    assert Fraction(abs(gap.numerator), gap.denominator) == distance
    assert float(host_values(np.asarray([gap.key]))[0]) == at
    assert np.sign(gap.numerator) == sign


@pytest.mark.parametrize("values", [3, 200, 100_000])
def test_sorting_with_bounds_is_the_textbook_way_whatever_the_ties(values: int):
    for seed in range(30):
        random = np.random.default_rng(seed)
        n, m = random.integers(1, 2_000, 2)
        first = random.integers(0, values, n).astype(np.uint32)
        second = (random.integers(0, values, m) * random.uniform(0.9, 1)).astype(np.uint32)
        keys = np.unique(np.concatenate([first, second]))
        gap = (first[:, None] <= keys).sum(axis=0) * m - (second[:, None] <= keys).sum(axis=0) * n
        place = int(np.argmax(np.abs(gap)))
        assert _by_sorting(first, second, int(m), int(n)) == (gap[place], keys[place])
        split = _by_splitting(first, second, int(m), int(n))
        assert split is None or split == (gap[place], keys[place])


@pytest.mark.parametrize("sorting", [False, True])
def test_both_ways_to_the_gap_give_the_same(sorting: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ks_host, "sorting_pays", lambda: sorting)
    for first, second in shapes_of_confidences(np.random.default_rng(1), 5_000, 7_001):
        first, second = first.astype(np.float32), second.astype(np.float32)
        gap = widest_gap(first, second)
        assert abs(gap.numerator) / gap.denominator == pytest.approx(ks_by_scipy(first, second), abs=1e-12)


@settings(deadline=None)
@given(of_shape(7), of_shape(12))
def test_device_path_is_the_definition(first, second):
    distance, at, sign = jax.jit(ks_gap_by_sort)(first, second)
    expected = ks_gap_by_definition(first.tolist(), second.tolist())
    assert_within_a_rounding(distance, float(expected[0]))
    assert (float(at), float(sign)) == expected[1:]


@settings(deadline=None)
@given(of_shape(9), of_shape(9))
def test_public_gap_is_the_definition_and_symmetric(first, second):
    gap, mirrored = ks_gap(first, second), ks_gap(second, first)
    distance, at, sign = ks_gap_by_definition(first.tolist(), second.tolist())
    assert (float(gap.distance), float(gap.at), float(gap.sign)) == (float(np.float32(distance)), at, sign)
    assert (mirrored.distance, mirrored.at, mirrored.sign) == (gap.distance, gap.at, -gap.sign)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.0], [0.0], Fraction(0)),
        ([0.0], [-0.0], Fraction(0)),
        ([0.0], [1.0], Fraction(1)),
        ([0.0], [1e-40], Fraction(1)),  # XLA's threads flush such numbers to zero
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], Fraction(0)),
        ([1.0, 2.0], [1.0, 2.0, 2.0], Fraction(1, 6)),
        ([1.0, 1.0, 1.0, 2.0], [1.0, 2.0, 2.0], Fraction(5, 12)),
        ([-np.inf, 0.0, np.inf], [0.0, 0.0], Fraction(1, 3)),
        ([0.1, 0.4, 0.7], [0.2, 0.3, 0.5, 0.6], Fraction(1, 3)),
    ],
)
def test_by_hand(first, second, expected):
    first, second = f32(first), f32(second)
    expected = float(np.float32(expected))
    assert float(ks_distance(first, second)) == expected
    assert_within_a_rounding(jax.jit(ks_gap_by_sort)(first, second)[0], expected)


def shapes_of_confidences(random: np.random.Generator, n: int, m: int):
    normal = lambda loc, size: random.normal(loc, 1, size)  # noqa: E731
    yield normal(0, n), normal(0.1, m)
    yield random.beta(5, 1, n), random.beta(4, 1, m)
    yield 1 / (1 + np.exp(-3 * normal(3, n))), 1 / (1 + np.exp(-3 * normal(3, m)))  # saturated
    yield random.integers(0, 5, n), random.integers(0, 5, m)
    yield random.standard_cauchy(n), random.standard_cauchy(m) * 1.1


def test_large_samples_equal_scipy_by_both_paths():
    for first, second in shapes_of_confidences(np.random.default_rng(0), 20_000, 11_001):
        first, second = first.astype(np.float32), second.astype(np.float32)
        expected = ks_by_scipy(first, second)
        gap = ks_gap(first, second)
        np.testing.assert_allclose(gap.distance, expected)
        distance, at, sign = jax.jit(ks_gap_by_sort)(first, second)
        assert_within_a_rounding(distance, expected)
        assert (at, sign) == (gap.at, gap.sign)


def test_samples_too_alike_to_bound_are_sorted():
    first = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    keys = host_keys(first)
    assert _by_splitting(keys, np.flip(keys), 1, 1) is None
    gap = ks_gap(first, np.flip(first))
    assert (float(gap.distance), float(gap.at), float(gap.sign)) == (0.0, float(first.min()), 0.0)


@pytest.mark.parametrize(("n", "m"), [(1_600_000, 1_600_000), (1_600_000, 1_599_999)])
def test_no_overflow_at_a_million_and_a_half(n, m):
    first = np.arange(n, dtype=np.float32)
    second = np.arange(m, dtype=np.float32) + np.float32(n // 4)
    gap = widest_gap(first, second)
    assert Fraction(abs(gap.numerator), gap.denominator) == Fraction(n // 4, n)
    below_first = jnp.minimum(jnp.arange(1, n + n // 4 + 1), n)
    below_second = jnp.clip(jnp.arange(1, n + n // 4 + 1) - n // 4, 0, m)
    is_end = jnp.ones(below_first.shape, bool)
    distance, place, sign = widest(below_first, below_second, is_end, (n, m), jnp.float32)
    assert_within_a_rounding(distance, 0.25)
    assert (int(place), float(sign)) == (n // 4 - 1, 1.0)


@settings(deadline=None)
@given(of_shape(6), of_shape(11))
def test_invariant_to_strictly_increasing_maps(first, second):
    _, ranks = np.unique(np.concatenate([first, second]), return_inverse=True)
    mapped = np.expm1(ranks.astype(np.float32) - 8)  # 17 ranks: exact enough to stay distinct
    assert ks_distance(first, second) == ks_distance(mapped[:6], mapped[6:])


def test_every_transformation_gives_the_same_number():
    random = np.random.default_rng(2)
    first = f32(random.normal(size=(3, 4, 50)))
    second = f32(random.normal(size=(3, 4, 31)).round(1))
    eager = np.asarray([[ks_distance(first[i, j], second[i, j]) for j in range(4)] for i in range(3)])
    twice = jax.vmap(jax.vmap(ks_distance))
    device = jax.vmap(jax.vmap(lambda a, b: ks_gap_by_sort(a, b)[0]))
    np.testing.assert_array_equal(jax.jit(ks_distance)(first[0, 0], second[0, 0]), eager[0, 0])
    np.testing.assert_array_equal(jax.vmap(ks_distance)(first[0], second[0]), eager[0])
    np.testing.assert_array_equal(twice(first, second), eager)
    np.testing.assert_array_equal(jax.jit(twice)(first, second), eager)
    np.testing.assert_array_equal(jax.lax.map(lambda pair: ks_distance(*pair), (first[0], second[0])), eager[0])
    assert_within_a_rounding(device(first, second), eager)


def test_vmap_over_either_argument_alone():
    random = np.random.default_rng(3)
    many, one = random.normal(size=(5, 20)).astype("f4"), random.normal(size=30).astype("f4")
    eager = np.asarray([ks_distance(row, one) for row in many])
    np.testing.assert_array_equal(jax.vmap(ks_distance, in_axes=(0, None))(many, one), eager)
    np.testing.assert_array_equal(jax.jit(jax.vmap(ks_distance, in_axes=(None, 0)))(one, many), eager)
    grid = jax.vmap(jax.vmap(ks_distance, in_axes=(None, 0)), in_axes=(0, None))(many, many)
    np.testing.assert_array_equal(grid, [[ks_distance(a, b) for b in many] for a in many])


def test_one_trace_a_shape_and_one_callback_a_batch(monkeypatch):
    calls = []

    def counted(first, second):
        calls.append(first.shape)
        return ks_gap_rows(first, second)

    monkeypatch.setattr(kolmogorov_smirnov, "ks_gap_rows", counted)
    traces = []
    batched = jax.jit(jax.vmap(lambda a, b: (traces.append(1), ks_distance(a, b))[1]))
    for _ in range(3):
        batched(jnp.ones((8, 23)), jnp.zeros((8, 29))).block_until_ready()
    assert len(traces) == 1
    assert calls == [(8, 23)] * 3
    kernel: Any = kolmogorov_smirnov._gap
    traces_of_the_kernel = kernel._cache_size
    before = traces_of_the_kernel()
    for value in (1.0, 2.0, 3.0):
        ks_distance(jnp.full(23, value), jnp.zeros(29))
    assert traces_of_the_kernel() == before + 1


def test_nan_is_refused_with_its_count_or_stays_nan_while_tracing():
    first, second = f32([0.1, np.nan, np.nan]), f32([0.5, 0.6])
    with pytest.raises(InputError, match=r"2 of 5 values are NaN.*diverged"):
        ks_distance(first, second)
    with pytest.raises(InputError, match="2 of 5 values are NaN"):
        ks_gap(second, first)
    assert np.isnan(jax.jit(ks_distance)(first, second))
    assert np.isnan(jax.jit(ks_distance)(second, first))
    rows = jax.vmap(ks_distance, in_axes=(0, None))(np.stack([first, f32([0, 1, 2])]), second)
    assert np.isnan(rows[0])
    assert rows[1] == ks_distance(f32([0, 1, 2]), second)
    assert all(np.isnan(part) for part in ks_gap_by_sort(jnp.asarray(first), jnp.asarray(second)))


def test_empty_samples_are_refused():
    some, none = f32([1.0]), f32([])
    with pytest.raises(InputError, match=r"the first sample is empty.*filter"):
        ks_distance(none, some)
    with pytest.raises(InputError, match="the second sample is empty"):
        jax.jit(ks_distance)(some, none)


def test_half_precision_is_compared_exactly():
    first, second = jnp.asarray([0.5, 0.75, 1.0], jnp.bfloat16), jnp.asarray([0.75], jnp.float16)
    assert float(ks_distance(first, second)) == float(np.float32(1 / 3))
    assert ks_distance(first, second).dtype == jnp.float32


def test_float64_where_x64_is_on():
    first, second = 1 + np.arange(4) * 1e-12, 1 + np.arange(4) * 1e-12 + 2.5e-12
    assert float(ks_distance(first, second)) == 0.0  # float32 cannot tell them apart
    with jax.enable_x64(True):
        gap = ks_gap(first, second)
        device = jax.jit(ks_gap_by_sort)(first, second)
    assert (gap.distance.dtype, float(gap.distance), float(gap.at)) == (np.float64, 0.75, first[2])
    assert tuple(map(float, device)) == (0.75, first[2], 1.0)


@given(SAMPLES)
def test_keys_keep_the_order_and_come_back(values):
    keys = host_keys(values)
    np.testing.assert_array_equal(keys[:, None] < keys, values[:, None] < values)
    np.testing.assert_array_equal(keys[:, None] == keys, values[:, None] == values)
    np.testing.assert_array_equal(host_values(keys), values)


def test_host_and_device_keys_agree():
    values = f32([-np.inf, -3, -1e-40, -0.0, 0.0, 1e-40, 0.1, 1, np.inf])
    keys = jax.jit(device_keys)(values)
    np.testing.assert_array_equal(keys, host_keys(values))
    np.testing.assert_array_equal(np.asarray(jax.jit(device_values)(keys)), values)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4), st.integers(1, 2**31 - 1))
def test_wide_products_and_differences_are_exact(numbers, factor):
    product = multiply(jnp.asarray(numbers, jnp.uint32), factor)
    exact = [number * factor for number in numbers]
    assert [(int(h) << 32) + int(low) for h, low in zip(*product, strict=True)] == exact
    order = np.argsort(np.asarray(exact, object))
    small, large = (jax.tree.map(lambda half, i=i: half[order[i]], product) for i in (0, -1))
    difference = subtract(large, small)
    assert (int(difference.high) << 32) + int(difference.low) == max(exact) - min(exact)


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
