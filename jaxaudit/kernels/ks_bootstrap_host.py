"""Bootstrap replicates of Kolmogorov-Smirnov distances on the host, with one sort for all of them.

Resampling changes how often a value occurs, never the order of the values. So the samples are sorted once, and
a replicate is a running sum of resampled counts in that order. With counts that cannot be negative, the gap only
rises while values of the first sample pass and only falls while values of the second do: it is enough to look
where such runs end, and counts are collected by run (`bincount`), not by value.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt

from jaxaudit.kernels.ordered_keys import host_keys

_BLOCK = 16  # replicates a random stream serves: threads share the work, yet the result does not depend on them


class Runs(NamedTuple):
    """For each record, the number of the run that contains its value. Runs ascend; the gap is monotone within a run."""

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " m"]
    count: int


def runs_of(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> Runs:
    """Sort both samples together and cut the order into runs.

    Values of one sample only, with none of the other between them, are one run; a value that both samples hold is
    a run of its own, because its records enter both distribution functions at once.
    """
    keys = host_keys(np.concatenate([first, second]))
    order = np.argsort(keys)
    ordered, of_first = keys[order], order < first.size
    starts = np.append(True, ordered[1:] != ordered[:-1])
    value = np.cumsum(starts) - 1  # the rank of each distinct value
    has_first, has_second = _holds(value, of_first), _holds(value, ~of_first)
    both = has_first & has_second
    new_run = np.append(True, both[1:] | both[:-1] | (has_first[1:] != has_first[:-1]))
    run_of_value = np.cumsum(new_run) - 1
    run = np.empty(keys.size, np.intp)
    run[order] = run_of_value[value]
    return Runs(run[: first.size], run[first.size :], int(run_of_value[-1]) + 1)


def distance_of_draws(runs: Runs, first_draw: Int[np.ndarray, " n"], second_draw: Int[np.ndarray, " m"]) -> float:
    """The Kolmogorov-Smirnov distance of the drawn records, named by their indices in the original samples."""
    common = math.gcd(first_draw.size, second_draw.size)
    up, down = second_draw.size // common, first_draw.size // common
    gap = np.bincount(runs.first[first_draw], minlength=runs.count)
    falls = np.bincount(runs.second[second_draw], minlength=runs.count)
    if up > 1:
        gap *= up
    if down > 1:
        falls *= down
    gap -= falls
    np.cumsum(gap, out=gap)
    return max(int(gap.max()), -int(gap.min())) / (up * first_draw.size)


def bootstrap_distances(
    words: UInt[np.ndarray, " words"],
    first: Float[np.ndarray, " n"],
    others: Float[np.ndarray, "k m"],
    replicates: int,
    paired: bool,
) -> Float[np.ndarray, "replicates k"]:
    """Distances of resampled `first` to each of resampled `others`, all by the same records in one replicate.

    `words` seed the generator (SFC64 through NumPy's SeedSequence, one stream for every 16 replicates). Draws
    are uniform without bias, so that the record counts are exactly multinomial.
    """
    runs = [runs_of(first, other) for other in others]
    n, m = first.size, others.shape[1]
    result = np.empty((replicates, len(runs)), first.dtype)

    def fill(block: int) -> None:
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence([*words.tolist(), block])))
        for replicate in range(block * _BLOCK, min((block + 1) * _BLOCK, replicates)):
            first_draw = random.integers(0, n, n)
            second_draw = first_draw if paired else random.integers(0, m, m)
            result[replicate] = [distance_of_draws(each, first_draw, second_draw) for each in runs]

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(fill, range(-(-replicates // _BLOCK))))
    return result


def bootstrap_rows(
    words: UInt[np.ndarray, "*lead words"],
    first: Float[np.ndarray, "*lead_first n"],
    others: Float[np.ndarray, "*lead_others k m"],
    replicates: int,
    paired: bool,
) -> Float[np.ndarray, "*lead_out replicates k"]:
    """`bootstrap_distances` for every row, with leading axes broadcast; NaN for rows that contain NaN."""
    lead = np.broadcast_shapes(words.shape[:-1], first.shape[:-1], others.shape[:-2])
    words = np.broadcast_to(words, (*lead, words.shape[-1]))
    first = np.broadcast_to(first, (*lead, first.shape[-1]))
    others = np.broadcast_to(others, (*lead, *others.shape[-2:]))
    result = np.full((*lead, replicates, others.shape[-2]), np.nan, first.dtype)
    for row in np.ndindex(lead):
        if not (np.isnan(first[row].min()) or np.isnan(others[row].min())):
            result[row] = bootstrap_distances(words[row], first[row], others[row], replicates, paired)
    return result


def _holds(value: Int[np.ndarray, " union"], member: Bool[np.ndarray, " union"]) -> Bool[np.ndarray, " distinct"]:
    """Which distinct values have at least one record that is a member."""
    return np.bincount(value[member], minlength=int(value[-1]) + 1) > 0
