"""Two-sample Kolmogorov-Smirnov distance, for any jax transformation of the surrounding program but gradients."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Float

from jaxaudit.errors import InputError
from jaxaudit.kernels.ks_device import ks_gap_by_sort
from jaxaudit.kernels.ks_host import ks_gap_rows


class KSGap(NamedTuple):
    """The widest gap between two empirical distribution functions: its size, location and sign; see `ks_gap`."""

    distance: Float[Array, ""]
    at: Float[Array, ""]
    sign: Float[Array, ""]


def ks_distance(first: Float[Array | np.ndarray, " n"], second: Float[Array | np.ndarray, " m"]) -> Float[Array, ""]:
    """The largest gap between the empirical distribution functions of two samples: 0 if equal, 1 if disjoint.

    The functions are right-continuous and compared over the union of the samples, ties included, so that the
    result equals `scipy.stats.ks_2samp(first, second).statistic` up to one rounding. Counting is in integers and
    exact at any sizes below 2**31, equal or not. -0.0 equals 0.0; infinities are values like any other. The
    samples are compared as float32, or as float64 where an input is float64 and jax's x64 mode is on.

    Works under `jit`, `vmap` and any nesting of them; a batch is one call. On a CPU the work is done by NumPy inside a
    host callback (one row of a batch at a time: memory is some 40 bytes a value of one pair of samples); elsewhere by
    the device's sort (40 bytes a value of the whole batch). Not differentiable. Inside `jit` or `vmap`, where values
    are not known, NaN input gives NaN.

    Raises:
        InputError: a sample is empty or holds NaN.

    >>> import jax.numpy as jnp
    >>> float(ks_distance(jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([0.3, 0.5])))
    0.5
    """
    return ks_gap(first, second).distance


def ks_gap(first: Float[Array | np.ndarray, " n"], second: Float[Array | np.ndarray, " m"]) -> KSGap:
    """The widest gap of two empirical distribution functions: its size, location and sign.

    `distance` is `ks_distance`, for which see everything else; `at` is the smallest value of either sample at which the
    gap is attained; `sign` is +1 if the first function is larger there (the first sample is smaller), -1 if it is
    smaller, 0 if the functions are equal.

    Raises:
        InputError: a sample is empty or holds NaN.
    """
    first, second = as_samples(first, second)
    gap = KSGap(*_gap(first, second))
    refuse_nan(gap.distance, first, second)
    return gap


def as_samples(
    first: Float[Array | np.ndarray, "*shape_first"], second: Float[Array | np.ndarray, "*shape_second"]
) -> tuple[Float[Array, "*shape_first"], Float[Array, "*shape_second"]]:
    """Both samples as jax arrays of one precision, float32 at least; an `InputError` if one is empty."""
    for name, sample in (("first", first), ("second", second)):
        if sample.size == 0:
            raise InputError(
                f"the {name} sample is empty, but at least one value is needed: "
                "check the rows given and any filter that selected them"
            )
    dtype = jnp.result_type(first, second, jnp.float32)
    return jnp.asarray(first, dtype), jnp.asarray(second, dtype)


def refuse_nan(result: Array, *samples: Array) -> None:
    """Turns a NaN result into an `InputError` that counts the NaN input; silent while tracing."""
    if not isinstance(result, Tracer) and jnp.isnan(result).any():
        count = sum(int(jnp.isnan(sample).sum()) for sample in samples)
        raise InputError(
            f"{count} of {sum(sample.size for sample in samples)} values are NaN, which cannot be ordered: "
            "the model has probably diverged; train it again or drop those records from both samples"
        )


@jax.jit
def _gap(first: Float[Array, " n"], second: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    return jax.lax.platform_dependent(first, second, cpu=_gap_on_host, default=ks_gap_by_sort)


def _gap_on_host(first: Float[Array, " n"], second: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    # Not `pure_callback`: it copies its arguments through the same threads that wait for it, and was seen to
    # hang at 10 million values on one core. A buffer callback reads and writes in place.
    scalar = jax.ShapeDtypeStruct((), first.dtype)
    return buffer_callback(_fill_gap, (scalar, scalar, scalar), vmap_method="expand_dims")(first, second)


def _fill_gap(_context: object, outputs: tuple[Any, ...], first: Any, second: Any) -> None:
    results = ks_gap_rows(np.asarray(first), np.asarray(second))
    for output, result in zip(outputs, results, strict=True):
        np.asarray(output)[...] = result
