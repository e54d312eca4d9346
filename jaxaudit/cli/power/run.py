"""Runs `jaxaudit power`: from its options to its result."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key, Shaped

from jaxaudit.audits.ks.models import Design
from jaxaudit.audits.open_bank import open_bank
from jaxaudit.audits.power.audit import SOURCES, measure_power, power_of_models
from jaxaudit.audits.power.plan import reduced
from jaxaudit.audits.power.result import PowerAudit
from jaxaudit.audits.power.scores import power_of_scores
from jaxaudit.cli.harness import Job, Outcome, Summary
from jaxaudit.cli.ks.budget import parse_budget
from jaxaudit.cli.networks import make_designs, make_shadow_learner, with_defaults
from jaxaudit.cli.power.budget import plan_within, work_of
from jaxaudit.cli.power.command import SHADOW_MODELS, PowerOptions
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import read_sets, reader, tell_of_large_numbers
from jaxaudit.cli.read_texts import read_groups, text_reader
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.data import Examples, is_image
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.groups import as_groups, groups_file
from jaxaudit.data.scores.reading import load_scores
from jaxaudit.ensemble import Execution
from jaxaudit.learners import SteppedLearner
from jaxaudit.metrics.deal import groups_in_sample
from jaxaudit.randomness import generator_of, stream
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_bank, describe_examples, describe_scores


class PowerInputs(NamedTuple):
    """Query and calibration set, and the group of each query record, if groups are kept whole."""

    query: Examples
    calibration: Examples
    groups: Shaped[np.ndarray, " n"] | None

    @property
    def records(self) -> int:
        """The largest training set of any model."""
        return len(self.query) + len(self.calibration)


def train(options: PowerOptions) -> Job[PowerAudit] | Summary:
    """The work for these options with training; for a dry run without workers, only the plan."""
    given, seconds = options, parse_budget(options.audit.budget)
    options, whole = _read(options)
    key = jax.random.key(options.audit.seed)
    sets, plan = take_records(whole, options.data.sample, key), None
    asked = work_of(options, whole.query, whole.calibration)
    if seconds is not None or options.recipe.dry_run:
        learners = 1 + len(_designs(options, sets))
        options, plan = plan_within(
            seconds, given, options, (sets.query, sets.calibration), _learner(options, sets), learners
        )
        if options.recipe.dry_run and not options.recipe.spread:
            return plan
        for line in plan.lines:
            say(line)
        sets = take_records(whole, options.data.sample, key)
    # The plan is now part of the options, so that the command that repeats the run plans nothing.
    options = replace(options, audit=replace(options.audit, budget="none"))
    work = work_of(options, sets.query, sets.calibration)

    def audit(execution: Execution) -> PowerAudit:
        return measure_power(
            key,
            sets.query,
            sets.calibration,
            _learner(options, sets),
            designs=_designs(options, sets),
            groups=sets.groups,
            query_size=len(whole.query),
            holdout_size=options.sizes.holdout_size,
            members_size=options.sizes.members_size,
            fraction=options.audit.fraction,
            models=work.models,
            reduced=reduced(asked, work),
            execution=execution,
        )

    named = {"query": sets.query, "calibration": sets.calibration}
    hashes = {name: examples.content_hash for name, examples in named.items()}
    if sets.groups is not None:
        hashes["groups"] = as_groups(sets.groups, sets.groups[:0]).content_hash

    return Job(
        options=options,
        data={name: describe_examples(examples) for name, examples in named.items()},
        hashes=hashes,
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
    path = options.audit.shadows or Path()
    bank = load_bank(path)
    models = open_bank(bank)

    def audit(execution: Execution) -> PowerAudit:
        return power_of_models(
            models,
            holdout_size=options.sizes.holdout_size,
            members_size=options.sizes.members_size,
            fraction=options.audit.fraction,
        )

    return Job(
        options=options,
        data=describe_bank(path, bank, {}, len(models), models.content_hash),
        audit=audit,
        outcome=_outcome,
        label="measuring",
    )


def measure_scores(options: PowerOptions) -> Job[PowerAudit]:
    """The work for these options with the models of a table of scores."""
    table, sizes = load_scores(options.audit.scores or Path()), options.sizes

    def audit(_: Execution) -> PowerAudit:
        return power_of_scores(
            jax.random.key(options.audit.seed),
            table,
            query_size=sizes.query_size,
            holdout_size=sizes.holdout_size,
            members_size=sizes.members_size,
            fraction=options.audit.fraction,
        )

    return Job(options=options, data=describe_scores(table), audit=audit, outcome=_outcome, label="measuring")


def _outcome(found: PowerAudit, provenance: Provenance) -> Outcome:
    return Outcome(recorded("power", found.result, SOURCES, provenance), {}, {})


def take_records(sets: PowerInputs, records: int | None, key: Key[Array, ""]) -> PowerInputs:
    """At most this many records of each set, drawn at random; with groups, whole groups of about as many records.

    A larger sample contains a smaller one.
    """
    if records is None:
        return sets

    def drawn(examples: Examples, role: str) -> np.ndarray:
        return np.sort(generator_of(stream(key, "records", role)).permutation(len(examples))[:records])

    indices = drawn(sets.query, "query")
    if sets.groups is not None and records < len(sets.query):
        # Groups are numbered by their first record in the file, not by the order of their values.
        groups = as_groups(sets.groups, sets.groups[:0]).query
        order = generator_of(stream(key, "records", "query")).permutation(int(groups.max()) + 1)
        indices = np.flatnonzero(np.isin(groups, order[: groups_in_sample(records, groups)]))
    return PowerInputs(
        sets.query.take(indices),
        sets.calibration.take(drawn(sets.calibration, "calibration")),
        None if sets.groups is None else sets.groups[indices],
    )


def _read(options: PowerOptions) -> tuple[PowerOptions, PowerInputs]:
    """The options with defaults, and the whole sets that they name."""
    data, model, recipe = with_defaults(options.data, options.model, options.recipe)
    # A column with groups is not an input.
    named = data.groups is not None and groups_file(data.groups) is None
    texts = text_reader([data.query or "", data.calibration or ""], model, make_adapters(model))
    query, calibration, _ = read_sets(data, texts or reader(data, [data.groups or ""] if named else []))
    model = replace(model, model=model.model or ("liu-cnn" if is_image(query) else "mlp"))
    tell_of_large_numbers(model.model, (query.inputs, calibration.inputs))
    audit = replace(options.audit, holdout_shadow_models=options.audit.holdout_shadow_models or SHADOW_MODELS)
    groups = None
    if data.groups is not None:
        groups = read_groups(data.groups, data.query or "", len(query), "query set", data.data_dir)
    options = replace(options, data=data, model=model, recipe=recipe, audit=audit)
    return options, PowerInputs(query, calibration, groups)


def _learner(options: PowerOptions, sets: PowerInputs) -> SteppedLearner:
    """The learner of the guessed design."""
    return make_shadow_learner(options.model, options.recipe, sets.query, sets.records)


def _designs(options: PowerOptions, sets: PowerInputs) -> tuple[Design, ...]:
    """The further designs."""
    return make_designs(options.audit.designs, options.model, options.recipe, sets.query, sets.records)
