"""Bootstrap of Kolmogorov-Smirnov distances over records."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Float, Int, Key, UInt

from jaxaudit.errors import InputError
from jaxaudit.kernels.kolmogorov_smirnov import as_samples, refuse_nan
from jaxaudit.kernels.ks_bootstrap_host import bootstrap_rows
from jaxaudit.kernels.ks_device import Union, sorted_union, uniform_indices, widest

_CHUNK_VALUES = 2**25  # resampled values in flight on an accelerator, at about 40 bytes each


def bootstrap_ks(
    key: Key[Array, ""] | UInt[Array, "2"],
    first: Float[Array | np.ndarray, " n"],
    second: Float[Array | np.ndarray, " m"],
    replicates: int,
    *,
    paired: bool,
) -> Float[Array, " replicates"]:
    """Kolmogorov-Smirnov distances of samples resampled with replacement: larger means further apart.

    Each replicate draws n records from the first sample and m from the second, and measures `ks_distance`
    between the draws (Efron 1979). With `paired`, both samples are outputs of two models for the same n records in
    the same order, and one draw of records serves both. Samples are sorted only once: a replicate is a running sum
    of record counts in sorted order.

    For small distances the bootstrap distribution lies above the distance itself (two resampled copies of one sample
    are not at distance 0). So its quantiles are an interval for distances well above 1 / sqrt(n), not a test of
    equality.

    Works under `jit` and `vmap`. The result is a function of the key, and of where it runs: on a CPU NumPy's SFC64
    generator draws, seeded by 128 bits of the key, and the counts are exactly multinomial; elsewhere
    `jax.random` draws, each record with probability 1/n to within n / 2**64. The first r replicates
    are the same however many are asked for, and for any number of cores.

    Memory: on a CPU about 60 bytes a value of the samples plus 40 a value for each core; elsewhere
    chunks of replicates that hold 2**25 resampled values (some 1.3 GB) or one replicate.

    Raises:
        InputError: a sample is empty or holds NaN, sizes differ though paired, or replicates is below 1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxaudit.kernels import ks_distance
        >>> first, second = jnp.linspace(0.0, 1.0, 200), jnp.linspace(0.3, 1.3, 200)
        >>> distances = bootstrap_ks(jax.random.key(0), first, second, 500, paired=False)
        >>> low, high = jnp.quantile(distances, jnp.array([0.025, 0.975]))
        >>> bool(low < ks_distance(first, second) < high)
        True
    """
    first, second = as_samples(first, second)
    return _bootstrap(key, first, second[None], replicates, paired)[:, 0]


def bootstrap_ks_paired(
    key: Key[Array, ""] | UInt[Array, "2"],
    reference: Float[Array | np.ndarray, " n"],
    others: Float[Array | np.ndarray, "k m"],
    replicates: int,
) -> Float[Array, "replicates k"]:
    """Bootstrap distances of one model's outputs to those of k other models, with the same draw of records for all.

    Reference and others are outputs for the same n records in the same order. Since all columns of a row share a
    draw, ratios and differences of columns are bootstrapped jointly: with
    `others = (target, calibration)`, column 0 over column 1 is the bootstrap distribution of
    rho = KS(query, target) / KS(query, calibration). A column equals
    `bootstrap_ks(key, reference, others[j], replicates, paired=True)`; everything else as there.

    Raises:
        InputError: a sample is empty or holds NaN, m is not n, or replicates is below 1.
    """
    reference, others = as_samples(reference, others)
    return _bootstrap(key, reference, others, replicates, paired=True)


def _bootstrap(
    key: Array, first: Float[Array, " n"], others: Float[Array, "k m"], replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    if replicates < 1:
        raise InputError(f"{replicates} bootstrap replicates are too few: give at least 1, usually 1000")
    if paired and first.size != others.shape[1]:
        raise InputError(
            f"paired samples need one output for each of the same records, but one has {first.size} values and the "
            f"other {others.shape[1]}: give both models the same records in the same order, or use paired=False"
        )
    distances = _dispatch(key, first, others, replicates, paired)
    refuse_nan(distances, first, others)
    return distances


@partial(jax.jit, static_argnames=("replicates", "paired"))
def _dispatch(
    key: Array, first: Float[Array, " n"], others: Float[Array, "k m"], replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    return jax.lax.platform_dependent(
        key,
        first,
        others,
        cpu=partial(_bootstrap_on_host, replicates=replicates, paired=paired),
        default=partial(bootstrap_by_sort, replicates=replicates, paired=paired),
    )


def _bootstrap_on_host(
    key: Array, first: Float[Array, " n"], others: Float[Array, "k m"], *, replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    result = jax.ShapeDtypeStruct((replicates, others.shape[0]), first.dtype)
    fill = buffer_callback(partial(_fill, paired=paired), result, vmap_method="expand_dims")
    return fill(jax.random.bits(key, (4,), jnp.uint32), first, others)


def _fill(_context: object, output: Any, words: Any, first: Any, others: Any, *, paired: bool) -> None:
    result = np.asarray(output)
    result[...] = bootstrap_rows(np.asarray(words), np.asarray(first), np.asarray(others), result.shape[-2], paired)


def bootstrap_by_sort(
    key: Array, first: Float[Array, " n"], others: Float[Array, "k m"], *, replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    """`bootstrap_ks_paired` (or unpaired) in XLA, for accelerators, in chunks of replicates."""
    n, (k, m) = first.size, others.shape
    unions = jax.vmap(lambda other: sorted_union(first, other))(others)

    def replicate(index: Int[Array, ""]) -> Float[Array, " k"]:
        first_key, second_key = jax.random.split(jax.random.fold_in(key, index))
        first_count = _counts(uniform_indices(first_key, n, n))
        second_count = first_count if paired else _counts(uniform_indices(second_key, m, m))
        return jax.vmap(partial(_distance_of_counts, first_count, second_count, dtype=first.dtype))(unions)

    chunk = max(1, min(replicates, _CHUNK_VALUES // (k * (n + m))))
    distances = jax.lax.map(replicate, jnp.arange(replicates), batch_size=chunk)
    spoilt = jnp.isnan(first).any() | jnp.isnan(others).any()
    return jnp.where(spoilt, jnp.nan, distances)


def _distance_of_counts(
    first_count: Int[Array, " n"], second_count: Int[Array, " m"], union: Union, dtype: Any
) -> Float[Array, ""]:
    n, m = first_count.size, second_count.size
    of_first = union.record < n
    first = jnp.where(of_first, first_count[jnp.minimum(union.record, n - 1)], 0)
    second = jnp.where(of_first, 0, second_count[jnp.maximum(union.record - n, 0)])
    return widest(jnp.cumsum(first), jnp.cumsum(second), union.is_end, (n, m), dtype)[0]


def _counts(indices: Int[Array, " n"]) -> Int[Array, " n"]:
    """How often each record was drawn."""
    return jnp.zeros(indices.size, jnp.int32).at[indices].add(1)
