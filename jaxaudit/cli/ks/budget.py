"""`--budget` of `ks`: plans the audit that fits a time limit on this machine, and reports what it reduces."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.ks.plan import Free, Plan, Work, choose, cost_of, least, memory_of, seconds_of, sizes_of
from jaxaudit.audits.ks.tests import HoldoutTest, KSTest, RhoTest
from jaxaudit.audits.pool import Part
from jaxaudit.cli.harness import Summary
from jaxaudit.cli.ks.inputs import AuditInputs
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.networks import mean_cost
from jaxaudit.cli.options import fields_of, with_usual, with_values
from jaxaudit.cli.own_code import source_hashes
from jaxaudit.cli.parsers import parse_time
from jaxaudit.cli.progress import duration, say
from jaxaudit.cli.tuning import (
    facts_of,
    recall_models_per_batch,
    recall_speed,
    remember_models_per_batch,
    remember_speed,
)
from jaxaudit.data import Examples
from jaxaudit.ensemble import Speed, measure_speed
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.metrics.deal import groups_in_sample
from jaxaudit.randomness import generator_of, stream

USUAL = "10m"
SETS = ("query", "calibration", "holdout", "reference")
"""Roles of sets, in the order of `Work.records`."""
TRAINING_SHARE = 0.8
"""Share of the budget for training; the rest is for reading, compiling, judging, and a busier machine."""
FIXED_SECONDS = 15.0
BASE_BYTES = 600 << 20
"""Memory of Python, JAX and compiled programs."""
LIGHTER = {"liu-cnn": (("mlp", "512,256,128"), ("mlp", "128")), "mlp": (("mlp", "128"),)}
"""Replacements for a model that is too slow, the most similar first."""


def parse_budget(text: str | None) -> float | None:
    """As `parse_time`; by default `USUAL` on a CPU, and no limit elsewhere."""
    usual = USUAL if jax.default_backend() == "cpu" else "none"
    return parse_time(usual if text is None else text)


def plan_within(
    budget: float | None,
    given_options: KSOptions,
    options: KSOptions,
    sets: AuditInputs,
    tests: tuple[KSTest, ...],
    learner_of: Callable[[str, str], SteppedLearner],
) -> tuple[KSOptions, Summary]:
    """The options for an audit of at most `budget` seconds (None: no limit), and the plan.

    What is `given_options` on the command line is not changed; `options` are the same with defaults. `learner_of` is
    the learner for a model name and mlp's hidden layers.
    """
    full = _work(options, sets, tests)
    requested_design = (options.model.model or "", options.model.hidden or "")
    lighter = (
        LIGHTER.get(requested_design[0], ())
        if given_options.model.model is None and given_options.model.hidden is None
        else ()
    )
    designs = list(dict.fromkeys([requested_design, *lighter]))
    free = Free(
        records=given_options.data.sample is None,
        epochs=given_options.recipe.epochs is None,
        replicates=given_options.audit.replicates is None,
        shadows=given_options.audit.shadow_models is None and given_options.audit.holdout_shadow_models is None,
    )
    room = float("inf") if budget is None else TRAINING_SHARE * budget - FIXED_SECONDS
    speeds = [lambda design=design: speed_of(design, options, sets.query, learner_of(*design)) for design in designs]
    plan = choose(full, speeds, room, free)
    if plan is None:
        last = speeds[-1]()
        needed = (seconds_of(least(full, last, free), last) + FIXED_SECONDS) / TRAINING_SHARE
        most = f"{int(needed // 60) + 1}m" if needed < 7200 else f"{int(needed // 3600) + 1}h"
        # What a plan could otherwise reduce.
        names = {"sample", "epochs", "replicates", "shadow_models", "holdout_shadow_models", "model", "hidden"}
        by_hand = sorted(
            field.flag for field in fields_of(given_options) if field.name in names and field.value is not None
        )
        raise InputError(
            f"--budget {given_options.audit.budget or USUAL} is too short for these options: the smallest audit takes "
            f"about {duration(needed)}. Give --budget {most} or more, or --budget none, or remove some of "
            f"{', '.join(by_hand) or 'the records'}."
        )
    first = speeds[0]()
    summary = _told(full, plan, designs, seconds_of(full, first), sets, budget)
    return settled(options, plan, full, designs[plan.design]), summary


def settled(options: KSOptions, plan: Plan, full: Work, design: tuple[str, str]) -> KSOptions:
    """The options with the values that the plan chose."""
    work = plan.work
    chosen: dict[str, Any] = {"model": design[0], "hidden": design[1], "epochs": work.epochs}
    if max(work.records) < max(full.records):
        chosen["sample"] = max(work.records)
    for test in work.tests:
        if type(test) is RhoTest:
            chosen["replicates"] = test.replicates
        elif type(test) is HoldoutTest:
            chosen["holdout_shadow_models"] = test.mixed
        elif test.ranks:
            chosen.setdefault("shadow_models", test.references)
    return with_usual(with_values(options, **chosen), models_per_batch=plan.speed.models_per_batch)


def speed_of(design: tuple[str, str], options: Any, query: Examples, learner: SteppedLearner) -> Speed:
    """The training speed of this model on this machine, measured once and then cached.

    The number of models per batch is searched for once per network. For records of another shape it is kept, and only a
    few steps are timed.
    """
    work = facts_of("ks", options, source_hashes(options), query.inputs.shape[1:], len(query.class_names))
    work |= {"model": design[0], "hidden": design[1]}
    speed = recall_speed(work)
    if speed is None:
        number = options.recipe.models_per_batch or recall_models_per_batch(work)
        of_network = {**work, "command": "speed", "record": None, "classes": None}
        near = recall_models_per_batch(of_network)
        how = "measuring how fast" if near is None else "timing a few steps: how fast"
        say(f"{how} {_named(design)} trains on this machine (once; the result is cached)")
        speed = measure_speed(jax.random.key(1), query.inputs, query.labels, learner, number, near)
        remember_speed(work, speed)
        if near is None:
            remember_models_per_batch(of_network, speed.models_per_batch)
        # So that a run without a budget uses the same number of models per batch and gets the same results.
        remember_models_per_batch(work, speed.models_per_batch)
    return speed


def take_records(sets: AuditInputs, records: int | None, key: Any) -> AuditInputs:
    """At most `records` records of each set, drawn at random, and the outputs on them.

    A larger sample contains a smaller one. The sample does not depend on outputs or labels, so query set and holdout
    stay exchangeable if they were. With groups, whole groups are drawn (`groups_in_sample`).
    """
    if records is None:
        return sets
    groups = sets.groups

    def drawn(role: str, examples: Examples, of_records: np.ndarray | None = None) -> np.ndarray:
        generator = generator_of(stream(key, "records", role))
        if groups is None or of_records is None:
            return np.sort(generator.permutation(len(examples))[:records])
        count = groups_in_sample(records, groups.dealt_sets)
        return np.flatnonzero(np.isin(of_records, generator.permutation(np.unique(of_records))[:count]))

    of_sets = {} if groups is None else groups._asdict()
    rows = {role: drawn(role, examples, of_sets.get(role)) for role, examples in sets.sets_by_role.items()}
    taken = {role: examples.take(rows[role]) for role, examples in sets.sets_by_role.items()}
    kept_examples = {id(examples): taken[role] for role, examples in sets.sets_by_role.items()}

    def part(one: Part) -> Part:
        if id(one.examples) not in kept_examples:
            kept_examples[id(one.examples)] = one.examples.take(drawn(one.examples.name, one.examples))
        return one._replace(examples=kept_examples[id(one.examples)])

    none = np.zeros(0, int)
    of_files = {"query set": rows["query"], "reference": rows.get("calibration", none)} | rows
    return sets._replace(
        **taken,
        files=tuple(file.taken(of_files) for file in sets.files),
        simulated=tuple(target._replace(parts=tuple(map(part, target.parts))) for target in sets.simulated),
        groups=None if groups is None else groups.take(rows["query"], rows.get("holdout", none), rows.get("members")),
    )


def _work(options: KSOptions, sets: AuditInputs, tests: tuple[KSTest, ...]) -> Work:
    query = len(sets.query)
    targets = tuple(sum(round(part.fraction * len(part.examples)) for part in one.parts) for one in sets.simulated)
    return Work(
        query=query,
        calibration=len(sets.calibration or ()),
        holdout=0 if sets.holdout is None else len(sets.holdout),
        targets=targets,
        whole=query,
        tests=tests,
        epochs=options.recipe.epochs or 0,
        batch_size=options.recipe.batch_size,
        design_cost=mean_cost(options.audit.designs, options.model, options.recipe, sets.query.inputs.shape[1:]),
        reference=0 if sets.reference is None else len(sets.reference),
    )


def _models_of(work: Work) -> dict[str, int]:
    """The number of models of each test, by title."""
    sizes = work.query, work.calibration, work.reference
    return {test.title: sum(count for count, _ in models) for test, models in sizes_of(work.tests, *sizes)}


def _told(
    full: Work, plan: Plan, designs: list[tuple[str, str]], full_seconds: float, sets: AuditInputs, budget: float | None
) -> Summary:
    work = plan.work
    record_bytes = 4 * int(np.prod(sets.query.inputs.shape[1:]))
    # The sets as read stay in memory beside the sample: as stored, as prepared, and while they are hashed.
    whole = 3 * record_bytes * sum(full.records)
    memory = BASE_BYTES + whole + memory_of(work, plan.speed, record_bytes)
    cost = cost_of(full, work)
    reduced = list(_reduced(full, work, designs[0], designs[plan.design]))
    kinds = {**_models_of(work), "targets": len(work.targets)}
    models = sum(kinds.values())
    # Reductions that change what the shadow models are like; fewer models do not.
    unlike = [reduction for reduction in reduced if not reduction.startswith("models of ")]
    counts_text = ", ".join(f"{count} for {name}" for name, count in kinds.items() if count)
    sizes = zip(SETS, work.records, full.records, strict=True)
    of = [f"{now:,}{f' of {all_:,}' if now < all_ else ''} {name} records" for name, now, all_ in sizes if all_]
    within = "no time limit" if budget is None else f"of a budget of {duration(budget)}"
    lines = [
        f"Plan: {models} models ({counts_text}), {_named(designs[plan.design])}, {work.epochs} epochs",
        f"  data: {', '.join(of)}",
        f"  time: about {duration(plan.seconds + FIXED_SECONDS)}, {within}; memory: about {memory / 2**30:.1f} GiB",
    ]
    if reduced:
        lines += [f"  reduced: {'; '.join(reduced)}"]
        if cost > 1.01:
            lines += [f"  effect: the minimum detectable fraction is about {cost:.1f} times as large"]
        lines += [f"  in full: --budget none, about {duration(full_seconds + FIXED_SECONDS)}"]
    numbers = {
        "budget_seconds": budget,
        "seconds": round(plan.seconds, 1),
        "full_seconds": round(full_seconds, 1),
        "models": models,
        "memory_bytes": memory,
        "reduced": reduced,
        "unlike": unlike,
        "smallest_share_factor": round(cost, 3),
        "seconds_a_model_step": plan.speed.step,
    }
    return Summary(tuple(lines), numbers)


def _reduced(full: Work, work: Work, requested_design: tuple[str, str], design: tuple[str, str]) -> Any:
    if design != requested_design:
        yield f"{_named(design)} instead of {_named(requested_design)} (--model prevents this)"
    for name, before, after in zip(SETS, full.records, work.records, strict=True):
        if after < before:
            yield f"{name} records {before:,} to {after:,}"
    before, after = _models_of(full), _models_of(work)
    for name, count in after.items():
        if count < before[name]:
            yield f"models of {name if name == 'rho' else f'the {name}'} {before[name]} to {count}"
    if work.epochs < full.epochs:
        yield f"epochs {full.epochs} to {work.epochs}"


def _named(design: tuple[str, str]) -> str:
    return f"mlp ({design[1]})" if design[0] == "mlp" else design[0]
