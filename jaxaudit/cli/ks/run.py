"""Runs `jaxaudit ks`: from its options to its result."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.plan import sizes_of
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests import MembersTest
from jaxaudit.audits.ks.tests.shadow import least_models
from jaxaudit.audits.ks.train import train_shadows
from jaxaudit.cli.harness import Job, Outcome, Summary
from jaxaudit.cli.ks.bank_files import files_of_bank
from jaxaudit.cli.ks.budget import parse_budget, plan_within, take_records
from jaxaudit.cli.ks.challenge import as_given
from jaxaudit.cli.ks.inputs import AuditInputs, read_given
from jaxaudit.cli.ks.named_tests import load_own_tests, of_texts, replicates_of, tests_of
from jaxaudit.cli.ks.options import (
    HOLDOUT_MODELS,
    SHADOW_MODELS,
    KSOptions,
    tests_named,
)
from jaxaudit.cli.networks import IMAGE_SIZE, make_designs, make_shadow_learner, with_defaults
from jaxaudit.cli.own_model import parse_judged
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import tell_of_large_numbers
from jaxaudit.data import is_image
from jaxaudit.data.groups import Groups
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_examples

DEMO_QUERY, DEMO_HOLDOUT = "digits@shared", "digits@kept"
"""Random halves of an embedded set: the holdout test decides the demonstration, because it is exact."""
FILES = {
    "targets": "outputs",
    "holdout_targets": "on_holdout",
    "members_targets": "on_members",
    "calibration_targets": "on_reference",
    "before": "before",
    "holdout_before": "before_on_holdout",
}
"""The files of a `FileTarget`, by their names in a result."""
OF_MEMBERS = ("targets", "holdout_targets", "members_targets")
"""Files of outputs that a run without training uses, by what the outputs are on."""


def prepare(options: KSOptions) -> Job[KSAudit] | Summary:
    """The work for these options; for a dry run, only the plan."""
    if options.data.query is not None and not options.target.target and not options.target.target_data:
        say("No --target was given: three targets of known truth are simulated instead.")
    given = options = of_texts(options)
    options = _filled(options)
    seconds = parse_budget(options.audit.budget)
    whole = read_given(options)
    options = _for_targets(options, given, len(whole.targets))
    own = load_own_tests(options)
    tests = tests_of(options, len(whole.targets), own)
    design = options.model.model or ("liu-cnn" if is_image(whole.query) else "mlp")
    tell_of_large_numbers(design, (examples.inputs for examples in whole.named.values()))
    options = replace(options, model=replace(options.model, model=design))
    key = jax.random.key(options.audit.seed)

    def learner_of(sets: AuditInputs, model: str, hidden: str) -> SteppedLearner:
        network = replace(options.model, model=model, hidden=hidden)
        return make_shadow_learner(network, options.recipe, sets.query, sets.records)

    sets, plan = take_records(whole, options.data.sample, key), None
    if seconds is not None or options.recipe.dry_run:
        options, plan = plan_within(seconds, given, options, sets, tests, partial(learner_of, sets))
        if given.recipe.dry_run and not given.recipe.spread:
            return plan
        for line in plan.lines:
            say(line)
        sets, tests = take_records(whole, options.data.sample, key), tests_of(options, len(whole.targets), own)
    # The plan is now part of the options, so that the command that repeats the run plans nothing.
    options = replace(options, audit=replace(options.audit, budget="none"))
    learner = learner_of(sets, options.model.model or design, options.model.hidden or "")
    sizes = len(sets.query), len(sets.calibration or ()), len(sets.reference or ())
    models = len(sets.simulated) + sum(count for _, each in sizes_of(tests, *sizes) for count, _ in each)
    designs = make_designs(options.audit.designs, options.model, options.recipe, sets.query, sets.records)

    def audit(execution: Execution) -> KSAudit:
        shadows = train_shadows(
            *(key, sets.query, sets.calibration, learner, sets.targets),
            tests=tests,
            holdout=sets.holdout,
            members=sets.members,
            reference=sets.reference,
            groups=sets.groups,
            designs=designs,
            execution=execution,
        )
        return judge(
            *(key, shadows, sets.targets),
            tests=tests,
            own_recipe=options.audit.same_recipe or parse_judged(options.model.model or "") is not None,
            reduced=() if plan is None else tuple(plan.numbers["unlike"]),
            level=options.audit.level,
        )

    def outcome(found: KSAudit, provenance: Provenance) -> Outcome:
        bank = files_of_bank(options, sets, found)
        judged = outcome_of(found, provenance)
        return judged._replace(files={**judged.files, **bank}, note=_of_bank(options) if bank else "")

    files, on_reference = described_files(sets.files), []
    if sets.reference is not None:
        files, on_reference = {**files, "calibration_targets": []}, files["calibration_targets"]
    return Job(
        options=as_given(options),
        data=described_sets(sets),
        hashes=hashes_of(sets),
        audit=audit,
        outcome=outcome,
        models=lambda _: models,
        line=f"training {options.model.model} models on {jax.default_backend()}, {options.recipe.duration}",
        after=f"comparing the outputs of {models} models",
        record_shape=sets.query.inputs.shape[1:],
        classes=len(sets.query.class_names),
        extra={
            **files,
            "challenge": sets.commitment,
            "reference_targets": on_reference,
            "plan": None if plan is None else dict(plan.numbers),
        },
    )


def prepare_by_members(options: KSOptions) -> Job[KSAudit]:
    """The work for these options, with known members and without shadow models."""
    if options.audit.tests not in (None, "all", MembersTest.name):
        raise InputError(
            f"--tests {options.audit.tests}: without --calibration no shadow model is trained, and only the members "
            "test can be made; give --calibration, or leave --tests out."
        )
    options = replace(
        of_texts(options),
        audit=replace(options.audit, tests=MembersTest.name),
        data=replace(options.data, image_size=options.data.image_size or IMAGE_SIZE),
    )
    sets, audit_options = read_given(options), options.audit
    test = MembersTest(stated=audit_options.stated_share, question=audit_options.question)

    def audit(execution: Execution) -> KSAudit:
        key = jax.random.key(audit_options.seed)
        shadows = train_shadows(
            *(key, sets.query, None, None, sets.targets),
            tests=(test,),
            holdout=sets.holdout,
            members=sets.members,
            groups=sets.groups,
        )
        return judge(key, shadows, sets.targets, tests=(test,), level=audit_options.level)

    return Job(
        options=as_given(options),
        data=described_sets(sets),
        hashes=hashes_of(sets),
        audit=audit,
        outcome=outcome_of,
        label="comparing",
        extra={
            "challenge": sets.commitment,
            **{role: each for role, each in described_files(sets.files).items() if role in OF_MEMBERS},
        },
    )


def _of_bank(options: KSOptions) -> str:
    """A hint how to use the run's directory for the next target."""
    return (
        f"the next target needs no training: jaxaudit ks --shadows {shlex.quote(str(options.output.out))} --target ..."
    )


