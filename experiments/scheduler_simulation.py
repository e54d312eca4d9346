"""Would a million leave-one-out models keep a thousand devices busy, while devices fail?

    python -m experiments.scheduler_simulation    # four minutes on two cores

The scheduler is the real one: the plan, the hand-over, the retries, the chunk files of `fit_many` with an executor.
Only workers are simulated: instead of training, one waits for as long as a chunk takes, in a clock that is faster than
ours, and dies at random; another takes its place after a while. What is measured is the share of the devices' time that
went into chunks which were kept, beside the share that dying alone would leave, and how many chunks a second this
process can hand over. Writes `results/scheduler_simulation-DEVICE.json` and `.md`.
"""

import argparse
import json
import random
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit import models, network
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.ensemble.concurrency import this_machine
from jaxaudit.ensemble.pull import Pulling, WorkerEnded
from jaxaudit.ensemble.worker import Task, Trained
from jaxaudit.membership import AllBut

FASTER = 20.0
"""Seconds of the devices' clock in one of ours."""


class World(NamedTuple):
    """A fleet and its work; seconds are the devices'.

    Attributes:
        devices: workers at a time.
        models, models_per_batch: what is trained.
        chunk: seconds a chunk; `start`: to start a worker, which imports and compiles.
        lives: mean seconds until a worker dies, exponentially; 0: it never does.
    """

    devices: int
    models: int
    models_per_batch: int
    chunk: float
    start: float
    lives: float


WORLDS = {
    "no failures": World(1000, 320_000, 32, 120.0, 90.0, 0.0),
    "a device dies every 10 hours": World(1000, 320_000, 32, 120.0, 90.0, 36_000.0),
    "a preemptible fleet, dying every hour": World(1000, 320_000, 32, 120.0, 90.0, 3_600.0),
    "as fast as chunks can be handed over": World(1000, 320_000, 32, 0.0, 0.0, 0.0),
}


class Fleet:
    """Simulated workers, and what they did: begin and end of each chunk, by our clock, and whether it was kept."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed, self.lock = world, seed, threading.Lock()
        self.machine, self.spans, self.deaths, self.born = this_machine(), list[tuple[float, float, bool]](), 0, 0

    def start(self, place: int) -> "_Device":
        with self.lock:
            self.born += 1
            number = self.born
        time.sleep(self.world.start / FASTER)
        return _Device(self, random.Random(f"{self.seed} {number}"))


class _Device:
    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        world = fleet.world
        self.fleet = fleet
        self.left = chance.expovariate(1 / world.lives) if world.lives else float("inf")

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trained:
        (task,) = args
        assert isinstance(task, Task)
        seconds, fleet = self.fleet.world.chunk, self.fleet
        began = time.monotonic()
        time.sleep(min(seconds, self.left) / FASTER)
        self.left -= seconds
        with fleet.lock:
            fleet.spans.append((began, time.monotonic(), self.left > 0))
            fleet.deaths += self.left <= 0
        if self.left <= 0:
            raise WorkerEnded("the simulated device died")
        rows = np.unique(task.chunk.rows)
        return Trained(rows, cloudpickle.dumps(rows.astype(np.float32), protocol=5), fleet.machine)

    def kill(self) -> None:
        pass


def simulate(world: World, seed: int) -> dict[str, Any]:
    """One run of the scheduler."""
    fleet = Fleet(world, seed)
    inputs = np.zeros((world.models, 4), np.float32)
    labels = np.zeros(world.models, np.int32)
    learner = network(models.MLP, (4,), 2, optimizer=optax.sgd(0.1), epochs=1, batch_size=32)
    keys = jnp.repeat(jax.random.key(seed)[None], world.models)
    rows, seen = AllBut(np.arange(world.models), world.models), list[float]()
    started, used = time.monotonic(), time.process_time()

    def progress(done: int, total: int) -> None:
        if done and not seen:
            seen.append(time.monotonic() - started)

    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        Pulling(fleet.start, world.devices) as executor,
    ):
        warnings.simplefilter("ignore", RuntimeWarning)
        execution = Execution(world.models_per_batch, progress, Path(folder), executor)
        found = fit_many(keys, rows, inputs, labels, learner, execution=execution, summarize=_none)
        seconds = time.monotonic() - started
    assert np.array_equal(found, np.arange(world.models, dtype=np.float32))
    chunks = world.models // world.models_per_batch
    # Of each life, the start and the last chunk, half of it on average, are no use.
    ideal = 1.0
    if world.lives:
        survives = np.exp(-world.chunk / world.lives)
        ideal = float(world.chunk * survives / (1 - survives) / (world.lives + world.start))
    began, ended, kept = (np.array(each) for each in zip(*fleet.spans, strict=True))
    first = started + world.start / FASTER
    return {
        **world._asdict(),
        "chunks": chunks,
        "wall_seconds": seconds,
        "driver_cpu_seconds": time.process_time() - used,
        "hours": (seconds * FASTER) / 3600,
        "deaths": fleet.deaths,
        # While there are chunks for all devices, and to the end, when some wait for the last ones.
        "busy": _busy(began, ended, kept, first, np.sort(began)[chunks - world.devices], world.devices),
        "busy_to_the_end": _busy(began, ended, kept, first, started + seconds, world.devices),
        "ideal": ideal,
        "chunks_a_second": chunks / (seconds - seen[0]),
    }


def _busy(began: np.ndarray, ended: np.ndarray, kept: np.ndarray, since: float, until: float, devices: int) -> float:
    """The share of the devices' time between two moments that went into chunks which were kept."""
    inside = np.clip(ended, since, until) - np.clip(began, since, until)
    return float(inside[kept].sum() / (devices * (until - since)))


