"""Runs `jaxaudit attack`: from its options to its result, on classifiers that it trains, or by a bank."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from jaxtyping import Int

from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.exposure import place_in_set
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.targets import RecordTarget, prefixes, read_members, target_log_odds
from jaxaudit.cli.attack import AttackOptions, named_attacks
from jaxaudit.cli.classifiers import drawn, make_classifier, read_table_options, table_data
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import tell_of_missing, tell_of_readings
from jaxaudit.cli.show import Job, Outcome
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.runs.directory import arrays, record_files
from jaxaudit.runs.provenance import describe_bank

CANDIDATES = 2000
"""The paper's number, or the largest even one that there is."""
SIZES = {"iterations": 100, "targets": 100}
DEMONSTRATION = {"iterations": 10, "targets": 20}
"""Defaults without --data."""


def prepare(options: AttackOptions) -> Job[Any]:
    """The work for these options, with classifiers that it trains."""
    # Imported here because a bank is read without the libraries of networks.
    from jaxaudit.audits.attack.attack import (
        ATTACKS,
        MEASURED,
        PAIRS,
        POOLED,
        attack,
        draw,
        models_to_train,
        train_splits,
    )

    attacks = named_attacks(options, ATTACKS)
    sizes = DEMONSTRATION if options.data is None else SIZES
    iterations = options.iterations or sizes["iterations"]
    # Only shadow models of a kind that some attack learns from are trained.
    kinds = {attack.shadows for attack in attacks}
    pairs, pooled = PAIRS if "paired" in kinds else 0, POOLED if "pooled" in kinds else 0
    whole = read_table_options(options)
    candidates = options.sample or min(CANDIDATES, len(whole) // 2 * 2)
    targets = options.targets or min(sizes["targets"], candidates)
    generator = np.random.default_rng(options.seed)
    chosen = drawn(generator, len(whole), candidates, "--sample", whole.name)
    table = whole.take(chosen)
    options, examples, learner = make_classifier(options, table)
    key = jax.random.key(options.seed)
    splits = draw(key, examples, iterations, targets)
    how: dict[str, Any] = {"shadow_pairs": pairs, "pooled_shadows": pooled, "measured": min(MEASURED, iterations)}
    options = replace(
        options,
        sample=candidates,
        attacks=",".join(attack.name for attack in attacks),
        iterations=iterations,
        targets=targets,
    )

    def models(models_per_batch: int) -> int:
        *counts, left_out = models_to_train(splits, learner, **how, models_per_batch=models_per_batch)
        return sum((*counts, *left_out))

    def audit(execution: Execution) -> AttackAudit:
        models = train_splits(
            key,
            examples,
            learner,
            **how,
            iterations=iterations,
            targets=targets,
            execution=execution,
        )
        return attack(models, attacks=attacks)

    def outcome(audit: AttackAudit) -> Outcome:
        indices = chosen[audit.records]
        splits = audit.result.splits
        assert splits is not None
        listed = zip(splits.records, indices.tolist(), strict=True)
        in_file = tuple(msgspec.structs.replace(record, index=place) for record, place in listed)
        result = msgspec.structs.replace(audit.result, splits=msgspec.structs.replace(splits, records=in_file))
        kept = {"records": indices, "truth": audit.truth, "pdtp": audit.measurements, **audit.scores}
        return Outcome(result, audit.sources, files={"scores.npz": arrays(kept)})

    return Job(
        options=options,
        data=table_data(whole, table, "candidate"),
        hashes={"table": table.content_hash},
        audit=audit,
        outcome=outcome,
        models=models,
        line=f"attacking {targets:,} of {len(table):,} candidates {2 * iterations:,} times, "
        f"{options.model}, on {jax.default_backend()}",
        label="attacking",
    )


def prepare_attack_by_bank(options: AttackOptions) -> Job[AttackAudit]:
    """The work for these options, with the models of a bank."""
    path = options.shadows or Path()
    bank = load_bank(path)
    # None are all that the bank allows.
    attacks = None
    if options.attacks is not None or options.attack_option:
        attacks = named_attacks(options, RECORD_ATTACKS)
    targets, records = _targets(options, bank)
    shadows = open_for_attacks(bank, len(RECORD_ATTACKS if attacks is None else attacks), records)
    if shadows.scale is not None and attacks is None:
        say("attacks that compare probabilities (rmia) are left out: this is a bank of scores, of which ranks are used")
    tell_of_missing(path, bank)
    finished = len(bank.finished())
    if len(shadows) < finished:
        say(
            f"{path}: {len(shadows)} of {finished} models were trained on whole groups, and are used: groups are "
            "attacked whole"
        )
    if records < bank.description.records:
        say(f"attacking the {records:,} records of the {prefixes(bank)[records]}")

    return Job(
        options=options,
        data=describe_bank(path, bank, shadows, {}),
        audit=lambda execution: attack_records(shadows, targets, attacks=attacks, progress=execution.progress),
        outcome=lambda audit: attack_outcome(audit, bank, records),
        label="attacking",
        extra={"targets": [{"name": target.name, "content_hash": target.content_hash} for target in targets]},
    )


def attack_outcome(audit: AttackAudit, bank: Bank, records: int) -> Outcome:
    """The result in all of its output forms; `records` of the bank were attacked, dropped ones included."""
    scores, units = {}, _units(audit)
    columns = np.flatnonzero(~bank.dropped[:records])[: len(units)]
    for name, attack_scores in audit.scores.items():
        # Dropped records have none; those of a group have the group's.
        scores[name] = np.full((len(attack_scores), records), np.nan)
        scores[name][:, columns] = attack_scores[:, units]

    files = {"scores.npz": arrays(scores), **record_files(_of_records(audit, bank, columns))}
    return Outcome(audit.result, audit.sources, files=files)


def _targets(options: AttackOptions, bank: Bank) -> tuple[tuple[RecordTarget, ...], int]:
    """The targets, and the number of the bank's records that their outputs cover."""
    odds_and_outputs = [target_log_odds(path, bank, options.target_kind) for path in options.target]
    tell_of_readings(stored for _, stored in odds_and_outputs)
    rows = {odds.shape[1] for odds, _ in odds_and_outputs}
    if len(rows) > 1:
        raise InputError(f"--target: files have {' and '.join(map(str, rows))} rows; give files of the same records.")
    records = next(iter(rows), bank.description.records)
    members = [read_members(path, records) for path in options.members] or [None] * len(odds_and_outputs)
    targets = tuple(
        RecordTarget(path.name, odds, row, stored)
        for path, (odds, stored), row in zip(options.target, odds_and_outputs, members, strict=True)
    )
    return targets, records


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
