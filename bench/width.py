"""How wide should a chunk be: `python -m bench.width` sweeps widths 1, 2, 4, ..., 64 (some minutes, two cores).

Promised: at the width that `measure_width` picks, a model-step takes at most 1.2 times as long as at the best width of
the sweep. Each width trains as many models as it is wide for every stream (chunks trained at the same time), by
`fit_many` as it is called, initial weights included; compilation is left out; the widths take turns in every round.
"""

import time
from collections.abc import Sequence
from statistics import median

import jax

from bench.harness import Bench, Claim, Timings, print_table, report
from bench.training import Job, leaving_one_out, mlp
from jaxaudit.ensemble import fit_many, measure_width
from jaxaudit.ensemble.streams import streams

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
UNIT = 1000  # model-steps; timings are seconds for so many
ROUNDS = 3
AUDIT_EPOCHS = 50
"""The choice may take a tenth of the training it serves: this much training, for as many models as the widest chunk."""


def seconds_at(job: Job, width: int) -> float:
    """Seconds for 1,000 model-steps at this width, with a chunk for every stream."""
    part = job.first(width * streams(), job.learner.epochs)
    start = time.perf_counter()
    fit_many(
        *(part.keys, part.membership, part.inputs, part.labels, part.learner),
        width=width,
        then=lambda params, rows: jax.tree.leaves(params)[0].reshape(len(rows), -1)[:, :1],
    )
    return UNIT * (time.perf_counter() - start) / part.model_steps


def sweep(job: Job, widths: Sequence[int] = WIDTHS, rounds: int = ROUNDS) -> Timings:
    """Every width once to compile, then every width in every round, the first one another each time."""
    seconds: dict[str, list[float]] = {label(width): [] for width in widths}
    for turn in range(rounds + 1):
        for width in [*widths[turn % len(widths) :], *widths[: turn % len(widths)]]:
            took = seconds_at(job, width)
            if turn:
                seconds[label(width)].append(took)
    return Timings(job.name, seconds)


def judge(job: Job, timings: Timings) -> tuple[Claim, str]:
    """The promise for this job, and what was chosen on what evidence."""
    whole = job.first(len(job.keys), AUDIT_EPOCHS)
    choice = measure_width(whole.keys, whole.membership, whole.inputs, whole.labels, whole.learner)
    best = min(timings.seconds, key=lambda name: median(timings.seconds[name]))
    chosen = label(choice.width)
    tried = ", ".join(f"{width}: {1e6 * seconds:.3g}" for width, seconds in choice.seconds.items())
    note = f"{job.name}: chose {chosen}; best of the sweep {best}; microseconds a model-step when choosing: {tried}"
    return Claim(f"{job.name}: chosen / best width", timings.ratio(chosen, best), 1.2, at_least=False), note


def label(width: int) -> str:
    """The name of a width in tables and results."""
    return f"width {width}"


def main() -> None:
    models = max(WIDTHS) * streams()
    jobs = [
        mlp(models, epochs=3, examples=400),
        *(leaving_one_out(batch, models, epochs=epochs) for batch, epochs in ((1, 2), (10, 3), (32, 5))),
    ]
    timings = [sweep(job) for job in jobs]
    judged = [judge(job, timing) for job, timing in zip(jobs, timings, strict=True)]
    rows = [
        [str(width), *(f"{1e6 / UNIT * median(timing.seconds[label(width)]):.3g}" for timing in timings)]
        for width in WIDTHS
    ]
    print_table(["microseconds a model-step at width", *(job.name for job in jobs)], rows)
    notes = [f"Times are for {UNIT:,} model-steps.", *(note for _, note in judged)]
    bench = Bench("width", timings, [claim for claim, _ in judged], notes)
    report(bench, ["jax", "jaxlib", "flax", "optax", "numpy"])


if __name__ == "__main__":
    main()
