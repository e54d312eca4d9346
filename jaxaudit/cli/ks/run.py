"""Runs `jaxaudit ks`: from its options to its result.

Its shadow models are stored as a bank in the run's directory, for later audits of the same sets.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.plan import sizes_of
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import TESTS, KSTest
from jaxaudit.audits.ks.train import train_shadows
from jaxaudit.cli.ks.effort import plan_audit, take_records
from jaxaudit.cli.ks.inputs import Case, load_own_tests, positions, read_case, tests_of, tests_of_dealt
from jaxaudit.cli.ks.options import ALL, KSOptions, ks_inputs, tests_named
from jaxaudit.cli.networks import IMAGES, make_shadow_learner, with_defaults
from jaxaudit.cli.options import command_line, refuse_options, with_usual, with_values
from jaxaudit.cli.own_code import parse_judged
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import group_columns, tell_of_large_numbers, with_groups_of_sets
from jaxaudit.cli.show import Job, Outcome, Summary
from jaxaudit.data import is_image
from jaxaudit.data.bank.bank import CORRECT, DROPPED, GROUPS, LABELS, MEMBERSHIP, Writer, bank_files
from jaxaudit.data.bank.description import MOST_CLASSES, WHOLE, Counts, Description, Hashes, SampledAlike
from jaxaudit.data.examples import Role
from jaxaudit.data.groups import groups_by_role, hash_of_groups
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.ensemble import Execution
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples
from jaxaudit.shadow_models import OF_QUERY, Kind
from jaxaudit.version import __version__

FILES = {
    "targets": ("on", Role.QUERY),
    "holdout_targets": ("on", Role.HOLDOUT),
    "members_targets": ("on", Role.MEMBERS),
    "calibration_targets": ("on", Role.CALIBRATION),
    "before": ("before", Role.QUERY),
    "holdout_before": ("before", Role.HOLDOUT),
}
"""The files of a `FileTarget`, by their names in a result."""


def prepare(options: KSOptions) -> Job[KSAudit] | Summary:
    """The work for these options."""
    options = _with_groups(options)
    set_alone = options.has_set_alone
    if options.data.query is not None and not options.target.target and not options.target.target_data:
        how = ", and the set is dealt at random into query set, holdout and known members" if set_alone else ""
        say(f"No --target was given: three targets of known truth are simulated instead{how}.")
    given_options = options = options if set_alone else of_texts(options)
    options, with_rho = _filled(options), not is_texts(ks_inputs(options).sets.names.get(Role.QUERY, ""))
    whole = read_case(options, set_alone=set_alone)
    if set_alone:
        options = with_values(options, tests=",".join(tests_of_dealt(len(whole.query))))
    own_tests = load_own_tests(options.audit.tests or "all")
    tests = tests_of(options, len(whole.targets), own_tests, with_rho=with_rho)
    network = options.model.model or ("liu-cnn" if is_image(whole.query) else "mlp")
    tell_of_large_numbers(network, (examples.inputs for examples in whole.sets.values()))
    options = with_values(options, model=network)
    key = jax.random.key(options.audit.seed)

    def learner_of(sets: Case, model: str, hidden: str) -> SteppedLearner:
        network = replace(options.model, model=model, hidden=hidden)
        return make_shadow_learner(network, options.recipe, sets.query, sets.records)

    sets, plan = take_records(whole, options.data.sample, key), None
    in_full = options.audit.effort == "full"
    if not in_full or options.recipe.models_per_batch is None:
        options, summary = plan_audit(given_options, options, sets, tests, partial(learner_of, sets))
        plan = None if in_full else summary
        for line in () if plan is None else plan.lines:
            say(line)
        sets = take_records(whole, options.data.sample, key)
        tests = tests_of(options, len(whole.targets), own_tests, with_rho=with_rho)
    learner = learner_of(sets, options.model.model or network, options.model.hidden or "")
    sizes = sets.sets.map(lambda _, examples: len(examples))
    models = len(sets.simulated) + sum(count for _, trained in sizes_of(tests, sizes) for count, _ in trained)

    def outcome(audit: KSAudit, provenance: Provenance) -> Outcome:
        judged, bank = ks_outcome(audit, provenance), files_of_bank(options, sets, audit)
        where = shlex.quote(str(options.output.out))
        note = f"the next target needs no training: jaxaudit ks --shadows {where} --target ..." if bank else ""
        return judged._replace(files={**judged.files, **bank}, note=note)

    return Job(
        **_of_sets(options, sets),
        audit=lambda execution: _judged(
            options,
            sets,
            tests,
            learner,
            execution,
            own_recipe=options.audit.same_recipe or parse_judged(options.model.model or "") is not None,
            reduced=() if plan is None else tuple(plan.numbers["unlike"]),
        ),
        outcome=outcome,
        models=lambda _: models,
        line=f"training {options.model.model} models on {jax.default_backend()}, {options.recipe.duration}",
        after=f"comparing the outputs of {models} models",
        # A plan is repeated as it was made: what it leaves out is said again.
        repeats=given_options,
        extra={
            **described_files(sets.files),
            "challenge": sets.commitment,
            "plan": None if plan is None else dict(plan.numbers),
        },
    )


def prepare_by_outputs(options: KSOptions) -> Job[KSAudit]:
    """The work for these options by the target's own outputs, without shadow models."""
    options = _with_groups(options)
    options = with_values(with_usual(of_texts(options), images=IMAGES), tests=",".join(tests_named(options)))
    sets = read_case(options)
    tests = tests_of(options, len(sets.targets), load_own_tests(options.audit.tests or ALL), with_rho=False)
    files = {role: files for role, files in described_files(sets.files).items() if files}
    return Job(
        **_of_sets(options, sets),
        audit=lambda execution: _judged(options, sets, tests, None, execution),
        outcome=ks_outcome,
        label="comparing",
        extra={"challenge": sets.commitment, **files},
    )


