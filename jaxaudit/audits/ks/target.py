"""Targets of the `ks` audit: files of outputs, or models of known truth, each a kind of its own, that it trains.

Outputs that no target has on these sets are refused: of another shape, copied from another set, or out of order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int

from jaxaudit.audits.ks.evidence import (
    Evidence,
    TargetOutputs,
    all_logits,
    of_file,
)
from jaxaudit.audits.ks.models import Part, Rows, generators, target_row
from jaxaudit.audits.ks.result import Truth
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.outputs.checks import ONE_MODEL, OutputsBySet, knows_members_alone, on_two_scales, rows_out_of_line
from jaxaudit.data.outputs.model_copies import same_models
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.pairs import are_copies
from jaxaudit.errors import InputError, few
from jaxaudit.metrics.arrays import Integers, OneKey
from jaxaudit.metrics.checks import (
    BEFORE_ON_HOLDOUT,
    BEFORE_OUTPUTS,
    HOLDOUT_OUTPUTS,
    MEMBERS_OUTPUTS,
    OUTPUTS_ON_ONE_SCALE,
    TARGET_OUTPUTS,
    Check,
    counted,
    described,
    moved_columns,
    ranked,
    target_accuracy,
    target_order,
)
from jaxaudit.shadow_models import Pool

CHECKED = {
    Role.QUERY: ("query set", TARGET_OUTPUTS),
    Role.HOLDOUT: ("holdout", HOLDOUT_OUTPUTS),
    Role.MEMBERS: ("known members", MEMBERS_OUTPUTS),
}
"""The sets on which outputs must be in order, with their names in messages and the names of the checks."""
CHECKED_BEFORE = {Role.QUERY: ("query set", BEFORE_OUTPUTS), Role.HOLDOUT: ("holdout", BEFORE_ON_HOLDOUT)}
"""The same of outputs before a deletion."""


class FileTarget(NamedTuple):
    """A target given as files of its outputs, each in the order of its set.

    Attributes:
        on: the outputs, by the set that they are on: on the query set at least. Outputs on the calibration set say that
            the target is known to have used none of it; those on known members, that it did use these.
        before: the outputs of the model before a deletion, on query set and holdout; or none.
        allow_unrelated: accept outputs that classify the query set no better than guessing.
    """

    on: Sets[Outputs]
    before: Sets[Outputs] = Sets()
    allow_unrelated: bool = False

    @property
    def name(self) -> str:
        return self.on[Role.QUERY].name

    def called(self, name: str) -> "FileTarget":
        """The target under another name, which is that of its outputs on the query set."""
        return self._replace(on=self.on | Sets(query=replace(self.on[Role.QUERY], name=name)))

    def refuse(self, sets: Sets[Examples]) -> None:
        if Role.QUERY not in self.on:
            raise InputError("a target has no outputs on the query set: give them (`query`).")
        if self.before and not ({*self.before} == {Role.QUERY, Role.HOLDOUT} and Role.HOLDOUT in sets):
            raise InputError(
                f"{self.name}: outputs before the deletion are compared with a holdout: give those on the query set, "
                "those on the holdout, and the holdout."
            )
        for role in (Role.HOLDOUT, Role.MEMBERS):
            if (role in self.on) != (role in sets):
                left, missing = ("records", "outputs") if role in sets else ("outputs", "records")
                raise InputError(
                    f"{self.name}: there are {left} of the {role.words} but no {missing}; give both or none."
                )
        files = (*self.on.items(), *self.before.items())
        present = [(file, sets[role], role.words) for role, file in files if role in sets]
        for file, examples, of in present:
            refuse_shape(file, len(examples), len(examples.class_names), of)
        for outputs in (self.on, self.before):
            refuse_copied_outputs({role.words: file for role, file in outputs.items()})
        if not self.allow_unrelated:
            refuse_order([file_of_role for file_of_role in present if not file_of_role[0].own_class])

    def of_kept(self, pool: Pool) -> "FileTarget":
        """The outputs on the records that a pool keeps, from outputs on its sets as they were given."""
        if not pool.kept:
            return self
        kept = Sets(**pool.kept)
        for role, file in (*self.on.items(), *self.before.items()):
            if role in kept:
                refuse_shape(file, len(kept[role]), len(pool.examples.class_names), role.words)
        return self.taken(kept.map(lambda _, mask: np.flatnonzero(mask)))

    def taken(self, records: Sets[Int[np.ndarray, " _"]]) -> "FileTarget":
        """The outputs on these records of each set; on all records of a set that is not named."""

        def part(role: Role, file: Outputs) -> Outputs:
            return file.take(records[role]) if role in records else file

        return self._replace(on=self.on.map(part), before=self.before.map(part))

    def says(self, evidence: Evidence, kind: str) -> TargetOutputs:
        pool, models, labels = evidence.pool, evidence.models, evidence.pool.examples.labels
        # In the order of the compared records.
        parts = {Role.QUERY: pool.query, Role.HOLDOUT: pool.holdout}
        parts |= {Role.CALIBRATION: pool.calibration} if pool.compares_calibration else {}
        parts |= {Role.MEMBERS: pool.members}
        present = [role for role, part in parts.items() if part.stop > part.start and role in self.on]
        files, classes = tuple(self.on[role] for role in present), {role: labels[parts[role]] for role in present}
        log_odds, at_resolution, confidences = of_file(files, tuple(classes.values()), models)
        checks: tuple[Check, ...] = ()
        if not (self.allow_unrelated or pool.classless):
            checks = (*_of_files(self.on, classes, CHECKED), *_of_files(self.before, classes, CHECKED_BEFORE))
        elif not self.allow_unrelated and len(models):
            dealt_records = evidence.dealt_records
            usual = models.log_odds[:, dealt_records].mean(axis=0)
            checks = (target_order(log_odds[dealt_records], usual, evidence.queries, self.name),)
        before = None
        if self.before:
            before = of_file(tuple(self.before.values()), (classes[Role.QUERY], classes[Role.HOLDOUT]), models)[:2]
        return TargetOutputs(
            self.name,
            None,
            log_odds,
            at_resolution,
            not all_logits((*files, *models.resolutions)),
            confidences,
            checks=checks,
            unseen=evidence.in_calibration,
            before=before,
            file=files[0],
        )


class SimulatedTarget(NamedTuple):
    """A target of known truth, trained by the audit on the union of its `parts`, at least one."""

    name: str
    parts: tuple[Part, ...]

    def refuse(self, sets: Sets[Examples]) -> None:
        if not self.parts:
            raise InputError(f"{self.name}: no data to train this target on; give at least one set.")

    def draw(self, key: OneKey, pool: Pool, kind: str) -> Rows:
        return {kind: target_row(next(generators(key, kind, 1)), pool, self.parts)}

    def says(self, evidence: Evidence, kind: str) -> TargetOutputs:
        models, n = evidence.models, evidence.queries
        target_model = models.take(models.of(kind))
        row = target_model.membership[0]
        used = float(row[evidence.pool.query].mean())
        return TargetOutputs(
            self.name,
            Truth(used, int(row.sum()), "not forgotten" if used > 0 else "forgotten"),
            target_model.log_odds[0, evidence.pool.compared],
            lambda odds: odds,
            printed=False,
            confidences=target_model.confidences[:, :n],
            unseen=~row[evidence.pool.compared] & evidence.in_calibration,
            trained_here=True,
        )


Target = FileTarget | SimulatedTarget
"""A model to be judged."""


def _of_files(
    files: Sets[Outputs], labels: Mapping[Role, Int[np.ndarray, " _"]], names: Mapping[Role, tuple[str, str]]
) -> tuple[Check, ...]:
    """Checks of the order of rows and columns of a model's files, and of their scale."""
    roles = [role for role in names if role in files and role in labels]
    if not roles:
        return ()
    words = {role: names[role][0] for role in roles}
    outputs_by_set = OutputsBySet(
        {words[role]: files[role].probabilities for role in roles},
        {words[role]: files[role].columns(labels[role]) for role in roles},
        words.get(Role.HOLDOUT),
    )
    order = {role: _in_order(files[role], labels[role], *names[role]) for role in roles}
    failed = [role for role in roles if not order[role].passed]
    by_heart = failed == [Role.QUERY, Role.HOLDOUT] and Role.MEMBERS in order
    by_heart = by_heart and knows_members_alone(outputs_by_set, words[Role.MEMBERS])
    order |= {role: msgspec.structs.replace(order[role], passed=True) for role in failed if by_heart}
    for set_name, (_, message) in rows_out_of_line(outputs_by_set, by_heart=by_heart).items():
        role = next(role for role in roles if words[role] == set_name)
        if order[role].passed:
            order[role] = Check(names[role][1], False, None, None, True, f"{files[role].name}: {message}")
    scales = on_two_scales(outputs_by_set, by_heart=by_heart)
    return *order.values(), *((Check(OUTPUTS_ON_ONE_SCALE, False, None, None, True, scales),) if scales else ())


