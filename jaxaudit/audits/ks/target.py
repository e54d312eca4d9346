"""Targets of the `ks` audit: files of outputs, or models of known truth, each a kind of its own, that it trains."""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Int, Key

from jaxaudit.audits.ks.evidence import (
    Before,
    Compared,
    Evidence,
    TargetOutputs,
    all_logits,
    odds_over_views,
    of_file,
    of_rho,
)
from jaxaudit.audits.ks.models import Rows, generators
from jaxaudit.audits.ks.refusals import refuse_absent, refuse_copied_outputs, refuse_order, refuse_shape
from jaxaudit.audits.ks.result import Truth
from jaxaudit.audits.pool import Part, target_row
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.roles import Role, Sets
from jaxaudit.errors import InputError
from jaxaudit.metrics.checks import (
    BEFORE_ON_HOLDOUT,
    BEFORE_OUTPUTS,
    HOLDOUT_OUTPUTS,
    MEMBERS_OUTPUTS,
    TARGET_OUTPUTS,
    Check,
    target_accuracy,
    target_order,
)
from jaxaudit.metrics.ema import Signals, signals
from jaxaudit.metrics.output_order import ranked
from jaxaudit.metrics.output_scale import one_scale
from jaxaudit.shadow_models import Pool

CHECKED = {
    Role.QUERY: ("query set", TARGET_OUTPUTS),
    Role.HOLDOUT: ("holdout", HOLDOUT_OUTPUTS),
    Role.MEMBERS: ("known members", MEMBERS_OUTPUTS),
}
"""The sets on which outputs must be in order, with their names in messages and the names of the checks."""
CHECKED_BEFORE = {Role.QUERY: ("query set", BEFORE_OUTPUTS), Role.HOLDOUT: ("holdout", BEFORE_ON_HOLDOUT)}
"""The same of outputs before a deletion."""


@runtime_checkable
class Target(Protocol):
    """A model to be judged."""

    @property
    def name(self) -> str: ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """The data on which the audit trains it; empty for files."""
        ...

    def refuse(self, sets: Sets[Examples]) -> None:
        """Checks that it can be judged with these sets; there is a reference if a test needs outputs on it.

        Raises:
            InputError: it cannot be judged.
        """
        ...

    def draw(self, key: Key[Array, ""], pool: Pool, kind: str) -> Rows:
        """Its membership mask, by the name of its kind; empty for files."""
        ...

    def says(self, evidence: Evidence, kind: str, *, with_signals: bool) -> TargetOutputs:
        """Its outputs on the compared records, and with `with_signals` the signals that EMA needs.

        A target trained by the audit is among the models of `evidence`, of the kind for which it drew a mask.
        """
        ...


class FileTarget(NamedTuple):
    """A target given as files of its outputs, each in the order of its set.

    Attributes:
        outputs: on the query set.
        on_holdout: on the holdout, if there is one.
        on_reference: on the reference, if known: records that the target is known not to have used, which are the
            calibration set unless the audit is given another.
        allow_unrelated: accept outputs that classify the query set no better than guessing.
        before, before_on_holdout: the same outputs of the model before a deletion; both or none.
        on_members: on the known members, if there are any: records that the target did use.
    """

    outputs: Outputs
    on_holdout: Outputs | None = None
    allow_unrelated: bool = False
    on_reference: Outputs | None = None
    before: Outputs | None = None
    before_on_holdout: Outputs | None = None
    on_members: Outputs | None = None

    @property
    def name(self) -> str:
        return self.outputs.name

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    @property
    def on(self) -> Sets[Outputs]:
        """The outputs, by the role of the set that they are on."""
        return Sets(query=self.outputs, holdout=self.on_holdout, members=self.on_members, reference=self.on_reference)

    @property
    def earlier(self) -> Sets[Outputs]:
        """The outputs of the model before the deletion."""
        return Sets(query=self.before, holdout=self.before_on_holdout)

    def draw(self, key: Key[Array, ""], pool: Pool, kind: str) -> Rows:
        return {}

    def refuse(self, sets: Sets[Examples]) -> None:
        if self.earlier and not (len(self.earlier) == 2 and Role.HOLDOUT in sets):
            raise InputError(
                f"{self.name}: outputs before the deletion are compared with a holdout: give those on the query set, "
                "those on the holdout, and the holdout."
            )
        if (Role.HOLDOUT in self.on) != (Role.HOLDOUT in sets):
            present, missing = ("records", "outputs") if Role.HOLDOUT in sets else ("outputs", "records")
            raise InputError(f"{self.name}: there are {present} of the holdout but no {missing}; give both or none.")
        if Role.REFERENCE in sets and Role.REFERENCE not in self.on:
            raise InputError(
                f"{self.name}: the reference test needs the target's outputs on records of which it used none: on "
                "the calibration set (`on_reference`), or on other data (`reference`)."
            )
        if (Role.MEMBERS in self.on) != (Role.MEMBERS in sets):
            raise InputError(
                f"{self.name}: known members and the target's outputs on them need each other (`members`, "
                "`on_members`); give both or none."
            )
        files = (*self.on.items(), *self.earlier.items())
        present = [(file, sets[role], role.words) for role, file in files if role in sets]
        for file, examples, of in present:
            refuse_shape(file, len(examples), len(examples.class_names), of)
            refuse_absent(file, examples, of)
        for outputs in (self.on, self.earlier):
            refuse_copied_outputs({role.words: file for role, file in outputs.items()})
        if not self.allow_unrelated:
            refuse_order([file_of_role for file_of_role in present if not file_of_role[0].own_class])

    def of_kept(self, pool: Pool) -> "FileTarget":
        """The outputs on the records that a pool keeps, from outputs on its sets as they were given."""
        if not pool.kept:
            return self
        query, holdout, calibration = (pool.kept[role] for role in (Role.QUERY, Role.HOLDOUT, Role.CALIBRATION))
        kept = Sets(query=query, holdout=holdout, reference=calibration)
        for role, file in (*self.on.items(), *self.earlier.items()):
            if role in kept:
                called = Role.CALIBRATION if role == Role.REFERENCE else role
                refuse_shape(file, len(kept[role]), len(pool.examples.class_names), called.words)
        return self.taken(kept.map(lambda _, mask: np.flatnonzero(mask)))

    def taken(self, records: Sets[Int[np.ndarray, " _"]]) -> "FileTarget":
        """The outputs on these records of each set; on all records of a set that is not named."""

        def part(role: Role, file: Outputs) -> Outputs:
            return file.take(records[role]) if role in records else file

        return file_target(self.on.map(part), self.earlier.map(part), self.allow_unrelated)

    def says(self, evidence: Evidence, kind: str, *, with_signals: bool) -> TargetOutputs:
        pool, models, labels, file = evidence.pool, evidence.models, evidence.pool.examples.labels, self.outputs
        # In the order of the compared records.
        parts = {Role.QUERY: pool.query, Role.HOLDOUT: pool.holdout}
        parts |= {Role.REFERENCE: pool.reference, Role.MEMBERS: pool.members}
        present = [role for role, part in parts.items() if part.stop > part.start and role in self.on]
        pairs = {role: (self.on[role], labels[parts[role]]) for role in present}
        files, classes_of_files = zip(*pairs.values(), strict=True)
        log_odds, at_resolution, compared = of_file(files, classes_of_files, models)
        checks: tuple[Check, ...] = ()
        if not (self.allow_unrelated or pool.classless):
            to_check = [
                (files_of_time[role], labels[parts[role]], *words)
                for files_of_time, words_by_role in ((self.on, CHECKED), (self.earlier, CHECKED_BEFORE))
                for role, words in words_by_role.items()
                if role in files_of_time and role in pairs
            ]
            sure = {CHECKED[role][0]: self.on[role].probabilities.max(axis=1) for role in CHECKED if role in pairs}
            checks = (*(_in_order(*of_file_given) for of_file_given in to_check), *one_scale(sure))
        elif not self.allow_unrelated and len(models):
            dealt_records = evidence.dealt_records
            usual = models.log_odds[:, dealt_records].mean(axis=0)
            checks = (target_order(log_odds[dealt_records], usual, evidence.queries, file.name),)
        before = None
        if self.earlier:
            before = Before(*of_file(tuple(self.earlier.values()), classes_of_files[:2], models)[:2])
        return TargetOutputs(
            self.name,
            None,
            log_odds,
            at_resolution,
            not all_logits((*files, *models.resolutions)),
            compared,
            signals=signals(file.probabilities, classes_of_files[0]) if with_signals else None,
            checks=checks,
            unseen=evidence.in_reference if evidence.in_reference.any() else None,
            before=before,
            over_views=odds_over_views(files, classes_of_files, models),
        )


