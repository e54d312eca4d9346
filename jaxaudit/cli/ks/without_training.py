"""Runs `jaxaudit ks --shadows BANK` and `--scores TABLE`: from the options to the result, with no training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from jaxaudit.audits.bank_odds import score_outputs
from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.result import SCORES, KSAudit
from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.train import made_tests, offered, possible_tests
from jaxaudit.audits.open_bank import NO_CLASS, open_bank, target_outputs
from jaxaudit.cli.ks.inputs import as_outputs, built_in_tests, fields_of_tests, file_targets, load_own_tests
from jaxaudit.cli.ks.options import ALL, KSOptions, check_first, ks_inputs, parse_direction, parse_tests, with_all
from jaxaudit.cli.ks.run import described_files, ks_outcome
from jaxaudit.cli.options import with_values
from jaxaudit.cli.own_code import with_fields
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import read_scores, reader, with_dealt_groups, with_named_groups
from jaxaudit.cli.shadows.plan import count_of
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.data.bank.description import SCORED, Description, Sizes
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.formats.arrays import npy_shape
from jaxaudit.data.outputs.form import OutputsPlace
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.pairs import align_dealt
from jaxaudit.data.paths import exists
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_bank, describe_scores
from jaxaudit.shadow_models import ShadowModels


def prepare_by_bank(options: KSOptions) -> Job[KSAudit]:
    """The work for these options."""
    path = options.audit.shadows or Path()
    bank = load_bank(path)
    inputs = ks_inputs(options)
    for line in inputs.left_out:
        say(line)
    if bank.groups is not None and Role.MEMBERS in inputs.sets.names:
        options = with_dealt_groups(options, inputs.sets.names[Role.MEMBERS])
    sets, description = _read_sets(options, bank), bank.description
    member_examples = _read_members(options, bank)
    targets = _read_targets(options, bank, member_examples)
    shadows = open_bank(bank, members=member_examples, sets=sets)
    names = {role: examples.name for role, examples in sets.items()}
    missing = bank.missing()
    if len(missing) == len(bank):
        raise InputError(f"{path}: none of its {len(bank)} shadow models has outputs yet; train them, or leave it out.")
    if len(missing):
        say(f"{path}: {len(missing)} of {len(bank)} shadow models have no outputs yet; the others are used")
    tests = _tests_of(options, shadows, targets)
    check_first(list(tests), {*targets[0].on})

    def audit(execution: Execution) -> KSAudit:
        if options.audit.leave_one_out:
            say("judging each shadow model by the others")
        return judge(
            jax.random.key(options.audit.seed),
            shadows,
            targets,
            tests=tuple(tests.values()),
            own_recipe=options.audit.same_recipe or not (description.device or description.command[1:2] == ("ks",)),
            rates=options.audit.leave_one_out,
            progress=execution.progress,
        )

    return Job(
        options=with_values(options, tests=",".join(tests)),
        data=describe_bank(path, bank, names, len(shadows), shadows.content_hash),
        audit=audit,
        outcome=ks_outcome,
        label="comparing",
        extra=described_files(targets),
    )


def _tests_of(options: KSOptions, shadows: ShadowModels, targets: tuple[FileTarget, ...]) -> dict[str, KSTest]:
    """The tests that the options name, by name, with the numbers of models in the bank."""
    audit = options.audit
    tests_by_name = {name: test for name, test in built_in_tests().items() if name != "rho"}
    names = tuple(parse_tests(audit.tests or ALL))
    if audit.tests is not None and ALL in names and shadows.pool.classless:
        say("--tests all: the shadow test needs classes, and is left out")
    if ALL in names:
        names = with_all(names, [test.name for test in possible_tests(shadows, targets)])
    allowed = ", ".join(tests_by_name)
    tests_by_name |= load_own_tests(audit.tests or ALL)
    unknown = [name for name in names if name not in tests_by_name]
    if unknown:
        raise InputError(
            f"--tests {','.join(names)}: a bank has no models for {' and '.join(unknown)}; it allows {allowed}."
        )
    values = fields_of_tests(audit, len(targets))
    tests = made_tests(shadows, [offered(tests_by_name[name], values) for name in names])
    return with_fields("--test-option", audit.test_option, dict(zip(names, tests, strict=True)))


def _reader_as(options: KSOptions, description: Description) -> Callable[[str], Examples]:
    """A function that reads a set as those of the bank were read."""
    inputs = {"label": ks_inputs(options).sets.label, "images": description.images}
    return reader(replace(options.data, **inputs), description.group_columns)


def _read_sets(options: KSOptions, bank: Bank) -> dict[str, Examples]:
    """The sets of the bank that are given again, by role."""
    description, names = bank.description, ks_inputs(options).sets.names
    if description.outputs in SCORED:
        # Of records without classes only their number is known.
        for role, size in zip(Sizes._fields, description.sizes, strict=True):
            name = names.get(Role(role))
            if name is not None and count_of(role, name) != size:
                raise InputError(f"{name}: has {count_of(role, name)} records, and the bank has {size} of its {role}.")
        return {}
    read = _reader_as(options, description)
    sets_by_role: dict[str, Examples] = {}
    for role in Sizes._fields:
        name = names.get(Role(role))
        if name is None:
            continue
        hash_of_bank = getattr(description.hashes, role)
        if hash_of_bank is None:
            raise InputError(
                f"{name}: the bank has no hash of its {role} records, so nobody can tell whether these are they; leave "
                "them out."
            )
        examples = read(name)
        if examples.content_hash != hash_of_bank:
            raise InputError(
                f"{name}: is not the {role} set that the bank was planned with ({examples.content_hash} here, "
                f"{hash_of_bank} there): records, labels or their order differ."
            )
        sets_by_role[role] = examples
    return sets_by_role


def _read_members(options: KSOptions, bank: Bank) -> Examples | None:
    """The known members, with the bank's classes, and their groups.

    Of records without classes only their number is known.
    """
    data, description = options.data, bank.description
    name = ks_inputs(options).sets.names.get(Role.MEMBERS)
    if name is None or not all(Role.MEMBERS in model.places for model in ks_inputs(options).targets):
        return None
    if description.outputs in SCORED:
        count = count_of("members", name)
        members = Examples(np.zeros((count, 0), np.float32), np.zeros(count, int), NO_CLASS, name)
    else:
        members = _reader_as(options, description)(name)
        first = replace(members.take(slice(1)), labels=np.zeros(1, int), class_names=description.names)
        members = align_dealt(first, members)
    return with_named_groups(Sets(members=members), data.groups, Sets(members=name))[Role.MEMBERS]


def _read_targets(options: KSOptions, bank: Bank, members: Examples | None) -> tuple[FileTarget, ...]:
    target, description = options.target, bank.description
    classes = description.class_names or description.classes
    if target.target_kind != "auto" and (
        description.outputs in SCORED or (target.target_kind == "log-odds" and description.outputs != "log_odds")
    ):
        raise InputError(
            f"--target-kind {target.target_kind}: this is a bank of {description.outputs}; give these of the "
            "target, and leave it out."
        )
    sets = Sets(query=bank.query, holdout=bank.holdout, calibration=bank.calibration)

    def one(place: OutputsPlace, role: Role, _: bool) -> Outputs:
        path = place.path
        if role == Role.MEMBERS:
            if description.outputs in SCORED:
                return score_outputs(place, description, len(members or ()), role.words)
            names = members.class_names if members else classes
            return load_outputs(place, names, len(members or ()), as_outputs(target.target_kind), of=role.words)
        columns, called = sets[role], role.words
        rows = columns.stop - columns.start
        if not rows:
            raise InputError(f"{place.name}: the bank has no {called}, so outputs on it cannot be compared.")
        bank_shape = (rows, *description.shape[1:])
        # A file that could hold outputs of every class is not interpreted in another way.
        plain = {(rows, description.classes), *([(rows,), (rows, 1)] if description.classes == 2 else [])}
        of_bank_kind = (
            target.target_kind == "auto" and bank_shape not in plain and path.suffix.lower() == ".npy" and exists(path)
        )
        if (
            description.outputs in SCORED
            or target.target_kind == "log-odds"
            or (of_bank_kind and npy_shape(path) == bank_shape)
        ):
            return target_outputs(place, bank, columns, called)
        return load_outputs(place, classes, rows, as_outputs(target.target_kind), of=called)

    return file_targets(ks_inputs(options), one, target.allow_unrelated_target)


def prepare_by_scores(options: KSOptions) -> Job[KSAudit]:
    """The work for these options."""
    score_flags, audit_options = options.scores, options.audit
    table = read_scores(score_flags.scores or Path(), map(parse_direction, score_flags.direction))
    usual = ScoresTest(question=audit_options.question or "used", same_recipe=audit_options.same_recipe)
    (test,) = with_fields("--test-option", audit_options.test_option, {SCORES: usual}).values()

    def audit(_: Execution) -> KSAudit:
        return judge_scores(jax.random.key(audit_options.seed), table, test=test, by=score_flags.by)

    def outcome(audit: KSAudit, provenance: Provenance) -> Outcome:
        return Outcome(recorded("ks", audit.result, audit.sources, provenance), {}, {})

    return Job(options=options, audit=audit, outcome=outcome, data=describe_scores(table), label="comparing")
