"""From the options of `ks` to its sets and targets, matched record by record."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import jax
import numpy as np

from jaxaudit.audits.bank_odds import load_log_likelihoods
from jaxaudit.audits.ks.target import FileTarget, SimulatedTarget, Target, file_target
from jaxaudit.audits.pool import Part
from jaxaudit.cli.dealt_groups import group_columns, read_dealt_groups
from jaxaudit.cli.ks.demonstration import dealt_set
from jaxaudit.cli.ks.options import KSOptions, Targets
from jaxaudit.cli.parsers import parse_target_data
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import (
    drop_from,
    read_sets,
    reader,
    tell_of_readings,
    text_reader,
)
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.data import Examples, align_target_data, concatenate
from jaxaudit.data.challenge import answers_of, check_files, load_answers, read_key
from jaxaudit.data.groups import Groups
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.overlap import HOLDOUT, MEMBERS, refuse_held, refuse_in_reference, without_copies
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError, without_folders
from jaxaudit.metrics.members import LEAST_MEMBERS


def as_outputs(kind: str) -> Literal["auto", "probabilities", "logits"]:
    """What files of outputs of all classes contain."""
    if kind == "log-odds":
        raise InputError("--target-kind log-odds needs --shadows, a bank of log-odds: give probabilities or logits.")
    return cast("Any", kind)


class SourceSet(NamedTuple):
    """What is kept of a set as it was read, before records of it were dropped: its hash, and those of its records."""

    content_hash: str
    record_hashes: np.ndarray


def positions(whole: Examples | SourceSet, part: Examples | None) -> np.ndarray:
    """Which records of a set are in a part of it, which is in its order."""
    left = iter(enumerate(whole.record_hashes.tolist()))
    records = () if part is None else part.record_hashes.tolist()
    return np.array([next(index for index, record_hash in left if record_hash == record) for record in records], int)


class AuditInputs(NamedTuple):
    """The data of an audit, matched record by record.

    Attributes:
        calibration: with the query set's classes in its order, and no record of query set or holdout; None where known
            members are enough.
        holdout: records of the same provider that the target was not trained on, if any.
        files, simulated: targets given as files of outputs, and targets of known truth, to be trained.
        reference: a reference that is a set of its own, with no record of the others; None: the calibration set.
        members: records that the targets are known to have used, with no record of the others.
        read, read_groups: each set by role as it was read, and the groups.
        commitment: of the blind challenge that the files of outputs answer.
    """

    query: Examples
    calibration: Examples | None
    holdout: Examples | None
    files: tuple[FileTarget, ...] = ()
    simulated: tuple[SimulatedTarget, ...] = ()
    groups: Groups | None = None
    reference: Examples | None = None
    read: Sets[SourceSet] = Sets()
    read_groups: Groups | None = None
    members: Examples | None = None
    commitment: str | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """All targets, files first."""
        return (*self.files, *self.simulated)

    @property
    def sets_by_role(self) -> Sets[Examples]:
        """The sets by role."""
        return Sets(
            query=self.query,
            calibration=self.calibration,
            holdout=self.holdout,
            members=self.members,
            reference=self.reference,
        )

    @property
    def records(self) -> int:
        """The number of records of all sets and simulated targets together: no model is trained on more."""
        parts = (part for target in self.simulated for part in target.parts)
        return sum(map(len, self.sets_by_role.values())) + sum(len(part.examples) for part in parts)


def read_given(options: KSOptions, *, set_alone: bool = False) -> AuditInputs:
    """The sets and outputs that these options name; with `--drop-overlap`, without shared records.

    Files of outputs have one row per record of the sets as read; rows of dropped records are dropped, too. A set alone
    is dealt here into query set, holdout and known members.
    """
    data, target, kind = options.data, options.target, as_outputs(options.target.target_kind)
    key = None if data.challenge is None else read_key(data.challenge)
    if key is not None and data.challenge is not None:
        check_files(key, data.challenge.parent)
    simulated = [parse_target_data(text)[0] for text in target.target_data]
    names = [data.query, data.calibration, data.holdout, data.members, data.reference, *simulated]
    texts = text_reader([name for name in names if name is not None], options.model, make_adapters(options.model))
    read = texts or reader(data, group_columns(data))
    query, calibration, whole = (
        (read(data.query or ""), None, None) if data.calibration is None else read_sets(data, read)
    )
    held = None if data.holdout is None else read(data.holdout)
    holdout = None if held is None else align_target_data(query, held)
    members = None if data.members is None else align_target_data(query, read(data.members))
    if set_alone:
        needed = LEAST_MEMBERS * (4 if calibration is None else 3)
        if len(query) < needed:
            raise InputError(
                f"{query.name} has {len(query)} records, and a set alone is dealt into parts of at least "
                f"{LEAST_MEMBERS}: {needed} are needed. With outputs of a model (--target) fewer do."
            )
        dealt_sets = dealt_set(jax.random.key(options.audit.seed), query, with_calibration=calibration is None)
        query, holdout, members = (dealt_sets[role] for role in (Role.QUERY, Role.HOLDOUT, Role.MEMBERS))
        held = holdout
        if calibration is None:
            calibration = whole = dealt_sets[Role.CALIBRATION]
    if not data.drop_overlap:
        for of, examples in ((HOLDOUT, holdout), (MEMBERS, members)):
            sets_before = {"query set": query, "calibration set": calibration} | (
                {} if of == HOLDOUT else {HOLDOUT: holdout}
            )
            for role, other in sets_before.items():
                if examples is not None and other is not None:
                    refuse_held(other, examples, role, of=of)
    reference_whole, reference = whole, None
    if data.reference is not None:
        reference_whole = align_target_data(query, read(data.reference))
        reference = _match_reference(reference_whole, query, calibration, holdout, drop_shared=data.drop_overlap)
    kept = calibration if reference is None else reference

    sets = Sets(query=query, holdout=holdout, reference=reference_whole, members=members)

    def one(path: Path, role: Role) -> Outputs:
        examples = sets.get(role, query)
        if key is not None and role != Role.REFERENCE:
            return answers_of(load_answers(path, key, query.class_names, kind), key, role)
        if texts is not None:
            return load_log_likelihoods(path, len(examples), of=role.words)
        called = Role.CALIBRATION if role == Role.REFERENCE and reference is None else role
        outputs = load_outputs(path, query.class_names, len(examples), kind, of=called.words)
        if role == Role.REFERENCE and reference_whole is not None:
            return outputs.take(positions(reference_whole, kept))
        return outputs

    files = file_targets(target, one)
    sizes = (None if examples is None else len(examples) for examples in (holdout, members))
    groups = read_dealt_groups(data, len(query), *sizes)
    inputs = AuditInputs(
        query,
        calibration,
        holdout,
        files,
        groups=groups,
        reference=reference,
        read=Sets(query=query, holdout=held, calibration=whole).map(
            lambda _, source_set: SourceSet(source_set.content_hash, source_set.record_hashes)
        ),
        read_groups=groups,
        members=members,
        commitment=None if key is None else key.commitment,
    )
    if holdout is not None and data.drop_overlap:
        inputs = _apart(inputs, holdout)
    return inputs._replace(simulated=_simulated(options, inputs, read))


def file_targets(target: Targets, read: Callable[[Path, Role], Outputs]) -> tuple[FileTarget, ...]:
    """The targets that are files of outputs: for each on the query set, those on other sets in the same order."""
    paths = Sets(
        query=target.target,
        holdout=target.holdout_target,
        members=target.members_target,
        reference=target.reference_target or target.calibration_target,
    )
    paths_before = Sets(query=target.before, holdout=target.holdout_before)
    for path in (*target.before, *target.holdout_before):
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.scores.reading import is_score_table

        if is_score_table(path):
            raise InputError(
                f"{path.name}: is a table of scores, and outputs before the deletion are files of one column for each "
                "set (--before, --holdout-before)."
            )

    def of_role(role: Role, paths: Sequence[Path]) -> list[Outputs]:
        return name_apart([read(path, role) for path in paths], list(paths))

    on, earlier = paths.map(of_role), paths_before.map(of_role)
    tell_of_readings(file for outputs in (*on.values(), *earlier.values()) for file in outputs)

    def one(outputs: Sets[list[Outputs]], index: int) -> Sets[Outputs]:
        return outputs.map(lambda _, files: files[index] if files else None)

    return tuple(
        file_target(one(on, index), one(earlier, index), target.allow_unrelated_target)
        for index in range(len(target.target))
    )


def _match_reference(
    reference: Examples, query: Examples, calibration: Examples | None, holdout: Examples | None, *, drop_shared: bool
) -> Examples:
    """The reference with no record of another set."""
    if not drop_shared:
        refuse_in_reference(reference, query, calibration or query, holdout)
        return reference
    for other, role in ((query, "query set"), (calibration, "calibration set"), (holdout, "holdout")):
        reference = reference if other is None else drop_from(reference, other, role, "reference")
    return reference


def _simulated(options: KSOptions, inputs: AuditInputs, read: Callable[[str], Examples]) -> tuple[SimulatedTarget, ...]:
    """One target trained on the union of what `--target-data` names, or three of known truth without any target.

    These are trained on all, none and half of the query set. Each is also trained on all known members, and on two
    thirds of the other sets (the calibration set, a reference of its own), like the shadow models.
    """
    query, calibration, reference, members = inputs.query, inputs.calibration, inputs.reference, inputs.members
    requested_parts = [parse_target_data(text) for text in options.target.target_data]
    if not requested_parts:
        rest = [Part(examples, 0.67) for examples in (calibration, reference) if examples is not None]
        rest += [] if members is None else [Part(members, 1.0)]
        used = {"model A": [Part(query, 1.0)], "model B": [], "model C": [Part(query, 0.5)]}
        return () if inputs.files else tuple(SimulatedTarget(name, (*rest, *parts)) for name, parts in used.items())
    data = options.data
    sets_by_source = {
        data.query: query,
        data.calibration: calibration,
        data.reference: reference,
        data.members: members,
    }
    parts = [
        Part(sets_by_source[name] if name in sets_by_source else read(name), fraction)
        for name, fraction in requested_parts
    ]
    for part in parts:
        # What cannot be stacked with the query set is refused now rather than in training; one record shows it.
        one = slice(1)
        concatenate([query.take(one), align_target_data(query, part.examples.take(one))], "pool")
    shares = [f"{100 * part.fraction:g}% of " if part.fraction < 1 else "" for part in parts]
    names = [share + part.examples.name for share, part in zip(shares, parts, strict=True)]
    return (SimulatedTarget(" + ".join(names), tuple(parts)),)


def _apart(inputs: AuditInputs, holdout: Examples) -> AuditInputs:
    """The same without records that query set, calibration set, holdout and members share."""
    calibration = inputs.calibration
    compared = {"query set": inputs.query, "holdout": holdout}
    compared |= {} if inputs.members is None else {"members": inputs.members}
    for role, other in list(compared.items())[1:]:
        calibration = None if calibration is None else drop_from(calibration, other, role)
    kept = without_copies(*compared.values())
    lost = {role: len(examples) - len(left) for (role, examples), left in zip(compared.items(), kept, strict=True)}
    if any(lost.values()):
        say(
            f"{' and '.join(compared)} share records; dropped every record with a copy, "
            f"{' and '.join(f'{count} of the {role}' for role, count in lost.items())}, and their rows of outputs"
        )
    query_rows, holdout_rows, *members_rows = kept
    whole = inputs.calibration if inputs.reference is None else None
    rows = Sets(
        query=query_rows,
        holdout=holdout_rows,
        members=next(iter(members_rows), None),
        reference=None if whole is None else positions(whole, calibration),
    )
    return inputs._replace(
        query=inputs.query.take(rows[Role.QUERY]),
        calibration=calibration,
        holdout=holdout.take(rows[Role.HOLDOUT]),
        members=inputs.members and inputs.members.take(rows[Role.MEMBERS]),
        files=tuple(file.taken(rows) for file in inputs.files),
        groups=inputs.groups and inputs.groups.take(*kept),
    )


def name_apart(outputs: list[Outputs], paths: list[Path]) -> list[Outputs]:
    """Names for files: paths if names are equal, with numbers if paths are equal, too."""
    names = [file.name for file in outputs]
    path_names = [without_folders(str(path)) for path in paths]
    return [
        replace(file, name=path if path_names.count(path) == 1 else f"{path} ({place})")
        if names.count(file.name) > 1
        else file
        for place, (file, path) in enumerate(zip(outputs, path_names, strict=True), 1)
    ]
