"""The whole path of a PDTP audit against a PyTorch loop, and how its cost grows: `python -m bench.pdtp` (7 minutes).

Promised, on two CPU cores: the leave-one-out models of 1,000 records for an 836-64-10 network, 30 epochs, 20 times as
fast as a PyTorch loop that trains one model after another at batch size 1, and 8 times at 10; time in proportion to the
number of models, and memory that does not grow with it; every one of 1,600,000 census-like records by naive Bayes in
under 5 seconds and 2 GiB.

`leave_out` is timed as a first call is: choosing the models a batch and compiling count, and so do the model with all
records and what each model says of its record. PyTorch trains 3 of the models whole, before and after; its time for all
is extrapolated from each. With `--records N` only N of the 1,000 records are left out, and the notes say so. The cost
for 50 to 800 records (batch size 10, 3 epochs, 32 models a batch, compiled before) and that of naive Bayes are each
taken in a fresh process, so that the largest resident set is theirs alone, Python and its libraries included.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from bench.harness import Bench, Claim, Spread, Timings, report
from bench.training import CLASSES, leaving_one_out
from jaxaudit.audits.left_out import leave_out, models_trained
from jaxaudit.data import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.learners import naive_bayes
from jaxaudit.metrics.pdtp import pdtp

RECORDS, EPOCHS, TORCH_MODELS = 1000, 30, 3
FEW_EPOCHS, MODELS_PER_BATCH = 3, 32
POINTS = (50, 100, 200, 400, 800)
PEOPLE, REPETITIONS = 1_600_000, 4


class Cost(NamedTuple):
    """Seconds of each repetition, and the process's largest resident set in bytes."""

    seconds: list[float]
    peak: int


def training_set(batch_size: int, epochs: int) -> tuple[Examples, Any]:
    """1,000 records and the 836-64-10 network."""
    job = leaving_one_out(batch_size, 1, epochs)
    names = tuple(str(label) for label in range(CLASSES))
    return Examples(job.inputs, job.labels, names, "1,000 records"), job.learner


def whole_audit(batch_size: int, records: int) -> float:
    """Seconds from records to PDTP, the first time."""
    examples, learner = training_set(batch_size, EPOCHS)
    start = time.perf_counter()
    left = leave_out(jax.random.key(1), examples, learner, np.arange(records))
    pdtp(left.with_record, left.without_record)
    return time.perf_counter() - start


def torch_loop(batch_size: int) -> list[float]:
    """Seconds of each of some whole models that a PyTorch loop trains without one record, and asks of it."""
    # Imported here, or it would be part of the other processes' memory.
    import torch

    from bench.fit_many import PLAIN, gradient_descent, shuffled, torch_pool, torch_tanh, train_torch

    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    job = leaving_one_out(batch_size, TORCH_MODELS, EPOCHS)
    inputs, labels = torch_pool(job)
    warm = replace(job, learner=replace(job.learner, epochs=1))
    train_torch([torch_tanh()], gradient_descent()[PLAIN], inputs, labels, lambda model: shuffled(warm, model))
    seconds = []
    for left in range(TORCH_MODELS):
        start, net = time.perf_counter(), torch_tanh()
        train_torch([net], gradient_descent()[PLAIN], inputs, labels, lambda _, left=left: shuffled(job, left))
        with torch.no_grad():
            torch.log_softmax(net(inputs[left : left + 1]), dim=1)
        seconds.append(time.perf_counter() - start)
    return seconds


def some_records(count: int) -> Cost:
    """What it takes to leave out so many of 1,000 records."""
    examples, learner = training_set(10, FEW_EPOCHS)

    def leave(records: int) -> float:
        start = time.perf_counter()
        leave_out(
            jax.random.key(1),
            examples,
            learner,
            np.arange(records),
            execution=Execution(models_per_batch=MODELS_PER_BATCH),
        )
        return time.perf_counter() - start

    leave(MODELS_PER_BATCH)
    return Cost([leave(count) for _ in range(3)], peak_bytes())


def many_people() -> Cost:
    """What it takes to measure each of 1.6 million people by naive Bayes, on average, the first time included."""
    from bench.naive_bayes import CATEGORIES, census

    examples = Examples(*census(PEOPLE), ("<=50K", ">50K"), "people")
    learner, start = naive_bayes(CATEGORIES, classes=2), time.perf_counter()
    for _ in range(REPETITIONS):
        left = leave_out(jax.random.key(1), examples, learner, np.arange(PEOPLE))
        pdtp(left.with_record, left.without_record)
    return Cost([(time.perf_counter() - start) / REPETITIONS], peak_bytes())