def _filled(options: KSOptions) -> KSOptions:
    """The options with defaults filled in."""
    data, model, recipe = with_defaults(options.data, options.model, options.recipe)
    if options.data.query is None and options.data.holdout is None and options.audit.tests is None:
        data = replace(data, query=DEMO_QUERY, holdout=DEMO_HOLDOUT)
    options = replace(options, data=data)
    audit = replace(
        options.audit,
        shadow_models=options.audit.shadow_models or SHADOW_MODELS,
        holdout_shadow_models=options.audit.holdout_shadow_models or HOLDOUT_MODELS,
        replicates=replicates_of(options),
        tests=",".join(tests_named(options)),
    )
    return replace(options, model=model, recipe=recipe, audit=audit)


def _for_targets(options: KSOptions, given: KSOptions, targets: int) -> KSOptions:
    """The options with as many shadow models as adjusted p-values need, unless their number was given."""
    if given.audit.shadow_models is not None:
        return options
    models = max(SHADOW_MODELS, least_models(targets))
    return replace(options, audit=replace(options.audit, shadow_models=models))


def outcome_of(found: KSAudit, provenance: Provenance) -> Outcome:
    """The result in all of its output forms; with every model's confidences on the query set, or the targets' alone."""
    models = {
        "query": found.query_confidences,
        "calibration": found.calibration_confidences,
        "control": found.control_confidences,
    }
    targets = {f"target_{index}": own for index, own in enumerate(found.target_confidences)}
    kept = {**(models if len(found.query_confidences) else {}), "labels": found.labels, **targets}
    record = recorded("ks", found.result, found.sources, provenance)
    return Outcome(record, kept, {"confidences.npz": arrays(kept)})


def hashes_of(sets: AuditInputs) -> dict[str, str]:
    """Hashes of contents that affect a number; for a simulated target also the fractions."""
    found = {name: examples.content_hash for name, examples in sets.named.items()}
    for index, target in enumerate(sets.simulated):
        parts = (f"{part.examples.content_hash} {part.fraction}" for part in target.parts)
        found |= {f"simulated target {index}": ", ".join(parts)}
    for role, field in FILES.items():
        files = (getattr(target, field) for target in sets.files)
        found |= {f"{role} {index}": file.content_hash for index, file in enumerate(files) if file is not None}
    found |= {} if sets.commitment is None else {"challenge": sets.commitment}
    return found if sets.groups is None else {**found, "groups": sets.groups.content_hash}


def described_sets(sets: AuditInputs) -> dict:
    others = {part.examples.content_hash: part.examples for target in sets.simulated for part in target.parts}
    own = tuple(sets.named.values())
    groups = {} if sets.groups is None else {"groups": _counted(sets.groups)}
    return {
        **{name: describe_examples(examples) for name, examples in sets.named.items()},
        **groups,
        "target_data": [describe_examples(each) for each in others.values() if each not in own],
    }


def _counted(groups: Groups) -> dict[str, Any]:
    query, holdout, members = groups.counts
    known = {"members": members} if members else {}
    return {"query": query, "holdout": holdout, **known, "content_hash": groups.content_hash}


def described_files(targets: Sequence[FileTarget]) -> dict[str, list[dict[str, str]]]:
    """Name, kind and content hash of the targets' files of outputs, by what the outputs are on."""
    files = {role: [getattr(target, field) for target in targets] for role, field in FILES.items()}
    return {
        role: [
            {"name": each.name, "kind": each.kind, "content_hash": each.content_hash}
            for each in given
            if each is not None
        ]
        for role, given in files.items()
    }
