"""Chooses the number of models per batch by measurement: the best depends on a CPU's cache and a GPU's size."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.ensemble.batches import epoch_blocks, place_block
from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.ensemble.plan import Group
from jaxaudit.ensemble.program import DISPATCH, init_chunk, place_models, run_block
from jaxaudit.learners.learner import SteppedLearner
from jaxaudit.membership import AllBut, Membership
from jaxaudit.randomness import keys_at

PROBE_SHARE = 0.1
"""Measuring stops once it has taken this share of the expected training time."""
GIVE_UP = 1.15
"""The search stops after two numbers in a row that are slower than the best by this factor."""
TIE = 1.03
"""Numbers within this factor of the least time count as equal; the largest of them is chosen."""
START = 4
"""The number that is tried first; it is rarely far from the best on a CPU."""
PROBE_STEPS = 32
PROBE_SECONDS = 0.2
CPU_BYTES = 4 << 30
DEVICE_SHARE = 0.5


class BatchChoice(NamedTuple):
    """The chosen models per batch, and the measurements.

    Attributes:
        models_per_batch: models trained at the same time.
        seconds: measured seconds per model-step for each number tried; empty if nothing was measured.
    """

    models_per_batch: int
    seconds: dict[int, float]


def choose_models_per_batch(
    learner: SteppedLearner,
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    pool: tuple[Array, Array],
    groups: list[Group],
    near: int | None = None,
) -> BatchChoice:
    """The models per batch with the least time per model-step, measured over some steps each.

    Tries 4, 8, 16, ... on the group with the most work, with as many chunks at the same time as in training. Upward, it
    stops at the second number in a row that is clearly slower than the best, or at the limit of memory. 2 and 1 are
    tried only if 4 was the fastest. The search ends when it has taken a tenth of the expected training time. Nothing is
    measured if there is only one choice or no step. Nor if `near` is given, the number that was chosen for the same
    network on records of another shape: it is used, or the largest smaller number that fits into memory. Two runs may
    choose differently, and models trained in chunks of another size differ by rounding: pass the reported number to
    repeat a run exactly.
    """
    group = max(groups, key=lambda group: group.steps * len(group.rows))
    work = learner.epochs * sum(g.steps * len(g.rows) for g in groups)
    # Chunks must be small enough that all concurrent chunks have models.
    most = -(-len(group.rows) // concurrent_chunks())
    candidates = _candidates(learner, keys, pool, most) if work else [most]
    if len(candidates) == 1:
        return BatchChoice(candidates[0], {})
    if near is not None:
        return BatchChoice(max([number for number in candidates if number <= near] or candidates[:1]), {})
    first = sum(number < START for number in candidates[:-1])
    started = time.perf_counter()
    seconds: dict[int, float] = {}

    def search(numbers: list[int]) -> None:
        slower = 0
        for number in numbers:
            best = min(seconds.values(), default=np.inf)
            if slower == 2 or (seconds and time.perf_counter() - started > PROBE_SHARE * best * work):
                return
            seconds[number] = probe_models_per_batch(learner, keys, membership, pool, group, number)
            slower = slower + 1 if seconds[number] > GIVE_UP * best else 0

    search(candidates[first:])
    if min(seconds, key=lambda number: seconds[number]) == candidates[first]:
        search(candidates[:first][::-1])
    # Work between steps is not measured; it is done once per chunk, so larger chunks have less of it.
    best = min(seconds.values())
    return BatchChoice(max(number for number in seconds if seconds[number] <= TIE * best), seconds)


def _candidates(
    learner: SteppedLearner, keys: Key[Array, " models"], pool: tuple[Array, Array], most: int
) -> list[int]:
    devices = len(jax.local_devices())
    bytes_of_batch = learner.batch_size * pool[0].nbytes // len(pool[0])
    room = (
        _device_bytes() * devices // concurrent_chunks() // (2 * bytes_of_state(learner, keys[0]) + 4 * bytes_of_batch)
    )
    top = max(1, -(-min(most, room) // devices)) * devices
    return [number for number in (devices << shift for shift in range(top.bit_length())) if number < top] + [top]


def bytes_of_state(learner: SteppedLearner, key: Key[Array, ""]) -> int:
    """The bytes of one model's training state."""
    # Extended types such as keys have no plain size; their few bytes do not matter.
    leaves = jax.tree.leaves(jax.eval_shape(lambda key: learner.init(key), key))
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in leaves)


def _device_bytes() -> int:
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    return int(DEVICE_SHARE * stats["bytes_limit"]) if stats and "bytes_limit" in stats else CPU_BYTES


def probe_models_per_batch(
    learner: SteppedLearner,
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    pool: tuple[Array, Array],
    group: Group,
    models_per_batch: int,
) -> float:
    """Seconds per model-step with this many models per batch: the best of up to three timed runs."""
    at_once = min(concurrent_chunks(), -(-len(group.rows) // models_per_batch))
    # Padded like a chunk in training, so that it divides evenly over the devices.
    group = group.chunks(models_per_batch, len(jax.local_devices()))[0]
    rows = group.rows
    own_keys = place_models(keys_at(keys, rows))
    states = [init_chunk(learner, own_keys) for _ in range(at_once)]
    block = next(epoch_blocks(learner, group, own_keys, membership[rows], 0))
    steps = min(block.steps, PROBE_STEPS)
    when, arrays, kind = (own_keys, 0, 0), place_block(block, group), (group.shared, group.uneven)

    def run(steps: int) -> float:
        def one_chunk(state: Any) -> Any:
            with DISPATCH:
                state = run_block(learner, state, when, *pool, *arrays, 0, steps, *kind)
            return jax.block_until_ready(state)

        start = time.perf_counter()
        states[:] = threads.map(one_chunk, states)
        return time.perf_counter() - start

    # One thread per chunk, since programs of one thread run one after another.
    with ThreadPoolExecutor(at_once) as threads:
        return _best(run, steps, block.steps) / at_once / len(np.unique(rows))


def _best(run: Callable[[int], float], steps: int, most: int) -> float:
    """The least seconds per step of up to three timed runs."""
    run(steps)  # compiles
    # Enough steps to make the time of the call itself negligible.
    steps = min(most, max(steps, int(steps * PROBE_SECONDS / 4 / run(steps))))
    best, spent = np.inf, 0.0
    for _ in range(3):
        took = run(steps)
        best, spent = min(best, took), spent + took
        if spent > PROBE_SECONDS:
            break
    return best / steps