def peak_bytes() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def afresh(work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        return fresh.apply(work, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help="of the 1,000, how many to leave out")
    records = parser.parse_args().records

    people = afresh(many_people)
    points = {count: afresh(some_records, count) for count in POINTS}
    timings, claims, notes = [], [], []
    for batch_size, bound in ((1, 20), (10, 8)):
        before = afresh(torch_loop, batch_size)
        ours = afresh(whole_audit, batch_size, records)
        each = before + afresh(torch_loop, batch_size)
        loop = [records * seconds for seconds in each]
        case = f"leave out {records:,} of {RECORDS:,}, batch {batch_size}"
        timings.append(Timings(case, {"jaxaudit": [ours], "pytorch (extrapolated)": loop}))
        ratio = Spread.of([seconds / ours for seconds in loop])
        claims.append(Claim(f"batch {batch_size}: pytorch (extrapolated) / jaxaudit", ratio, bound))
        notes.append(
            f"batch {batch_size}, {EPOCHS} epochs: {records:,} of {RECORDS:,} records left out in {ours:.1f} s; "
            f"PyTorch trained {len(each)} whole models in {sum(each):.1f} s, all {records:,} would take "
            f"{np.median(loop) / 60:.0f} minutes"
        )
    for count, cost in points.items():
        timings.append(Timings(f"leave out {count} of {RECORDS:,}, {FEW_EPOCHS} epochs", {"jaxaudit": cost.seconds}))
        trained = models_trained(count, MODELS_PER_BATCH)
        notes.append(
            f"{count} records left out: {trained} models, {1000 * np.median(cost.seconds) / trained:.2f} ms a model, "
            f"peak {cost.peak / 2**20:.0f} MiB"
        )
    few, most = POINTS[1], POINTS[-1]
    each = {
        count: [s / models_trained(count, MODELS_PER_BATCH) for s in points[count].seconds] for count in (few, most)
    }
    per_model = Spread.of([mine / theirs for mine, theirs in zip(each[most], each[few], strict=True)])
    timings.append(Timings(f"{PEOPLE:,} records, naive Bayes", {"jaxaudit": people.seconds}))
    claims += [
        Claim(f"seconds a model, of {most} records / of {few}", per_model, 1.25, at_least=False),
        Claim(
            f"peak memory, of {most} records / of {POINTS[0]}",
            Spread.of([points[most].peak / points[POINTS[0]].peak]),
            1.1,
            at_least=False,
        ),
        Claim(f"seconds for {PEOPLE:,} records", Spread.of(people.seconds), 5, at_least=False),
        Claim(f"peak GiB for {PEOPLE:,} records", Spread.of([people.peak / 2**30]), 2, at_least=False),
    ]
    notes.append("models trained are the records, filled up to whole chunks, and one chunk for the model with all")
    path = report(
        Bench("pdtp", timings, claims, notes),
        ["jax", "jaxlib", "flax", "optax", "numpy", "torch"],
    )
    draw(points, path.with_suffix(".png"))


def draw(points: dict[int, Cost], path: Any) -> None:
    """Time and memory against the number of models."""
    from matplotlib.figure import Figure

    models = [models_trained(count, MODELS_PER_BATCH) for count in points]
    seconds = [float(np.median(cost.seconds)) for cost in points.values()]
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    time_axis, memory_axis = figure.subplots(1, 2)
    slope = float(np.dot(models, seconds) / np.dot(models, models))
    time_axis.plot([0, models[-1]], [0, slope * models[-1]], color="#999999", linewidth=1, label="a line through 0")
    time_axis.plot(models, seconds, "o", color="#1f5f8b", label="measured")
    time_axis.set_ylabel("seconds")
    memory_axis.plot(models, [cost.peak / 2**20 for cost in points.values()], "o-", color="#1f5f8b")
    memory_axis.set_ylabel("peak memory, MiB")
    time_axis.legend(frameon=False)
    for axis in (time_axis, memory_axis):
        axis.set_xlabel("models trained")
        axis.set_xlim(left=0)
        axis.set_ylim(0, 1.2 * axis.get_ylim()[1])
        axis.grid(color="#e4e4e4", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
