"""Bootstrap of Kolmogorov-Smirnov distances over records; on the host with one sort for all replicates.

Resampling changes how often a value occurs, never the order of the values: samples are sorted once, and a replicate is
a running sum of resampled counts in that order. The gap only rises while values of the first sample pass and only falls
while values of the second do, so counts are collected by such runs (`bincount`), not by value.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Bool, Float, Int, Key, UInt

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.kernels.kolmogorov_smirnov import (
    as_samples,
    host_keys,
    refuse_nan,
    sorted_union,
    uniform_indices,
)

_CHUNK_VALUES = 2**25  # resampled values in flight on an accelerator, at about 40 bytes each


def bootstrap_ks_paired(
    key: Key[Array, ""] | UInt[Array, "2"],
    reference: Float[Array | np.ndarray, " n"],
    other_samples: Float[Array | np.ndarray, "k n"],
    replicates: int,
) -> Float[Array, "replicates k"]:
    """Kolmogorov-Smirnov distances of one model's outputs to those of k other models, of resampled records.

    Outputs are of the same n records in the same order. Each replicate draws n records with replacement, the same for
    all models, and measures `ks_distance` between their outputs (Efron 1979). So ratios and differences of columns are
    bootstrapped jointly: of the others (target, calibration), column 0 over column 1 is distributed as rho. Quantiles
    are an interval for distances well above 1 / sqrt(n), not a test of equality.

    Works under `jit` and `vmap`. The result is a function of the key, and of where it runs: on a CPU NumPy's SFC64
    generator draws, seeded by 128 bits of the key, and the counts are exactly multinomial; elsewhere `jax.random`
    draws, each record with probability 1/n to within n / 2**64. The first r replicates are the same however many are
    asked for, and for any number of cores.

    Memory: on a CPU about 60 bytes a value of the samples plus 40 a value for each core; elsewhere chunks of replicates
    that hold 2**25 resampled values (some 1.3 GB) or one replicate.

    >>> import jax, jax.numpy as jnp
    >>> from jaxaudit.kernels import ks_distance
    >>> first, second = jax.random.normal(jax.random.key(1), (2, 200)) + jnp.array([[0.0], [0.5]])
    >>> distances = bootstrap_ks_paired(jax.random.key(0), first, second[None], 500)
    >>> low, high = jnp.quantile(distances, jnp.array([0.025, 0.975]))
    >>> bool(low < ks_distance(first, second) < high)
    True
    """
    reference, other_samples = as_samples(reference, other_samples)
    check_ranges("[1, inf)", replicates=replicates)
    check_shapes((len(other_samples), reference.size), other_samples=other_samples)
    distances = _dispatch(key, reference, other_samples, replicates)
    refuse_nan(distances, reference, other_samples)
    return distances


@partial(jax.jit, static_argnames="replicates")
def _dispatch(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], replicates: int
) -> Float[Array, "replicates k"]:
    return jax.lax.platform_dependent(
        key,
        first,
        other_samples,
        cpu=partial(_bootstrap_on_host, replicates=replicates),
        default=partial(bootstrap_by_sort, replicates=replicates),
    )


def _bootstrap_on_host(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], *, replicates: int
) -> Float[Array, "replicates k"]:
    result = jax.ShapeDtypeStruct((replicates, other_samples.shape[0]), first.dtype)
    fill = buffer_callback(_fill, result, vmap_method="expand_dims")
    return fill(jax.random.bits(key, (4,), jnp.uint32), first, other_samples)


def _fill(_context: object, output: Any, words: Any, first: Any, other_samples: Any) -> None:
    result = np.asarray(output)
    of_one = partial(bootstrap_distances, replicates=result.shape[-2])
    of_rows = np.vectorize(of_one, signature="(words),(n),(k,n)->(replicates,k)")
    result[...] = of_rows(np.asarray(words), np.asarray(first), np.asarray(other_samples))


def bootstrap_by_sort(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], *, replicates: int
) -> Float[Array, "replicates k"]:
    """`bootstrap_ks_paired` in XLA, for accelerators, in chunks of replicates; NaN if a number is."""
    k, n = other_samples.shape
    records = jnp.arange(2 * n, dtype=jnp.int32)  # n and more are of the other sample
    unions = jax.vmap(lambda other: sorted_union(first, other, records))(other_samples)

    def replicate(index: Int[Array, ""]) -> Float[Array, " k"]:
        own_key, _ = jax.random.split(jax.random.fold_in(key, index))
        count = jnp.zeros(n, jnp.int32).at[uniform_indices(own_key, n, n)].add(1)
        of_samples = jnp.concatenate([count, -count])

        def distance(record: Int[Array, " union"], is_end: Bool[Array, " union"]) -> Float[Array, ""]:
            return jnp.abs(jnp.where(is_end, jnp.cumsum(of_samples[record]), 0)).max().astype(first.dtype) / n

        return jax.vmap(distance)(*unions)

    chunk = max(1, min(replicates, _CHUNK_VALUES // (2 * k * n)))
    distances = jax.lax.map(replicate, jnp.arange(replicates), batch_size=chunk)
    spoilt = jnp.isnan(first).any() | jnp.isnan(other_samples).any()
    return jnp.where(spoilt, jnp.nan, distances)


_BLOCK = 16  # replicates a random stream serves: threads share the work, yet the result does not depend on them


class Runs(NamedTuple):
    """For each record, the number of the run that contains its value. Runs ascend; the gap is monotone within a run."""

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " n"]
    count: int


def runs_of(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> Runs:
    """Sorts both samples together and cuts the order into runs of one sample; a value in both is a run of its own."""
    keys = host_keys(np.concatenate([first, second]))
    order = np.argsort(keys)
    ordered, of_first = keys[order], order < first.size
    starts = np.append(True, ordered[1:] != ordered[:-1])
    value = np.cumsum(starts) - 1  # the rank of each distinct value
    has_first, has_second = _holds(value, of_first), _holds(value, ~of_first)
    in_both = has_first & has_second
    new_run = np.append(True, in_both[1:] | in_both[:-1] | (has_first[1:] != has_first[:-1]))
    run_of_value = np.cumsum(new_run) - 1
    run = np.empty(keys.size, np.intp)
    run[order] = run_of_value[value]
    return Runs(run[: first.size], run[first.size :], int(run_of_value[-1]) + 1)


def distance_of_draw(runs: Runs, draw: Int[np.ndarray, " n"]) -> float:
    """The Kolmogorov-Smirnov distance of the drawn records, named by their indices in the original samples."""
    gap = np.bincount(runs.first[draw], minlength=runs.count)
    gap -= np.bincount(runs.second[draw], minlength=runs.count)
    np.cumsum(gap, out=gap)
    return max(int(gap.max()), -int(gap.min())) / draw.size


def bootstrap_distances(
    words: UInt[np.ndarray, " words"],
    first: Float[np.ndarray, " n"],
    other_samples: Float[np.ndarray, "k n"],
    replicates: int,
) -> Float[np.ndarray, "replicates k"]:
    """`bootstrap_ks_paired` on the host; NaN if a number is.

    `words` seed the generator (SFC64, one stream for every 16 replicates); draws are exactly multinomial.
    """
    result = np.full((replicates, len(other_samples)), np.nan, first.dtype)
    if np.isnan(first.min()) or np.isnan(other_samples.min()):
        return result
    runs = [runs_of(first, other) for other in other_samples]

    def fill(block: int) -> None:
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence([*words.tolist(), block])))
        for replicate in range(block * _BLOCK, min((block + 1) * _BLOCK, replicates)):
            draw = random.integers(0, first.size, first.size)
            result[replicate] = [distance_of_draw(run, draw) for run in runs]

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(fill, range(-(-replicates // _BLOCK))))
    return result


def _holds(value: Int[np.ndarray, " union"], member: Bool[np.ndarray, " union"]) -> Bool[np.ndarray, " distinct"]:
    """Which distinct values have at least one record that is a member."""
    return np.bincount(value[member], minlength=int(value[-1]) + 1) > 0
