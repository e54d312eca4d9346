"""Two-sample Kolmogorov-Smirnov distances against SciPy and NumPy: `python -m bench.ks` (a minute on two cores).

Promised, for a CPU: one million against one million at least 5 times faster than
`scipy.stats.ks_2samp(..., method="asymp")`; 1,000 bootstrap replicates of 60,000 against 60,000 in less than the time
of 100 such calls. SciPy's call includes a p-value that this project has no use for; its own time is listed, and
NumPy's sort and searchsorted are the statistic alone, and the same is promised against them. Every timed
call of one distance comes right after an untimed one of the same contender.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bench.harness import Bench, Claim, Timings, interleave, report
from jaxaudit.kernels import bootstrap_ks_paired, ks_distance

BATCH, LARGE, USUAL, REPLICATES = 16, 1_000_000, 60_000, 1000


def inputs(size: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Confidences of two classifiers, most of them near 1; of two that nearly saturate; and signed scores."""
    random = np.random.default_rng(0)
    single = lambda values: values.astype(np.float32)  # noqa: E731
    yield "confidences", single(random.beta(5, 1, size)), single(random.beta(4, 1, size))
    logits = random.normal([[9.0], [8.0]], 3, (2, size))
    yield "saturated confidences", *single(1 / (1 + np.exp(-logits)))
    yield "signed normal", single(random.normal(0, 1, size)), single(random.normal(0.05, 1, size))


def by_scipy(first: np.ndarray, second: np.ndarray) -> float:
    result: Any = stats.ks_2samp(first, second, method="asymp")
    return result.statistic


def by_numpy(first: np.ndarray, second: np.ndarray) -> float:
    first, second = np.sort(first), np.sort(second)
    union = np.concatenate([first, second])
    below_first = np.searchsorted(first, union, side="right") / first.size
    below_second = np.searchsorted(second, union, side="right") / second.size
    return np.abs(below_first - below_second).max()


def distances(rounds: int = 15) -> Iterator[Timings]:
    compiled = jax.jit(ks_distance)
    for size in (USUAL, LARGE):
        for name, first, second in inputs(size):
            on_device = jnp.asarray(first), jnp.asarray(second)
            np.testing.assert_allclose(compiled(*on_device), by_scipy(first, second), rtol=1e-6)
            effective, distance = round(size / 2), by_scipy(first, second)
            yield interleave(
                f"{size:,} {name}",
                {
                    "jaxaudit": lambda pair=on_device: compiled(*pair),
                    "numpy": lambda a=first, b=second: by_numpy(a, b),
                    "scipy": lambda a=first, b=second: by_scipy(a, b),
                    "scipy p-value": lambda d=distance, n=effective: stats.kstwo.sf(d, n),
                },
                rounds,
                untimed_before=True,
            )


def batch(rounds: int = 10) -> Timings:
    first = np.stack([pair[1] for _ in range(BATCH) for pair in [next(inputs(USUAL))]])
    second = np.random.default_rng(1).beta(4, 1, (BATCH, USUAL)).astype(np.float32)
    on_device = jnp.asarray(first), jnp.asarray(second)
    batched = jax.jit(jax.vmap(ks_distance))
    return interleave(
        f"batch of {BATCH} x {USUAL:,} confidences",
        {
            "jaxaudit": lambda: batched(*on_device),
            "numpy": lambda: [by_numpy(a, b) for a, b in zip(first, second, strict=True)],
            "scipy": lambda: [by_scipy(a, b) for a, b in zip(first, second, strict=True)],
        },
        rounds,
        untimed_before=True,
    )


def bootstrap(rounds: int = 7) -> Iterator[Timings]:
    key = jax.random.key(0)
    for name, first, second in inputs(USUAL):
        pair = jnp.asarray(first), jnp.asarray(second)[None]
        yield interleave(
            f"{REPLICATES:,} replicates, {USUAL:,} {name}",
            {
                "jaxaudit": lambda pair=pair: bootstrap_ks_paired(key, *pair, REPLICATES),
                "one scipy": lambda a=first, b=second: by_scipy(a, b),
                "one numpy": lambda a=first, b=second: by_numpy(a, b),
            },
            rounds,
        )


def main() -> None:
    single, many, resampled = list(distances()), batch(), list(bootstrap())
    claims = [
        Claim(f"{timings.case}: {other} / jaxaudit", timings.ratio(other, "jaxaudit"), 5)
        for timings in single
        if timings.case.startswith(f"{LARGE:,}")
        for other in ("scipy", "numpy")
    ]
    claims += [
        Claim(f"{timings.case}: jaxaudit / {other}", timings.ratio("jaxaudit", other), 100, at_least=False)
        for timings in resampled
        for other in ("one scipy", "one numpy")
    ]
    notes = [
        f"{timings.case}: {other} / jaxaudit {spread.median:.1f} ({spread.low:.1f}..{spread.high:.1f})"
        for timings in [*single, many]
        if not timings.case.startswith(f"{LARGE:,}")
        for other in ("scipy", "numpy")
        for spread in [timings.ratio(other, "jaxaudit")]
    ]
    report(Bench("ks", [*single, many, *resampled], claims, notes), ["jax", "jaxlib", "numpy", "scipy"])


if __name__ == "__main__":
    main()
