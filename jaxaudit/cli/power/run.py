"""Runs `jaxaudit power`: from its options to its result, with a plan that fits a time limit on this machine."""

from pathlib import Path
from typing import Any

import jax

from jaxaudit.audits.ks.models import Design
from jaxaudit.audits.open_bank import open_bank
from jaxaudit.audits.power.audit import SOURCES, measure_power, power_of_models
from jaxaudit.audits.power.plan import (
    PowerReducible,
    PowerWork,
    TrainingPace,
    choose_power_work,
    least_power_work,
    power_seconds,
    reduced,
)
from jaxaudit.audits.power.result import PowerAudit
from jaxaudit.audits.power.scores import power_of_scores
from jaxaudit.cli.harness import Job, Outcome, Summary
from jaxaudit.cli.ks.budget import FIXED_SECONDS, TRAINING_SHARE, USUAL, parse_budget, speed_of, take_records
from jaxaudit.cli.ks.inputs import AuditInputs
from jaxaudit.cli.networks import make_designs, make_shadow_learner, mean_cost, with_defaults
from jaxaudit.cli.options import with_usual, with_values
from jaxaudit.cli.own_code import source_hashes
from jaxaudit.cli.power.command import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.progress import duration, say
from jaxaudit.cli.read_sets import read_groups, read_sets, reader, tell_of_large_numbers, text_reader
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.cli.score_table import read_scores
from jaxaudit.cli.tuning import facts_of, recall_models_per_batch, remember_models_per_batch
from jaxaudit.data import is_image
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.groups import as_groups, groups_file
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_bank, describe_examples, describe_scores


def train(options: PowerOptions) -> Job[PowerAudit] | Summary:
    """The work for these options with training; for a dry run without workers, only the plan."""
    given_options, seconds = options, parse_budget(options.audit.budget)
    options, whole = _read(options)
    key = jax.random.key(options.audit.seed)
    sets, plan = take_records(whole, options.data.sample, key), None
    full_work = _work(options, whole)
    if seconds is not None or options.recipe.dry_run:
        options, plan = plan_power_within(seconds, given_options, options, sets)
        if options.recipe.dry_run and not options.recipe.spread:
            return plan
        for line in plan.lines:
            say(line)
        sets = take_records(whole, options.data.sample, key)
    # The plan is now part of the options, so that the command that repeats the run plans nothing.
    options, work, calibration = with_values(options, budget="none"), _work(options, sets), sets.calibration
    assert calibration is not None

    def audit(execution: Execution) -> PowerAudit:
        return measure_power(
            key,
            sets.query,
            calibration,
            _learner(options, sets),
            designs=_designs(options, sets),
            groups=sets.groups and sets.groups.query,
            query_size=len(whole.query),
            holdout_size=options.sizes.holdout_size,
            members_size=options.sizes.members_size,
            fraction=options.audit.fraction,
            models=work.models,
            reduced=reduced(full_work, work),
            execution=execution,
        )

    hashes = {name: examples.content_hash for name, examples in sets.sets_by_role.items()}
    return Job(
        options=options,
        data={name: describe_examples(examples) for name, examples in sets.sets_by_role.items()},
        hashes=hashes if sets.groups is None else {**hashes, "groups": sets.groups.content_hash},
        audit=audit,
        outcome=_outcome,
        models=lambda _: work.models,
        line=f"training {options.model.model} models on {jax.default_backend()}, {options.recipe.duration}",
        record_shape=sets.query.inputs.shape[1:],
        classes=len(sets.query.class_names),
        extra={"plan": None if plan is None else dict(plan.numbers)},
    )


