"""How many models to train side by side: `python -m bench.models_per_batch` sweeps 1, 2, 4, ..., 64.

Promised: with the number that `suitable_models_per_batch` gives, a model-step takes at most 1.2 times as long as with
the best number of the sweep. For each number there is one full chunk for every chunk trained at the same time, by
`fit_many` as it is called, initial weights included; compilation is left out; the numbers take turns in every round.
Some minutes on two cores.
"""

import time
from collections.abc import Sequence
from statistics import median

import jax

from bench.harness import Bench, Claim, Timings, print_table, report
from bench.training import Job, leaving_one_out, mlp
from jaxaudit.ensemble import Execution, fit_many, suitable_models_per_batch
from jaxaudit.ensemble.concurrency import concurrent_chunks

NUMBERS = (1, 2, 4, 8, 16, 32, 64)
UNIT = 1000  # model-steps; timings are seconds for so many
ROUNDS = 3


def seconds_at(job: Job, number: int) -> float:
    """Seconds for 1,000 model-steps with so many models a batch, and as many batches as are trained at a time."""
    part = job.first(number * concurrent_chunks(), job.learner.epochs)
    start = time.perf_counter()
    fit_many(
        *(part.keys, part.membership, part.inputs, part.labels, part.learner),
        execution=Execution(models_per_batch=number),
        summarize=lambda params, rows: jax.tree.leaves(params)[0].reshape(len(rows), -1)[:, :1],
    )
    return UNIT * (time.perf_counter() - start) / part.model_steps


def sweep(job: Job, numbers: Sequence[int] = NUMBERS, rounds: int = ROUNDS) -> Timings:
    """Every number once to compile, then every number in every round, the first one another each time."""
    seconds: dict[str, list[float]] = {label(number): [] for number in numbers}
    for turn in range(rounds + 1):
        for number in [*numbers[turn % len(numbers) :], *numbers[: turn % len(numbers)]]:
            took = seconds_at(job, number)
            if turn:
                seconds[label(number)].append(took)
    return Timings(job.name, seconds)


def judge(job: Job, timings: Timings) -> tuple[Claim, str]:
    """The promise for this job, and what was chosen on what evidence."""
    whole = job.first(len(job.keys), job.learner.epochs)
    number = suitable_models_per_batch(whole.keys, whole.membership, whole.inputs, whole.labels, whole.learner)
    best = min(timings.seconds, key=lambda name: median(timings.seconds[name]))
    chosen = label(number)
    note = f"{job.name}: chose {chosen}; best of the sweep {best}"
    return Claim(f"{job.name}: chosen / best", timings.ratio(chosen, best), 1.2, at_least=False), note


def label(number: int) -> str:
    """What a number of models is called in tables and results."""
    return f"{number} a batch"


def main() -> None:
    models = max(NUMBERS) * concurrent_chunks()
    jobs = [
        mlp(models, epochs=3, examples=400),
        *(leaving_one_out(batch, models, epochs=epochs) for batch, epochs in ((1, 2), (10, 3), (32, 5))),
    ]
    timings = [sweep(job) for job in jobs]
    judged = [judge(job, timing) for job, timing in zip(jobs, timings, strict=True)]
    rows = [
        [str(number), *(f"{1e6 / UNIT * median(timing.seconds[label(number)]):.3g}" for timing in timings)]
        for number in NUMBERS
    ]
    print_table(["microseconds a model-step, models a batch", *(job.name for job in jobs)], rows)
    notes = [f"Times are for {UNIT:,} model-steps.", *(note for _, note in judged)]
    bench = Bench("models_per_batch", timings, [claim for claim, _ in judged], notes)
    report(bench, ["jax", "jaxlib", "flax", "optax", "numpy"])


if __name__ == "__main__":
    main()
