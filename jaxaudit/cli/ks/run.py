"""Runs `jaxaudit ks`: from its options to its result."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.models import Design
from jaxaudit.audits.ks.plan import sizes_of
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import TESTS, KSTest
from jaxaudit.audits.ks.tests_of_use.shadow import least_models
from jaxaudit.audits.ks.train import train_shadows
from jaxaudit.cli.dealt_groups import with_groups_of_sets
from jaxaudit.cli.job import Job, Outcome, Summary
from jaxaudit.cli.ks.bank_files import files_of_bank
from jaxaudit.cli.ks.chosen_tests import tests_named
from jaxaudit.cli.ks.command import as_given, opened
from jaxaudit.cli.ks.demonstration import tests_of_dealt
from jaxaudit.cli.ks.effort import plan_audit, take_records
from jaxaudit.cli.ks.inputs import AuditInputs, read_given
from jaxaudit.cli.ks.made_tests import load_own_tests, tests_of
from jaxaudit.cli.ks.options import HOLDOUT_MODELS, SHADOW_MODELS, KSOptions
from jaxaudit.cli.networks import IMAGE_SIZE, make_designs, make_shadow_learner, with_defaults
from jaxaudit.cli.options import with_usual, with_values
from jaxaudit.cli.own_model import parse_judged
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import tell_of_large_numbers
from jaxaudit.cli.sets import ALL
from jaxaudit.data import is_image
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples

FILES = {
    "targets": "outputs",
    "holdout_targets": "on_holdout",
    "members_targets": "on_members",
    "calibration_targets": "on_reference",
    "before": "before",
    "holdout_before": "before_on_holdout",
}
"""The files of a `FileTarget`, by their names in a result."""


def prepare(options: KSOptions) -> Job[KSAudit] | Summary:
    """The work for these options; for a dry run, only the plan."""
    options = with_groups_of_sets(opened(options))
    set_alone = options.has_set_alone
    if options.data.query is not None and not options.target.target and not options.target.target_data:
        how = ", and the set is dealt at random into query set, holdout and known members" if set_alone else ""
        say(f"No --target was given: three targets of known truth are simulated instead{how}.")
    given_options = options = options if set_alone else of_texts(options)
    options = _filled(options, set_alone)
    whole = read_given(options, set_alone=set_alone)
    if set_alone:
        options = with_values(options, tests=",".join(tests_of_dealt(len(whole.query))))
    if given_options.audit.shadow_models is None:
        # As many as adjusted p-values need.
        options = with_values(options, shadow_models=max(SHADOW_MODELS, least_models(len(whole.targets))))
    own_tests = load_own_tests(options.audit.tests or "all")
    tests = tests_of(options, len(whole.targets), own_tests)
    design = options.model.model or ("liu-cnn" if is_image(whole.query) else "mlp")
    tell_of_large_numbers(design, (examples.inputs for examples in whole.sets_by_role.values()))
    options = with_values(options, model=design)
    key = jax.random.key(options.audit.seed)

    def learner_of(sets: AuditInputs, model: str, hidden: str) -> SteppedLearner:
        network = replace(options.model, model=model, hidden=hidden)
        return make_shadow_learner(network, options.recipe, sets.query, sets.records)

    sets, plan = take_records(whole, options.data.sample, key), None
    in_full, trial = options.audit.effort == "full", options.recipe.dry_run
    if not in_full or trial or options.recipe.models_per_batch is None:
        options, summary = plan_audit(given_options, options, sets, tests, partial(learner_of, sets))
        if trial and not options.recipe.spread:
            return summary
        plan = summary if trial or not in_full else None
        for line in () if plan is None else plan.lines:
            say(line)
        sets, tests = take_records(whole, options.data.sample, key), tests_of(options, len(whole.targets), own_tests)
    learner = learner_of(sets, options.model.model or design, options.model.hidden or "")
    sizes = sets.sets_by_role.map(lambda _, examples: len(examples))
    models = len(sets.simulated) + sum(count for _, trained in sizes_of(tests, sizes) for count, _ in trained)
    designs = make_designs(options.audit.designs, options.model, options.recipe, sets.query, sets.records)

    def outcome(audit: KSAudit, provenance: Provenance) -> Outcome:
        judged, bank = ks_outcome(audit, provenance), files_of_bank(options, sets, audit)
        where = shlex.quote(str(options.output.out))
        note = f"the next target needs no training: jaxaudit ks --shadows {where} --target ..." if bank else ""
        return judged._replace(files={**judged.files, **bank}, note=note)

    files, on_reference = described_files(sets.files), []
    if sets.reference is not None:
        files, on_reference = {**files, "calibration_targets": []}, files["calibration_targets"]
    return Job(
        **_of_sets(options, sets),
        audit=lambda execution: _judged(
            options,
            sets,
            tests,
            learner,
            designs,
            execution,
            own_recipe=options.audit.same_recipe or parse_judged(options.model.model or "") is not None,
            reduced=() if plan is None else tuple(plan.numbers["unlike"]),
        ),
        outcome=outcome,
        models=lambda _: models,
        line=f"training {options.model.model} models on {jax.default_backend()}, {options.recipe.duration}",
        after=f"comparing the outputs of {models} models",
        record_shape=sets.query.inputs.shape[1:],
        classes=len(sets.query.class_names),
        # A plan is repeated as it was made: what it leaves out is said again.
        repeats=as_given(given_options),
        extra={
            **files,
            "challenge": sets.commitment,
            "reference_targets": on_reference,
            "plan": None if plan is None else dict(plan.numbers),
        },
    )


def prepare_by_outputs(options: KSOptions) -> Job[KSAudit]:
    """The work for these options by the target's own outputs, without shadow models."""
    options = with_groups_of_sets(opened(options))
    possible = tests_named(with_values(options, tests=None))
    names = tests_named(options)
    if set(names) - set(possible):
        raise InputError(
            f"--tests {options.audit.tests}: without --calibration no shadow model is trained, and only "
            f"{' and '.join(possible)} can be made; give --calibration, or leave --tests out."
        )
    options = with_values(with_usual(of_texts(options), image_size=IMAGE_SIZE), tests=",".join(names))
    sets = read_given(options)
    tests = tests_of(options, len(sets.targets), {})
    files = {role: files for role, files in described_files(sets.files).items() if files}
    return Job(
        **_of_sets(options, sets),
        audit=lambda execution: _judged(options, sets, tests, None, (), execution),
        outcome=ks_outcome,
        label="comparing",
        extra={"challenge": sets.commitment, **files},
    )


