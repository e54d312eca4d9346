"""What a device does at most, measured: bytes of a copy, and rates of a large product of matrices."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench.device.counting import Count
from bench.device.measuring import Asked, Outcome
from bench.harness import Spread

PRODUCTS = {"float32, default": ("float32", None), "float32": ("float32", "highest"), "bfloat16": ("bfloat16", None)}
TIMES = 3


class Floors(NamedTuple):
    """Bytes a second of a copy, read and written; and FLOP a second of products, by `PRODUCTS`."""

    bandwidth: float
    rates: dict[str, float]

    def seconds(self, count: Count, product: str | None = None) -> float:
        """The least time for so much; without a product, for bytes alone."""
        return max(count.flops / self.rates[product] if product else 0.0, count.bytes / self.bandwidth)


def measure(asked: Asked, products: tuple[str, ...] = tuple(PRODUCTS)) -> Floors:
    """The best of a few timings each."""
    numbers = (1 << 27 if asked.gpu else 1 << 25) >> (8 if asked.reduced else 0)
    width = (8192 if asked.gpu else 2048) >> (4 if asked.reduced else 0)
    copied = best(jax.jit(lambda x: x + 1), jnp.ones(numbers, jnp.float32), asked.gpu)
    rates = {}
    for name in products:
        kind, precision = PRODUCTS[name]
        square = jax.jit(lambda x, precision=precision: jnp.matmul(x, x, precision=precision))
        rates[name] = 2 * width**3 / best(square, jnp.ones((width, width), kind), asked.gpu)
    return Floors(8 * numbers / copied, rates)


def best(function: Callable[[Any], Any], argument: Any, many: bool) -> float:
    """The least seconds of a call; on a GPU, where calls are queued, of twenty in a row."""
    calls = 20 if many else 1
    jax.block_until_ready(function(argument))
    least = float("inf")
    for _ in range(TIMES):
        start = time.perf_counter()
        results = None
        for _ in range(calls):
            results = function(argument)
        jax.block_until_ready(results)
        least = min(least, (time.perf_counter() - start) / calls)
    return least


def share(asked: Asked, outcome: Outcome, case: str, least: float, measured: Spread, bound: float | None) -> None:
    """Says which share of the floor was reached, as a claim where something is promised."""
    spread = Spread(least / measured.median, least / measured.high, least / measured.low)
    text = f"{case}: share of the counted floor"
    if bound is None:
        outcome.notes.append(f"{text}: {spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})")
    else:
        outcome.promise(asked, text, spread, bound)


def table(floors: Floors) -> list[list[str]]:
    """For a page."""
    rows = [["copy, read and written", f"{floors.bandwidth / 1e9:,.0f} GB/s"]]
    rows += [[f"product, {name}", f"{rate / 1e12:,.3g} TFLOP/s"] for name, rate in floors.rates.items()]
    return [["what", "measured"], *rows]


def piece(asked: Asked, outcome: Outcome) -> None:
    floors = measure(asked)
    outcome.tables["Measured ceilings"] = table(floors)
    for row in outcome.tables["Measured ceilings"][1:]:
        outcome.say(": ".join(row))