def _judged(
    options: KSOptions,
    sets: Case,
    tests: tuple[KSTest, ...],
    learner: SteppedLearner | None,
    execution: Execution,
    **more: Any,
) -> KSAudit:
    """What the tests find after training shadow models of this learner."""
    key = jax.random.key(options.audit.seed)
    shadows = train_shadows(
        key,
        sets.query,
        sets.sets.get(Role.CALIBRATION),
        learner,
        sets.targets,
        tests=tests,
        holdout=sets.sets.get(Role.HOLDOUT),
        members=sets.sets.get(Role.MEMBERS),
        execution=execution,
    )
    # Training has shown all of the progress, if there was any.
    progress = execution.progress if learner is None else None
    return judge(key, shadows, sets.targets, tests=tests, progress=progress, **more)


def _with_groups(options: KSOptions) -> KSOptions:
    """The options with the groups of the sets' files; what is left out of the audit is said on stderr."""
    inputs = ks_inputs(options)
    for line in inputs.left_out:
        say(line)
    return with_groups_of_sets(options, inputs.sets)


def _filled(options: KSOptions) -> KSOptions:
    options = with_defaults(options)
    return with_values(options, tests=",".join(tests_named(options)))


def ks_outcome(audit: KSAudit, provenance: Provenance) -> Outcome:
    """The result in all of its output forms; with every model's confidences on the query set, or the targets' alone."""
    models = {
        "query": audit.query_confidences,
        "calibration": audit.calibration_confidences,
        "control": audit.control_confidences,
    }
    targets = {f"target_{index}": confidences for index, confidences in enumerate(audit.target_confidences)}
    kept = {**(models if len(audit.query_confidences) else {}), "labels": audit.labels, **targets}
    record = recorded("ks", audit.result, audit.sources, provenance)
    return Outcome(record, kept, {"confidences.npz": arrays(kept)})


def _of_sets(options: KSOptions, sets: Case) -> dict[str, Any]:
    """What a job says of its options and data."""
    hashes = {role.value: examples.content_hash for role, examples in sets.sets.items()}
    data: dict[str, Any] = {role.value: describe_examples(examples) for role, examples in sets.sets.items()}
    for index, target in enumerate(sets.simulated):
        # Of a simulated target the fractions count, too.
        parts = (f"{part.examples.content_hash} {part.fraction}" for part in target.parts)
        hashes |= {f"simulated target {index}": ", ".join(parts)}
    for name, of_targets in _files_by_name(sets.files).items():
        hashes |= {f"{name} {index}": file.content_hash for index, file in enumerate(of_targets)}
    if sets.commitment is not None:
        hashes["challenge"] = sets.commitment
    if groups := groups_by_role(sets.sets):
        hashes["groups"] = hash_of_groups(groups)
        counts = {role.value: len(np.unique(of_set)) for role, of_set in groups.items()}
        data["groups"] = {**counts, "content_hash": hashes["groups"]}
    target_parts = {part.examples.content_hash: part.examples for target in sets.simulated for part in target.parts}
    data["target_data"] = [
        describe_examples(examples) for examples in target_parts.values() if examples not in (*sets.sets.values(),)
    ]
    options = options if is_image(sets.query) else with_values(options, images=None)
    return {"options": options, "data": data, "hashes": hashes}


def described_files(targets: Sequence[FileTarget]) -> dict[str, list[dict[str, str]]]:
    """Name, kind and content hash of the targets' files of outputs, by what the outputs are on."""
    return {
        name: [{"name": file.name, "kind": file.kind, "content_hash": file.content_hash} for file in of_targets]
        for name, of_targets in _files_by_name(targets).items()
    }