def _in_order(file: Outputs, labels: Integers, of: str, check: str) -> Check:
    """Whether the rows and columns of a file are in the order of the set `of`; `check` is the name of the check."""
    accuracy = float(np.mean(file.probabilities.argmax(axis=1) == file.columns(labels)))
    file_check = target_accuracy(accuracy, labels, file.name, of=of, check=check)
    if file_check.passed or file.own_class:
        return file_check
    ranking = ranked(file.probabilities, labels)
    return target_accuracy(accuracy, labels, file.name, of=of, check=check, ranking=ranking)


def all_on_calibration(targets: Sequence[Target]) -> bool:
    """Whether targets from files have outputs on the calibration set, of which they used none; all or none must."""
    answers = {Role.CALIBRATION in target.on for target in targets if isinstance(target, FileTarget)}
    if len(answers) > 1:
        raise InputError(
            "some targets have outputs on the calibration set, and some have none: give those of all targets, or of "
            "none."
        )
    return True in answers


def kinds_of_targets(targets: Sequence[Target]) -> list[str]:
    """The kind of the model of each target, which no other model has; targets from files have none."""
    numbers = count()
    return [f"target {next(numbers)}" if isinstance(target, SimulatedTarget) else "" for target in targets]


def refuse_shape(file: Outputs, records: int, classes: int, name: str) -> None:
    if file.probabilities.shape != (records, 2 if file.own_class else classes):
        raise InputError(
            f"{file.name} has outputs of shape {file.probabilities.shape}, but the {name} has {records} records "
            f"and {classes} classes: give one row per record, in the {name}'s order."
        )


