"""Runs `jaxaudit power`: from its options to its result, with a plan of its size."""

from pathlib import Path

import jax

from jaxaudit.audits.open_bank import open_bank
from jaxaudit.audits.power.audit import (
    SOURCES,
    PowerReducible,
    PowerWork,
    choose_power_work,
    measure_power,
    power_of_models,
    power_of_scores,
    power_operations,
    reduced,
)
from jaxaudit.audits.power.result import PowerAudit
from jaxaudit.cli.ks.effort import take_records
from jaxaudit.cli.ks.inputs import THIRD, Case, with_calibration_set
from jaxaudit.cli.networks import (
    PlannedSize,
    lines_of_effort,
    make_shadow_learner,
    numbers_of_effort,
    time_of,
    with_defaults,
)
from jaxaudit.cli.options import with_usual, with_values
from jaxaudit.cli.power import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import (
    group_columns,
    match,
    read_scores,
    reader,
    tell_of_large_numbers,
    text_reader,
    with_dealt_groups,
    with_named_groups,
)
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.cli.show import Job, Outcome, Summary
from jaxaudit.data import is_image
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.groups import groups_by_role, hash_of_groups
from jaxaudit.ensemble import Execution, count_step, usual_models_per_batch
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_bank, describe_examples, describe_scores


def train(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with training."""
    given_options = options
    options, whole = _read(options)
    key = jax.random.key(options.audit.seed)
    sets, plan = take_records(whole, options.data.sample, key), None
    full_work = _work(options, whole)
    in_full = options.audit.effort == "full"
    if not in_full or options.recipe.models_per_batch is None:
        options, summary = plan_power(given_options, options, sets)
        plan = None if in_full else summary
        for line in () if plan is None else plan.lines:
            say(line)
        sets = take_records(whole, options.data.sample, key)
    work = _work(options, sets)

    def audit(execution: Execution) -> PowerAudit:
        return measure_power(
            key,
            sets.query,
            sets.sets[Role.CALIBRATION],
            _learner(options, sets),
            **vars(options.sizes),
            fraction=options.audit.fraction,
            models=work.models,
            reduced=reduced(full_work, work),
            execution=execution,
        )

    groups = groups_by_role(sets.sets)
    hashes = {role.value: examples.content_hash for role, examples in sets.sets.items()}
    return Job(
        options=options,
        data={role.value: describe_examples(examples) for role, examples in sets.sets.items()},
        hashes={**hashes, "groups": hash_of_groups(groups)} if groups else hashes,
        audit=audit,
        outcome=_outcome,
        models=lambda _: work.models,
        line=f"training {options.model.model} models on {jax.default_backend()}, {options.recipe.epochs} epochs each",
        extra={"plan": None if plan is None else dict(plan.numbers)},
        # A plan is repeated as it was made: what it leaves out is said again.
        repeats=given_options,
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
    table = read_scores(options.audit.scores or Path())
    return Job(
        options=options,
        data=describe_scores(table),
        audit=lambda _: power_of_scores(
            jax.random.key(options.audit.seed),
            table,
            **vars(options.sizes),
            fraction=options.audit.fraction,
        ),
        outcome=_outcome,
        label="measuring",
    )


def _outcome(audit: PowerAudit, provenance: Provenance) -> Outcome:
    return Outcome(recorded("power", audit.result, SOURCES, provenance), {}, {})


def _read(options: PowerOptions) -> tuple[PowerOptions, Case]:
    """The options with defaults, and the whole sets that they name."""
    options = with_usual(with_defaults(options), models=SHADOW_MODELS)
    data, model = options.data, options.model
    if data.calibration is not None:
        options = with_dealt_groups(options, data.query or "")
        data = options.data
    texts = text_reader([data.query or "", data.calibration or ""], model, make_adapters(model))
    read = texts or reader(data, group_columns(data.groups))
    if data.calibration is None:
        whole = read(data.query or "")
        options = with_usual(options, query_size=max(2, len(whole) // 3))
        query, calibration = with_calibration_set(jax.random.key(options.audit.seed), whole, THIRD)
    else:
        query = read(data.query or "")
        calibration = match(query, read(data.calibration), drop_shared=data.drop_overlap)
        options = with_usual(options, query_size=len(query))
    options = with_usual(options, model="liu-cnn" if is_image(query) else "mlp")
    tell_of_large_numbers(options.model.model, (query.inputs, calibration.inputs))
    sets = Sets(query=query, calibration=calibration)
    return options, Case(with_named_groups(sets, data.groups, Sets(query=data.query or "")))


def _learner(options: PowerOptions, sets: Case) -> SteppedLearner:
    return make_shadow_learner(options.model, options.recipe, sets.query, sets.records)


def _work(options: PowerOptions, sets: Case) -> PowerWork:
    """The training that these options require, on the whole sets."""
    models, epochs = options.audit.models or SHADOW_MODELS, options.recipe.epochs or 1
    return PowerWork(len(sets.query), len(sets.sets[Role.CALIBRATION]), models, epochs, options.recipe.batch_size)


def plan_power(given_options: PowerOptions, options: PowerOptions, sets: Case) -> tuple[PowerOptions, Summary]:
    """The options for a measurement of this effort, and the plan, as for `ks`."""
    full, learner = _work(options, sets), _learner(options, sets)
    cost = count_step(learner, sets.query.inputs, sets.query.labels)
    free = PowerReducible(
        models=given_options.audit.models is None,
        records=given_options.data.sample is None,
        epochs=given_options.recipe.epochs is None,
    )

    effort, number = options.audit.effort, options.recipe.models_per_batch or usual_models_per_batch(learner, cost)
    work = choose_power_work(full, cost, effort, free)
    fewer = {"sample": max(work[:2])} if work[:2] != full[:2] else {}
    planned = with_values(options, epochs=work.epochs, models=work.models, models_per_batch=number, **fewer)
    reached, in_full = PlannedSize(power_operations(work, cost), reduced(full, work)), power_operations(full, cost)
    lines = [
        f"Plan: {work.models} models, {work.query:,} query records, {work.calibration:,} calibration records, "
        f"{work.epochs} epochs",
        f"  time: {time_of(reached.operations, cost)}",
        *lines_of_effort(reached, in_full, cost),
    ]
    return planned, Summary(tuple(lines), {**numbers_of_effort(effort, reached, in_full, cost), "models": work.models})