def _files_by_name(targets: Sequence[FileTarget]) -> dict[str, list[Outputs]]:
    """The files of all targets; each role is there for all of them, or for none."""
    return {
        name: [getattr(target, field)[role] for target in targets if role in getattr(target, field)]
        for name, (field, role) in FILES.items()
    }


def of_texts(options: KSOptions) -> KSOptions:
    """The options with what follows from sets of texts: tests of one number a record alone."""
    query = ks_inputs(options).sets.names.get(Role.QUERY)
    if query is None or not is_texts(query):
        return options
    refuse_options({"--target-kind": options.target.target_kind != "auto"}, "texts have log-likelihoods")
    names, of_classes = tests_named(options), [test.name for test in TESTS if test.of_classes]
    if ALL in (options.audit.tests or "").split(","):
        names = tuple(name for name in names if name not in of_classes)
    return with_values(options, tests=",".join(names))


ROLES = (Role.QUERY, Role.HOLDOUT, Role.CALIBRATION)
OF_BANK = (Kind.MIXED, *OF_QUERY)
"""The kinds of models that a bank can hold."""


def files_of_bank(options: KSOptions, sets: Case, audit: KSAudit) -> Mapping[str, Writer]:
    """A writer for each file of the bank; empty if there is no model that a bank can hold.

    Records that the audit dropped or did not sample have columns in the bank, too, so that outputs of a later target
    have one row for every record of the given sets.
    """
    shadows_kept = audit.shadows
    if shadows_kept is None or len(sets.query.class_names) > MOST_CLASSES:
        return {}
    indices = np.array([index for index, kind in enumerate(shadows_kept.kinds) if kind in OF_BANK], int)
    if not len(indices):
        return {}
    shadows = shadows_kept.take(indices)
    parts = [sets.sets.get(role) for role in ROLES]
    counts = [len(sets.read[role].record_hashes) if role in sets.read else 0 for role in ROLES]
    starts = np.cumsum([0, *counts])
    kept = [
        start + positions(sets.read[role], part)
        for role, part, start in zip(ROLES, parts, starts, strict=False)
        if part is not None
    ]
    columns, records = np.concatenate(kept), int(starts[-1])
    dropped = np.ones(records, bool)
    dropped[columns] = False
    labels = np.full(records, -1, np.int32)
    labels[columns] = np.concatenate([part.labels for part in parts if part is not None])
    models, kinds, texts = len(shadows.membership), (bool, bool, np.float32), shadows.pool.classless
    membership, correct, outputs = (np.zeros((models, records), kind) for kind in kinds)
    arrays: dict[str, np.ndarray] = {MEMBERSHIP: membership, WHOLE: outputs}
    arrays |= {} if texts else {LABELS: labels, CORRECT: correct}
    # Of a text the log-odds are those of its mean log-likelihood.
    stored_outputs = -np.logaddexp(0, -shadows.log_odds.astype(np.float64)) if texts else shadows.log_odds
    for array, of_models in zip(
        (membership, correct, outputs), (shadows.membership, shadows.correct, stored_outputs), strict=True
    ):
        # Members and records used only by targets have no column in the bank.
        array[:, columns] = of_models[:, : len(columns)]
    groups = [source_set.groups for source_set in sets.read.values() if source_set.groups is not None]
    measured = None
    if audit.sampled_alike is not None:
        # Of records without classes the labels are not compared, and all are equal.
        found_alike = audit.sampled_alike._asdict().items()
        measured = {
            name: 1.0 if np.isnan(p_value) else p_value for name, p_value in found_alike if name != "difficulty"
        }
    description = Description(
        format=1,
        outputs="log_likelihood" if texts else "log_odds",
        direction="higher" if texts else None,
        classes=len(sets.query.class_names),
        class_names=() if texts else sets.query.class_names,
        records=records,
        models=models,
        counts=Counts(**dict(zip(ROLES, counts, strict=True))),
        hashes=Hashes(**{role: source_set.content_hash for role, source_set in sets.read.items()}),
        sampled_alike=None if measured is None else SampledAlike(**measured),
        images=options.data.images or "none",
        seed=options.audit.seed,
        groups=bool(groups),
        group_columns=group_columns(options.data.groups),
        versions={"jaxaudit": __version__, "numpy": version("numpy")},
        command=tuple(command_line("ks", options)),
    )
    if dropped.any():
        arrays[DROPPED] = dropped
    if groups:
        arrays[GROUPS] = np.concatenate(groups).astype(np.int64)
    return bank_files(description, arrays)
