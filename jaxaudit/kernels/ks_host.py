"""The widest gap of two empirical distribution functions, on the host, in integers, without a sort.

XLA's CPU sort is 8 to 50 times slower than NumPy's, by machine, and even NumPy's is a large part of the time of a
Kolmogorov-Smirnov distance. A sort does too much: the gap is needed only where it may be the widest. So the keys
are counted in buckets (one `bincount` a sample), which gives the exact gap at every bucket's end. Inside a
bucket the gap rises above its start by at most the first sample's share of that bucket and falls below it by at
most the second's: only buckets where that may reach the best gap so far are split into finer buckets, until a
bucket is one key. That is branch and bound, and exact, ties included.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt

from jaxaudit.kernels.ordered_keys import host_keys, host_values


class HostGap(NamedTuple):
    """A gap as exact integers: distance |numerator| / denominator, positive where the first CDF is above."""

    numerator: int
    denominator: int
    key: np.unsignedinteger


def widest_gap(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> HostGap:
    """The widest gap and the smallest key where it is attained; the samples hold no NaN and are not empty.

    Time: usually two to three passes over the samples. Where the samples agree so closely that bounds
    exclude little (equal samples, say) it falls back on sorting. Memory: about 40 bytes a value.
    """
    common = math.gcd(first.size, second.size)
    up, down = second.size // common, first.size // common  # steps of the gap, in units of 1 / denominator
    first_keys, second_keys = host_keys(first), host_keys(second)
    lowest = min(first_keys.min(), second_keys.min())
    first_keys -= lowest
    second_keys -= lowest
    gap = _by_splitting(first_keys, second_keys, up, down)
    if gap is None:
        gap = _by_sorting(first_keys, second_keys, up, down)
    numerator, key = gap
    return HostGap(numerator, up * first.size, lowest + key)


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
    """Branch and bound over key intervals; None when the bounds exclude too little to be worth it."""
    unsigned = first.dtype.type
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
            return int(after[place]), floor[place >> bits] | unsigned(place & ((1 << bits) - 1))
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
    """Into how many buckets (2 to this power) to split each interval: about eight values a bucket in all."""
    bits = max(size.bit_length() - 3, intervals.bit_length() + 2) - (intervals - 1).bit_length()
    return min(width, max(bits, 1))


def _by_sorting(
    first: UInt[np.ndarray, " n"], second: UInt[np.ndarray, " m"], up: int, down: int
) -> tuple[int, np.unsignedinteger]:
    """The textbook way: both functions at every key of the union."""
    first, second = np.sort(first), np.sort(second)
    union = np.concatenate([first, second])
    gap = np.searchsorted(first, union, side="right") * up
    gap -= np.searchsorted(second, union, side="right") * down
    size = np.abs(gap)
    widest = np.flatnonzero(size == size.max())
    place = int(widest[np.argmin(union[widest])])
    return int(gap[place]), union[place]