def refuse_copied_outputs(outputs: Mapping[str, Outputs]) -> None:
    """Rejects the outputs on one set as those on another set; `outputs` are by the name of the set."""
    for (first, file), (second, other_file) in combinations(outputs.items(), 2):
        if are_copies(file.probabilities, other_file.probabilities):
            raise InputError(
                f"{other_file.name}: has the same rows as {file.name}, and they are of different records: the outputs "
                f"on the {first} seem to be given as those on the {second}, too. Give for each set the outputs on it."
            )


def refuse_one_target_twice(files: Sequence[TargetOutputs], evidence: Evidence) -> None:
    """Rejects files of which two are of one model, or one is of a shadow model; files are by their log-odds."""
    models, compared = evidence.models, evidence.pool.compared
    shadows = models.log_odds[:, compared] if len(models) else np.empty((0, len(compared)), np.float32)
    odds = np.concatenate([*(file.log_odds[None].astype(np.float32) for file in files), shadows])
    usual = np.arange(len(odds)) >= len(files) if len(shadows) > 2 else None
    # Of known members a bank has no outputs.
    for i, j in same_models(odds[:, ~np.isnan(odds).any(axis=0)], usual):
        if i < len(files):
            other = files[j].name if j < len(files) else f"shadow model {j - len(files)}"
            raise InputError(f"{files[i].name}: has the outputs of {other}, or nearly so: {ONE_MODEL.says}.")


def refuse_order(files: Sequence[tuple[Outputs, Examples, str]]) -> None:
    """Rejects a target whose columns, in all files or in one, fit the labels far better in another order of classes."""
    tables = [counted(file.probabilities, examples.labels) for file, examples, _ in files]
    if not tables or len(tables[0]) < 2:
        return
    first_moved = moved_columns([sum(tables[1:], tables[0]), *tables] if len(tables) > 1 else tables)
    if not first_moved:
        return
    alone = [file for file, table in zip(files, tables, strict=True) if moved_columns([table])]
    which, moved = first_moved
    blamed = alone if len(alone) == 1 else files if which == 0 else files[which - 1 : which]
    name, names = ", ".join(dict.fromkeys(file.name for file, *_ in blamed)), files[0][1].class_names
    go_on = "allow an unrelated target (`allow_unrelated`)"
    if blamed[0][0].reading and all(file.values.shape[1] == 1 for file, *_ in blamed):
        better = "if its one column is of the other class than that which it is read as"
        otherwise = "head the column with the name of its class, in a .csv or .parquet, or give a column for each class"
    else:
        better = f"with {described(moved, names)}"
        otherwise = (
            f"put the columns in the order of the classes ({few((class_name[:40] for class_name in names), 10)}), or "
            "give a table whose header names them"
        )
    if len(files) > 1 and blamed == [files[0]] and files[0][2] == "query set":
        raise InputError(
            f"{name}: on the query set, and on no other set, the labels are met far better {better}. If the query set "
            f"was over-forgotten, as after a deletion that went too far, {go_on}. If this file differs from the "
            f"others, {otherwise}."
        )
    raise InputError(
        f"{name}: the columns seem to be in another order than the classes. The labels are met far better {better}: "
        f"{otherwise}. If the model really takes these classes for others, as after a deletion that went too far, "
        f"{go_on}."
    )
