"""Runs `jaxaudit power`: from its options to its result, with a plan of its size."""

from functools import partial
from pathlib import Path

import jax

from jaxaudit.audits.ks.taught import lesson_operations
from jaxaudit.audits.ks.train import Work
from jaxaudit.audits.open_bank import open_bank
from jaxaudit.audits.power.audit import (
    SOURCES,
    PowerModels,
    measure_power,
    power_of_models,
    power_of_scores,
)
from jaxaudit.audits.power.result import PowerAudit
from jaxaudit.cli.ks.effort import models_by_test, planned_sets, reductions
from jaxaudit.cli.ks.inputs import THIRD, Case, with_calibration_set
from jaxaudit.cli.networks import make_shadow_learner, with_defaults
from jaxaudit.cli.options import with_usual
from jaxaudit.cli.power import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.read_sets import (
    calibration_beside,
    read_scores,
    read_sets_of,
    tell_of_large_numbers,
    with_dealt_groups,
)
from jaxaudit.cli.shared_options import named_sets
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data import align_classes, is_image
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.examples import Role, Sets
from jaxaudit.ensemble import Execution
from jaxaudit.learners import SteppedLearner
from jaxaudit.runs.provenance import describe_bank, describe_scores


def train(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with training."""
    given_options = options
    options, whole = _read(options)
    full_work = _work(given_options, options, whole)
    options, sets, plan = planned_sets(
        given_options,
        options,
        whole,
        lambda sets: _work(given_options, options, sets),
        # How much a network remembers is what is measured, so its training stays as it was asked for.
        networks=[(options.model or "", options.hidden or "")],
        learner_of=lambda sets, *_: _learner(options, sets),
        of_tests=_models,
        epochs_last=True,
    )
    work, models = _work(given_options, options, sets), options.models or SHADOW_MODELS

    def audit(execution: Execution) -> PowerAudit:
        measured = measure_power(
            jax.random.key(options.seed),
            sets.query,
            sets.sets[Role.CALIBRATION],
            _learner(options, sets),
            query_size=options.query_size,
            holdout_size=options.holdout_size,
            members_size=options.members_size,
            fraction=options.fraction,
            models=models,
            execution=execution,
        )
        return measured.reduced(tuple(reductions(full_work, work)))

    return Job(
        options=options,
        data=sets.facts,
        hashes=sets.hashes,
        audit=audit,
        outcome=_outcome,
        models=lambda _: models,
        line=f"training {options.model} models on {jax.default_backend()}, {options.epochs} epochs each",
        extra={"plan": dict(plan.numbers) if plan else None},
        # A plan is repeated as it was made: what it leaves out is said again.
        repeats=given_options,
    )


def measure_bank(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with the models of a bank."""
    path = options.shadows or Path()
    bank = load_bank(path)
    models = open_bank(bank)
    return Job(
        options=options,
        data=describe_bank(path, bank, models, {}),
        audit=lambda _: power_of_models(
            models, holdout_size=options.holdout_size, members_size=options.members_size, fraction=options.fraction
        ),
        outcome=_outcome,
        label="measuring",
    )


def measure_scores(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with the models of a table of scores."""
    table = read_scores(options.scores or Path())
    return Job(
        options=options,
        data=describe_scores(table),
        audit=lambda _: power_of_scores(
            jax.random.key(options.seed),
            table,
            query_size=options.query_size,
            holdout_size=options.holdout_size,
            members_size=options.members_size,
            fraction=options.fraction,
        ),
        outcome=_outcome,
        label="measuring",
    )


def _outcome(audit: PowerAudit) -> Outcome:
    return Outcome(audit.result, SOURCES)


def _read(options: PowerOptions) -> tuple[PowerOptions, Case]:
    """The options with defaults, and the whole sets that they name."""
    options = with_usual(with_defaults(options), models=SHADOW_MODELS)
    if options.calibration is not None:
        options = with_dealt_groups(options, options.query or "")
    sets = read_sets_of(named_sets(options), options)
    query, calibration = sets[Role.QUERY], sets.get(Role.CALIBRATION)
    if calibration is None:
        options = with_usual(options, query_size=max(2, len(query) // 3))
        query, calibration = with_calibration_set(jax.random.key(options.seed), query, THIRD)
    else:
        calibration = calibration_beside(align_classes(query, calibration), Sets(query=query))
        options = with_usual(options, query_size=len(query))
    options = with_usual(options, model="liu-cnn" if is_image(query) else "mlp")
    tell_of_large_numbers(options.model, (query.inputs, calibration.inputs))
    return options, Case(Sets(query=query, calibration=calibration))


def _learner(options: PowerOptions, sets: Case) -> SteppedLearner:
    return make_shadow_learner(options, sets.query, sets.records)


def _work(given_options: PowerOptions, options: PowerOptions, sets: Case) -> Work:
    """The training that these options require, on the whole sets."""
    query, calibration = len(sets.query), len(sets.sets[Role.CALIBRATION])
    test = PowerModels(models=options.models or SHADOW_MODELS)
    lightest = test.lighter() if given_options.models is None else test
    return Work(
        query,
        calibration,
        0,
        (),
        query,
        (test,),
        options.epochs or 1,
        options.batch_size,
        lightest=(lightest,),
        lesson=partial(lesson_operations, sets.query),
    )


def _models(_: PowerOptions, work: Work, __: Work) -> dict[str, object]:
    return {"models": sum(models_by_test(work).values())}
