"""Runs `jaxaudit attack --shadows BANK`: no library of networks is needed to read a bank."""

from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.exposure import place_in_set
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.targets import RecordTarget, prefixes, read_members, target_log_odds
from jaxaudit.cli.attack import AttackOptions, named_attacks
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import tell_of_readings
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.directory import arrays, record_files
from jaxaudit.runs.provenance import describe_bank


def prepare_attack_by_bank(options: AttackOptions) -> Job[AttackAudit]:
    """The work for these options."""
    path = options.audit.shadows or Path()
    bank = load_bank(path)
    # None are all that the bank allows.
    attacks, flags = None, options.audit
    if flags.attacks is not None or flags.attack_option:
        attacks = named_attacks(flags, RECORD_ATTACKS)
    targets, records = _targets(options, bank)
    shadows = open_for_attacks(bank, len(RECORD_ATTACKS if attacks is None else attacks), records)
    if shadows.scale is not None and attacks is None:
        say("attacks that compare probabilities (rmia) are left out: this is a bank of scores, of which ranks are used")
    missing = bank.missing()
    if len(missing):
        say(f"{path}: {len(missing)} of {len(bank)} shadow models have no outputs yet; the others are used")
    finished = len(bank.finished())
    if len(shadows) < finished:
        say(
            f"{path}: {len(shadows)} of {finished} models were trained on whole groups, and are used: groups are "
            "attacked whole"
        )
    if records < bank.description.records:
        say(f"attacking the {records:,} records of the {prefixes(bank)[records]}")

    def audit(execution: Execution) -> AttackAudit:
        return attack_records(
            shadows,
            targets,
            attacks=attacks,
            progress=execution.progress,
        )

    return Job(
        options=options,
        data=describe_bank(path, bank, {}, len(shadows), shadows.content_hash),
        audit=audit,
        outcome=lambda audit_result, provenance: attack_outcome(audit_result, bank, records, provenance),
        label="attacking",
        extra={"targets": [{"name": target.name, "content_hash": target.content_hash} for target in targets]},
    )


def attack_outcome(audit: AttackAudit, bank: Bank, records: int, provenance: Provenance) -> Outcome:
    """The result in all of its output forms; `records` of the bank were attacked, dropped ones included."""
    scores, columns = {}, np.flatnonzero(~bank.dropped[:records])[: len(_units(audit))]
    for name, attack_scores in audit.scores.items():
        # Dropped records have none; those of a group have the group's.
        scores[name] = np.full((len(attack_scores), records), np.nan)
        scores[name][:, columns] = attack_scores[:, _units(audit)]

    files = {"scores.npz": arrays(scores), **record_files(_of_records(audit, bank, columns))}
    return Outcome(recorded("attack", audit.result, audit.sources, provenance), {}, files)


def _targets(options: AttackOptions, bank: Bank) -> tuple[tuple[RecordTarget, ...], int]:
    """The targets, and the number of the bank's records that their outputs cover."""
    audit = options.audit
    odds_and_outputs = [target_log_odds(path, bank, audit.target_kind) for path in audit.target]
    tell_of_readings(stored for _, stored in odds_and_outputs)
    rows = {odds.shape[1] for odds, _ in odds_and_outputs}
    if len(rows) > 1:
        raise InputError(f"--target: files have {' and '.join(map(str, rows))} rows; give files of the same records.")
    records = next(iter(rows), bank.description.records)
    members = [read_members(path, records) for path in audit.members] or [None] * len(odds_and_outputs)
    triples = zip(audit.target, odds_and_outputs, members, strict=True)
    return tuple(RecordTarget(path.name, odds, row, stored) for path, (odds, stored), row in triples), records


def _units(audit: AttackAudit) -> Int[np.ndarray, " records"]:
    """The number of each attacked record, or of its group, among the columns of the scores."""
    return np.arange(len(audit.records)) if audit.unit_of_record is None else audit.unit_of_record


def _of_records(audit: AttackAudit, bank: Bank, columns: Int[np.ndarray, " records"]) -> dict[str, np.ndarray]:
    """Columns with a row for each record; where groups are attacked, with the number and the results of its group."""
    by_record, units = audit.by_record, _units(audit)
    assert by_record is not None
    record_arrays, places = by_record.vulnerability, [place_in_set(bank, column) for column in columns.tolist()]
    numbers = {
        "models_with": record_arrays.inside,
        "models_without": record_arrays.outside,
        "separation": record_arrays.separation,
        "named": record_arrays.named,
        "named_low": record_arrays.named_low,
        "named_high": record_arrays.named_high,
        "wrongly_named": record_arrays.wrongly,
        "same_outputs": by_record.copies,
    }
    deciding = audit.scores[audit.result.decided_by]
    for index, (scores, called) in enumerate(zip(deciding, by_record.called, strict=False)):
        numbers |= {f"score_{index}": scores, f"called_{index}": np.where(np.isnan(scores), np.nan, called)}
    # Groups count from 1, as those of `ks` do.
    group = {} if audit.unit_of_record is None else {"group": units + 1}
    return {
        "set": np.array([of for of, _ in places]),
        "place": np.array([index for _, index in places]),
        **({} if bank.ids is None else {"id": bank.ids[columns]}),
        **group,
        "label": bank.labels[columns],
        **{name: values[units] for name, values in numbers.items()},
    }
