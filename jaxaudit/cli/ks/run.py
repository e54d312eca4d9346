"""Runs `jaxaudit ks`: from its options to its result, with training, or by outputs, a bank or a table of scores.

Shadow models that are trained are stored as a bank in the run's directory, for later audits of the same sets.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.bank_odds import score_outputs
from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.result import SCORES, KSAudit
from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import TESTS, KSTest
from jaxaudit.audits.ks.train import made_tests, offered, possible_tests, sizes_of, train_shadows
from jaxaudit.audits.open_bank import open_bank, target_outputs
from jaxaudit.cli.ks.effort import changed_fields, networks_of, planned_sets, work_of
from jaxaudit.cli.ks.inputs import (
    MANY,
    Case,
    as_outputs,
    built_in_tests,
    default_test_fields,
    file_targets,
    files_of_bank,
    read_case,
    tests_of,
)
from jaxaudit.cli.ks.options import (
    ALL,
    KSOptions,
    check_first,
    parse_direction,
    parse_tests,
    tests_named,
)
from jaxaudit.cli.networks import IMAGES, make_shadow_learner, with_defaults
from jaxaudit.cli.options import refuse_options, with_usual
from jaxaudit.cli.own_code import parse_judged, with_fields
from jaxaudit.cli.parsers import is_texts
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import (
    read_examples,
    read_scores,
    tell_of_large_numbers,
    tell_of_missing,
    with_dealt_groups,
    with_groups_of_sets,
    with_named_groups,
)
from jaxaudit.cli.shadows.plan import count_of, unread_examples
from jaxaudit.cli.show import Job, Outcome, Summary
from jaxaudit.data import is_image
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.data.bank.description import ROLES, SCORED, Description
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.formats.arrays import npy_shape
from jaxaudit.data.groups import groups_by_role
from jaxaudit.data.outputs.form import OutputsPlace
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.pairs import align_dealt
from jaxaudit.data.paths import exists
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import SteppedLearner
from jaxaudit.runs.directory import arrays
from jaxaudit.runs.provenance import describe_bank, describe_scores
from jaxaudit.shadow_models import ShadowModels

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
    if options.query is not None and not options.target:
        how = ", and the set is dealt at random into query set, holdout and known members" if set_alone else ""
        say(f"No --target was given: three targets of known truth are simulated instead{how}.")
    given_options = options = options if set_alone else of_texts(options)
    options = with_defaults(options, set_alone=set_alone)
    options = replace(options, tests=",".join(tests_named(options)))
    whole = read_case(options, set_alone=set_alone)
    if set_alone:
        options = replace(options, tests="members" if len(whole.query) >= MANY else "members,holdout")
    tests = tests_of(options, len(whole.targets))
    network = options.model or ("liu-cnn" if is_image(whole.query) else "mlp")
    tell_of_large_numbers(network, (examples.inputs for examples in whole.sets.values()))
    options = replace(options, model=network)

    def learner_of(sets: Case, model: str, hidden: str) -> SteppedLearner:
        return make_shadow_learner(replace(options, model=model, hidden=hidden), sets.query, sets.records)

    options, sets, plan = planned_sets(
        given_options,
        options,
        whole,
        lambda sets: work_of(given_options, options, sets, tests),
        networks=networks_of(given_options, options, tests),
        learner_of=learner_of,
        of_tests=changed_fields,
    )
    tests = tests_of(options, len(whole.targets))
    learner = learner_of(sets, options.model or network, options.hidden or "")
    models = len(sets.simulated) + sum(count for _, trained in sizes_of(tests, sets.sizes) for count, _ in trained)

    def outcome(audit: KSAudit) -> Outcome:
        judged, bank = ks_outcome(audit), files_of_bank(options, sets, audit)
        where = shlex.quote(str(options.out))
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
            own_recipe=options.same_recipe or parse_judged(options.model or "") is not None,
            reduced=tuple(plan.numbers["unlike"]) if plan else (),
        ),
        outcome=outcome,
        models=lambda _: models,
        line=f"training {options.model} models on {jax.default_backend()}, {options.epochs} epochs each",
        after=f"comparing the outputs of {models} models",
        # A plan is repeated as it was made: what it leaves out is said again.
        repeats=given_options,
        extra={
            **described_files(sets.files),
            "challenge": sets.commitment,
            "plan": dict(plan.numbers) if plan else None,
        },
    )


def prepare_by_outputs(options: KSOptions) -> Job[KSAudit]:
    """The work for these options by the target's own outputs, without shadow models."""
    options = _with_groups(options)
    options = replace(with_usual(of_texts(options), images=IMAGES), tests=",".join(tests_named(options)))
    sets = read_case(options, gaps=True)
    tests = tests_of(options, len(sets.targets))
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
    key = jax.random.key(options.seed)
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
    return judge(key, shadows, sets.targets, tests=tests, progress=execution.progress, **more)


