"""`--budget`: what a `ks` audit can do in so much time on this machine, and what that leaves out."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaudit.audits.ks.models import Shadows
from jaxaudit.audits.ks.plan import Free, Plan, Work, choose, cost_of, least, memory_of, seconds_of
from jaxaudit.audits.pool import Part
from jaxaudit.cli.ks.inputs import Given
from jaxaudit.cli.progress import duration, say
from jaxaudit.cli.repeat import Options
from jaxaudit.cli.widths import recall_speed, recall_width, remember_speed, remember_width
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.ensemble import Speed, measure_speed
from jaxaudit.ensemble.streams import streams
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkLearner
from jaxaudit.randomness import generator_of, stream

USUAL = "10m"
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
TRAINING_SHARE = 0.8
"""Of the budget; the rest is for reading, compiling, judging, and a machine busier than when it was measured."""
FIXED_SECONDS = 15.0
SHORTEST = 60.0
BASE_BYTES = 600 << 20
"""Python, JAX and the programs it compiles."""
LIGHTER = {"liu-cnn": (("mlp", "512,256,128"), ("mlp", "128")), "mlp": (("mlp", "128"),)}
"""What is trained where a design is too slow, the nearest first."""


class Planned(NamedTuple):
    """A plan, in numbers for the result and in lines for a person."""

    numbers: dict[str, Any]
    lines: list[str]


def parse_budget(text: str | None) -> float | None:
    """Seconds, from `10m`; None for `none`, and where nothing was said on anything but a CPU.

    >>> parse_budget("90s"), parse_budget("1.5h"), parse_budget("none")
    (90.0, 5400.0, None)
    """
    if text is None:
        text = USUAL if jax.default_backend() == "cpu" else "none"
    if text == "none":
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhd])", text.strip().lower())
    if match is None:
        raise InputError(
            f"--budget {text} is not a length of time: write a number and s, m, h or d, such as 10m, or none."
        )
    seconds = float(match[1]) * UNITS[match[2]]
    if seconds < SHORTEST:
        raise InputError(f"--budget {text} is too short for any audit: give at least {SHORTEST:.0f}s.")
    return seconds


def plan_within(
    budget: float | None,
    options: Options,
    by_hand: set[str],
    sets: Given,
    shadows: Shadows,
    learner_of: Callable[[str, str], NetworkLearner],
) -> Planned:
    """Settles the options so that the audit takes at most `budget` seconds; what was given by hand stands.

    Args:
        budget: seconds, all in all; None for all the time it takes.
        options: as on the command line, with their defaults; the plan's are written into it.
        by_hand: the names of those that were given.
        sets: what was read.
        shadows: the shadow models that the options ask for.
        learner_of: the learner of a design: its name, and mlp's hidden layers.

    Raises:
        InputError: where the options given by hand leave no audit that fits.
    """
    full = _work(options, sets, shadows)
    wanted = (options["model"], options["hidden"])
    designs = [wanted, *(() if by_hand & {"model", "hidden"} else LIGHTER.get(options["model"], ()))]
    designs = list(dict.fromkeys(designs))
    free = Free(
        records="records" not in by_hand,
        epochs="epochs" not in by_hand,
        replicates="replicates" not in by_hand,
        shadows=not by_hand & {"shadows", "holdout_shadows"},
    )
    room = float("inf") if budget is None else TRAINING_SHARE * budget - FIXED_SECONDS
    speeds = [lambda design=design: speed_of(design, options, sets.query, learner_of(*design)) for design in designs]
    plan = choose(full, speeds, room, free)
    if plan is None:
        last = speeds[-1]()
        needed = (seconds_of(least(full, last, free), last) + FIXED_SECONDS) / TRAINING_SHARE
        raise InputError(
            f"--budget {options['budget'] or USUAL} is too short for these options: the smallest audit takes about "
            f"{duration(needed)}. Give --budget {_rounded_up(needed)} or more, or --budget none, or leave out some of "
            f"{', '.join('--' + name.replace('_', '-') for name in sorted(by_hand & REDUCED)) or 'the records'}."
        )
    first = speeds[0]()
    told = _told(options, full, plan, designs, seconds_of(full, first), sets, budget)
    model, hidden = designs[plan.design]
    work = plan.work
    records = max(work.query, work.calibration, work.holdout)
    fewer = records < max(full.query, full.calibration, full.holdout)
    options |= {"model": model, "hidden": hidden, "epochs": work.epochs, "replicates": work.replicates}
    options |= {"records": records if fewer else options["records"], "width": options["width"] or plan.speed.width}
    if work.shadows != full.shadows:
        options |= {"shadows": work.shadows.never or options["shadows"]}
        options |= {"holdout_shadows": work.shadows.mixed or options["holdout_shadows"]}
    return told


REDUCED = {"records", "epochs", "replicates", "shadows", "holdout_shadows", "model", "hidden"}
"""The options that a plan may settle."""


def speed_of(design: tuple[str, str], options: Options, query: Examples, learner: NetworkLearner) -> Speed:
    """How fast this design trains here: measured once a machine, then remembered."""
    names = ("batch_size", "optimizer", "width")
    work = {"model": design[0], "hidden": design[1], **{name: options[name] for name in names}}
    work |= {"shape": query.inputs.shape, "classes": len(query.class_names)}
    known = recall_speed(work)
    if known is None:
        say(f"measuring how fast {_named(design)} trains here (once; it is remembered)")
        width = options["width"] or recall_width(work)
        known = measure_speed(jax.random.key(1), query.inputs, query.labels, learner, width)
        remember_speed(work, known)
        # A run without a budget trains at the same width, and so gets the same numbers.
        remember_width(work, known.width)
    return known


def take_records(sets: Given, records: int | None, key: Any) -> Given:
    """At most so many records of each set, drawn at random, and the outputs on just these.

    A longer draw holds the records of a shorter one. Neither outputs nor labels decide what is drawn, so a holdout is
    as much like the query set as before.
    """
    if records is None:
        return sets

    def drawn(examples: Examples, role: str) -> np.ndarray:
        order = generator_of(stream(key, "records", role)).permutation(len(examples))
        return np.sort(order[:records])

    def rows(files: list[Outputs], chosen: np.ndarray) -> list[Outputs]:
        return [file.take(chosen) for file in files]

    query, calibration = drawn(sets.query, "query"), drawn(sets.calibration, "calibration")
    held = None if sets.holdout is None else drawn(sets.holdout, "holdout")
    taken = {id(sets.query): sets.query.take(query), id(sets.calibration): sets.calibration.take(calibration)}

    def part(one: Part) -> Part:
        if id(one.examples) not in taken:
            taken[id(one.examples)] = one.examples.take(drawn(one.examples, one.examples.name))
        return one._replace(examples=taken[id(one.examples)])

    return Given(
        query=taken[id(sets.query)],
        calibration=taken[id(sets.calibration)],
        holdout=None if sets.holdout is None or held is None else sets.holdout.take(held),
        outputs=rows(sets.outputs, query),
        on_holdout=[] if held is None else rows(sets.on_holdout, held),
        simulated=tuple(target._replace(parts=tuple(map(part, target.parts))) for target in sets.simulated),
    )


def _work(options: Options, sets: Given, shadows: Shadows) -> Work:
    query = len(sets.query)
    targets = tuple(sum(round(part.fraction * len(part.examples)) for part in one.parts) for one in sets.simulated)
    return Work(
        query=query,
        calibration=len(sets.calibration),
        holdout=0 if sets.holdout is None else len(sets.holdout),
        targets=targets,
        whole=query,
        replicates=options["replicates"],
        controls=options["controls"],
        subsample=options["subsample"],
        shadows=shadows,
        epochs=options["epochs"],
        batch_size=options["batch_size"],
    )


def _told(
    options: Options,
    full: Work,
    plan: Plan,
    designs: list[tuple[str, str]],
    full_seconds: float,
    sets: Given,
    budget: float | None,
) -> Planned:
    work = plan.work
    record_bytes = 4 * int(np.prod(sets.query.inputs.shape[1:]))
    # What was read stays beside what is taken of it: as stored, as prepared, and while it is hashed.
    whole = 3 * record_bytes * (full.query + full.calibration + full.holdout)
    memory = BASE_BYTES + whole + memory_of(work, plan.speed, record_bytes, streams())
    cost = cost_of(full, work)
    reduced = list(_reduced(full, work, designs[0], designs[plan.design]))
    kinds = {
        "rho": 2 * work.replicates + work.controls,
        "shadow test": sum(work.shadows[:3]),
        "holdout test": work.shadows.mixed,
        "targets": len(work.targets),
    }
    models = sum(kinds.values())
    each = ", ".join(f"{count} for {name}" for name, count in kinds.items() if count)
    sizes = [(work.query, full.query, "query"), (work.calibration, full.calibration, "calibration")]
    sizes += [(work.holdout, full.holdout, "holdout")] if full.holdout else []
    of = [f"{now:,}{f' of {all_:,}' if now < all_ else ''} {name} records" for now, all_, name in sizes]
    within = "without a limit" if budget is None else f"of a budget of {duration(budget)}"
    lines = [
        f"Plan: {models} models ({each}), {_named(designs[plan.design])}, {work.epochs} epochs",
        f"  data: {', '.join(of)}",
        f"  time: about {duration(plan.seconds + FIXED_SECONDS)}, {within}; memory: about {memory / 2**30:.1f} GiB",
    ]
    if reduced:
        lines += [f"  reduced: {'; '.join(reduced)}"]
        if cost > 1.01:
            lines += [f"  cost: the smallest share of use that is noticed is about {cost:.1f} times as large"]
        lines += [f"  in full: --budget none, about {duration(full_seconds + FIXED_SECONDS)}"]
    numbers = {
        "budget_seconds": budget,
        "seconds": round(plan.seconds, 1),
        "full_seconds": round(full_seconds, 1),
        "models": models,
        "memory_bytes": memory,
        "reduced": reduced,
        "smallest_share_factor": round(cost, 3),
        "seconds_a_model_step": plan.speed.step,
    }
    return Planned(numbers, lines)


def _reduced(full: Work, work: Work, wanted: tuple[str, str], design: tuple[str, str]) -> Any:
    if design != wanted:
        yield f"{_named(design)} instead of {_named(wanted)} (--model keeps it)"
    for name in ("query", "calibration", "holdout"):
        before, after = getattr(full, name), getattr(work, name)
        if after < before:
            yield f"{name} records {before:,} to {after:,}"
    if work.shadows != full.shadows:
        yield f"shadow models {sum(full.shadows)} to {sum(work.shadows)}"
    if work.replicates != full.replicates:
        yield f"replicates of rho {full.replicates} to {work.replicates}"
    if work.epochs < full.epochs:
        yield f"epochs {full.epochs} to {work.epochs}"


def _named(design: tuple[str, str]) -> str:
    return f"mlp ({design[1]})" if design[0] == "mlp" else design[0]


def _rounded_up(seconds: float) -> str:
    return f"{int(seconds // 60) + 1}m" if seconds < 7200 else f"{int(seconds // 3600) + 1}h"