def _none(params: Any, rows: np.ndarray) -> np.ndarray:
    raise AssertionError("simulated workers train nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started, rows = time.time(), []
    for name, world in WORLDS.items():
        rows.append({"world": name, **simulate(world, arguments.seed)})
        print(lines_of(rows[-1]), flush=True)
    record = {
        "experiment": "scheduler_simulation",
        **describe_run(vars(arguments), time.time() - started),
        "rows": rows,
    }
    name = f"scheduler_simulation-{device_slug()}"
    (arguments.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / f"{name}.md").write_text("\n".join(page(record)) + "\n")


def lines_of(row: dict[str, Any]) -> str:
    return (
        f"| {row['world']} | {row['devices']:,} | {row['chunks']:,} | {row['chunk']:g} s | {row['deaths']:,} "
        f"| {row['busy']:.1%} | {row['ideal']:.1%} | {row['busy_to_the_end']:.1%} "
        f"| {row['chunks_a_second']:.0f} | {row['driver_cpu_seconds']:.0f} s |"
    )


def page(record: dict[str, Any]) -> list[str]:
    """The table, in words."""
    fastest = next(row for row in record["rows"] if not row["chunk"])
    return [
        "# A thousand simulated devices",
        "",
        f"The scheduler is the real one, workers only wait, {FASTER:g} times as fast as the clock says, and die at "
        "random. Busy: the share of the devices' time that went into chunks that were kept, after the first start and "
        "while there are chunks for all; possible: what is left of a device's life after its start and the chunk that "
        "it dies in; to the end: with the last chunks, for which some devices wait. Driver: processor time of the "
        "process that hands over. "
        f"{record['device']}.",
        "",
        "| fleet | devices | chunks | a chunk takes | deaths | busy | possible | to the end | chunks / s | driver |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(lines_of, record["rows"]),
        "",
        f"One process hands over {fastest['chunks_a_second']:.0f} chunks a second, so {fastest['devices']:,} devices "
        f"are kept busy where a chunk takes {fastest['devices'] / fastest['chunks_a_second']:.0f} seconds or more.",
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    worst = max(result["rows"], key=lambda row: row["deaths"])
    return [
        Row(
            "none",
            "A thousand simulated devices",
            "share of the devices' time in chunks that were kept, where a device lives an hour",
            f"{worst['ideal']:.1%} is possible",
            f"{worst['busy']:.1%}, {worst['deaths']:,} deaths",
            "Workers are simulated, the scheduler is not.",
            "",
        )
    ]


if __name__ == "__main__":
    main()