def _with_groups(options: KSOptions) -> KSOptions:
    """The options with the groups of the sets' files; what is left out of the audit is said on stderr."""
    for line in options.inputs.left_out:
        say(line)
    return with_groups_of_sets(options, options.inputs.sets)


def ks_outcome(audit: KSAudit) -> Outcome:
    """The result in all of its output forms; with every model's confidences on the query set, or the targets' alone."""
    models = {
        "query": audit.query_confidences,
        "calibration": audit.calibration_confidences,
        "control": audit.control_confidences,
    }
    targets = {f"target_{index}": confidences for index, confidences in enumerate(audit.target_confidences)}
    kept = {**(models if len(audit.query_confidences) else {}), "labels": audit.labels, **targets}
    return Outcome(audit.result, audit.sources, kept, {"confidences.npz": arrays(kept)})


def _of_sets(options: KSOptions, sets: Case) -> dict[str, Any]:
    """What a job says of its options and data."""
    hashes, data = sets.hashes, sets.facts
    for name, of_targets in _files_by_name(sets.files).items():
        hashes |= {f"{name} {index}": file.content_hash for index, file in enumerate(of_targets)}
    if sets.commitment:
        hashes["challenge"] = sets.commitment
    if "groups" in hashes:
        counts = {role.value: len(np.unique(of_set)) for role, of_set in groups_by_role(sets.sets).items()}
        data["groups"] = {**counts, "content_hash": hashes["groups"]}
    options = options if is_image(sets.query) else replace(options, images=None)
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
    query = options.inputs.sets.names.get(Role.QUERY)
    if not (query and is_texts(query)):
        return options
    refuse_options({"--target-kind": options.target_kind != "auto"}, "texts have log-likelihoods")
    names, of_classes = tests_named(options), [test.name for test in TESTS if test.of_classes]
    if ALL in (options.tests or "").split(","):
        names = tuple(name for name in names if name not in of_classes)
    return replace(options, tests=",".join(names))


def prepare_by_bank(options: KSOptions) -> Job[KSAudit]:
    """The work for these options."""
    path = options.shadows or Path()
    bank = load_bank(path)
    inputs = options.inputs
    for line in inputs.left_out:
        say(line)
    if bank.groups is not None and Role.MEMBERS in inputs.sets.names:
        options = with_dealt_groups(options, inputs.sets.names[Role.MEMBERS])
    sets, description = _read_sets(options, bank), bank.description
    member_examples = _read_members(options, bank)
    targets = _read_targets(options, bank, member_examples)
    shadows = open_bank(bank, members=member_examples, sets=sets)
    if not len(bank.finished()):
        raise InputError(f"{path}: none of its {len(bank)} shadow models has outputs yet; train them, or leave it out.")
    tell_of_missing(path, bank)
    tests = _tests_of(options, shadows, targets)
    check_first(list(tests), {*targets[0].on})

    def audit(execution: Execution) -> KSAudit:
        if options.leave_one_out:
            say("judging each shadow model by the others")
        return judge(
            jax.random.key(options.seed),
            shadows,
            targets,
            tests=tuple(tests.values()),
            own_recipe=options.same_recipe or not (description.device or description.command[1:2] == ("ks",)),
            rates=options.leave_one_out,
            progress=execution.progress,
        )

    return Job(
        options=replace(options, tests=",".join(tests)),
        data=describe_bank(path, bank, shadows, {role: examples.name for role, examples in sets.items()}),
        audit=audit,
        outcome=ks_outcome,
        label="comparing",
        extra=described_files(targets),
    )


def _tests_of(options: KSOptions, shadows: ShadowModels, targets: tuple[FileTarget, ...]) -> dict[str, KSTest]:
    """The tests that the options name, by name, with the numbers of models in the bank."""
    tests_by_name = {name: test for name, test in built_in_tests().items() if name != "rho"}
    names = parse_tests(options.tests)
    if options.tests is not None and ALL in names and shadows.pool.classless:
        say("--tests all: the shadow test needs classes, and is left out")
    if ALL in names:
        names = tuple(test.name for test in possible_tests(shadows, targets))
    if unknown := [name for name in names if name not in tests_by_name]:
        raise InputError(
            f"--tests {','.join(names)}: a bank has no models for {' and '.join(unknown)}; it allows "
            f"{', '.join(tests_by_name)}."
        )
    values = default_test_fields(options, len(targets))
    tests = made_tests(shadows, [offered(tests_by_name[name], values) for name in names])
    return with_fields("--test-option", options.test_option, dict(zip(names, tests, strict=True)))