def measure_bank(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with the models of a bank."""
    path, sizes = options.audit.shadows or Path(), options.sizes
    bank = load_bank(path)
    models = open_bank(bank)
    return Job(
        options=options,
        data=describe_bank(path, bank, {}, len(models), models.content_hash),
        audit=lambda _: power_of_models(
            models, holdout_size=sizes.holdout_size, members_size=sizes.members_size, fraction=options.audit.fraction
        ),
        outcome=_outcome,
        label="measuring",
    )


def measure_scores(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with the models of a table of scores."""
    table, sizes = read_scores(options.audit.scores or Path()), options.sizes
    return Job(
        options=options,
        data=describe_scores(table),
        audit=lambda _: power_of_scores(
            jax.random.key(options.audit.seed),
            table,
            query_size=sizes.query_size,
            holdout_size=sizes.holdout_size,
            members_size=sizes.members_size,
            fraction=options.audit.fraction,
        ),
        outcome=_outcome,
        label="measuring",
    )


def _outcome(audit: PowerAudit, provenance: Provenance) -> Outcome:
    return Outcome(recorded("power", audit.result, SOURCES, provenance), {}, {})


def _read(options: PowerOptions) -> tuple[PowerOptions, AuditInputs]:
    """The options with defaults, and the whole sets that they name."""
    options = with_usual(with_defaults(options), holdout_shadow_models=SHADOW_MODELS)
    data, model = options.data, options.model
    # A column with groups is not an input.
    by_column = data.groups is not None and groups_file(data.groups) is None
    texts = text_reader([data.query or "", data.calibration or ""], model, make_adapters(model))
    query, calibration, _ = read_sets(data, texts or reader(data, [data.groups or ""] if by_column else []))
    options = with_usual(options, model="liu-cnn" if is_image(query) else "mlp")
    tell_of_large_numbers(options.model.model, (query.inputs, calibration.inputs))
    groups = None
    if data.groups is not None:
        values = read_groups(data.groups, data.query or "", len(query), "query set", data.data_dir)
        groups = as_groups(values, values[:0])
    return options, AuditInputs(query, calibration, None, groups=groups)


def _learner(options: PowerOptions, sets: AuditInputs) -> SteppedLearner:
    return make_shadow_learner(options.model, options.recipe, sets.query, sets.records)


def _designs(options: PowerOptions, sets: AuditInputs) -> tuple[Design, ...]:
    return make_designs(options.audit.designs, options.model, options.recipe, sets.query, sets.records)


def _work(options: PowerOptions, sets: AuditInputs) -> PowerWork:
    """The training that these options require, on the whole sets."""
    models, epochs = options.audit.holdout_shadow_models or SHADOW_MODELS, options.recipe.epochs or 1
    return PowerWork(len(sets.query), len(sets.calibration or ()), models, epochs)


def plan_power_within(
    budget: float | None, given_options: PowerOptions, options: PowerOptions, sets: AuditInputs
) -> tuple[PowerOptions, Summary]:
    """The options for a measurement of at most `budget` seconds (None: no limit), and the plan, as for `ks`."""
    work, pace = _work(options, sets), _pace(options, sets)
    free = PowerReducible(
        models=given_options.audit.holdout_shadow_models is None,
        records=given_options.data.sample is None,
        epochs=given_options.recipe.epochs is None,
    )
    room = float("inf") if budget is None else TRAINING_SHARE * budget - FIXED_SECONDS
    chosen = choose_power_work(work, pace, room, free)
    if chosen is None:
        needed = (power_seconds(least_power_work(work, free), pace) + FIXED_SECONDS) / TRAINING_SHARE
        raise InputError(
            f"--budget {given_options.audit.budget or USUAL} is too short for these options: the smallest measurement "
            "takes "
            f"about {duration(needed)}. Give --budget {int(needed // 60) + 1}m or more, or --budget none, or fewer of "
            "--holdout-shadow-models, --sample and --epochs."
        )
    fewer = {"sample": max(chosen[:2])} if chosen[:2] != work[:2] else {}
    planned = with_values(options, epochs=chosen.epochs, holdout_shadow_models=chosen.models, **fewer)
    return planned, _told(work, chosen, pace, budget)


def _pace(options: PowerOptions, sets: AuditInputs) -> TrainingPace:
    """The training speed on this machine, measured once as for `ks`."""
    model, recipe, query, shape = options.model, options.recipe, sets.query, sets.query.inputs.shape[1:]
    learners = 1 + len(_designs(options, sets))
    speed = speed_of((model.model or "", model.hidden or ""), options, query, _learner(options, sets))
    facts = facts_of("power", options, source_hashes(options), shape, len(query.class_names))
    number = recipe.models_per_batch or recall_models_per_batch(facts)
    if number is None:
        # So that a run without a budget uses the same number of models per batch and gets the same results.
        number = speed.models_per_batch
        remember_models_per_batch(facts, number)
    cost = mean_cost(options.audit.designs, model, recipe, shape)
    return TrainingPace(speed._replace(models_per_batch=number), recipe.batch_size, learners, cost)


def _told(full: PowerWork, work: PowerWork, pace: TrainingPace, budget: float | None) -> Summary:
    seconds, whole = (power_seconds(part_of_plan, pace) + FIXED_SECONDS for part_of_plan in (work, full))
    less = reduced(full, work)
    within = "no time limit" if budget is None else f"of a budget of {duration(budget)}"
    lines = [
        f"Plan: {work.models} models, {work.query:,} query records, {work.calibration:,} calibration records, "
        f"{work.epochs} epochs",
        f"  time: about {duration(seconds)}, {within}",
    ]
    if less:
        lines += [f"  reduced: {'; '.join(less)}", f"  in full: --budget none, about {duration(whole)}"]
    numbers: dict[str, Any] = {
        "budget_seconds": budget,
        "seconds": round(seconds, 1),
        "full_seconds": round(whole, 1),
        "models": work.models,
        "reduced": list(less),
        "seconds_a_model_step": pace.speed.step,
    }
    return Summary(tuple(lines), numbers)
