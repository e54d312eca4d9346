"""Kolmogorov-Smirnov distances and their bootstrap, beside sorts of PyTorch, CuPy and NumPy on the same device."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import counting, floors
from bench.device.measuring import ABSENT, JAXAUDIT, Asked, Contender, Outcome, compare, in_turns, library
from bench.harness import Spread
from bench.ks import by_numpy, inputs
from jaxaudit.kernels import bootstrap_ks_paired, ks_distance

SHARE = 0.4
REPLICATES_AT_ONCE = 50
"""Of PyTorch and CuPy, whose replicates are sorted as rows."""


def piece(asked: Asked, outcome: Outcome) -> None:
    size, usual, replicates = (10_000, 1_000, 20) if asked.reduced else (1_000_000, 60_000, 1000)
    measured = floors.measure(asked, ())
    outcome.tables["Measured ceilings"] = floors.table(measured)
    _, first, second = next(inputs(size))
    wanted = by_numpy(first, second)
    distance = jax.jit(ks_distance)
    builders = {JAXAUDIT: lambda: by_jaxaudit(distance, jnp.asarray(first), jnp.asarray(second))}
    builders |= {
        name: partial(build, outcome, first, second, wanted) for name, build in SORTS.items() if has(name, outcome)
    }
    if abs(float(distance(first, second)) - wanted) > 1e-6:
        raise RuntimeError(f"the distance is {wanted}, and not {distance(first, second)}")
    timings = in_turns(asked, outcome, f"distance, {size:,}", builders)
    compare(asked, outcome, timings, JAXAUDIT, None)
    least = measured.seconds(counting.of_ks(size, size))
    floors.share(asked, outcome, timings.case, least, Spread.of(timings.seconds[JAXAUDIT]), SHARE)

    _, first, second = next(inputs(usual))
    key = jax.random.key(0)
    bootstrap = partial(bootstrap_ks_paired, key, replicates=replicates)
    builders = {JAXAUDIT: lambda: by_jaxaudit(bootstrap, jnp.asarray(first), jnp.asarray(second)[None])}
    builders |= {
        name: partial(build, first, second, replicates) for name, build in BOOTSTRAPS.items() if has(name, outcome)
    }
    timings = in_turns(asked, outcome, f"{replicates:,} replicates, {usual:,}", builders)
    compare(asked, outcome, timings, JAXAUDIT, None)
    least = measured.seconds(counting.of_bootstrap(usual, usual, replicates))
    floors.share(asked, outcome, timings.case, least, Spread.of(timings.seconds[JAXAUDIT]), SHARE)


def has(name: str, outcome: Outcome) -> bool:
    """Whether the library of this contender is there, and has this device."""
    module = {"torch.sort": "torch", "cupy.sort": "cupy"}.get(name)
    if module is None or any(line.startswith(f"{module}:") for line in outcome.left_out):
        return module is None
    loaded = library(module)
    if loaded is None:
        outcome.leave_out(module, ABSENT)
    elif module == "cupy" and not _has_device(loaded):
        outcome.leave_out(module, "no device")
        return False
    return loaded is not None


def _has_device(cupy: Any) -> bool:
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # whatever the driver says
        return False


def by_jaxaudit(function: Callable[..., Any], *arrays: Any) -> Contender:
    def work(times: int) -> None:
        for _ in range(times):
            jax.block_until_ready(function(*arrays))

    return Contender(work)


def gap(module: Any, first: Any, second: Any) -> Any:
    """The distance, with the functions of PyTorch or CuPy, of samples or of rows of samples."""
    size, other = first.shape[-1], second.shape[-1]
    union = module.concatenate([first, second], -1)
    if module.__name__ == "torch":
        ordered, order = module.sort(union, -1)
    else:
        order = module.argsort(union, -1)
        ordered = module.take_along_axis(union, order, -1)
    below = module.cumsum(order < size, -1)
    places = module.cumsum(module.ones_like(order), -1)
    gaps = abs(below / size - (places - below) / other)
    # Where a run of equal values goes on, there is nothing to read off.
    gaps[..., :-1] *= ordered[..., 1:] != ordered[..., :-1]
    return module.amax(gaps, -1)


def _on_device(name: str, *arrays: np.ndarray) -> tuple[Any, Callable[[], Any], tuple[Any, ...]]:
    """The library, what waits for it, and the arrays."""
    if name == "torch.sort":
        import torch

        cuda = torch.cuda.is_available()
        wait = torch.cuda.synchronize if cuda else lambda: None
        return torch, wait, tuple(torch.from_numpy(values).to("cuda" if cuda else "cpu") for values in arrays)
    cupy = library("cupy")
    return cupy, cupy.cuda.Device().synchronize, tuple(map(cupy.asarray, arrays))


def _by_sort(name: str, outcome: Outcome, first: np.ndarray, second: np.ndarray, wanted: float) -> Contender:
    module, wait, pair = _on_device(name, first, second)
    got = float(gap(module, *pair).max())
    if abs(got - wanted) > 1e-6:
        raise RuntimeError(f"the distance is {wanted}, and not {got}")

    def work(times: int) -> None:
        for _ in range(times):
            gap(module, *pair)
            wait()

    return Contender(work)


def _numpy(_: Outcome, first: np.ndarray, second: np.ndarray, __: float) -> Contender:
    return Contender(lambda times: [by_numpy(first, second) for _ in range(times)])


def _resampled(name: str, first: np.ndarray, second: np.ndarray, replicates: int) -> Contender:
    """Rows of replicates, drawn by index and sorted, some at a time."""
    module, wait, pair = _on_device(name, first, second)

    def drawn(values: Any, rows: int) -> Any:
        if name == "torch.sort":
            return values[module.randint(len(values), (rows, len(values)), device=values.device)]
        return values[module.random.randint(0, len(values), (rows, len(values)))]

    def work(times: int) -> None:
        for _ in range(times):
            for begun in range(0, replicates, REPLICATES_AT_ONCE):
                rows = min(REPLICATES_AT_ONCE, replicates - begun)
                gap(module, *(drawn(values, rows) for values in pair))
            wait()

    return Contender(work)


SORTS: dict[str, Callable[..., Contender]] = {
    "torch.sort": partial(_by_sort, "torch.sort"),
    "cupy.sort": partial(_by_sort, "cupy.sort"),
    "numpy": _numpy,
}
BOOTSTRAPS: dict[str, Callable[..., Contender]] = {
    name: partial(_resampled, name) for name in ("torch.sort", "cupy.sort")
}
