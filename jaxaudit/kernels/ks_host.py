"""The exact widest gap of two empirical distribution functions on the host, by branch and bound in integers.

XLA's CPU sort is 8 to 50 times slower than NumPy's, which is fast with AVX-512 instructions. Without them it takes a
large part of the time, as searching a sample for the other's values always does. Neither is needed everywhere: between
two keys the gap rises by at most the share of the first sample that lies between them, and falls by at most the
second's. So the gap is computed at a few keys, and then only in intervals where it may exceed the best so far. If
sorting is fast, the first keys are a regular selection of the sorted samples. Otherwise nothing is sorted: keys are
counted in buckets (one `bincount` per sample), which are split until a bucket is one key.

Measured on two CPU cores with jax 0.10.2. NumPy sorts a million float32 in 31 ms on an AMD EPYC and in 4 ms on an Intel
Xeon with AVX-512. So the CPU kernel tries its machine's sort once. Where it is quick, the gap is found from sorted
keys; where it is not, nothing is sorted: keys are counted in buckets, and only those are split that can still hold the
widest gap. Both are exact. On an accelerator the device sorts.

Measured on two CPU cores with jax 0.10.2: a callback into Python can hang on large arrays (`pure_callback`, ten million
values, one core); the kernels use `buffer_callback`, which copies nothing. XLA's threads flush subnormal numbers to
zero, for NumPy inside a callback too: the keys are made with integer operations only.
"""

import math
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt

from jaxaudit.kernels.ordered_keys import host_keys, host_values

STRIDE = 128
"""The step between the keys of the sorted samples that are evaluated first."""

SORT_TO_COUNT = 8
"""Keys are sorted if that takes at most this many times as long as counting (2 with AVX-512, 15 without it)."""


class HostGap(NamedTuple):
    """A gap as exact integers: distance |numerator| / denominator, positive where the first CDF is above."""

    numerator: int
    denominator: int
    key: np.unsignedinteger