def _reader_as(options: KSOptions, description: Description) -> Callable[[str], Examples]:
    """A function that reads a set as those of the bank were read."""
    alike = replace(options, label=options.inputs.sets.label, images=description.images)
    return partial(read_examples, options=alike, groups=description.group_columns, gaps=True)


def _read_sets(options: KSOptions, bank: Bank) -> dict[str, Examples]:
    """The sets of the bank that are given again, by role."""
    description, names = bank.description, options.inputs.sets.names
    if description.outputs in SCORED:
        # Of records without classes only their number is known.
        for role in ROLES:
            size = getattr(description.sizes, role)
            if role in names and (count := count_of(f"--{role}", names[role])) != size:
                raise InputError(f"{names[role]}: has {count} records, and the bank has {size} of its {role}.")
        return {}
    read = _reader_as(options, description)
    sets_by_role: dict[str, Examples] = {}
    for role in filter(names.__contains__, ROLES):
        name, hash_of_bank = names[role], getattr(description.hashes, role)
        examples = read(name)
        if examples.content_hash != hash_of_bank:
            raise InputError(
                f"{name}: is not the {role} set that the bank was planned with ({examples.content_hash} here, "
                f"{hash_of_bank or 'no hash'} there): records, labels or their order differ. Of a bank without hashes "
                "nobody can tell; leave the set out."
            )
        sets_by_role[role.value] = examples
    return sets_by_role


def _read_members(options: KSOptions, bank: Bank) -> Examples | None:
    """The known members, with the bank's classes, and their groups.

    Of records without classes only their number is known.
    """
    description = bank.description
    name = options.inputs.sets.names.get(Role.MEMBERS)
    if name is None or not all(Role.MEMBERS in model.places for model in options.inputs.targets):
        return None
    if description.outputs in SCORED:
        members = unread_examples("--members", name)
    else:
        members = _reader_as(options, description)(name)
        first = replace(members.take(slice(1)), labels=np.zeros(1, int), class_names=description.names)
        members = align_dealt(first, members)
    return with_named_groups(Sets(members=members), options.groups, Sets(members=name))[Role.MEMBERS]


def _read_targets(options: KSOptions, bank: Bank, members: Examples | None) -> tuple[FileTarget, ...]:
    description = bank.description
    classes = description.class_names or description.classes
    if options.target_kind != "auto" and (
        description.outputs in SCORED or (options.target_kind == "log-odds" and description.outputs != "log_odds")
    ):
        raise InputError(
            f"--target-kind {options.target_kind}: this is a bank of {description.outputs}; give these of the "
            "target, and leave it out."
        )
    sets = Sets(query=bank.query, holdout=bank.holdout, calibration=bank.calibration)

    def one(place: OutputsPlace, role: Role, _: bool) -> Outputs:
        path, kind, called, scored = place.path, options.target_kind, role.words, description.outputs in SCORED
        if role == Role.MEMBERS:
            if members is None:
                raise InputError(
                    f"{place.name}: has outputs on the known members, and another model has none; give the outputs of "
                    "every model by set, on the same sets."
                )
            if scored:
                return score_outputs(place, description, len(members), called)
            return load_outputs(place, members.class_names, len(members), as_outputs(kind), of=called)
        columns = sets[role]
        rows = columns.stop - columns.start
        if not rows:
            raise InputError(f"{place.name}: the bank has no {called}, so outputs on it cannot be compared.")
        bank_shape = (rows, *description.shape[1:])
        # A file that could hold outputs of every class is not interpreted in another way.
        plain = {(rows, description.classes), *([(rows,), (rows, 1)] if description.classes == 2 else [])}
        of_bank_kind = kind == "auto" and bank_shape not in plain and path.suffix.lower() == ".npy" and exists(path)
        if scored or kind == "log-odds" or (of_bank_kind and npy_shape(path) == bank_shape):
            return target_outputs(place, bank, columns, called)
        return load_outputs(place, classes, rows, as_outputs(kind), of=called)

    return file_targets(options, options.inputs, one)


def prepare_by_scores(options: KSOptions) -> Job[KSAudit]:
    """The work for these options."""
    table = read_scores(options.scores or Path(), map(parse_direction, options.direction))
    usual = ScoresTest(question=options.question or "used", same_recipe=options.same_recipe)
    (test,) = with_fields("--test-option", options.test_option, {SCORES: usual}).values()

    def audit(_: Execution) -> KSAudit:
        return judge_scores(jax.random.key(options.seed), table, test=test, by=options.by)

    return Job(
        options=options,
        audit=audit,
        outcome=lambda audit: Outcome(audit.result, audit.sources),
        data=describe_scores(table),
        label="comparing",
    )