def file_target(on: Sets[Outputs], earlier: Sets[Outputs], allow_unrelated: bool) -> FileTarget:
    """The target with these outputs, by the role of the set that they are on; see `FileTarget`."""
    return FileTarget(
        on[Role.QUERY],
        on.get(Role.HOLDOUT),
        allow_unrelated,
        on.get(Role.REFERENCE),
        earlier.get(Role.QUERY),
        earlier.get(Role.HOLDOUT),
        on.get(Role.MEMBERS),
    )


class SimulatedTarget(NamedTuple):
    """A target of known truth, trained by the audit on the union of its `parts`, at least one."""

    name: str
    parts: tuple[Part, ...]

    def refuse(self, sets: Sets[Examples]) -> None:
        if not self.parts:
            raise InputError(f"{self.name}: no data to train this target on; give at least one set.")

    def draw(self, key: Key[Array, ""], pool: Pool, kind: str) -> Rows:
        return {kind: target_row(next(generators(key, kind, 1)), pool, self.parts)}

    def says(self, evidence: Evidence, kind: str, *, with_signals: bool) -> TargetOutputs:
        models, n = evidence.models, evidence.queries
        target_model = models.take(models.of(kind))
        row = target_model.membership[0]
        used = float(row[evidence.pool.query].mean())
        confidences = target_model.confidences[:, :n]
        return TargetOutputs(
            self.name,
            Truth(used, int(row.sum()), "not forgotten" if used > 0 else "forgotten"),
            target_model.log_odds[0, evidence.pool.compared],
            lambda odds: odds,
            printed=False,
            compared=Compared(*of_rho(models, models.confidences[:, :n]), confidences, confidences),
            signals=Signals(*(signal[0, :n] for signal in target_model.signals))
            if with_signals and target_model.signals
            else None,
            unseen=~row[evidence.pool.compared] & evidence.in_reference,
            trained_here=True,
        )


def _in_order(file: Outputs, labels: Int[np.ndarray, " n"], of: str, check: str) -> Check:
    """Whether the rows and columns of a file are in the order of the set `of`; `check` is the name of the check."""
    accuracy = float(np.mean(file.probabilities.argmax(axis=1) == file.columns(labels)))
    file_check = target_accuracy(accuracy, labels, file.name, of=of, check=check)
    if file_check.passed or file.own_class:
        return file_check
    ranking = ranked(file.probabilities, labels)
    return target_accuracy(accuracy, labels, file.name, of=of, check=check, ranking=ranking)


def kinds_of_targets(targets: Sequence[Target]) -> list[str]:
    """The kind of the model of each target, which no other model has; targets from files have none."""
    numbers = count()
    return [f"target {next(numbers)}" if target.parts else "" for target in targets]