def _judged(
    options: KSOptions,
    sets: AuditInputs,
    tests: tuple[KSTest, ...],
    learner: SteppedLearner | None,
    designs: tuple[Design, ...],
    execution: Execution,
    **more: Any,
) -> KSAudit:
    """What the tests find after training shadow models of this learner and these further designs."""
    key = jax.random.key(options.audit.seed)
    shadows = train_shadows(
        key,
        sets.query,
        sets.calibration,
        learner,
        sets.targets,
        tests=tests,
        holdout=sets.holdout,
        members=sets.members,
        reference=sets.reference,
        groups=sets.groups,
        designs=designs,
        execution=execution,
    )
    # Training has shown all of the progress, if there was any.
    progress = execution.progress if learner is None else None
    return judge(key, shadows, sets.targets, tests=tests, level=options.audit.level, progress=progress, **more)


def _filled(options: KSOptions, set_alone: bool) -> KSOptions:
    options = with_defaults(options)
    replicates = 0 if set_alone and is_texts(options.data.query or "") else REPLICATES
    numbers = {"shadow_models": SHADOW_MODELS, "holdout_shadow_models": HOLDOUT_MODELS, "replicates": replicates}
    return with_values(with_usual(options, **numbers), tests=",".join(tests_named(options)))


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


def _of_sets(options: KSOptions, sets: AuditInputs) -> dict[str, Any]:
    """What a job says of its options and data."""
    sets_by_role = {role.value: examples for role, examples in sets.sets_by_role.items()}
    hashes = {name: examples.content_hash for name, examples in sets_by_role.items()}
    data: dict[str, Any] = {name: describe_examples(examples) for name, examples in sets_by_role.items()}
    for index, target in enumerate(sets.simulated):
        # Of a simulated target the fractions count, too.
        parts = (f"{part.examples.content_hash} {part.fraction}" for part in target.parts)
        hashes |= {f"simulated target {index}": ", ".join(parts)}
    for role, field in FILES.items():
        files = (getattr(target, field) for target in sets.files)
        hashes |= {f"{role} {index}": file.content_hash for index, file in enumerate(files) if file is not None}
    if sets.commitment is not None:
        hashes["challenge"] = sets.commitment
    if sets.groups is not None:
        counts = zip(("query", "holdout", "members"), sets.groups.counts, strict=True)
        hashes["groups"] = sets.groups.content_hash
        counts_by_role = {role: count for role, count in counts if count or role != "members"}
        data["groups"] = {**counts_by_role, "content_hash": hashes["groups"]}
    target_parts = {part.examples.content_hash: part.examples for target in sets.simulated for part in target.parts}
    data["target_data"] = [
        describe_examples(examples) for examples in target_parts.values() if examples not in (*sets_by_role.values(),)
    ]
    return {"options": as_given(options), "data": data, "hashes": hashes}


def described_files(targets: Sequence[FileTarget]) -> dict[str, list[dict[str, str]]]:
    """Name, kind and content hash of the targets' files of outputs, by what the outputs are on."""
    files = {role: [getattr(target, field) for target in targets] for role, field in FILES.items()}
    return {
        role: [
            {"name": outputs.name, "kind": outputs.kind, "content_hash": outputs.content_hash}
            for outputs in outputs_of_role
            if outputs is not None
        ]
        for role, outputs_of_role in files.items()
    }


REPLICATES = 5


def of_texts(options: KSOptions) -> KSOptions:
    """The options with what follows from sets of texts: no models of rho, and tests of one number a record alone."""
    if options.data.query is None or not is_texts(options.data.query):
        return options
    if options.target.target_kind != "auto":
        raise InputError(f"--target-kind {options.target.target_kind}: texts have log-likelihoods; leave it out.")
    options = with_usual(options, replicates=0)
    names, of_classes = tests_named(options), [test.name for test in TESTS if test.of_classes]
    if ALL in (options.audit.tests or "").split(","):
        names = tuple(name for name in names if name not in of_classes)
    useless = [name for name in names if name in of_classes] + (["rho"] if options.audit.replicates else [])
    if useless:
        raise InputError(
            f"{' and '.join(dict.fromkeys(useless))}: compare probabilities of classes, and texts have none; give a "
            "holdout (--holdout, --holdout-target), which texts are judged by, and leave out --replicates."
        )
    return with_values(options, tests=",".join(names))
