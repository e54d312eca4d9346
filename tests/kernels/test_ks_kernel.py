"""Two-sample Kolmogorov-Smirnov distance: exact, the same by every path, and NaN refused."""

import os
import subprocess
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.references import ks_gap_by_definition

from jaxaudit.errors import InputError
from jaxaudit.kernels import ks_distance, ks_gap
from jaxaudit.kernels.ks_device import ks_gap_by_sort, widest
from jaxaudit.kernels.ks_host import _by_sorting, _by_splitting, widest_gap
from jaxaudit.kernels.ordered_keys import host_values

VALUES = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]),  # many ties
    st.floats(0, 1, width=32),
)
SAMPLES = hnp.arrays(np.float32, st.integers(1, 40), elements=VALUES)


def f32(values) -> np.ndarray:
    return np.asarray(values, np.float32)


def assert_within_a_rounding(actual, expected) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2.0**-22, atol=0)


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