def widest_gap(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> HostGap:
    """The widest gap and the smallest key where it is attained; the samples hold no NaN and are not empty.

    Time: that of two sorts or, if sorting is slow, usually of two to three passes over the samples. If bounds exclude
    little, as for equal samples, time is that of the textbook method: both are sorted, and each is searched for every
    value. Memory: about 40 bytes per value.
    """
    common = math.gcd(first.size, second.size)
    up, down = second.size // common, first.size // common  # steps of the gap, in units of 1 / denominator
    first_keys, second_keys = host_keys(first), host_keys(second)
    gap_by_splitting = None if sorting_pays() else _by_splitting(first_keys, second_keys, up, down)
    numerator, key = _by_sorting(first_keys, second_keys, up, down) if gap_by_splitting is None else gap_by_splitting
    return HostGap(numerator, up * first.size, key)


def ks_gap_rows(
    first: Float[np.ndarray, "*lead_first n"], second: Float[np.ndarray, "*lead_second m"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance, place and sign for every pair of rows, leading axes broadcast; NaN where a row holds NaN."""
    lead = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    first = np.broadcast_to(first, (*lead, first.shape[-1]))
    second = np.broadcast_to(second, (*lead, second.shape[-1]))
    distance, at, sign = (np.full(lead, np.nan, first.dtype) for _ in range(3))
    for row in np.ndindex(lead):
        if np.isnan(first[row].min()) or np.isnan(second[row].min()):  # a minimum is NaN if any value is
            continue
        gap = widest_gap(np.ascontiguousarray(first[row]), np.ascontiguousarray(second[row]))
        distance[row] = abs(gap.numerator) / gap.denominator
        at[row] = host_values(np.asarray([gap.key]))[0]
        sign[row] = np.sign(gap.numerator)
    return distance, at, sign


def _by_splitting(
    first: UInt[np.ndarray, " n"], second: UInt[np.ndarray, " m"], up: int, down: int
) -> tuple[int, np.unsignedinteger] | None:
    """Branch and bound over intervals of keys; None if the bounds exclude too little."""
    unsigned = first.dtype.type
    lowest = min(first.min(), second.min())
    first, second = first - lowest, second - lowest
    work, limit = 0, 5 * (first.size + second.size) // 2
    # Each round, a value's code is the rank of the interval that holds its key, then `width` bits of place in it.
    width = int(max(first.max(), second.max())).bit_length()
    floor = np.zeros(1, unsigned)  # the interval's smallest key
    start = np.zeros(1, np.int64)  # the gap just before the interval
    while True:
        size = first.size + second.size
        work += size
        bits = _bits_to_split(size, floor.size, width)
        width -= bits
        shift, buckets = unsigned(width), floor.size << bits
        first_bucket, second_bucket = _buckets(first, shift), _buckets(second, shift)
        rises, falls = np.bincount(first_bucket, minlength=buckets), np.bincount(second_bucket, minlength=buckets)
        rises *= up
        falls *= down
        change = rises - falls
        after = (np.cumsum(change.reshape(floor.size, -1), axis=1) + start[:, None]).reshape(-1)
        best = max(int(after.max()), -int(after.min()))
        if width == 0:
            place = int(np.flatnonzero(((after == best) | (after == -best)) & ((rises > 0) | (falls > 0)))[0])
            return int(after[place]), lowest + (floor[place >> bits] | unsigned(place & ((1 << bits) - 1)))
        before = after - change
        open_ = ((rises > 0) & (before + rises >= best)) | ((falls > 0) & (falls - before >= best))
        first_open, second_open = open_.take(first_bucket), open_.take(second_bucket)
        remain = int(np.count_nonzero(first_open)) + int(np.count_nonzero(second_open))
        kept = np.flatnonzero(open_)
        if work + remain > limit and _bits_to_split(remain, kept.size, width) < width:
            return None
        rank = np.zeros(buckets, unsigned)
        rank[kept] = np.arange(kept.size, dtype=unsigned) << shift
        within = (unsigned(1) << shift) - unsigned(1)
        # `compress`, not a boolean index: several times faster where about half is kept.
        first, second = np.compress(first_open, first), np.compress(second_open, second)
        first = rank.take(_buckets(first, shift)) | (first & within)
        second = rank.take(_buckets(second, shift)) | (second & within)
        low_bits = (kept & ((1 << bits) - 1)).astype(unsigned) << shift
        floor, start = floor[kept >> bits] | low_bits, before[kept]


def _buckets(codes: UInt[np.ndarray, " n"], shift: np.unsignedinteger) -> Int[np.ndarray, " n"]:
    """codes >> shift as the index type `bincount` wants, in one pass: fresh memory costs more than the shift."""
    return np.right_shift(codes, shift, out=np.empty(codes.size, np.intp), casting="unsafe")


def _bits_to_split(size: int, intervals: int, width: int) -> int:
    """The logarithm to base 2 of how many buckets an interval is split into: about eight values per bucket."""
    bits = max(size.bit_length() - 3, intervals.bit_length() + 2) - (intervals - 1).bit_length()
    return min(width, max(bits, 1))


def _by_sorting(
    first: UInt[np.ndarray, " n"], second: UInt[np.ndarray, " m"], up: int, down: int
) -> tuple[int, np.unsignedinteger]:
    """Evaluates both functions at some keys, then at all keys between where the gap may be wider; sorts in place."""
    first.sort()
    second.sort()
    cuts = np.sort(np.concatenate([first[::STRIDE], first[-1:], second[::STRIDE], second[-1:]]))
    first_at, second_at = _counts(first, cuts), _counts(second, cuts)
    at_cuts = first_at * up - second_at * down
    best, before = np.abs(at_cuts).max(), at_cuts[:-1]
    rises, falls = np.diff(first_at) * up, np.diff(second_at) * down
    open_ = ((rises > 0) & (before + rises >= best)) | ((falls > 0) & (falls - before >= best))
    places = [_between(counts[:-1][open_], counts[1:][open_]) for counts in (first_at, second_at)]
    inside = np.concatenate([first[places[0]], second[places[1]]])
    keys = np.concatenate([cuts, inside])
    gap = np.concatenate([at_cuts, _counts(first, inside) * up - _counts(second, inside) * down])
    size = np.abs(gap)
    widest = np.flatnonzero(size == size.max())
    place = int(widest[np.argmin(keys[widest])])
    return int(gap[place]), keys[place]


def _counts(ordered: UInt[np.ndarray, " n"], keys: UInt[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """How many values are at most each key."""
    return np.searchsorted(ordered, keys, side="right")


def _between(starts: Int[np.ndarray, " k"], ends: Int[np.ndarray, " k"]) -> Int[np.ndarray, " places"]:
    """All indices from each start up to, but excluding, its end.

    >>> _between(np.array([2, 7]), np.array([4, 10])).tolist()
    [2, 3, 7, 8, 9]
    """
    lengths = ends - starts
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


@cache
def sorting_pays() -> bool:
    """Whether sorting is fast on this machine: NumPy's sort is ten times as fast with AVX-512 instructions.

    Measured once per process on 65,536 keys, in about a millisecond. It affects only time: both methods are exact.
    """
    keys = np.random.default_rng(0).integers(0, 2**32, 2**16, np.uint32)
    buckets = (keys >> np.uint32(19)).astype(np.intp)

    def fastest(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            start = perf_counter()
            work()
            times.append(perf_counter() - start)
        return min(times)

    return fastest(lambda: np.sort(keys)) < SORT_TO_COUNT * fastest(lambda: np.bincount(buckets))
